"""Pooling: one number out of each window over the spatial axes.

Every pooling op takes x (N, C, …) and describes its windows alike: `kernel`, `strides`, `pads` (a count before each
spatial axis, then one after each), `dilations`, and `ceil`, which admits a last window that reaches beyond the padding
as long as it begins within x or the padding before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import Dim, ceildiv, dim_min
from assay.ir.dtypes import FLOATS, NUMERIC, Array, DType, i64
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import falls_short
from assay.ops.definitions.reduction import lowest_of
from assay.ops.registry import Compute, Sample, Samples, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import unknown

if TYPE_CHECKING:
    from assay.ops.builder import Builder


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """The windows along one axis."""

    kernel: int
    stride: int
    before: int
    after: int
    dilation: int
    ceil: bool

    @property
    def span(self) -> int:
        """How far one window reaches."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def extra(self) -> int:
        """How far a last window may reach beyond the padding."""
        return self.stride - 1 if self.ceil else 0

    def count(self, size: Dim) -> Dim:
        """The number of windows over an axis of `size`; ValueError if it is too short by more than a stride."""
        free = size + self.before + self.after - self.span
        begun = ceildiv(size + self.before, self.stride)
        count = dim_min(ceildiv(free, self.stride) + 1, begun) if self.ceil else free // self.stride + 1
        if falls_short(count, 0):
            raise ValueError(f"a window of {self.span} does not fit into an axis of size {size}")
        return count

    def number(self, size: int) -> int:
        """The number of windows over an axis of known size."""
        count = self.count(size)
        assert isinstance(count, int)
        return count

    def reach(self, size: int) -> int:
        """The length of the padded axis that the windows cover."""
        count = self.number(size)
        return (count - 1) * self.stride + self.span if count else 0

    def taps(self, count: int) -> Iterable[slice]:
        """For each place of a window, where `count` windows have it on the padded axis."""
        for start in range(0, self.span, self.dilation):
            yield slice(start, start + (count - 1) * self.stride + 1 if count else start, self.stride)


def lines(
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool,
    **attrs: Any,
) -> list[WindowAxis]:
    """The windows axis by axis; ValueError where the lists do not fit one another."""
    rank = len(kernel)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ValueError(f"windows over {rank} axes need as many strides and dilations, and twice as many pads")
    if any(n < 1 for n in (*kernel, *strides, *dilations)) or any(n < 0 for n in pads):
        raise ValueError("windows have sizes, strides and dilations of one or more and no negative padding")
    return [WindowAxis(kernel[i], strides[i], pads[i], pads[i + rank], dilations[i], ceil) for i in range(rank)]


def pooled(x: Fact, **windows: Any) -> list[Shape]:
    """The shape rule of every pooling op."""
    along = lines(**windows)
    if x.shape is None:
        return [unknown(len(along) + 2)]
    if len(x.shape) != len(along) + 2:
        raise ValueError(f"windows over {len(along)} axes got the shape {list(x.shape)}")
    return [(*x.shape[:2], *(line.count(size) for line, size in zip(along, x.shape[2:], strict=True)))]


# --- what the references share


def _padded(x: Array, along: Sequence[WindowAxis], fill: Any) -> Array:
    """x with `fill` around it, cut or extended to what the windows cover."""
    sizes = tuple(line.reach(d) for line, d in zip(along, x.shape[2:], strict=True))
    inner = x[(..., *(slice(max(size - line.before, 0)) for size, line in zip(sizes, along, strict=True)))]
    if inner.shape[2:] == sizes:
        return inner
    result = np.full((*x.shape[:2], *sizes), fill, dtype=x.dtype)
    place = (slice(line.before, line.before + d) for line, d in zip(along, inner.shape[2:], strict=True))
    result[(..., *place)] = inner
    return result


def _fold(x: Array, along: Sequence[WindowAxis], fill: Any, combine: Callable[..., Any]) -> Array:
    """The places of each window combined by a ufunc, one axis after the other."""
    result = _padded(x, along, fill)
    for axis, line in enumerate(along, start=2):
        first, *rest = [(slice(None),) * axis + (tap,) for tap in line.taps(line.number(x.shape[axis]))]
        folded = result[first].copy() if rest else result[first]
        for tap in rest:
            combine(folded, result[tap], out=folded)
        result = folded
    return result


def _keep_larger(best: Array, item: Array, *, out: Array) -> None:
    """The larger of two, the first of equal zeros; NaN if either is."""
    np.copyto(out, item, where=(item > best) | (item != item))


