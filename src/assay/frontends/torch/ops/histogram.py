"""aten's histograms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value


@aten("aten.histc.default")
def histc(b: Builder, n: Call, x: Value, bins: int = 100, low: Any = 0, high: Any = 0) -> Results:
    if n.dtype in (dtypes.bf16, dtypes.f16):
        raise ValueError(f"which bin a number of {n.dtype} falls into depends on how torch's kernel rounds")
    flat = b.reshape(tensor(b, x, n.dtype), [-1])
    if low == high and 0 not in b.dims(flat):
        start, end = b.reduce_min(flat), b.reduce_max(flat)
    else:
        start, end = b.constant(low, n.dtype), b.constant(high, n.dtype)
    start, end = _apart(b, start, end, 1)
    inside = b.bit_and(b.le(start, flat), b.le(flat, end))
    scale = b.div(b.constant(bins, n.dtype), b.sub(end, start))
    place = b.cast(b.where(inside, b.mul(b.sub(flat, start), scale), b.constant(0, n.dtype)), dtype=dtypes.i64)
    return _counted(b, n, inside, b.min(place, bins - 1), [b.constant([bins])], None)


def _apart(b: Builder, start: Value, end: Value, by: float) -> tuple[Value, Value]:
    """Bounds that differ: equal ones are moved apart."""
    same = b.eq(start, end)
    return b.where(same, b.sub(start, by), start), b.where(same, b.add(end, by), end)


def _counted(b: Builder, n: Call, inside: Value, place: Value, bins: list[Value], weight: Value | None) -> Value:
    """The weights (ones, if there are none) that fall into each place of a grid of `bins`."""
    one = b.constant(1, n.dtype) if weight is None else weight
    nothing = b.constant(0, n.dtype)
    counted = b.where(inside, b.expand(one, b.shape_of(place)), nothing)
    shape = b.vector(*bins)
    blank = b.expand(nothing, b.reshape(b.reduce_prod(shape), [1]))
    found = b.scatter_nd(blank, b.unsqueeze(b.where(inside, place, 0), axes=(1,)), counted, reduction="add")
    return b.reshape(found, shape)


def _grid(
    b: Builder, n: Call, columns: Sequence[Value], edges: Sequence[Value], weight: Value | None, density: bool
) -> Value:
    """How much falls between neighbouring edges along each axis; the last edge belongs to the bin before it."""
    bins = [b.sub(b.shape_of(edge), 1) for edge in edges]
    insides: list[Value] = []
    place = b.constant(0, dtypes.i64)
    for column, edge, count in zip(columns, edges, bins, strict=True):
        first, last = b.gather(edge, 0, axis=0), b.gather(edge, -1, axis=0)
        insides.append(b.bit_and(b.le(first, column), b.le(column, last)))
        own = b.min(b.sub(b.search_sorted(edge, column, right=True), 1), b.sub(count, 1))
        place = b.add(b.mul(place, count), own)
    inside = reduce(lambda left, right: b.bit_and(left, right), insides)
    flat_weight = None if weight is None else b.reshape(weight, [-1])
    counts = _counted(b, n, inside, place, bins, flat_weight)
    return _density(b, counts, edges) if density else counts


def _density(b: Builder, counts: Value, edges: Sequence[Value]) -> Value:
    """Counts over their sum and over the volume of each bin."""
    found = b.div(counts, b.reduce_sum(counts))
    for axis, edge in enumerate(edges):
        widths = b.sub(b.slice(edge, [1], [2**62], [1], axes=(0,)), b.slice(edge, [0], [-1], [1], axes=(0,)))
        found = b.div(found, b.reshape(widths, [-1 if i == axis else 1 for i in range(len(edges))]))
    return found


def _spaced(b: Builder, column: Value, bins: int, bounds: Sequence[float] | None) -> Value:
    """bins + 1 evenly spaced edges; the upper half counts back from the end, as torch's linspace does."""
    kind = b.dtype(column)
    if bounds is not None or 0 in b.dims(column):
        start, end = (b.constant(bound, kind) for bound in bounds or (0.0, 1.0))
    else:
        start, end = b.reduce_min(column), b.reduce_max(column)
    start, end = _apart(b, start, end, 0.5)
    step = b.div(b.sub(end, start), b.constant(bins, kind))
    line = b.iota(bins + 1)
    up = b.add(start, b.mul(step, b.cast(line, dtype=kind)))
    down = b.sub(end, b.mul(step, b.cast(b.sub(bins, line), dtype=kind)))
    return b.where(b.lt(line, (bins + 1) // 2), up, down)


@aten("aten.histogram.bins_tensor")
def histogram(
    b: Builder, n: Call, x: Value, edges: Value, *, weight: Value | None = None, density: bool = False
) -> Results:
    return _grid(b, n, [b.reshape(x, [-1])], [edges], weight, density), edges


@aten("aten.histogram.bin_ct")
def histogram_of(
    b: Builder,
    n: Call,
    x: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Results:
    return histogram(b, n, x, _spaced(b, b.reshape(x, [-1]), bins, range), weight=weight, density=density)


def _columns(b: Builder, x: Value, count: int) -> list[Value]:
    points = b.reshape(x, [-1, count])
    return [b.gather(points, place, axis=1) for place in range(count)]


def _all_spaced(b: Builder, columns: Sequence[Value], bins: Sequence[int], bounds: Any) -> list[Value]:
    """The edges along each axis; bounds are listed in pairs."""
    pairs = [None if bounds is None else bounds[2 * i : 2 * i + 2] for i, _ in enumerate(bins)]
    return [_spaced(b, *given) for given in zip(columns, bins, pairs, strict=True)]


@aten("aten._histogramdd_bin_edges.default")
def histogramdd_edges(
    b: Builder, n: Call, x: Value, bins: Sequence[int], *, range: Sequence[float] | None = None, **rest: Any
) -> Results:
    return _all_spaced(b, _columns(b, x, len(bins)), bins, range)


@aten("aten._histogramdd_from_bin_cts.default")
def histogramdd_of(
    b: Builder,
    n: Call,
    x: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Results:
    columns = _columns(b, x, len(bins))
    return _grid(b, n, columns, _all_spaced(b, columns, bins, range), weight, density)


@aten("aten._histogramdd_from_bin_tensors.default")
def histogramdd(
    b: Builder, n: Call, x: Value, edges: list[Value], *, weight: Value | None = None, density: bool = False
) -> Results:
    return _grid(b, n, _columns(b, x, len(edges)), edges, weight, density)
