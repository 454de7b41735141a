"""Ops that move data without computing: shapes, slices, paddings, joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, ceildiv, dim_max, dim_min, le, lt
from assay.ir.dtypes import TENSORS, Array
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, falls_short
from assay.ops.registry import Sample, op
from assay.ops.samples import draw, listed
from assay.ops.shapes import (
    axes_of,
    axis_of,
    broadcast,
    clamp_length,
    length,
    need,
    requested,
    resolve_reshape,
    same,
    unknown,
)

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def vector(*items: int) -> Array:
    """An i64 tensor of rank 1."""
    return np.array(items, dtype=np.int64)


def as_shape(shape: Array) -> tuple[int, ...]:
    """The content of a shape operand as a tuple."""
    return tuple(int(d) for d in shape)


# --- shapes as data


def _shape_of_shape(x: Fact) -> list[Shape]:
    return [(UNKNOWN,) if x.shape is None else (len(x.shape),)]


def _shape_content(x: Fact) -> Array | None:
    if x.shape is None:
        return None
    content = np.empty(len(x.shape), dtype=object)
    content[:] = x.shape
    return content


@op(
    "T -> i64",
    T=TENSORS,
    shape=_shape_of_shape,
    content=_shape_content,
    samples=lambda rng, dtype: [Sample((draw(rng, dtype, shape),)) for shape in [(2, 3), (), (0, 4)]],
)
def shape_of(x: Array) -> Array:
    """The dims of x as an i64 vector."""
    return np.array(x.shape, dtype=np.int64)


def _iota_shape(count: Fact) -> list[Shape]:
    if count.value is None:
        return [(UNKNOWN,)]
    return [(dim_max(count.value.reshape(-1)[0] if count.value.dtype == object else int(count.value), 0),)]


@op(
    "i64 -> i64",
    ranks={"count": 0},
    shape=_iota_shape,
    samples=lambda rng, dtype: [Sample((np.array(n),), {}, (0,)) for n in (0, 5)],
)
def iota(count: Array) -> Array:
    """0, 1, … count − 1, for a scalar count."""
    return np.arange(int(count), dtype=np.int64)


# --- reshapes


def _reshape_shape(x: Fact, shape: Fact) -> list[Shape]:
    return [resolve_reshape(x.shape, unknown(length(shape)) if shape.dims is None else shape.dims)]


@op(
    "T, i64 -> T",
    T=TENSORS,
    ranks={"shape": 1},
    shape=_reshape_shape,
    symbolic=(1,),
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (2, 6)), vector(3, 4), {}),
            (draw(rng, dtype, (2, 6)), vector(-1, 2), {}),
            (draw(rng, dtype, ()), vector(1, 1), {}),
            (draw(rng, dtype, (0, 3)), vector(3, 0), {}),
        ],
        1,
    ),
)
def reshape(x: Array, shape: Array) -> Array:
    """x in row-major order under another shape, in which one −1 stands for the dim that fits."""
    return x.reshape(as_shape(shape))


def _transpose_shape(x: Fact, *, perm: Sequence[int]) -> list[Shape]:
    if x.shape is None:
        return [unknown(len(perm))]
    if sorted(perm) != list(range(len(x.shape))):
        raise ValueError(f"{list(perm)} is no permutation of {len(x.shape)} axes")
    return [tuple(x.shape[axis] for axis in perm)]


@op(
    "T -> T",
    T=TENSORS,
    shape=_transpose_shape,
    symbolic=True,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (2, 3, 4)), {"perm": (2, 0, 1)}),
            (draw(rng, dtype, (2, 3)), {"perm": (1, 0)}),
            (draw(rng, dtype, ()), {"perm": ()}),
        ]
    ),
)
def transpose(x: Array, *, perm: Sequence[int]) -> Array:
    """x with its axes in the order `perm`."""
    return x.transpose(tuple(perm))


def _expand_shape(x: Fact, shape: Fact) -> list[Shape]:
    return [broadcast([x.shape, requested(shape)])]


@op(
    "T, i64 -> T",
    T=TENSORS,
    ranks={"shape": 1},
    shape=_expand_shape,
    symbolic=(1,),
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (3, 1)), vector(2, 3, 4), {}),
            (draw(rng, dtype, ()), vector(2, 2), {}),
            (draw(rng, dtype, (2, 3)), vector(1, 3), {}),
            (draw(rng, dtype, (1,)), vector(0), {}),
        ],
        1,
    ),
)
def expand(x: Array, shape: Array) -> Array:
    """x broadcast together with `shape`."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, as_shape(shape)))


