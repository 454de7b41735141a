"""aten's reductions over segments of an axis, which lengths or offsets tell apart."""

from __future__ import annotations

from typing import Any, NamedTuple

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.parts import scalar_size, volume

_MODES: dict[str, tuple[str, float]] = {
    "sum": ("add", 0.0),
    "mean": ("add", 0.0),
    "prod": ("mul", 1.0),
    "max": ("max", float("-inf")),
    "min": ("min", float("inf")),
}
"""How elements are combined, and what a segment starts from."""
_NOT_COVERED = (
    "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
)


class _Segments(NamedTuple):
    """The rows of data (batches · N, …), the slot of each, and how many rows each segment (batches, S) has."""

    rows: Value
    slots: Value
    lengths: Value
    batches: Any
    """How many batches there are: a number, or a value of one element."""


def _segments(b: Builder, data: Value, lengths: Value | None, offsets: Value | None) -> _Segments:
    """Each batch has a slot for what lies before its segments, one for each of them, and one for what lies after."""
    given = lengths if lengths is not None else offsets
    assert given is not None
    axis = b.rank(given) - 1
    batches = volume(b, given, *range(axis))
    bounds = b.reshape(tensor(b, given, dtypes.i64), b.vector(batches, b.size(given, axis)))
    if lengths is not None:
        start = b.expand(b.constant(0, dtypes.i64), b.vector(batches, 1))
        bounds = b.concat(start, b.cum_sum(bounds, axis=1), axis=1)
    line = b.expand(b.iota(scalar_size(b, data, axis)), b.vector(batches, b.size(data, axis)))
    own = b.search_sorted(bounds, line, right=True)
    first = b.unsqueeze(b.mul(b.iota(scalar_size(b, own, 0)), _width(b, bounds)), axes=(1,))
    rest = [b.size(data, i) for i in range(axis + 1, b.rank(data))]
    rows = b.reshape(data, b.vector(-1, *rest))
    spans = b.sub(b.slice(bounds, [1], [2**62], [1], axes=(1,)), b.slice(bounds, [0], [-1], [1], axes=(1,)))
    return _Segments(rows, b.reshape(b.add(first, own), [-1]), spans, batches)


def _width(b: Builder, bounds: Value) -> Value:
    """The number of slots of a batch."""
    return b.add(scalar_size(b, bounds, 1), 1)


def _over_rows(b: Builder, x: Value, rows: Value) -> Value:
    """A vector as a column that goes with rows of any rank."""
    return b.reshape(x, [-1, *([1] * (b.rank(rows) - 1))])


def _inner(b: Builder, found: Value, segments: _Segments) -> Value:
    """Slots (batches · width, …) without the first and the last of each batch: (batches · S, …)."""
    rest = [b.size(found, i) for i in range(1, b.rank(found))]
    apart = b.reshape(found, b.vector(segments.batches, -1, *rest))
    return b.reshape(b.slice(apart, [1], [-1], [1], axes=(1,)), b.vector(-1, *rest))


def _outer(b: Builder, x: Value, segments: _Segments) -> Value:
    """The inverse of `_inner`, with zeros in the slots that it left out."""
    rest = [b.size(x, i) for i in range(1, b.rank(x))]
    apart = b.reshape(x, b.vector(segments.batches, -1, *rest))
    pads = [1 if i == 1 else 0 for i in range(b.rank(apart))]
    return b.reshape(b.pad(apart, [*pads, *pads], b.constant(0, b.dtype(x))), b.vector(-1, *rest))


def _require_cover(b: Builder, lengths: Value, data: Value) -> None:
    """An error in a run whose segments do not make up the whole axis."""
    axis = b.rank(lengths) - 1
    b.require(b.ge(lengths, 0), message="lengths contains negative value!")
    covered = b.eq(b.reduce_sum(tensor(b, lengths, dtypes.i64), axes=(axis,)), scalar_size(b, data, axis))
    b.require(covered, message=_NOT_COVERED)


@aten("aten.segment_reduce.default")
def segment_reduce(
    b: Builder,
    n: Call,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Results:
    if lengths is not None and not unsafe:
        _require_cover(b, lengths, data)
    segments = _segments(b, data, lengths, offsets)
    combine, start = _MODES[reduce]
    counts = b.reshape(segments.lengths, [-1])
    slots = b.reshape(b.shape_of(_outer(b, counts, segments)), [1])
    shape = b.concat(slots, b.slice(b.shape_of(segments.rows), [1], [2**62], [1], axes=(0,)), axis=0)
    blank = b.expand(b.constant(start if initial is None else initial, n.dtype), shape)
    places = b.unsqueeze(segments.slots, axes=(1,))
    found = _inner(b, b.scatter_nd(blank, places, segments.rows, reduction=combine), segments)
    if reduce == "mean":
        size = _over_rows(b, tensor(b, counts, n.dtype), found)
        empty = b.constant(float("nan") if initial is None else initial, n.dtype)
        found = b.where(b.eq(size, 0.0), empty, b.div(found, size))
    given = lengths if lengths is not None else offsets
    assert given is not None
    outer = [b.size(given, i) for i in range(b.rank(given) - 1)]
    rest = [b.size(found, i) for i in range(1, b.rank(found))]
    return b.reshape(found, b.vector(*outer, b.size(segments.lengths, 1), *rest))


@aten("aten._segment_reduce_backward.default")
def segment_reduce_backward(
    b: Builder,
    n: Call,
    gradient: Value,
    output: Value,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Results:
    if reduce == "prod":
        raise ValueError("the gradient of products over segments")
    segments = _segments(b, data, lengths, offsets)

    def back(x: Value) -> Value:
        """For each row of the data what its segment holds, zeros outside of all segments."""
        rest = [b.size(segments.rows, i) for i in range(1, b.rank(segments.rows))]
        return b.gather(_outer(b, b.reshape(x, b.vector(-1, *rest)), segments), segments.slots, axis=0)

    found = back(gradient)
    if reduce == "mean":
        counts = tensor(b, b.reshape(segments.lengths, [-1]), n.dtype)
        size = b.gather(_outer(b, counts, segments), segments.slots, axis=0)
        found = b.div(found, _over_rows(b, b.max(size, 1.0), found))
    if reduce in ("max", "min"):
        found = b.mul(found, _share(b, segments, back(output)))
    return b.reshape(found, b.shape_of(data))


def _share(b: Builder, segments: _Segments, output: Value) -> Value:
    """1 over the number of rows of a segment that equal its result, where a row does; 0 elsewhere."""
    kind, rows = b.dtype(segments.rows), segments.rows
    same = tensor(b, b.bit_or(b.eq(rows, output), b.is_nan(rows)), kind)
    slots = b.shape_of(_outer(b, b.reshape(segments.lengths, [-1]), segments))
    shape = b.concat(slots, b.slice(b.shape_of(rows), [1], [2**62], [1], axes=(0,)), axis=0)
    blank = b.expand(b.constant(0, kind), shape)
    counts = b.scatter_nd(blank, b.unsqueeze(segments.slots, axes=(1,)), same, reduction="add")
    return b.div(same, b.max(b.gather(counts, segments.slots, axis=0), 1.0))