def _counts(sizes: Sequence[int], along: Sequence[WindowAxis], include_pad: bool) -> Array:
    """How many elements the windows over axes of these sizes hold, as (out, …)."""
    total = np.ones((), np.float64)
    for line, size in zip(along, sizes, strict=True):
        member = np.zeros(max(line.before + size + line.after, line.reach(size)))
        member[slice(0, line.before + size + line.after) if include_pad else slice(line.before, line.before + size)] = 1
        held = sum(member[tap] for tap in line.taps(line.number(size)))
        total = total[..., None] * held
    return total


# --- what the decompositions share


def _windows(b: Builder, x: Any, line: WindowAxis, axis: int, size: Any) -> Any:
    """The windows over one padded axis, whose size without padding is `size`: (…, count, kernel, …)."""
    views = b.window(x, axis=axis, size=line.kernel, stride=line.stride, dilation=line.dilation)
    if not line.ceil or line.after + line.extra < line.span:
        return views
    if isinstance(size, int):
        limit = -(-(size + line.before) // line.stride)
    else:
        limit = b.div(b.add(b.add(size, line.before), line.extra), line.stride)
    return b.slice(views, [0], b.vector(limit), [1], axes=(axis,))


def _pad_parts(b: Builder, x: Any, along: Sequence[WindowAxis], fill: Any, beyond: Any) -> Any:
    """x padded by `fill`, and by `beyond` where a last window reaches further."""
    before, after = [line.before for line in along], [line.after for line in along]
    padded = b.pad(x, (0, 0, *before, 0, 0, *after), fill) if any((*before, *after)) else x
    extra = [line.extra for line in along]
    return b.pad(padded, (*(0,) * (len(along) + 2), 0, 0, *extra), beyond) if any(extra) else padded


def _fold_parts(b: Builder, x: Any, along: Sequence[WindowAxis], reduction: str, fill: Any, beyond: Any) -> Any:
    result = _pad_parts(b, x, along, fill, beyond)
    for axis, line in enumerate(along, start=2):
        views = _windows(b, result, line, axis, b.size(x, axis))
        result = b.emit(reduction, views, axes=(axis + 1,))[0]
    return result


def _window_samples(**attrs: Any) -> Samples:
    def make(rng: Rng, dtype: DType) -> Any:
        def windows(kernel: tuple[int, ...], strides: Any, pads: Any, dilations: Any, ceil: bool) -> dict[str, Any]:
            named = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "ceil": ceil}
            return {**named, **attrs}

        yield draw(rng, dtype, (2, 3, 6, 5)), windows((3, 2), (2, 1), (1, 0, 1, 1), (1, 1), False)
        yield draw(rng, dtype, (1, 2, 4, 4)), windows((3, 3), (2, 2), (0, 0, 0, 0), (1, 1), True)
        yield draw(rng, dtype, (1, 1, 3, 8)), windows((2, 2), (3, 3), (1, 1, 1, 1), (2, 3), True)
        yield draw(rng, dtype, (2, 1, 7)), windows((2,), (2,), (0, 1), (1,), True)
        yield draw(rng, dtype, (1, 2, 3, 4, 3)), windows((2, 1, 3), (1, 2, 1), (0, 0, 1, 1, 0, 1), (1, 1, 1), False)

    return listed(make)


# --- the ops


def _max_pool_parts(b: Builder, x: Any, **windows: Any) -> Any:
    lowest = lowest_of(b.dtype(x).numpy)
    return _fold_parts(b, x, lines(**windows), "reduce_max", lowest, lowest)


@op("T -> T", T=NUMERIC, shape=pooled, parts=_max_pool_parts, samples=_window_samples())
def max_pool(
    x: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
) -> Array:
    """The largest element of each window, padding aside; NaN if one is; the lowest value there is if all is padding."""
    along = lines(kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)
    return _fold(x, along, lowest_of(x.dtype), _keep_larger)


def _all_windows(b: Builder, x: Any, along: Sequence[WindowAxis], fill: Any) -> Any:
    """All windows of x with their content along one last axis: (N, C, out…, places)."""
    rank = len(along)
    views = _pad_parts(b, x, along, fill, fill)
    for i, line in enumerate(along):
        views = _windows(b, views, line, 2 + 2 * i, b.size(x, 2 + i))
    outside = (0, 1, *range(2, 2 + 2 * rank, 2))
    sizes = [b.size(views, axis) for axis in outside]
    places = math.prod(line.kernel for line in along)
    return b.reshape(b.transpose(views, perm=(*outside, *range(3, 3 + 2 * rank, 2))), b.vector(*sizes, places))


