"""What models of tables are made of: look-ups, trees, coupled probabilities, and maps (dictionaries at run time)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, eq
from assay.ir.dtypes import FLOATS, TENSORS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import MapType, SequenceType, Shape, TensorType, Type
from assay.ops.definitions.text import strings
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need, same

if TYPE_CHECKING:
    from assay.ops.builder import Builder

KEYS = (dtypes.f64, dtypes.f32, dtypes.i64, dtypes.i32, dtypes.i16, dtypes.string)


# --- look-ups


def _lookup_shape(x: Fact, keys: Fact, values: Fact, default: Fact) -> list[Shape]:
    need("the vector of values", values.shape, keys.shape)
    return [x.shape]


def _lookup_parts(b: Builder, x: Any, keys: Any, values: Any, default: Any) -> Any:
    if b.static_shape(keys) == (0,):
        return b.expand(default, b.shape_of(x))
    keys, values = b.flip(keys, axes=(0,)), b.flip(values, axes=(0,))
    asked = b.unsqueeze(x, axes=(-1,))
    hits = b.eq(asked, keys)
    if b.dtype(x).is_float:
        hits = b.bit_or(hits, b.bit_and(b.is_nan(asked), b.is_nan(keys)))
    place = b.arg_max(b.cast(hits, dtype=dtypes.i64), axis=-1)
    return b.where(b.reduce_max(hits, axes=(-1,)), b.gather(values, place, axis=0), default)


def _lookup_samples(rng: Rng, dtype: DType) -> Any:
    x = draw(rng, dtype, (2, 5), 0, 3) if not dtype.is_float else np.array([[1, np.nan, 2], [0, 3, 1]], dtype.numpy)
    keys = draw(rng, dtype, (4,), 0, 3) if not dtype.is_float else np.array([1, 2, np.nan, 1], dtype.numpy)
    yield x, keys, np.arange(keys.size), np.asarray(-1), {}
    yield x, keys, strings(list("wxyz"))[: keys.size], strings(["none"], ()), {}
    yield x[0], keys[:0], np.zeros(0, np.float32), np.asarray(2, np.float32), {}


@op(
    "K, K, V, V -> V",
    K=KEYS,
    V=TENSORS,
    ranks={"keys": 1, "values": 1, "default": 0},
    shape=_lookup_shape,
    parts=_lookup_parts,
    samples=listed(_lookup_samples, 1),
)
def lookup(x: Array, keys: Array, values: Array, default: Array) -> Array:
    """The value under each element of x: values[i] for keys[i], the last of equal keys counting and NaN being equal to
    NaN; `default` for an element that is no key."""
    if keys.size == 0:
        return np.broadcast_to(default, x.shape)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = order[np.maximum(np.searchsorted(ordered, x, side="right") - 1, 0)]
    found = np.asarray(keys[place] == x, np.bool_)
    if x.dtype.kind == "f":
        found |= np.isnan(keys[place]) & np.isnan(x)
    return np.where(found, values[place], default)


@op(
    "T, bool -> T",
    T=TENSORS,
    shape=same,
    host=True,
    samples=lambda rng, dtype: [Sample((draw(rng, dtype, (2,)), np.ones(3, np.bool_)), {"message": "no"}, (1,))],
)
def checked(x: Array, ok: Array, *, message: str) -> Array:
    """x, once all of `ok` hold; an error that says `message` otherwise."""
    if not np.all(ok):
        raise ValueError(message)
    return x


# --- decision trees

_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_COMPARE_OPS = ("le", "lt", "ge", "gt", "eq", "ne")


def _leaves_shape(x: Fact, features: Fact, *tables: Fact, depth: int) -> list[Shape]:
    *nodes, roots = (table.shape for table in tables)
    for table in nodes:
        need("the table of nodes", table, features.shape)
    return [(UNKNOWN if x.shape is None else x.shape[0], UNKNOWN if roots is None else roots[0])]


def _leaves_parts(
    b: Builder,
    x: Any,
    features: Any,
    thresholds: Any,
    modes: Any,
    yes: Any,
    no: Any,
    missing: Any,
    roots: Any,
    *,
    depth: int,
) -> Any:
    kinds: list[int] = np.unique(b.array(modes, "modes")).tolist()
    lenient = bool(b.array(missing, "missing").any())
    at = b.expand(roots, b.vector(b.size(x, 0), b.size(roots, 0)))
    for _ in range(depth):
        seen = b.gather_elements(x, b.gather(features, at, axis=0), axis=1)
        limit, mode = b.gather(thresholds, at, axis=0), b.gather(modes, at, axis=0)
        goes = b.emit(_COMPARE_OPS[kinds[0]], seen, limit)[0]
        for kind in kinds[1:]:
            goes = b.where(b.eq(mode, kind), b.emit(_COMPARE_OPS[kind], seen, limit)[0], goes)
        if lenient:
            goes = b.bit_or(goes, b.bit_and(b.gather(missing, at, axis=0), b.is_nan(seen)))
        at = b.where(goes, b.gather(yes, at, axis=0), b.gather(no, at, axis=0))
    return at


def _leaves_samples(rng: Rng, dtype: DType) -> Any:
    # two trees: 0 → (1 → (3, 4), 2) and 5 → (6, 7)
    yes, no = np.array([1, 3, 2, 3, 4, 6, 6, 7]), np.array([2, 4, 2, 3, 4, 7, 6, 7])
    features, roots = np.array([0, 2, 0, 0, 0, 1, 0, 0]), np.array([0, 5])
    thresholds = draw(rng, dtype, (8,), -1, 1)
    x = draw(rng, dtype, (6, 3), -2, 2)
    x[0, 0] = np.nan
    for modes in ((0,) * 8, (0, 1, 2, 3, 4, 5, 0, 0), (4, 5, 0, 0, 0, 3, 0, 0)):
        for missing in (np.zeros(8, np.bool_), np.ones(8, np.bool_)):
            yield x, features, thresholds, np.array(modes, np.uint8), yes, no, missing, roots, {"depth": 2}


@op(
    "T, i64, T, u8, i64, i64, bool, i64 -> i64",
    T=FLOATS,
    ranks={"x": 2, "features": 1, "roots": 1},
    shape=_leaves_shape,
    parts=_leaves_parts,
    samples=listed(_leaves_samples, 1, 3, 4, 5, 6, 7),
)
def tree_leaves(
    x: Array,
    features: Array,
    thresholds: Array,
    modes: Array,
    yes: Array,
    no: Array,
    missing: Array,
    roots: Array,
    *,
    depth: int,
) -> Array:
    """Which node each row of x (N, F) ends at in each tree. From a root on, at most `depth` times, a node compares the
    feature that it names with its threshold (modes 0 … 5: ≤ < ≥ > = ≠) and leads to `yes` or `no`; NaN leads to `yes`
    where `missing` holds. A leaf leads to itself."""
    at = np.tile(roots, x.shape[0])
    rows: Array = np.repeat(np.arange(x.shape[0], dtype=np.int64), roots.size)
    numbers = np.arange(yes.size, dtype=np.int64)
    inner = (yes != numbers) | (no != numbers)
    kinds = np.flatnonzero(np.bincount(modes[inner], minlength=len(_COMPARE)))
    active = np.flatnonzero(inner[at])
    for _ in range(depth):
        if not active.size:
            break
        node = at[active]
        seen, limit = x[rows[active], features[node]], thresholds[node]
        goes = missing[node] & np.isnan(seen)
        for kind in kinds:
            goes |= (modes[node] == kind) & _COMPARE[kind](seen, limit)
        node = np.where(goes, yes[node], no[node])
        at[active] = node
        active = active[inner[node]]
    return at.reshape(x.shape[0], roots.size)


# --- probabilities of classes from those of pairs


def _coupled_shape(pairs: Fact) -> list[Shape]:
    if pairs.shape is None:
        return [None]
    if len(pairs.shape) < 2 or eq(pairs.shape[-1], pairs.shape[-2]) is False:
        raise ValueError(f"probabilities of pairs have the shape […, K, K], not {list(pairs.shape)}")
    return [pairs.shape[:-1]]


def _coupled_samples(rng: Rng, dtype: DType) -> Any:
    for shape in ((3, 4, 4), (2, 2)):
        upper = np.triu(rng.uniform(0.05, 0.95, shape), 1)
        lower = np.tril(1 - np.swapaxes(upper, -1, -2), -1)
        yield (upper + lower).astype(dtype.numpy), {}


@op(
    "T -> T",
    T=(dtypes.f64, dtypes.f32),
    shape=_coupled_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    host=True,
    samples=listed(_coupled_samples, 0),
)
def couple_pairs(pairs: Array) -> Array:
    """The probabilities of K classes that fit best to those of pairs, pairs[…, i, j] being that of i among i and j:
    the second method of Wu, Lin and Weng, iterated as libsvm does until no error exceeds 0.005 / K."""
    classes = pairs.shape[-1]
    r = pairs.reshape(-1, classes, classes)
    others = ~np.eye(classes, dtype=np.bool_)
    turned = np.swapaxes(r, 1, 2)
    q = np.where(others, -turned * r, 0.0)
    diagonal = np.sum(np.where(others, turned * turned, 0.0), axis=2)
    q[:, ~others] = diagonal
    p = np.full((r.shape[0], classes), 1.0 / classes)
    active = np.arange(r.shape[0])
    for _ in range(max(100, classes)):
        qp = np.einsum("nij,nj->ni", q[active], p[active])
        pqp = np.sum(p[active] * qp, axis=1)
        off = np.max(np.abs(qp - pqp[:, None]), axis=1, initial=0.0) >= 0.005 / classes
        active = active[off]
        if not active.size:
            break
        p[active] = _coupled_step(q[active], diagonal[active], p[active], qp[off], pqp[off])
    return p.reshape(pairs.shape[:-1])


def _coupled_step(q: Array, diagonal: Array, p: Array, qp: Array, pqp: Array) -> Array:
    for i in range(p.shape[1]):
        diff = (pqp - qp[:, i]) / diagonal[:, i]
        p[:, i] += diff
        pqp = (pqp + diff * (diff * diagonal[:, i] + 2 * qp[:, i])) / (1 + diff) ** 2
        qp = (qp + diff[:, None] * q[:, i]) / (1 + diff)[:, None]
        p = p / (1 + diff)[:, None]
    return p


# --- maps


def _zipped(x: Fact, *, keys: Sequence[Any]) -> list[Type]:
    assert isinstance(x.type, TensorType)
    if x.shape is not None and (len(x.shape) not in (1, 2) or eq(x.shape[-1], len(keys)) is False):
        raise ValueError(f"{len(keys)} keys do not fit values of shape {list(x.shape)}")
    key = dtypes.string if any(isinstance(item, str) for item in keys) else dtypes.i64
    return [SequenceType(MapType(key, TensorType(x.type.dtype, ())))]


def _zip_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (2, 3)), {"keys": ("a", "b", "c")}
    yield draw(rng, dtype, (2,)), {"keys": (7, 5)}


@op("T -> any", T=FLOATS, types=_zipped, host=True, samples=listed(_zip_samples))
def zip_map(x: Array, *, keys: Sequence[str] | Sequence[int]) -> list[dict[Any, float]]:
    """For each row of x a map from `keys` to its numbers."""
    return [dict(zip(keys, row, strict=True)) for row in x.reshape(-1, len(keys)).tolist()]


def _row_shape(x: Fact, *, keys: Sequence[Any], dtype: DType) -> list[Shape]:
    return [(1, len(keys))]


def _row_samples(rng: Rng, dtype: DType) -> Any:
    yield {"a": 4.0, "c": 8.0}, {"keys": ("a", "b", "c", "c"), "dtype": dtypes.f32}
    yield {7: "x"}, {"keys": (1, 7), "dtype": dtypes.string}
    yield {}, {"keys": (1, 7), "dtype": dtypes.i64}


@op("any -> @dtype", shape=_row_shape, host=True, samples=listed(_row_samples))
def map_to_row(x: Mapping[Any, Any], *, keys: Sequence[str] | Sequence[int], dtype: DType) -> Array:
    """The values of a map under `keys`, as a tensor of shape [1, number of keys]; zero or an empty string where the map
    has no such key."""
    blank = "" if dtype is dtypes.string else 0
    return _as_row([x.get(key, blank) for key in keys], dtype)


def _as_row(items: Sequence[Any], dtype: DType) -> Array:
    return strings(items, (1, -1)) if dtype is dtypes.string else np.array([items], dtype.numpy)


_CONVERTED: dict[DType, Callable[[Any], Any]] = {
    dtypes.f32: float,
    dtypes.f64: float,
    dtypes.i64: int,
    dtypes.string: lambda item: item if isinstance(item, str) else f"{item:f}",
}


def _ordered_shape(x: Fact, *, size: int | None, dtype: DType) -> list[Shape]:
    return [(1, UNKNOWN if size is None else size)]


def _ordered_samples(rng: Rng, dtype: DType) -> Any:
    for target in _CONVERTED:
        yield {3: 2.5, 1: 4.0}, {"size": None, "dtype": target}
        yield {3: "2", 1: "4"}, {"size": 5, "dtype": target}


@op("any -> @dtype", shape=_ordered_shape, host=True, samples=listed(_ordered_samples))
def map_in_order(x: Mapping[int, Any], *, size: int | None, dtype: DType) -> Array:
    """The values of a map with integer keys, converted to `dtype`, as a tensor of shape [1, …]: in the order of the
    keys, or with a `size` at the place that the key names, zero ("0.f" among strings) elsewhere."""
    convert = _CONVERTED[dtype]
    if size is None:
        return _as_row([convert(x[key]) for key in sorted(x)], dtype)
    if any(not 0 <= key < size for key in x):
        raise ValueError(f"the map has a key outside of 0 … {size - 1}")
    row = ["0.f" if dtype is dtypes.string else 0] * size
    for key, item in x.items():
        row[key] = convert(item)
    return _as_row(row, dtype)