def unsqueezed(x: Fact, *, axes: Sequence[int]) -> list[Shape]:
    """The shape rule of `unsqueeze`."""
    if x.shape is None:
        return [None]
    rank = len(x.shape) + len(axes)
    new = axes_of(axes, rank)
    rest = iter(x.shape)
    return [tuple(1 if i in new else next(rest) for i in range(rank))]


def _unsqueeze_parts(b: Builder, x: Any, *, axes: Sequence[int]) -> Any:
    rank = b.rank(x) + len(axes)
    new = axes_of(axes, rank)
    rest = iter(range(b.rank(x)))
    return b.reshape(x, b.vector(*(1 if i in new else b.size(x, next(rest)) for i in range(rank))))


@op(
    "T -> T",
    T=TENSORS,
    shape=unsqueezed,
    symbolic=True,
    parts=_unsqueeze_parts,
    samples=listed(
        lambda rng, dtype: [(draw(rng, dtype, (2, 3)), {"axes": (0, -1)}), (draw(rng, dtype, ()), {"axes": (0,)})]
    ),
)
def unsqueeze(x: Array, *, axes: Sequence[int]) -> Array:
    """x with new axes of size one at the positions `axes` of the result."""
    return np.expand_dims(x, axes_of(axes, x.ndim + len(axes)))


def _squeezed(x: Fact, *, axes: Sequence[int] | None) -> list[Shape]:
    if x.shape is None:
        return [None]
    if axes is None:
        undecided = any(isinstance(d, Expr) and lt(1, d) is not True for d in x.shape)
        return [None if undecided else tuple(d for d in x.shape if d != 1)]
    gone = axes_of(axes, len(x.shape))
    if any(differ(x.shape[i], 1) for i in gone):
        raise ValueError(f"axes {list(axes)} of shape {list(x.shape)} are not all of size one")
    return [tuple(d for i, d in enumerate(x.shape) if i not in gone)]


def _squeeze_parts(b: Builder, x: Any, *, axes: Sequence[int] | None) -> Any:
    dims = b.static_shape(x) if axes is None else b.dims(x)
    gone = [i for i, d in enumerate(dims) if d == 1] if axes is None else axes_of(axes, len(dims))
    return b.reshape(x, b.vector(*(b.size(x, i) for i in range(len(dims)) if i not in gone)))


@op(
    "T -> T",
    T=TENSORS,
    shape=_squeezed,
    symbolic=True,
    parts=_squeeze_parts,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (1, 3, 1)), {"axes": (0, -1)}),
            (draw(rng, dtype, (1, 3, 1)), {"axes": None}),
            (draw(rng, dtype, (1,)), {"axes": (0,)}),
        ]
    ),
)
def squeeze(x: Array, *, axes: Sequence[int] | None = None) -> Array:
    """x without the axes of size one that `axes` names, or without all of them."""
    return x.squeeze(axis=None if axes is None else axes_of(axes, x.ndim))


# --- slices and paddings


def _slice_dim(dim: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    if not isinstance(step, int) or step == 0:
        return UNKNOWN
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end, step).indices(dim)))
    if step < 0:
        return UNKNOWN
    low, high = _position(dim, start), _position(dim, end)
    return ceildiv(clamp_length(high - low), step)


def _position(dim: Dim, index: Dim) -> Dim:
    """Where a slice bound falls within 0 … dim."""
    if isinstance(index, int) and index >= 2**31 - 1:
        return dim
    if le(0, index) is True:
        return dim_min(index, dim)
    if lt(index, 0) is True:
        return dim_max(dim + index, 0)
    return UNKNOWN


def _slice_shape(x: Fact, starts: Fact, ends: Fact, steps: Fact, *, axes: Sequence[int]) -> list[Shape]:
    if x.shape is None:
        return [None]
    shape: list[Dim] = list(x.shape)
    for name, fact in (("starts", starts), ("ends", ends), ("steps", steps)):
        need(f"the vector of {name}", fact.shape, (len(axes),))
    bounds = [fact.dims or (UNKNOWN,) * len(axes) for fact in (starts, ends, steps)]
    if 0 in bounds[2]:
        raise ValueError("a slice has the step 0")
    low, high, stride = bounds
    for i, axis in enumerate(axes_of(axes, len(shape))):
        shape[axis] = _slice_dim(shape[axis], low[i], high[i], stride[i])
    return [tuple(shape)]


