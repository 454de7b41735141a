"""Ops that read and write at positions given as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import Expr
from assay.ir.dtypes import NUMERIC, TENSORS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import falls_short
from assay.ops.registry import op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import axis_of, need

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def indices(rng: Rng, bound: int, shape: Sequence[int]) -> Array:
    """Random positions within −bound … bound − 1."""
    return rng.integers(-bound, bound, size=tuple(shape)).astype(np.int64)


def _gather_shape(x: Fact, positions: Fact, *, axis: int) -> list[Shape]:
    if x.shape is None:
        return [None]
    axis = axis_of(axis, len(x.shape))
    if positions.shape is None:
        return [None]
    return [(*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :])]


@op(
    "T, i64 -> T",
    T=TENSORS,
    shape=_gather_shape,
    symbolic=(1,),
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (4, 3)), indices(rng, 4, (2, 2)), {"axis": 0}),
            (draw(rng, dtype, (2, 5)), indices(rng, 5, ()), {"axis": -1}),
            (draw(rng, dtype, (2, 5)), indices(rng, 5, (0,)), {"axis": 1}),
        ],
        1,
    ),
)
def gather(x: Array, positions: Array, *, axis: int) -> Array:
    """x[…, positions, …] along `axis`; positions count from the end if negative."""
    size = x.shape[axis]
    if not x.size and positions.size and not (-size <= positions.min() and positions.max() < size):
        raise IndexError(
            f"a position lies outside of an axis of size {size}"
        )  # NumPy looks at none where it takes none
    return np.take(x, positions, axis=axis)


def _indexed(x: Array, positions: Array, *batch: Array) -> tuple[Array, tuple[Array, ...]]:
    """A view of x and the index of it for positions[…, :], behind those of the batch; without numbers they mean all."""
    first = np.zeros(positions.shape[:-1], np.int64)
    return x[None], (first, *batch, *np.moveaxis(positions, -1, 0))


def _gather_nd_shape(x: Fact, positions: Fact, *, batch_dims: int) -> list[Shape]:
    rest = _sliced(x, positions, batch_dims)
    return [None if rest is None or positions.shape is None else (*positions.shape[:-1], *rest)]


def _sliced(x: Fact, positions: Fact, shared: int = 0) -> Shape:
    """The axes of x behind those that positions[…, :] and `shared` ones before name; None if nobody knows."""
    if positions.shape is not None and len(positions.shape) <= shared:
        raise ValueError(f"positions of shape {list(positions.shape)} have no axis of coordinates")
    if x.shape is None or positions.shape is None:
        return None
    need("the shared part of the positions", positions.shape[:shared], x.shape[:shared])
    count = positions.shape[-1]
    if isinstance(count, Expr):
        return None
    if shared + count > len(x.shape):
        raise ValueError(f"positions of {count} numbers do not fit a tensor of rank {len(x.shape)}")
    return x.shape[shared + count :]


@op(
    "T, i64 -> T",
    T=TENSORS,
    shape=_gather_nd_shape,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (4, 4, 3)), indices(rng, 4, (5, 2)), {"batch_dims": 0}),
            (draw(rng, dtype, (2, 4, 3)), indices(rng, 3, (2, 5, 1)), {"batch_dims": 1}),
            (draw(rng, dtype, (3, 3)), indices(rng, 3, (2, 2, 2)), {"batch_dims": 0}),
        ],
        1,
    ),
)
def gather_nd(x: Array, positions: Array, *, batch_dims: int = 0) -> Array:
    """x[positions[…, 0], positions[…, 1], …]; the first `batch_dims` axes are shared by both."""
    batch: list[Array] = list(np.ogrid[tuple(slice(d) for d in positions.shape[:batch_dims])]) if batch_dims else []
    spread = [grid.reshape(grid.shape + (1,) * (positions.ndim - 1 - batch_dims)) for grid in batch]
    whole, index = _indexed(x, positions, *spread)
    return whole[index]


_SCATTERS: dict[str, Callable[[Array, Any, Array], Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def _scatter_nd(x: Array, positions: Array, updates: Array, *, reduction: str = "none") -> Array:
    result = x.copy()
    whole, index = _indexed(result, positions)
    if reduction == "none":
        whole[index] = updates[()]  # of rank 0, an array of dims would itself become an element
    else:
        _SCATTERS[reduction](whole, index, updates)
    return result


def _scatter_dims(x: Array, positions: Array, updates: Array, *, reduction: str) -> Array | None:
    unknown = reduction in ("min", "max") or any(isinstance(item, Expr) for item in positions.reshape(-1).tolist())
    return None if unknown else _scatter_nd(x, positions.astype(np.int64), updates, reduction=reduction)


def _scatter_shape(x: Fact, positions: Fact, updates: Fact, *, reduction: str = "none") -> list[Shape]:
    rest = _sliced(x, positions)
    if rest is not None and positions.shape is not None:
        need("the tensor of updates", updates.shape, (*positions.shape[:-1], *rest))
    return [x.shape]


def _scatter_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (4, 4, 3)), np.array([[0, 1], [3, 2]]), draw(rng, dtype, (2, 3)), {"reduction": "none"}
    yield draw(rng, dtype, (5,)), np.array([[4], [-4]]), draw(rng, dtype, (2,)), {"reduction": "none"}
    if dtype in NUMERIC:
        for reduction in _SCATTERS:
            yield draw(rng, dtype, (5,)), np.array([[1], [1], [4]]), draw(rng, dtype, (3,)), {"reduction": reduction}


@op(
    "T, i64, T -> T",
    T=TENSORS,
    shape=_scatter_shape,
    symbolic=_scatter_dims,
    samples=listed(_scatter_samples, 1),
)
def scatter_nd(x: Array, positions: Array, updates: Array, *, reduction: str = "none") -> Array:
    """x with `updates` written, or combined (add, mul, min, max) in order, at positions[…, :]."""
    return _scatter_nd(x, positions, updates, reduction=reduction)


def full_positions(b: Builder, positions: Any, axis: int) -> Any:
    """For positions along one axis, the same as complete coordinates of every element."""
    rank = b.rank(positions)
    shape = b.shape_of(positions)
    grids: list[Any] = []
    for i in range(rank):
        count = b.size(positions, i)
        line = b.iota(count if isinstance(count, int) else b.reshape(count, []))
        spread = b.reshape(line, b.vector(*(-1 if j == i else 1 for j in range(rank))))
        grids.append(positions if i == axis else b.expand(spread, shape))
    return b.concat(*(b.unsqueeze(grid, axes=(rank,)) for grid in grids), axis=rank)


def _gather_elements_shape(x: Fact, positions: Fact, *, axis: int) -> list[Shape]:
    _check_elements(x, positions, axis)
    return [positions.shape]


def _check_elements(x: Fact, positions: Fact, axis: int) -> None:
    """ValueError where positions along `axis` surely are more than there are elements along another one."""
    if x.shape is None or positions.shape is None:
        return
    if len(x.shape) != len(positions.shape):
        raise ValueError(f"positions of rank {len(positions.shape)} do not fit a tensor of rank {len(x.shape)}")
    axis = axis_of(axis, len(x.shape))
    others = [(a, b) for i, (a, b) in enumerate(zip(x.shape, positions.shape, strict=True)) if i != axis]
    if 0 not in positions.shape and any(falls_short(a - b, 0) for a, b in others):
        raise ValueError(f"positions of shape {list(positions.shape)} do not fit a tensor of shape {list(x.shape)}")


def _gather_elements_parts(b: Builder, x: Any, positions: Any, *, axis: int) -> Any:
    return b.gather_nd(x, full_positions(b, positions, axis_of(axis, b.rank(x))))


@op(
    "T, i64 -> T",
    T=TENSORS,
    shape=_gather_elements_shape,
    parts=_gather_elements_parts,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (4, 3)), indices(rng, 4, (2, 3)), {"axis": 0}),
            (draw(rng, dtype, (4, 3)), indices(rng, 3, (2, 5)), {"axis": -1}),
        ],
        1,
    ),
)
def gather_elements(x: Array, positions: Array, *, axis: int) -> Array:
    """result[i, j, …] = x[i, positions[i, j, …], …] with the position at `axis`."""
    return x[element_index(positions, axis_of(axis, x.ndim))]


def element_index(positions: Array, axis: int) -> tuple[Array, ...]:
    """An index that reads positions along one axis and every other coordinate as it is."""
    grid = list(np.ogrid[tuple(slice(d) for d in positions.shape)])
    grid[axis] = positions
    return tuple(grid)


def _scatter_elements_shape(
    x: Fact, positions: Fact, updates: Fact, *, axis: int, reduction: str = "none"
) -> list[Shape]:
    _check_elements(x, positions, axis)
    need("the tensor of updates", updates.shape, positions.shape)
    return [x.shape]


def _scatter_elements_parts(b: Builder, x: Any, positions: Any, updates: Any, *, axis: int, reduction: str) -> Any:
    return b.scatter_nd(x, full_positions(b, positions, axis_of(axis, b.rank(x))), updates, reduction=reduction)


def _scatter_elements_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (4, 3)), np.array([[0, 2, 1]]), draw(rng, dtype, (1, 3)), {"axis": 0, "reduction": "none"}
    if dtype in NUMERIC:
        for reduction in _SCATTERS:
            attrs = {"axis": 1, "reduction": reduction}
            yield draw(rng, dtype, (2, 3)), np.array([[0, 0], [-1, 1]]), draw(rng, dtype, (2, 2)), attrs


@op(
    "T, i64, T -> T",
    T=TENSORS,
    shape=_scatter_elements_shape,
    parts=_scatter_elements_parts,
    samples=listed(_scatter_elements_samples, 1),
)
def scatter_elements(x: Array, positions: Array, updates: Array, *, axis: int, reduction: str = "none") -> Array:
    """x with updates[i, j, …] written, or combined, at [i, positions[i, j, …], …], the position at `axis`."""
    result = x.copy()
    index = element_index(positions, axis_of(axis, x.ndim))
    if reduction == "none":
        result[index] = updates
    else:
        _SCATTERS[reduction](result, index, updates)
    return result
