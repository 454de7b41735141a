"""Linear quantisation: between floats and the integers or tiny floats that stand for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import ceildiv
from assay.ir.dtypes import FLOATS, TINY_FLOATS, TINY_INTEGERS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.definitions.convert import cast_array
from assay.ops.parts import sized
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, draw
from assay.ops.shapes import axis_of, need, need_to_broadcast, with_dim

if TYPE_CHECKING:
    from assay.ops.builder import Builder

QUANTIZED: tuple[DType, ...] = (
    dtypes.u8,
    dtypes.i8,
    dtypes.u16,
    dtypes.i16,
    *TINY_INTEGERS,
    *(d for d in TINY_FLOATS if d.name != "f8e8m0"),
)
"""What floats are quantised to."""


def _granularity(rank: int, params: int, axis: int, block: int) -> str:
    """How a scale or zero point of rank `params` belongs to a tensor of `rank`."""
    if block and params == rank:
        return "block"
    return "axis" if params and -rank <= axis < rank else "all"


def _spread(param: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """A scale or zero point so that it broadcasts against a tensor of `shape`."""
    rank, kind = len(shape), _granularity(len(shape), param.ndim, axis, block)
    if kind == "all" or param.size == 1:
        return param.reshape(())
    if kind == "axis":
        return param.reshape(-1, *(1,) * (rank - 1 - axis % rank))
    return np.take(param, np.arange(shape[axis]) // block, axis=axis)


def _spread_parts(b: Builder, param: Any, x: Any, axis: int, block: int) -> Any:
    rank, kind = b.rank(x), _granularity(b.rank(x), b.rank(param), axis, block)
    if kind == "all":
        return b.reshape(param, [])
    if kind == "axis":
        return b.reshape(param, (-1, *(1,) * (rank - 1 - axis % rank)))
    spread = b.gather(param, b.div(b.iota(b.reshape(b.vector(b.size(x, axis)), [])), block), axis=axis)
    return sized(b, spread, *((x, each) for each in range(rank)))


def _like_x(x: Fact, scale: Fact, zero: Fact | None = None, *, axis: int, block: int, **attrs: Any) -> list[Shape]:
    shape, rows = x.shape, scale.shape
    if rows is None:
        return [shape]
    if zero is not None and zero.shape is not None:
        need("the zero point", zero.shape or (1,), rows or (1,))
    if shape is None or rows in ((), (1,)):
        return [shape]
    if not block or len(rows) != len(shape):
        inside = not block and -len(shape) <= axis < len(shape)
        need_to_broadcast("the scale", rows, (shape[axis] if inside else 1,))
        return [shape]
    place = axis_of(axis, len(shape))
    need("the scale", rows, with_dim(shape, place, ceildiv(shape[place], block)))
    return [shape]


def _quantize_parts(
    b: Builder, x: Any, scale: Any, zero: Any = None, *, dtype: DType, axis: int, block: int, saturate: bool
) -> Any:
    quotient = b.div(x, _spread_parts(b, scale, x, axis, block))
    wide = dtypes.f64 if b.dtype(x) is dtypes.f64 else dtypes.f32
    whole = b.cast(b.round(quotient) if dtype.is_integer else quotient, dtype=wide)
    if zero is not None:
        whole = b.add(whole, b.cast(_spread_parts(b, zero, x, axis, block), dtype=wide))
    if not dtype.is_integer:
        return b.cast(whole, dtype=dtype, saturate=saturate)
    low, high = dtype.limits
    return b.cast(b.min(b.where(b.lt(low, whole), whole, low), high), dtype=dtype)


def _granular(rng: Rng, kind: DType, carried: DType) -> Iterable[tuple[Array, Array, Array, dict[str, Any]]]:
    """(shape holder, scale, zero point, attributes) for each granularity."""
    rows: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = [
        ((3, 4), (), 1, 0),
        ((5,), (1,), 1, 0),
        ((2, 3, 4), (3,), 1, 0),
        ((2, 3), (2,), -2, 0),
        ((2, 5), (2, 3), 1, 2),
        ((0, 2), (), 0, 0),
    ]
    for shape, param, axis, block in rows:
        scale = rng.uniform(0.25, 2.0, size=param)
        zero = draw(rng, carried, param, -2, 2)
        if carried.is_float:
            zero = np.zeros_like(zero)
        yield np.zeros(shape), np.asarray(scale).astype(kind.numpy), zero, {"axis": axis, "block": block}


def _quantize_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for index, target in enumerate(QUANTIZED):
        for row, (like, scale, zero, attrs) in enumerate(_granular(rng, dtype, target)):
            x = draw(rng, dtype, like.shape, -300, 300) if row % 2 else draw(rng, dtype, like.shape, -6, 6)
            given = (x, scale, zero) if (row + index) % 3 else (x, scale)
            yield Sample(given, {**attrs, "dtype": target}, fixed=(1,))
    special = np.array([np.inf, -np.inf, 0.5, 1.5, 2.5, -0.5, -1.5, 1e4])
    yield Sample((special.astype(dtype.numpy), np.array(1.0).astype(dtype.numpy)), {"dtype": dtypes.i8}, fixed=(1,))


@op(
    "T, T, Q? -> @dtype",
    T=FLOATS,
    Q=QUANTIZED,
    shape=_like_x,
    parts=_quantize_parts,
    samples=_quantize_samples,
)
def quantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    dtype: DType,
    axis: int = 1,
    block: int = 0,
    saturate: bool = True,
) -> Array:
    """saturate(round(x / scale) + zero) as `dtype`: the quotient in x's dtype, rounded half to even (for tiny floats
    by the conversion itself), clamped to the range; NaN becomes the lowest integer. One scale for all, for each
    index of `axis`, or for each `block` along it. Tiny floats overflow only without `saturate`."""
    quotient = (x / _spread(scale, x.shape, axis, block)).astype(np.float64)
    offset = 0.0 if zero is None else _spread(zero, x.shape, axis, block).astype(np.float64)
    if not dtype.is_integer:
        return cast_array(quotient + offset, dtype, saturate=saturate)
    low, high = dtype.limits
    return cast_array(np.fmin(np.fmax(np.rint(quotient) + offset, low), high), dtype)


def _dequantize_parts(b: Builder, x: Any, scale: Any, zero: Any = None, *, dtype: DType, axis: int, block: int) -> Any:
    wide = dtypes.f64 if dtypes.f64 in (dtype, b.dtype(scale)) else dtypes.f32
    value = b.cast(x, dtype=wide)
    if zero is not None:
        value = b.sub(value, b.cast(_spread_parts(b, zero, x, axis, block), dtype=wide))
    return b.cast(b.mul(value, b.cast(_spread_parts(b, scale, x, axis, block), dtype=wide)), dtype=dtype)


def _dequantize_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for index, kind in enumerate(FLOATS):
        for row, (like, scale, zero, attrs) in enumerate(_granular(rng, kind, dtype)):
            x = draw(rng, dtype, like.shape, -120, 120) if dtype.is_integer else draw(rng, dtype, like.shape, -3, 3)
            given = (x, scale, zero) if (row + index) % 3 else (x, scale)
            yield Sample(given, {**attrs, "dtype": FLOATS[(index + row) % 4]})


@op(
    "Q, S, Q? -> @dtype",
    Q=(*QUANTIZED, dtypes.i32),
    S=FLOATS,
    shape=_like_x,
    parts=_dequantize_parts,
    compute=Compute.WIDE,
    tolerance=Tolerance.ROUNDED,
    samples=_dequantize_samples,
)
def dequantize_linear(
    x: Array, scale: Array, zero: Array | None = None, *, dtype: DType, axis: int = 1, block: int = 0
) -> Array:
    """(x − zero) · scale as `dtype`; scales and zero points as in `quantize_linear`."""
    value = x.astype(np.float64)
    if zero is not None:
        value = value - _spread(zero, x.shape, axis, block).astype(np.float64)
    return value * _spread(scale, x.shape, axis, block)


def _dynamic_parts(b: Builder, x: Any) -> tuple[Any, Any, Any]:
    high, low = b.max(b.reduce_max(x), 0.0), b.min(b.reduce_min(x), 0.0)
    span = b.sub(high, low)
    scale = b.where(b.eq(span, 0.0), 1.0, b.div(span, 255.0))
    zero = b.cast(b.round(b.clip(b.neg(b.div(low, scale)), 0.0, 255.0)), dtype=dtypes.u8)
    return b.quantize_linear(x, scale, zero, dtype=dtypes.u8), scale, zero


def _dynamic_shape(x: Fact) -> list[Shape]:
    return [x.shape, (), ()]


def _dynamic_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    shapes: list[tuple[int, ...]] = [(3, 4), (5,), (2, 2), (0,), (), (2,)]
    ranges = [(-4, 4), (1, 2), (-3, -1), (0, 1), (2, 3), (0, 0)]
    for shape, (low, high) in zip(shapes, ranges, strict=True):
        yield Sample((draw(rng, dtype, shape, low, high),))


@op(
    "T -> u8, T, u8",
    T=(dtypes.f32, dtypes.f64),
    shape=_dynamic_shape,
    parts=_dynamic_parts,
    samples=_dynamic_samples,
)
def dynamic_quantize(x: Array) -> tuple[Array, Array, Array]:
    """x as u8 with the scale and zero point that its own range, zero included, asks for: (y, scale, zero).
    Where the range is empty the scale is one."""
    high, low = x.max(initial=0.0), x.min(initial=0.0)
    span = np.asarray(high - low)
    scale = np.where(span == 0, np.ones_like(span), span / np.asarray(255.0, x.dtype))
    zero = np.rint(np.clip(-low / scale, 0.0, 255.0))
    y = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return y, scale, np.asarray(zero).astype(np.uint8)
