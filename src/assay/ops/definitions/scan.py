"""Running extremes and running sums of exponentials; running sums and products are among the reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.parts import scalar_size
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, along, draw
from assay.ops.shapes import along_axis, axis_of

if TYPE_CHECKING:
    from assay.ops.builder import Builder

Step = Callable[[Any, Any, Any, Any], Any]
"""`(builder, values now, values at the places before, whether there is such a place) -> values`."""


def _pair(x: Fact, *, axis: int) -> list[Shape]:
    return along_axis(x, axis=axis) * 2


def _doubling(b: Builder, x: Any, axis: int, start: tuple[Any, ...], step: Step) -> Any:
    """`start` after steps that look back 1, 2, 4 … places along `axis`, as far as there are any."""
    size = scalar_size(b, x, axis)
    line = b.iota(size)
    body = b.child()
    kinds = [TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ()), TensorType(dtypes.i64, ())]
    number, go, shift, *carried = (body.input(kind) for kind in (*kinds, *(b.fact(value).type for value in start)))
    before = [body.gather(value, body.max(body.sub(line, shift), 0), axis=axis) for value in carried]
    joined = step(body, carried, before, _along(body, body.le(shift, line), x, axis))
    twice = body.add(shift, shift)
    outputs = (body.lt(twice, size), twice, *joined)
    region = body.finish("doubling", (number, go, shift, *carried), outputs)
    return b.emit("loop", None, b.lt(1, size), b.constant(1, dtypes.i64), *start, regions=(region,))[1:]


def _along(b: Builder, line: Any, x: Any, axis: int) -> Any:
    """A vector as a tensor of the rank of x, its elements along `axis`."""
    return b.reshape(line, b.vector(*(-1 if i == axis else 1 for i in range(b.rank(x)))))


def _extreme_parts(b: Builder, x: Any, axis: int, compare: str) -> Any:
    axis = axis_of(axis, b.rank(x))

    def step(b: Builder, now: Any, before: Any, reached: Any) -> Any:
        later = b.emit(compare, now[0], before[0])[0]
        if b.dtype(now[0]).is_float:
            later = b.bit_or(later, b.is_nan(now[0]))
        return [b.where(later, mine, earlier) for mine, earlier in zip(now, before, strict=True)]

    places = b.expand(_along(b, b.iota(scalar_size(b, x, axis)), x, axis), b.shape_of(x))
    return _doubling(b, x, axis, (x, places), step)


def _max_parts(b: Builder, x: Any, *, axis: int) -> Any:
    return _extreme_parts(b, x, axis, "ge")


def _min_parts(b: Builder, x: Any, *, axis: int) -> Any:
    return _extreme_parts(b, x, axis, "le")


def _extreme(accumulate: Any, x: Array, axis: int) -> tuple[Array, Array]:
    axis = axis_of(axis, x.ndim)
    values = accumulate(x, axis=axis)
    line = np.expand_dims(np.arange(int(x.shape[axis])), tuple(i for i in range(x.ndim) if i != axis))
    reached = (x == values) | ((x != x) & (values != values))
    return values, np.maximum.accumulate(np.where(reached, line, 0), axis=axis)


def _extreme_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape, axis in [((3, 5), -1), ((4, 2, 3), 0), ((1,), 0), ((2, 0), 1), ((0, 3), 1)]:
        yield Sample((draw(rng, dtype, shape, -2, 2),), {"axis": axis})
    yield Sample((np.array([1, 2, 2, 0, 3, 3, 1]).astype(dtype.numpy),), {"axis": 0})
    if dtype.is_float:
        yield Sample((np.array([1, np.nan, 2, np.nan, np.inf], dtype.numpy),), {"axis": 0})


@op("T -> T, i64", T=NUMERIC, shape=_pair, parts=_max_parts, samples=_extreme_samples)
def cum_max(x: Array, *, axis: int) -> tuple[Array, Array]:
    """The largest element so far along `axis`, and where it lies last; a NaN stays from there on."""
    return _extreme(np.maximum.accumulate, x, axis)


@op("T -> T, i64", T=NUMERIC, shape=_pair, parts=_min_parts, samples=_extreme_samples)
def cum_min(x: Array, *, axis: int) -> tuple[Array, Array]:
    """The smallest element so far along `axis`, and where it lies last; a NaN stays from there on."""
    return _extreme(np.minimum.accumulate, x, axis)


def _log_sum_exp_parts(b: Builder, x: Any, *, axis: int) -> Any:
    axis = axis_of(axis, b.rank(x))

    def step(b: Builder, now: Any, before: Any, reached: Any) -> Any:
        earlier = b.where(reached, before[0], float("-inf"))
        peak = b.max(now[0], earlier)
        joined = b.add(peak, b.log1p(b.exp(b.neg(b.abs(b.sub(now[0], earlier))))))
        return [b.where(b.is_inf(peak), peak, joined)]

    return _doubling(b, x, axis, (x,), step)[0]


@op(
    "T -> T",
    T=FLOATS,
    shape=along_axis,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_log_sum_exp_parts,
    samples=along(),
)
def cum_log_sum_exp(x: Array, *, axis: int) -> Array:
    """log Σ eˣ of the elements so far along `axis`, without overflow."""
    return np.logaddexp.accumulate(x, axis=axis)