@op(
    "T, i64, i64, i64 -> T",
    T=TENSORS,
    name="slice",
    ranks={"starts": 1, "ends": 1, "steps": 1},
    shape=_slice_shape,
    symbolic=(
        1,
        2,
        3,
    ),
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (5, 4)), vector(1, 0), vector(4, 3), vector(2, 1), {"axes": (0, 1)}),
            (draw(rng, dtype, (5, 4)), vector(-1), vector(-100), vector(-1), {"axes": (0,)}),
            (draw(rng, dtype, (5,)), vector(3), vector(1), vector(1), {"axes": (-1,)}),
            (draw(rng, dtype, (5,)), vector(-3), vector(2**62), vector(2), {"axes": (0,)}),
        ],
        1,
        2,
        3,
    ),
)
def slice_(x: Array, starts: Array, ends: Array, steps: Array, *, axes: Sequence[int]) -> Array:
    """x[start:end:step] along each of `axes`, bounds as in Python."""
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes_of(axes, x.ndim), starts, ends, steps, strict=True):
        index[axis] = slice(int(start), int(end), int(step))
    return x[tuple(index)]


def _flip_shape(x: Fact, *, axes: Sequence[int]) -> list[Shape]:
    if x.shape is not None:
        axes_of(axes, len(x.shape))
    return [x.shape]


def _flip_parts(b: Builder, x: Any, *, axes: Sequence[int]) -> Any:
    n = len(axes)
    return b.slice(x, [-1] * n, [-(2**62)] * n, [-1] * n, axes=axes)


@op(
    "T -> T",
    T=TENSORS,
    shape=_flip_shape,
    symbolic=True,
    parts=_flip_parts,
    samples=listed(
        lambda rng, dtype: [(draw(rng, dtype, (2, 3)), {"axes": (1,)}), (draw(rng, dtype, (2, 3)), {"axes": (0, -1)})]
    ),
)
def flip(x: Array, *, axes: Sequence[int]) -> Array:
    """x reversed along `axes`."""
    return np.flip(x, axes_of(axes, x.ndim))


def _pad_shape(x: Fact, pads: Fact, value: Fact) -> list[Shape]:
    if x.shape is None:
        return [unknown(None if length(pads) is None else (length(pads) or 0) // 2)]
    rank = len(x.shape)
    need("the vector of paddings", pads.shape, (2 * rank,))
    if pads.dims is None:
        return [unknown(rank)]
    padded = tuple(before + d + after for before, d, after in zip(pads.dims, x.shape, pads.dims[rank:], strict=False))
    if any(falls_short(d, 0) for d in padded):
        raise ValueError(f"padding {list(x.shape)} by {list(pads.dims)} leaves a negative size")
    return [padded]


@op(
    "T, i64, T -> T",
    T=TENSORS,
    ranks={"pads": 1, "value": 0},
    shape=_pad_shape,
    symbolic=(1,),
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (2, 3)), vector(1, 0, 0, 2), draw(rng, dtype, ()), {}),
            (draw(rng, dtype, (4, 3)), vector(-1, 1, 0, -1), draw(rng, dtype, ()), {}),
            (draw(rng, dtype, ()), vector(), draw(rng, dtype, ()), {}),
        ],
        1,
    ),
)
def pad(x: Array, pads: Array, value: Array) -> Array:
    """x with `value` put around it: `pads` has a count before each axis, then one after each; negative counts crop."""
    amounts = as_shape(pads)
    before, after = amounts[: x.ndim], amounts[x.ndim :]
    cuts = [slice(max(-lo, 0), d - max(-hi, 0)) for d, lo, hi in zip(x.shape, before, after, strict=True)]
    kept = x[(..., *cuts)]
    shape = [d + lo + hi for d, lo, hi in zip(x.shape, before, after, strict=True)]
    result = np.full(shape, value, dtype=x.dtype)
    places = [slice(max(lo, 0), max(lo, 0) + d) for lo, d in zip(before, kept.shape, strict=True)]
    result[(..., *places)] = kept
    return result


# --- joins and splits


def _same_dim(a: Dim, b: Dim) -> Dim:
    if differ(a, b):
        raise ValueError(f"dims {a} and {b} differ")
    return b if isinstance(a, Expr) and not (isinstance(b, Expr) and b is UNKNOWN) else a


