"""ONNX ops that move data or describe shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from assay.frontends.onnx.ops.common import as_i64, axes_operand, ints_or_value, product_of_sizes, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.frontends.onnx.types import dtype_of
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim
from assay.ir.graph import Value
from assay.ops.parts import check_among, size_quotient
from assay.ops.registry import FactMissing
from assay.ops.shapes import axes_of


@onnx_op("Identity")
def identity(b: Builder, n: Source, x: Value) -> Results:
    return x


@onnx_op("Constant")
def constant(b: Builder, n: Source) -> Results:
    for name in ("value", "sparse_value"):
        if n.has(name):
            return b.constant(n.array(name))
    for kind, dtype in (("float", dtypes.f32), ("int", dtypes.i64), ("string", dtypes.string)):
        for name in (f"value_{kind}", f"value_{kind}s"):
            if n.has(name):
                return b.constant(n.attrs[name], dtype)
    raise ValueError("a Constant holds no value")


@onnx_op("ConstantOfShape")
def constant_of_shape(b: Builder, n: Source, shape: Value) -> Results:
    value = n.array("value", None)
    fill = b.constant(np.zeros((), np.float32) if value is None else value.reshape(()))
    return b.expand(fill, shape)


@onnx_op("Shape")
def shape(b: Builder, n: Source, x: Value) -> Results:
    dims = b.shape_of(x)
    start, end = n.int("start", 0), n.int("end", None)
    if start == 0 and end is None:
        return dims
    return b.slice(dims, [start], [2**62 if end is None else end], [1], axes=(0,))


@onnx_op("Size")
def size(b: Builder, n: Source, x: Value) -> Results:
    return b.reduce_prod(b.shape_of(x))


@onnx_op("Reshape")
def reshape(b: Builder, n: Source, x: Value, shape: Value) -> Results:
    """Unless `allowzero` is set, 0 copies a size, and -1 is what the sizes that are not copied leave: of empty tensors
    too."""
    dims = b.fact(shape).dims
    if n.flag("allowzero", 0) or (dims is not None and not _copied(b, x, dims)):
        return _as_asked(b, b.reshape(x, shape), shape, -1)
    wanted = _sizes_in_run(b, x, shape) if dims is None else _sizes(b, x, shape, dims)
    return _as_asked(b, b.reshape(x, wanted), wanted, -1)


def _as_asked(b: Builder, result: Value, shape: Value, free: int) -> Value:
    """The result, whose sizes may follow from its input where only a run knows what `shape` holds: a run in which that
    is neither the size nor `free` ends with an error."""
    own, length = b.shape(result), (b.shape(shape) or (UNKNOWN,))[0]
    if own is None or not isinstance(length, int):
        return result
    asked, first = b.fact(shape).dims or (UNKNOWN,) * length, len(own) - length
    if any(size is UNKNOWN and there is not UNKNOWN for size, there in zip(asked, own[first:], strict=True)):
        sizes = b.slice(b.shape_of(result), [first], [len(own)], [1], axes=(0,))
        fits = b.bit_or(b.eq(shape, free), b.eq(shape, sizes))
        b.require(fits, message=f"the sizes asked for are not those that fit, {[str(size) for size in own]}")
    return result


def _copied(b: Builder, x: Value, wanted: Sequence[Dim]) -> list[int]:
    """Which sizes a reshape leaves as they are: those that are 0, and those that were read off x."""
    own = b.shape(x) or ()
    same = [i for i, (new, old) in enumerate(zip(wanted, own, strict=False)) if not isinstance(old, int) and new == old]
    return [
        i for i, new in enumerate(wanted) if (isinstance(new, int) and new == 0) or (i in same and new is not UNKNOWN)
    ]


def _sizes(b: Builder, x: Value, shape: Value, wanted: Sequence[Dim]) -> Value:
    """The shape after a reshape to sizes that are known, as numbers or by name."""
    copied, rank = _copied(b, x, wanted), b.rank(x)
    if sum(isinstance(d, int) and d == -1 for d in wanted) > 1 or copied[-1] >= rank:
        raise ValueError(f"a tensor of rank {rank} has no shape {list(wanted)}")
    given = [d if isinstance(d, int) else b.gather(shape, [i], axis=0) for i, d in enumerate(wanted)]
    rest = product_of_sizes(b, x, [axis for axis in range(rank) if axis not in copied])
    others = [size for i, size in enumerate(given) if i not in copied and size != -1]
    free = _quotient(b, rest, others)
    return b.vector(*(b.size(x, i) if i in copied else free if d == -1 else d for i, d in enumerate(given)))


def _quotient(b: Builder, total: int | Value, sizes: Sequence[int | Value]) -> int | Value:
    numbers = [size for size in sizes if isinstance(size, int)]
    if isinstance(total, int) and len(numbers) == len(sizes):
        return total // math.prod(numbers)
    return b.div(total, b.reduce_prod(b.vector(*sizes), keepdims=True))


def _sizes_in_run(b: Builder, x: Value, shape: Value) -> Value:
    """The same for sizes of which only their number is known."""
    count = b.shape(shape)
    if count is None or not isinstance(count[0], int):
        raise FactMissing("the length of 'shape'")
    rank, own = b.rank(x), b.shape_of(x)
    copies, is_open = b.eq(shape, 0), b.eq(shape, -1)
    beyond = max(count[0], rank)
    kept = b.slice(b.pad(copies, [0, beyond - count[0]], False), [0], [rank], [1], axes=(0,))
    sizes = b.slice(b.pad(own, [0, beyond - rank], -2), [0], [count[0]], [1], axes=(0,))
    given = b.reduce_prod(b.where(b.bit_or(copies, is_open), 1, shape))
    free = b.div(b.reduce_prod(b.where(kept, 1, own)), b.max(given, 1))
    one = b.eq(b.reduce_sum(b.cast(is_open, dtype=dtypes.i64)), 1)
    return b.where(copies, sizes, b.where(b.bit_and(is_open, one), free, shape))


@onnx_op("Flatten")
def flatten(b: Builder, n: Source, x: Value) -> Results:
    rank = b.rank(x)
    axis = n.int("axis")
    axis = axis + rank if axis < 0 else axis
    if not 0 <= axis <= rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return b.reshape(x, b.vector(product_of_sizes(b, x, range(axis)), product_of_sizes(b, x, range(axis, rank))))


@onnx_op("Transpose")
def transpose(b: Builder, n: Source, x: Value) -> Results:
    perm = n.ints("perm", None)
    return b.transpose(x, perm=tuple(reversed(range(b.rank(x)))) if perm is None else perm)


@onnx_op("Squeeze")
def squeeze(b: Builder, n: Source, x: Value, axes: Value | None = None) -> Results:
    return b.squeeze(x, axes=axes_operand(b, n, axes))


@onnx_op("Unsqueeze")
def unsqueeze(b: Builder, n: Source, x: Value, axes: Value | None = None) -> Results:
    given = axes_operand(b, n, axes)
    if given is None:
        raise ValueError("Unsqueeze needs its axes")
    return b.unsqueeze(x, axes=given)


@onnx_op("Expand")
def expand(b: Builder, n: Source, x: Value, shape: Value) -> Results:
    return _as_asked(b, b.expand(x, shape), shape, 1)


@onnx_op("Tile")
def tile(b: Builder, n: Source, x: Value, repeats: Value) -> Results:
    return b.tile(x, as_i64(b, repeats))


@onnx_op("Concat")
def concat(b: Builder, n: Source, *xs: Value) -> Results:
    return b.concat(*xs, axis=n.int("axis", 1))


@onnx_op("Split")
def split(b: Builder, n: Source, x: Value, sizes: Value | None = None) -> Results:
    axis = n.int("axis", 0)
    given = b.ints(sizes, "split") if sizes is not None else n.ints("split", None)
    if given is not None:
        return b.emit("split", x, sizes=given, axis=axis)
    count = n.int("num_outputs", n.results)
    total = b.dims(x)[axis]
    if not isinstance(total, int):
        raise FactMissing("the size of the axis that is split")
    each = -(-total // count)
    pieces = [max(0, min(each, total - i * each)) for i in range(count)]
    return b.emit("split", x, sizes=tuple(pieces), axis=axis)


@onnx_op("Slice")
def slice_attributes(b: Builder, n: Source, x: Value) -> Results:
    starts, ends = n.ints("starts"), n.ints("ends")
    axes = n.ints("axes", None) or tuple(range(len(starts)))
    return b.slice(x, starts, ends, [1] * len(starts), axes=axes)


@onnx_op("Slice", since=10)
def slice_(
    b: Builder, n: Source, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Results:
    shape = b.shape(starts)
    if axes is not None:
        along = b.ints(axes, "axes")
    elif shape is not None and isinstance(shape[0], int):
        along = tuple(range(shape[0]))
    else:
        raise FactMissing("the length of 'starts'")
    step = b.constant([1] * len(along), dtypes.i64) if steps is None else as_i64(b, steps)
    return b.slice(x, _first_places(b, x, as_i64(b, starts), step, along), as_i64(b, ends), step, axes=along)


def _first_places(b: Builder, x: Value, starts: Value, steps: Value, axes: Sequence[int]) -> Value:
    """Where slices start. One that goes back from before its axis starts at the first place, unlike in Python."""
    start, step = b.fact(starts).concrete, b.fact(steps).concrete
    if step is not None and bool(((step > 0) | (False if start is None else start >= -1)).all()):
        return starts
    sizes = b.gather(b.shape_of(x), [axis % b.rank(x) for axis in axes], axis=0)
    return b.where(b.lt(steps, 0), b.max(starts, b.neg(sizes)), starts)


@onnx_op("Pad")
def pad(
    b: Builder, n: Source, x: Value, pads: Value | None = None, value: Value | None = None, axes: Value | None = None
) -> Results:
    amounts = ints_or_value(b, n, pads, "pads")
    assert amounts is not None
    if axes is not None:
        amounts = _spread_pads(b, amounts, b.ints(axes, "axes"), b.rank(x))
    mode = n.str("mode")
    if mode != "constant":
        check_among("mode", mode, ("constant", *_SOURCES))
        return _pad_by_position(b, x, amounts, _SOURCES[mode])
    return b.pad(x, amounts, scalar(b, value) if value is not None else _zero(b, x, n.float("value", 0.0)))


def _zero(b: Builder, x: Value, value: float = 0.0) -> Value:
    """The scalar that a tensor is filled with by default."""
    dtype = b.dtype(x)
    return b.constant("" if dtype is dtypes.string else value, dtype)


def _spread_pads(b: Builder, amounts: Value, axes: tuple[int, ...], rank: int) -> Value:
    """Amounts for some axes as amounts for all."""
    places = [[axis + side] for side in (0, rank) for axis in axes_of(axes, rank)]
    return b.scatter_nd(np.zeros(2 * rank, np.int64), places, amounts)


def _nearest_inside(b: Builder, at: Value, size: Value) -> Value:
    return b.clip(at, 0, b.sub(size, 1))


def _around(b: Builder, at: Value, size: Value) -> Value:
    return b.mod(at, size)


def _mirrored(b: Builder, at: Value, size: Value) -> Value:
    period = b.mul(b.sub(size, 1), 2)
    folded = b.mod(at, period)
    return b.min(folded, b.sub(period, folded))


_SOURCES = {"edge": _nearest_inside, "wrap": _around, "reflect": _mirrored}
"""Per padding mode, which element of an axis of some size stands at a position outside of it."""


def _pad_by_position(b: Builder, x: Value, amounts: Value, source: Callable[[Builder, Value, Value], Value]) -> Value:
    """Padding whose content comes from x itself, what negative amounts crop aside: a gather along each axis."""
    rank, known = b.rank(x), b.fact(amounts).concrete
    if known is None or (known < 0).any():
        x, amounts = b.pad(x, b.min(amounts, 0), _zero(b, x)), b.max(amounts, 0)
    for axis in range(rank):
        if known is not None and max(known[axis], known[axis + rank]) <= 0:
            continue
        before, after = (b.gather(amounts, place, axis=0) for place in (axis, axis + rank))
        size = scalar(b, b.vector(b.size(x, axis)))
        line = b.sub(b.iota(b.add(size, b.add(before, after))), before)
        x = b.gather(x, source(b, line, size), axis=axis)
    return x


@onnx_op("Cast")
def cast(b: Builder, n: Source, x: Value) -> Results:
    return _cast(b, n, x, dtype_of(n.int("to")))


@onnx_op("CastLike")
def cast_like(b: Builder, n: Source, x: Value, like: Value) -> Results:
    return _cast(b, n, x, b.dtype(like))


def _cast(b: Builder, n: Source, x: Value, dtype: dtypes.DType) -> Value:
    if dtype is b.dtype(x):
        return x
    return b.cast(x, dtype=dtype, saturate=n.flag("saturate", 1), rounding=n.str("round_mode", "up"))


@onnx_op("BitCast")
def bit_cast(b: Builder, n: Source, x: Value) -> Results:
    return b.bitcast(x, dtype=dtype_of(n.int("to")))


@onnx_op("Gather")
def gather(b: Builder, n: Source, x: Value, positions: Value) -> Results:
    return b.gather(x, as_i64(b, positions), axis=n.int("axis"))


@onnx_op("GatherElements")
def gather_elements(b: Builder, n: Source, x: Value, positions: Value) -> Results:
    return b.gather_elements(x, as_i64(b, positions), axis=n.int("axis"))


@onnx_op("GatherND")
def gather_nd(b: Builder, n: Source, x: Value, positions: Value) -> Results:
    return b.gather_nd(x, positions, batch_dims=n.int("batch_dims", 0))


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(b: Builder, n: Source, x: Value, positions: Value, updates: Value) -> Results:
    return b.scatter_elements(
        x, as_i64(b, positions), updates, axis=n.int("axis"), reduction=n.str("reduction", "none")
    )


@onnx_op("ScatterND")
def scatter_nd(b: Builder, n: Source, x: Value, positions: Value, updates: Value) -> Results:
    return b.scatter_nd(x, positions, updates, reduction=n.str("reduction", "none"))


@onnx_op("NonZero")
def nonzero(b: Builder, n: Source, x: Value) -> Results:
    return b.nonzero(x)


@onnx_op("Trilu")
def trilu(b: Builder, n: Source, x: Value, k: Value | None = None) -> Results:
    return b.trilu(x, b.constant(0, dtypes.i64) if k is None else scalar(b, k), upper=n.flag("upper"))


@onnx_op("Range")
def range_(b: Builder, n: Source, start: Value, limit: Value, delta: Value) -> Results:
    dtype = b.dtype(start)
    if dtype.is_integer:
        wide = [as_i64(b, scalar(b, v)) for v in (start, limit, delta)]
        _require(b, b.ne(wide[2], 0), "a range has the step 0")
        span = b.sub(wide[1], wide[0])
        count = b.neg(size_quotient(b, b.neg(span), wide[2]))
    else:
        wide = [b.cast(scalar(b, v), dtype=dtypes.f64) for v in (start, limit, delta)]
        quotient = b.div(b.sub(wide[1], wide[0]), wide[2])
        _require(b, b.eq(b.sub(quotient, quotient), 0.0), "a range has no finite number of steps")
        count = b.cast(b.ceil(quotient), dtype=dtypes.i64)
    steps = b.cast(b.iota(b.max(count, 0)), dtype=b.dtype(wide[0]))
    return b.cast(b.add(wide[0], b.mul(steps, wide[2])), dtype=dtype)


def _require(b: Builder, condition: Value, message: str) -> None:
    """An error where a condition does not hold: now if that is known, else when the program runs."""
    known = b.fact(condition).concrete
    if known is None:
        b.require(condition, message=message)
    elif not known.all():
        raise ValueError(message)


@onnx_op("EyeLike")
def eye_like(b: Builder, n: Source, x: Value) -> Results:
    dtype = n.dtype("dtype") if n.has("dtype") else b.dtype(x)
    rows, columns = (scalar(b, b.vector(b.size(x, axis))) for axis in (0, 1))
    diagonal = b.eq(b.add(b.unsqueeze(b.iota(rows), axes=(1,)), n.int("k")), b.iota(columns))
    return b.cast(diagonal, dtype=dtype)


@onnx_op("OneHot")
def one_hot(b: Builder, n: Source, positions: Value, depth: Value, values: Value) -> Results:
    if not b.rank(positions):
        raise ValueError("OneHot wants at least one axis of indices")
    rank = b.rank(positions) + 1
    axis = n.int("axis") % rank
    count = b.cast(scalar(b, depth), dtype=dtypes.i64)
    _require(b, b.lt(0, count), "OneHot has no classes: its depth is not positive")
    wanted = b.unsqueeze(b.cast(positions, dtype=dtypes.i64), axes=(axis,))
    wrapped = b.where(b.lt(wanted, 0), b.add(wanted, count), wanted)
    line = b.reshape(b.iota(count), [-1 if i == axis else 1 for i in range(rank)])
    off, on = (b.gather(values, i, axis=0) for i in (0, 1))
    return b.where(b.eq(wrapped, line), on, off)


@onnx_op("Compress")
def compress(b: Builder, n: Source, x: Value, condition: Value) -> Results:
    kept = b.reshape(b.nonzero(condition), [-1])
    axis = n.int("axis", None)
    return b.gather(b.reshape(x, [-1]), kept, axis=0) if axis is None else b.gather(x, kept, axis=axis)


@onnx_op("DepthToSpace")
def depth_to_space(b: Builder, n: Source, x: Value) -> Results:
    size = n.int("blocksize")
    batch, channels, height, width = (b.size(x, i) for i in range(4))
    rest = _over(b, channels, size * size)
    if n.str("mode", "DCR") == "DCR":
        blocks, perm = b.vector(batch, size, size, rest, height, width), (0, 3, 4, 1, 5, 2)
    else:
        blocks, perm = b.vector(batch, rest, size, size, height, width), (0, 1, 4, 2, 5, 3)
    mixed = b.transpose(b.reshape(x, blocks), perm=perm)
    return b.reshape(mixed, b.vector(batch, rest, _times(b, height, size), _times(b, width, size)))


@onnx_op("SpaceToDepth")
def space_to_depth(b: Builder, n: Source, x: Value) -> Results:
    size = n.int("blocksize")
    batch, channels, height, width = (b.size(x, i) for i in range(4))
    low = [_over(b, height, size), _over(b, width, size)]
    perm = (0, 3, 5, 1, 2, 4) if n.str("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    mixed = b.transpose(b.reshape(x, b.vector(batch, channels, low[0], size, low[1], size)), perm=perm)
    return b.reshape(mixed, b.vector(batch, _times(b, channels, size * size), *low))


def _times(b: Builder, n: int | Value, factor: int) -> int | Value:
    return n * factor if isinstance(n, int) else b.mul(n, factor)


def _over(b: Builder, n: int | Value, divisor: int) -> int | Value:
    return n // divisor if isinstance(n, int) else b.div(n, divisor)
