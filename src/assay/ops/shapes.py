"""Symbolic shape rules that several ops share. A rule may say UNKNOWN, never something wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay.ir.dims import UNKNOWN, Dim, dim_max, dim_min, eq, floordiv, le, mod, product
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, must_broadcast


def same(x: Fact, *others: Fact | None, **attrs: Any) -> list[Shape]:
    """The result has the shape of the first input."""
    return [x.shape]


def broadcasting(*facts: Fact, **attrs: Any) -> list[Shape]:
    """NumPy's broadcasting over all inputs."""
    return [broadcast(fact.shape for fact in facts)]


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """The shape that all of `shapes` broadcast to; ValueError where they surely do not."""
    result: tuple[Dim, ...] = ()
    for shape in shapes:
        if shape is None:
            return None
        if shape == result:
            continue
        rank = max(len(result), len(shape))
        left = (1,) * (rank - len(result)) + result
        right = (1,) * (rank - len(shape)) + shape
        result = tuple(broadcast_dim(a, b) for a, b in zip(left, right, strict=True))
    return result


def need(what: str, shape: Shape, wanted: Shape) -> None:
    """ValueError where `what` surely has another shape than it must have; UNKNOWN stands for any size."""
    if _other(shape, wanted):
        raise ValueError(f"{what} of shape {list(shape or ())} is given where {list(wanted or ())} is needed")


def need_to_broadcast(what: str, shape: Shape, wanted: Shape) -> None:
    """ValueError where `what` surely does not broadcast to `wanted`."""
    if shape is not None and wanted is not None and _other(broadcast([shape, wanted]), wanted):
        raise ValueError(f"{what} of shape {list(shape)} does not broadcast to {list(wanted)}")


def _other(shape: Shape, wanted: Shape) -> bool:
    """True if a shape surely is not the wanted one."""
    if shape is None or wanted is None:
        return False
    pairs = [(a, b) for a, b in zip(shape, wanted, strict=False) if b is not UNKNOWN]
    return len(shape) != len(wanted) or any(differ(a, b) for a, b in pairs)


def need_multiple(what: str, size: Dim, of: int) -> None:
    """ValueError where a size surely does not divide by a number."""
    if of != 1 and differ(mod(size, of), 0):
        raise ValueError(f"{what} has the size {size}, which does not divide by {of}")


_FOLLOWED = 160
"""Characters of two sizes. What longer ones broadcast to is unknown: sizes made of it would be too involved."""


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The dim that two aligned dims broadcast to."""
    if eq(a, b) is True:
        return a
    if isinstance(a, int) and isinstance(b, int):
        if a != 1 and b != 1:
            raise ValueError(f"dims {a} and {b} do not broadcast")
        return b if a == 1 else a
    if a == 1 or b == 1:
        return b if a == 1 else a
    must_broadcast(a, b)
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    if a is UNKNOWN or b is UNKNOWN:
        return UNKNOWN
    if le(2, a) or le(2, b):
        return a if le(2, a) else b
    if len(str(a)) + len(str(b)) > _FOLLOWED:
        return UNKNOWN
    return dim_max(a, b) * dim_min(a, b, 1)  # 0 and 1 give 0


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from the front; ValueError if it is outside of `rank`."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, None for all of them; ValueError if one repeats."""
    if axes is None:
        return tuple(range(rank))
    counted = tuple(axis_of(axis, rank) for axis in axes)
    if len(set(counted)) != len(counted):
        raise ValueError(f"axes {tuple(axes)} name an axis twice")
    return counted


def reduced(x: Fact, *, axes: Sequence[int] | None = None, keepdims: bool = False, **attrs: Any) -> list[Shape]:
    """The shape of `x` with `axes` made one or dropped."""
    if x.shape is None:
        return [() if axes is None and not keepdims else None]
    gone = axes_of(axes, len(x.shape))
    if keepdims:
        return [tuple(1 if i in gone else d for i, d in enumerate(x.shape))]
    return [tuple(d for i, d in enumerate(x.shape) if i not in gone)]


def along_axis(x: Fact, *, axis: int, **attrs: Any) -> list[Shape]:
    """The shape of `x`, whose `axis` must exist."""
    if x.shape is not None:
        axis_of(axis, len(x.shape))
    return [x.shape]


def with_dim(shape: Shape, axis: int, dim: Dim) -> Shape:
    """`shape` with one dim replaced."""
    if shape is None:
        return None
    axis = axis_of(axis, len(shape))
    return (*shape[:axis], dim, *shape[axis + 1 :])


def unknown(rank: int | None) -> Shape:
    """A shape of which at most the rank is known."""
    return None if rank is None else (UNKNOWN,) * rank


def length(fact: Fact) -> int | None:
    """The number of elements of a one-dimensional tensor, None if unknown."""
    if fact.shape is None or len(fact.shape) != 1:
        return None
    return fact.shape[0] if isinstance(fact.shape[0], int) else None


def requested(shape: Fact) -> Shape:
    """The shape that an operand holds; ValueError for a dim that is surely negative."""
    dims = shape.dims
    if dims is None:
        return unknown(length(shape))
    if any(le(d, -1) is True for d in dims):
        raise ValueError(f"shape {list(dims)} has a negative dim")
    return dims


def resolve_reshape(source: Shape, target: Shape) -> Shape:
    """The shape after a reshape to `target`, in which one -1 stands for the dim that fits."""
    if target is None:
        return None
    if sum(d == -1 for d in target) > 1:
        raise ValueError(f"a reshape to {list(target)} leaves more than one dim open")
    if any(le(d, -2) is True for d in target):
        raise ValueError(f"a reshape to {list(target)} has a negative dim")
    total: Dim = UNKNOWN if source is None else product(source)
    holes = [i for i, d in enumerate(target) if not _is_size(d, source)]
    rest = product(d for i, d in enumerate(target) if i not in holes)
    if not holes and differ(rest, total):
        raise ValueError(f"{total} elements do not fit into the shape {list(target)}")
    if len(holes) == 1 and isinstance(rest, int) and isinstance(total, int):
        fits = total % rest == 0 if rest else total == 0 and target[holes[0]] != -1
        if not fits:
            raise ValueError(f"{total} elements do not fit into the shape {list(target)}")
    dim = UNKNOWN if len(holes) > 1 or rest == 0 else floordiv(total, rest)
    return tuple(dim if i in holes else d for i, d in enumerate(target))


def _is_size(dim: Dim, source: Shape) -> bool:
    """False for a dim of a reshape's target that is -1, or may turn out to be; the dims of a tensor never are."""
    return le(0, dim) is True or (dim is not UNKNOWN and source is not None and dim in source)


def clamp_length(dim: Dim) -> Dim:
    """A computed length, never below zero."""
    return dim_max(dim, 0)