def _concat_shape(*xs: Fact, axis: int) -> list[Shape]:
    known = [x.shape for x in xs if x.shape is not None]
    if not known:
        return [None]
    rank = len(known[0])
    if any(len(shape) != rank for shape in known):
        raise ValueError(f"tensors of ranks {[len(shape) for shape in known]} are joined")
    axis = axis_of(axis, rank)
    if len(known) < len(xs):
        return [unknown(rank)]
    joined = list(known[0])
    for shape in known[1:]:
        joined = [a + b if i == axis else _same_dim(a, b) for i, (a, b) in enumerate(zip(joined, shape, strict=True))]
    return [tuple(joined)]


@op(
    "T* -> T",
    T=TENSORS,
    shape=_concat_shape,
    symbolic=True,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (2, 3)), draw(rng, dtype, (2, 1)), {"axis": 1}),
            (draw(rng, dtype, (2,)), draw(rng, dtype, (0,)), draw(rng, dtype, (3,)), {"axis": -1}),
        ]
    ),
)
def concat(*xs: Array, axis: int) -> Array:
    """The inputs one after the other along `axis`."""
    return np.concatenate(xs, axis=axis)


def _split_shape(x: Fact, *, sizes: Sequence[int], axis: int) -> list[Shape]:
    if x.shape is None:
        return [None] * len(sizes)
    axis = axis_of(axis, len(x.shape))
    if differ(x.shape[axis], sum(sizes)) or any(size < 0 for size in sizes):
        raise ValueError(f"an axis of size {x.shape[axis]} is split into {list(sizes)}")
    return [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]


def _split_parts(b: Builder, x: Any, *, sizes: Sequence[int], axis: int) -> Any:
    ends = np.cumsum(sizes).tolist()
    if not isinstance(b.size(x, axis), int):
        b.require(
            b.eq(b.size(x, axis), sum(sizes)), message="an axis is split into pieces of another size than its own"
        )
    return tuple(b.slice(x, [end - size], [end], [1], axes=(axis,)) for size, end in zip(sizes, ends, strict=True))


