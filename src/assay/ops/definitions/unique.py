"""Which elements of a tensor differ from each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, product
from assay.ir.dtypes import Array, DType, boolean
from assay.ir.facts import SMALL, Fact
from assay.ir.graph import Graph
from assay.ir.types import Shape, TensorType, Type
from assay.ops.definitions.reduction import ORDERED
from assay.ops.parts import scalar_size, volume
from assay.ops.registry import Compute, Sample, op, widen
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import axis_of, same

if TYPE_CHECKING:
    from assay.ops.builder import Builder


@op(
    "string -> i64",
    shape=same,
    host=True,
    samples=lambda rng, dtype: [Sample((draw(rng, dtypes.string, shape),)) for shape in [(2, 3), (), (0,)]],
)
def string_rank(x: Array) -> Array:
    """For each string, how many different ones come before it in the order of code points."""
    words = {word: rank for rank, word in enumerate(sorted(set(x.reshape(-1).tolist())))}
    return np.array([words[word] for word in x.reshape(-1).tolist()], np.int64).reshape(x.shape)


def _unique_shape(x: Fact, *, axis: int | None, ordered: bool) -> list[Shape]:
    count: Dim = UNKNOWN
    if x.shape is not None:
        count = product(x.shape) if axis is None else x.shape[axis_of(axis, len(x.shape))]
    found: Dim = UNKNOWN
    if x.concrete is not None and x.concrete.size <= SMALL:
        found = len(_groups(widen(x.concrete), axis)[0])
    return [(found,), (count,), (found,)]


def _unique_parts(b: Builder, x: Any, *, axis: int | None, ordered: bool) -> Any:
    keys = b.reshape(x, [-1]) if axis is None else _slice_ranks(b, x, axis_of(axis, b.rank(x)))
    order, starts = _sorted_starts(b, keys)
    begins = b.reshape(b.nonzero(starts), [-1])
    ends = b.concat(b.slice(begins, [1], [2**62], [1], axes=(0,)), b.vector(b.size(keys, 0)), axis=0)
    counts = b.sub(b.slice(ends, [0], b.shape_of(begins), [1], axes=(0,)), begins)
    first, inverse = b.gather(order, begins, axis=0), _numbered(b, order, starts)
    if ordered:
        return first, inverse, counts
    by_place, groups = b.emit("sort", first, axis=0)
    places = _scattered(b, groups, b.iota(scalar_size(b, groups, 0)))
    return by_place, b.gather(places, inverse, axis=0), b.gather(counts, groups, axis=0)


def _sorted_starts(b: Builder, keys: Any) -> tuple[Any, Any]:
    """The order that sorts keys (n), and where in it a run of equal ones starts; NaN equals NaN."""
    ranked, order = b.emit("sort", keys, axis=0)
    line = b.iota(scalar_size(b, keys, 0))
    previous = b.gather(ranked, b.max(b.sub(line, 1), 0), axis=0)
    differs = b.ne(ranked, previous)
    if b.dtype(keys).is_float:
        differs = b.bit_and(differs, b.bit_not(b.is_nan(previous)))
    return order, b.bit_or(b.eq(line, 0), differs)


def _numbered(b: Builder, order: Any, starts: Any) -> Any:
    """For each key, the number of its run."""
    return _scattered(b, order, b.sub(b.cum_sum(b.cast(starts, dtype=dtypes.i64), axis=0), 1))


def _scattered(b: Builder, places: Any, values: Any) -> Any:
    """A tensor with values[i] at places[i], which is a permutation."""
    return b.scatter_nd(values, b.unsqueeze(places, axes=(1,)), values)


def _slice_ranks(b: Builder, x: Any, axis: int) -> Any:
    """Numbers that order the slices of x along `axis` as their elements do, the first one first: one element a step."""
    others = [i for i in range(b.rank(x)) if i != axis]
    width = volume(b, x, *others)
    rows = b.reshape(b.transpose(x, perm=(axis, *others)), b.vector(b.size(x, axis), width))
    start = b.expand(b.constant(0, dtypes.i64), b.vector(b.size(x, axis)))
    trip = b.constant(width, dtypes.i64) if isinstance(width, int) else b.reshape(width, [])
    return b.emit("loop", trip, None, start, regions=(_rank_body(b, rows, b.fact(start).type),))[0]


def _rank_body(b: Builder, rows: Any, kind: Type) -> Graph:
    body = b.child()
    step, go, rank = body.input(TensorType(dtypes.i64, ())), body.input(TensorType(boolean, ())), body.input(kind)
    own = _numbered(body, *_sorted_starts(body, body.gather(rows, step, axis=1)))
    both = body.add(body.mul(rank, scalar_size(body, rows, 0)), own)
    return body.finish("rank", (step, go, rank), (go, _numbered(body, *_sorted_starts(body, both))))


def _unique_samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    flat: list[tuple[tuple[int, ...], int | None]] = [((7,), None), ((3, 4), None), ((0,), None), ((), None)]
    for shape, axis in (*flat, ((6, 2), 0), ((2, 5, 2), -2), ((3, 0), 0)):
        for ordered in (True, False):
            x = draw(rng, dtypes.i64, shape, -1, 1).astype(dtype.numpy)
            yield x, {"axis": axis, "ordered": ordered}
    if dtype.is_float:
        yield np.array([np.nan, 1, np.nan, -0.0, 0, np.inf], dtype.numpy), {"axis": None, "ordered": False}


@op(
    "T -> i64, i64, i64",
    T=ORDERED,
    shape=_unique_shape,
    compute=Compute.WIDE,
    parts=_unique_parts,
    samples=listed(_unique_samples),
)
def unique(x: Array, *, axis: int | None = None, ordered: bool = True) -> tuple[Array, Array, Array]:
    """The different elements of x (of its slices along `axis`, if given) in ascending order, or with `ordered` off in
    that of appearance: where each appears first, for every element the number of its like, how often each appears."""
    first, inverse, counts = _groups(x, axis)
    if ordered:
        return first, inverse, counts
    by_place = np.argsort(first)
    return first[by_place], np.argsort(by_place)[inverse], counts[by_place]


def _groups(x: Array, axis: int | None) -> tuple[Array, Array, Array]:
    rows = x.reshape(-1, 1) if axis is None else _as_rows(np.moveaxis(x, axis, 0))
    order = np.lexsort(rows.T[::-1])
    ranked = rows[order]
    before, after = ranked[:-1], ranked[1:]
    differs = np.any((before != after) & ~((before != before) & (after != after)), axis=1)
    starts = np.concatenate([np.ones(min(len(rows), 1), bool), differs])
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = np.cumsum(starts) - 1
    begins = np.flatnonzero(starts)
    return order[begins], inverse, np.diff(begins, append=len(rows))


def _as_rows(x: Array) -> Array:
    """The slices of the first axis as rows; those of no elements are all alike."""
    return x.reshape(len(x), -1) if x.size else np.zeros((len(x), 1))
