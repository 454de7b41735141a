"""Reductions, running sums, sorting and what is built on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import COMPLEX, FLOATS, NUMERIC, Array, DType, boolean, i64, u64
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, along, draw, listed, reducing
from assay.ops.shapes import along_axis, axes_of, axis_of, reduced, with_dim

if TYPE_CHECKING:
    from assay.ops.builder import Builder

ORDERED = (*NUMERIC, boolean)
ADDABLE = (*NUMERIC, *COMPLEX)


def _summing(rng: Rng, dtype: DType) -> Iterable[Sample]:
    yield from reducing(rng, dtype)
    if dtype.is_float:
        for axes in ((1,), (0, 2), None):
            for batch in (2, 0):
                yield Sample((draw(rng, dtype, (batch, 9, 3), -2, 2),), {"axes": axes, "accumulate": dtype})


@op(
    "T -> T",
    T=ADDABLE,
    shape=reduced,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    symbolic=True,
    samples=_summing,
)
def reduce_sum(
    x: Array, *, axes: Sequence[int] | None = None, keepdims: bool = False, accumulate: DType | None = None
) -> Array:
    """The sum over `axes` (None: all). Partial sums of floats are kept in f64 and rounded once; with `accumulate`
    elements are added one after the other and every partial sum is rounded to that dtype."""
    counted = axes_of(axes, x.ndim)
    if accumulate is None or accumulate is dtypes.f64:
        return np.add.reduce(x, axis=counted, dtype=x.dtype, keepdims=keepdims)
    kept = tuple(axis for axis in range(x.ndim) if axis not in counted)
    shape = (*(x.shape[axis] for axis in kept), math.prod(x.shape[axis] for axis in counted))
    rows = x.astype(accumulate.numpy).transpose((*kept, *counted)).reshape(shape)
    total = np.add.accumulate(rows, axis=-1)[..., -1] if rows.shape[-1] else np.zeros(rows.shape[:-1])
    return np.expand_dims(total, counted) if keepdims else total


@op(
    "T -> T",
    T=ADDABLE,
    shape=reduced,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    symbolic=True,
    samples=reducing,
)
def reduce_prod(x: Array, *, axes: Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """The product over `axes` (None: all)."""
    return np.multiply.reduce(x, axis=axes_of(axes, x.ndim), dtype=x.dtype, keepdims=keepdims)


def lowest_of(dtype: np.dtype[Any]) -> Any:
    """What a maximum over nothing is: −∞, or the smallest integer."""
    if dtype.kind == "b":
        return False
    kind = dtypes.of(np.empty(0, dtype))
    return -np.inf if kind.is_float else kind.limits[0]


def highest_of(dtype: np.dtype[Any]) -> Any:
    """What a minimum over nothing is: ∞, or the largest integer."""
    if dtype.kind == "b":
        return True
    kind = dtypes.of(np.empty(0, dtype))
    return np.inf if kind.is_float else kind.limits[1]


@op("T -> T", T=ORDERED, shape=reduced, samples=reducing)
def reduce_max(x: Array, *, axes: Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """The largest element over `axes`; NaN if one is; over nothing the lowest value there is."""
    initial = np.asarray(lowest_of(x.dtype), x.dtype)
    return np.maximum.reduce(x, axis=axes_of(axes, x.ndim), keepdims=keepdims, initial=initial)


@op("T -> T", T=ORDERED, shape=reduced, samples=reducing)
def reduce_min(x: Array, *, axes: Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """The smallest element over `axes`; NaN if one is; over nothing the highest value there is."""
    initial = np.asarray(highest_of(x.dtype), x.dtype)
    return np.minimum.reduce(x, axis=axes_of(axes, x.ndim), keepdims=keepdims, initial=initial)


def _averaging(rng: Rng, dtype: DType) -> Iterable[Sample]:
    yield from reducing(rng, dtype)
    if dtype.is_integer:
        yield Sample((draw(rng, dtype, (300,), 1, 100),), {"axes": None, "keepdims": False})


def count_parts(b: Builder, x: Any, axes: Sequence[int] | None) -> Any:
    """The number of elements that a reduction over `axes` takes in, as a scalar of the dtype of `x`."""
    rank = b.rank(x)
    sizes = [b.size(x, axis) for axis in axes_of(axes, rank)]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes):
        return b.constant(np.prod(known, dtype=np.int64), b.dtype(x))
    return b.cast(b.reduce_prod(b.vector(*sizes)), dtype=b.dtype(x))


def _mean_parts(b: Builder, x: Any, *, axes: Sequence[int] | None, keepdims: bool) -> Any:
    own = b.dtype(x)
    if _sum_dtype(own) is not own:
        wide = b.cast(x, dtype=_sum_dtype(own))
        return b.cast(_mean_parts(b, wide, axes=axes, keepdims=keepdims), dtype=own)
    return b.div(b.reduce_sum(x, axes=axes, keepdims=keepdims), count_parts(b, x, axes))


def _sum_dtype(dtype: DType) -> DType:
    """What holds the sum of a mean: its own dtype, for integers the longest."""
    return {"int": i64, "uint": u64}.get(dtype.kind, dtype)


@op(
    "T -> T",
    T=ADDABLE,
    shape=reduced,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_mean_parts,
    samples=_averaging,
)
def reduce_mean(x: Array, *, axes: Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """The mean over `axes`; integers are summed up in 64 bits and truncate."""
    counted = axes_of(axes, x.ndim)
    count = int(np.prod([x.shape[axis] for axis in counted], dtype=np.int64))
    total = np.add.reduce(x, axis=counted, dtype=_sum_dtype(dtypes.of(x)).numpy, keepdims=keepdims)
    if x.dtype.kind in "fc":
        return np.divide(total, count)
    return np.asarray(np.sign(total) * (np.abs(total) // max(count, 1))).astype(x.dtype)


def _arg_shape(x: Fact, *, axis: int, keepdims: bool) -> list[Shape]:
    return reduced(x, axes=(axis,), keepdims=keepdims)


_ARG_SAMPLES = listed(
    lambda rng, dtype: [
        (draw(rng, dtype, (3, 4)), {"axis": 1, "keepdims": False}),
        (draw(rng, dtype, (3, 4)), {"axis": -2, "keepdims": True}),
        (draw(rng, dtype, (5,)), {"axis": 0, "keepdims": False}),
        (draw(rng, dtype, (0, 0, 2)), {"axis": 1, "keepdims": True}),
    ]
)


def _place_of(find: Any, x: Array, axis: int, keepdims: bool) -> Array:
    """NumPy refuses an axis without elements even if there are no places to give."""
    sizes = [size for place, size in enumerate(x.shape) if place != axis_of(axis, x.ndim)]
    if 0 not in sizes:
        return find(x, axis=axis, keepdims=keepdims)
    return np.zeros_like(x, np.int64).sum(axis=axis, keepdims=keepdims)


@op("T -> i64", T=NUMERIC, shape=_arg_shape, samples=_ARG_SAMPLES)
def arg_max(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    """Where the first largest element lies along `axis`."""
    return _place_of(np.argmax, x, axis, keepdims)


def _arg_min_parts(b: Builder, x: Any, *, axis: int, keepdims: bool) -> Any:
    mirrored = b.neg(x) if b.dtype(x).is_float else b.bit_not(x)
    return b.arg_max(mirrored, axis=axis, keepdims=keepdims)


@op("T -> i64", T=NUMERIC, shape=_arg_shape, parts=_arg_min_parts, samples=_ARG_SAMPLES)
def arg_min(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    """Where the first smallest element lies along `axis`."""
    return _place_of(np.argmin, x, axis, keepdims)


@op(
    "T -> T",
    T=ADDABLE,
    shape=along_axis,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    symbolic=True,
    samples=along(),
)
def cum_sum(x: Array, *, axis: int) -> Array:
    """Running sums along `axis`, from 0 on: none is −0."""
    return np.cumsum(x, axis=axis, dtype=x.dtype) + np.zeros((), x.dtype)


@op(
    "T -> T",
    T=ADDABLE,
    shape=along_axis,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    symbolic=True,
    samples=along(),
)
def cum_prod(x: Array, *, axis: int) -> Array:
    """Running products along `axis`."""
    return np.cumprod(x, axis=axis, dtype=x.dtype)


def sort_order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort along `axis`, ties in order of position; NaN counts as the largest."""
    if x.dtype.kind not in "fiub":  # NumPy sorts the NaNs of its own floats alone
        x = x.astype(np.float32)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    mirrored = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(mirrored, axis)