@op(
    "T -> T",
    T=TENSORS,
    shape=_split_shape,
    symbolic=True,
    parts=_split_parts,
    samples=listed(lambda rng, dtype: [(draw(rng, dtype, (2, 5)), {"sizes": (2, 0, 3), "axis": 1})]),
)
def split(x: Array, *, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    """x cut along `axis` into pieces of the given sizes: one result a piece."""
    axis = axis_of(axis, x.ndim)
    if sum(sizes) != x.shape[axis]:
        raise ValueError(f"an axis of size {x.shape[axis]} is split into {list(sizes)}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _tile_shape(x: Fact, repeats: Fact) -> list[Shape]:
    if x.shape is None:
        return [unknown(length(repeats))]
    need("the vector of repeats", repeats.shape, (len(x.shape),))
    if repeats.dims is None:
        return [unknown(len(x.shape))]
    return [tuple(d * r for d, r in zip(x.shape, repeats.dims, strict=True))]


def _tile_parts(b: Builder, x: Any, repeats: Any) -> Any:
    rank = b.rank(x)
    spread = b.unsqueeze(x, axes=tuple(range(0, 2 * rank, 2)))
    pairs = b.reshape(b.concat(b.unsqueeze(repeats, axes=(1,)), b.expand(1, b.vector(rank, 1)), axis=1), [-1])
    return b.reshape(b.expand(spread, pairs), b.mul(b.shape_of(x), repeats))


@op(
    "T, i64 -> T",
    T=TENSORS,
    ranks={"repeats": 1},
    shape=_tile_shape,
    symbolic=(1,),
    parts=_tile_parts,
    samples=listed(
        lambda rng, dtype: [(draw(rng, dtype, (2, 3)), vector(2, 3), {}), (draw(rng, dtype, (2,)), vector(0), {})], 1
    ),
)
def tile(x: Array, repeats: Array) -> Array:
    """x repeated `repeats[i]` times along axis i."""
    return np.tile(x, as_shape(repeats))


# --- windows and triangles


_BYTES = frozenset(d.numpy for d in dtypes.ALL if d.is_float and d.bits <= 8)
"""Carriers that NumPy's window views do not take as they are."""


def window_count(size: Dim, span: Dim, stride: int) -> Dim:
    """How many windows there are along an axis, perhaps none; ValueError if it is too short by more than a stride."""
    if falls_short(size - span + stride, 0):
        raise ValueError(f"a window of {span} does not fit into an axis of size {size}")
    return (size - span) // stride + 1


def sliding_windows(x: Array, spans: Sequence[int], axes: Sequence[int]) -> Array:
    """NumPy's view of all windows; of an axis that is too short there are none."""
    if all(x.shape[axis] >= span for axis, span in zip(axes, spans, strict=True)):
        return np.lib.stride_tricks.sliding_window_view(x, tuple(spans), tuple(axes))
    shape = list(x.shape)
    for axis, span in zip(axes, spans, strict=True):
        shape[axis] = max(shape[axis] - span + 1, 0)
    return np.zeros((*shape, *spans), x.dtype)


def _window_shape(x: Fact, *, axis: int, size: int, stride: int, dilation: int) -> list[Shape]:
    if x.shape is None:
        return [None]
    axis = axis_of(axis, len(x.shape))
    span = (size - 1) * dilation + 1
    return [(*x.shape[:axis], window_count(x.shape[axis], span, stride), size, *x.shape[axis + 1 :])]


def _window_parts(b: Builder, x: Any, *, axis: int, size: int, stride: int, dilation: int) -> Any:
    axis = axis_of(axis, b.rank(x))
    length_ = b.size(x, axis)
    span = (size - 1) * dilation + 1
    count = (
        (length_ - span) // stride + 1
        if isinstance(length_, int)
        else b.div(b.add(length_, stride - span), stride)  # which is not negative, so that both kinds of rounding agree
    )
    scalar = count if isinstance(count, int) else b.reshape(count, [])
    starts = b.unsqueeze(b.mul(b.iota(scalar), stride), axes=(1,))
    return b.gather(x, b.add(starts, np.arange(size) * dilation), axis=axis)


@op(
    "T -> T",
    T=TENSORS,
    shape=_window_shape,
    parts=_window_parts,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (2, 7)), {"axis": 1, "size": 3, "stride": 2, "dilation": 1}),
            (draw(rng, dtype, (7, 2)), {"axis": 0, "size": 2, "stride": 1, "dilation": 3}),
        ]
    ),
)
def window(x: Array, *, axis: int, size: int, stride: int = 1, dilation: int = 1) -> Array:
    """All windows of `size` elements along `axis`: their number takes the axis's place, their content follows it."""
    axis = axis_of(axis, x.ndim)
    span = (size - 1) * dilation + 1
    bits = x.view(np.uint8) if x.dtype in _BYTES else x
    views = sliding_windows(bits, (span,), (axis,))[..., ::dilation]
    return np.moveaxis(views, -1, axis + 1)[(slice(None),) * axis + (slice(None, None, stride),)].view(x.dtype)


def _trilu_shape(x: Fact, k: Fact, *, upper: bool) -> list[Shape]:
    if x.shape is not None and len(x.shape) < 2:
        raise ValueError(f"a triangle needs two axes, and there are {len(x.shape)}")
    return same(x, k)


def _trilu_parts(b: Builder, x: Any, k: Any, *, upper: bool) -> Any:
    rank = b.rank(x)
    rows, columns = (b.size(x, axis) for axis in (rank - 2, rank - 1))
    as_scalar = [n if isinstance(n, int) else b.reshape(n, []) for n in (rows, columns)]
    row, column = b.unsqueeze(b.iota(as_scalar[0]), axes=(1,)), b.iota(as_scalar[1])
    shifted = b.add(row, k)
    keep = b.le(shifted, column) if upper else b.le(column, shifted)
    return b.where(keep, x, b.cast(0, dtype=b.dtype(x)) if b.dtype(x) is not dtypes.string else "")


@op(
    "T, i64 -> T",
    T=tuple(d for d in TENSORS if d is not dtypes.string),
    ranks={"k": 0},
    shape=_trilu_shape,
    parts=_trilu_parts,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (3, 4)), np.array(k), {"upper": upper}) for k in (-1, 0, 1, 7) for upper in (True, False)
        ],
        1,
    ),
)
def trilu(x: Array, k: Array, *, upper: bool) -> Array:
    """The upper or lower triangle of the last two axes, counted from diagonal k; zero elsewhere."""
    rows = np.arange(int(x.shape[-2]))[:, None] + int(k)
    columns = np.arange(int(x.shape[-1]))
    return np.where(rows <= columns if upper else columns <= rows, x, np.zeros((), x.dtype))