def _positions_parts(b: Builder, x: Any, **windows: Any) -> Any:
    along = lines(**windows)
    largest = b.max_pool(x, **windows)
    sizes = [b.size(x, axis) for axis in range(2, b.rank(x))]
    count = b.reduce_prod(b.vector(*sizes))
    plane = b.reshape(b.iota(count), b.vector(1, 1, *sizes))
    content, places = _all_windows(b, x, along, 0), _all_windows(b, plane, along, -1)
    inside = b.le(0, places)
    found = b.cast(b.bit_and(b.eq(content, b.unsqueeze(largest, axes=(-1,))), inside), dtype=i64)
    if b.dtype(x).is_float:
        later = b.add(b.iota(b.constant(math.prod(windows["kernel"]), i64)), 1)
        found = b.where(b.bit_and(b.is_nan(content), inside), later, found)
    chosen = b.arg_max(found, axis=-1, keepdims=True)
    spread = b.expand(places, b.shape_of(content))
    return largest, b.squeeze(b.gather_elements(spread, chosen, axis=-1), axes=(-1,))


def _positions_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    yield from _window_samples()(rng, dtype)
    if dtype.is_float:
        x = draw(rng, dtype, (2, 3, 5, 5))
        x = np.where(rng.random(x.shape) < 0.3, np.array(np.nan, x.dtype), x)
        windows = {"kernel": (3, 2), "strides": (1, 1), "pads": (1, 0, 1, 1), "dilations": (1, 2), "ceil": False}
        yield Sample((x,), windows)


def _pooled_twice(x: Fact, **windows: Any) -> list[Shape]:
    return pooled(x, **windows) * 2


@op(
    "T -> T, i64",
    T=NUMERIC,
    shape=_pooled_twice,
    parts=_positions_parts,
    samples=_positions_samples,
)
def max_pool_positions(
    x: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
) -> tuple[Array, Array]:
    """`max_pool`, and where each result lies first, NaN last: row-major within its channel (−1: in no place)."""
    along = lines(kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)
    plane = np.arange(math.prod(x.shape[2:])).reshape(1, 1, *x.shape[2:])
    content, places = _padded(x, along, lowest_of(x.dtype)), _padded(plane, along, -1)
    taps = [tuple(line.taps(line.number(d))) for line, d in zip(along, x.shape[2:], strict=True)]
    first, *rest = [(..., *tap) for tap in itertools.product(*taps)]
    best = content[first].copy()
    found = np.broadcast_to(places[first], best.shape).copy()
    for tap in rest:
        item, place = content[tap], places[tap]
        better = (place >= 0) & ((item > best) | (item != item) | (found < 0))
        np.copyto(best, item, where=better)
        np.copyto(found, place, where=better)
    return best, found


def _average_parts(b: Builder, x: Any, *, include_pad: bool, **windows: Any) -> Any:
    along = lines(**windows)
    total = _fold_parts(b, x, along, "reduce_sum", 0, 0)
    if not windows["ceil"] and (include_pad or not any(windows["pads"])):
        return b.div(total, float(math.prod(windows["kernel"])))
    sizes = [b.size(x, axis) for axis in range(2, b.rank(x))]
    ones = b.expand(b.constant(1, b.dtype(x)), b.vector(1, 1, *sizes))
    return b.div(total, _fold_parts(b, ones, along, "reduce_sum", int(include_pad), 0))


def _average_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for include_pad in (False, True):
        yield from _window_samples(include_pad=include_pad)(rng, dtype)


@op(
    "T -> T",
    T=FLOATS,
    shape=pooled,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_average_parts,
    samples=_average_samples,
)
def average_pool(
    x: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
    include_pad: bool = False,
) -> Array:
    """The mean of each window, over x alone or over its padding too; never over what lies beyond the padding."""
    along = lines(kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)
    return (_fold(x, along, 0, np.add) + 0) / _counts(x.shape[2:], along, include_pad)


def _lp_parts(b: Builder, x: Any, *, p: float, **windows: Any) -> Any:
    powers = b.square(x) if p == 2 else b.pow(b.abs(x), p)
    total = _fold_parts(b, powers, lines(**windows), "reduce_sum", 0, 0)
    return b.sqrt(total) if p == 2 else b.pow(total, 1 / p)


def _lp_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for p in (1.0, 2.0, 3.0):
        yield from _window_samples(p=p)(rng, dtype)


@op(
    "T -> T",
    T=FLOATS,
    shape=pooled,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_lp_parts,
    samples=_lp_samples,
)
def lp_pool(
    x: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
    p: float = 2.0,
) -> Array:
    """(Σ |x|ᵖ)^(1/p) over each window."""
    along = lines(kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)
    return _fold(np.abs(x) ** p, along, 0, np.add) ** (1 / p)