def _sort_shape(x: Fact, *, axis: int, descending: bool) -> list[Shape]:
    return along_axis(x, axis=axis) * 2


@op(
    "T -> T, i64",
    T=ORDERED,
    shape=_sort_shape,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (3, 5)), {"axis": axis, "descending": descending})
            for axis in (0, -1)
            for descending in (False, True)
        ]
    ),
)
def sort(x: Array, *, axis: int, descending: bool = False) -> tuple[Array, Array]:
    """x sorted along `axis`, and where each element came from; stable, NaN counts as the largest."""
    order = sort_order(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


def _topk_shape(x: Fact, k: Fact, *, axis: int, largest: bool) -> list[Shape]:
    count = UNKNOWN if k.value is None else k.value.reshape(-1).tolist()[0]
    return [with_dim(x.shape, axis, count)] * 2


def _topk_parts(b: Builder, x: Any, k: Any, *, axis: int, largest: bool) -> Any:
    results, count = b.emit("sort", x, axis=axis, descending=largest), b.reshape(k, [1])
    fits = b.bit_and(b.le(0, count), b.le(count, b.vector(b.size(x, axis))))
    b.require(fits, message="an axis has fewer elements than are asked for, or less than none are")
    return tuple(b.slice(result, [0], count, [1], axes=(axis,)) for result in results)


@op(
    "T, i64 -> T, i64",
    T=ORDERED,
    ranks={"k": 0},
    shape=_topk_shape,
    parts=_topk_parts,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (3, 5)), np.array(k), {"axis": axis, "largest": largest})
            for k, axis, largest in [(2, -1, True), (3, 0, False), (0, 1, True)]
        ],
        1,
    ),
)
def topk(x: Array, k: Array, *, axis: int, largest: bool = True) -> tuple[Array, Array]:
    """The first k elements of the sorted axis and where they came from; ties by position."""
    axis = axis_of(axis, x.ndim)
    count = int(k)
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k = {count} of an axis of size {x.shape[axis]}")
    order = np.take(sort_order(x, axis, largest), np.arange(count), axis=axis)
    return np.take_along_axis(x, order, axis), order


def _nonzero_shape(x: Fact) -> list[Shape]:
    if x.shape is None:
        return [(UNKNOWN, UNKNOWN)]
    if not x.shape:
        raise ValueError("a scalar has no positions")
    count = UNKNOWN if x.concrete is None else int(np.count_nonzero(x.concrete))
    return [(len(x.shape), count)]


@op(
    "T -> i64",
    T=ORDERED,
    shape=_nonzero_shape,
    samples=lambda rng, dtype: [Sample((draw(rng, dtype, s, -1, 1),)) for s in [(3, 4), (6,)]],
)
def nonzero(x: Array) -> Array:
    """The positions of the elements that are not zero: one row an axis, one column a position, in order."""
    return np.array(np.nonzero(x), dtype=np.int64).reshape(x.ndim, -1)


def _log_sum_exp_parts(b: Builder, x: Any, *, axes: Sequence[int] | None, keepdims: bool) -> Any:
    peak = b.reduce_max(x, axes=axes, keepdims=True)
    finite = b.where(b.is_inf(peak), 0.0, peak)
    total = b.add(b.log(b.reduce_sum(b.exp(b.sub(x, finite)), axes=axes, keepdims=True)), finite)
    return total if keepdims else b.squeeze(total, axes=axes_of(axes, b.rank(x)))


@op(
    "T -> T",
    T=FLOATS,
    shape=reduced,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_log_sum_exp_parts,
    samples=reducing,
)
def log_sum_exp(x: Array, *, axes: Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """log Σ eˣ over `axes`, without overflow."""
    counted = axes_of(axes, x.ndim)
    peak = np.max(x, axis=counted, keepdims=True, initial=-np.inf)
    finite = np.where(np.isinf(peak), 0.0, peak)
    total = np.log(np.sum(np.exp(x - finite), axis=counted, keepdims=True)) + finite
    return total if keepdims else total.squeeze(counted)
