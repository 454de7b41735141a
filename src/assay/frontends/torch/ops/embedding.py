"""aten's embedding bags with their gradients, and the renormalization of embeddings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assay.frontends.torch.ops.common import Number, from_the_front, sizes, tensor, with_elements
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.ops.parts import scalar_size

_SUM, _MEAN, _MAX = 0, 1, 2
"""How a bag is made one row."""


class _Bags(NamedTuple):
    """Which bag each index is in, and which indices count; `number` is how many bags there are."""

    of: Value
    counting: Value
    number: Value

    def places(self, b: Builder) -> Value:
        """`of` as positions of `scatter_nd`."""
        return b.unsqueeze(self.of, axes=(1,))


def _bags(b: Builder, indices: Value, offsets: Value, number: Value, padding: int) -> _Bags:
    """Indices behind the last bag, which `offsets` may end, are in a bag of their own at the end."""
    count = scalar_size(b, indices, 0)
    begun = b.expand(b.constant(0, dtypes.i64), b.vector(b.add(count, 1)))
    starts = tensor(b, offsets, dtypes.i64)
    ones = b.expand(b.constant(1, dtypes.i64), b.shape_of(starts))
    begun = b.scatter_nd(begun, b.unsqueeze(starts, axes=(1,)), ones, reduction="add")
    running = b.slice(b.cum_sum(begun, axis=0), [0], b.vector(count), [1], axes=(0,))
    return _Bags(b.min(b.sub(running, 1), number), b.ne(tensor(b, indices, dtypes.i64), padding), number)


def _filled(b: Builder, value: Any, like: Value, *shape: Any) -> Value:
    return b.expand(b.constant(value, b.dtype(like)), b.vector(*shape))


def _scattered(b: Builder, rows: Value, bags: _Bags, reduction: str, start: Any) -> Value:
    """The rows of each bag combined; the bag at the end dropped."""
    base = _filled(b, start, rows, b.add(bags.number, 1), *_tail(b, rows))
    combined = b.scatter_nd(base, bags.places(b), rows, reduction=reduction)
    return b.slice(combined, [0], b.vector(bags.number), [1], axes=(0,))


def _tail(b: Builder, rows: Value) -> list[Any]:
    return [b.size(rows, axis) for axis in range(1, b.rank(rows))]


def _counts(b: Builder, bags: _Bags) -> Value:
    return _scattered(b, b.cast(bags.counting, dtype=dtypes.i64), bags, "add", 0)


@aten("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    b: Builder,
    n: Call,
    weight: Value,
    indices: Value,
    offsets: Value,
    by_frequency: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample: Value | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> Results:
    with_elements(b, weight, (1,))
    number = b.sub(scalar_size(b, offsets, 0), int(include_last))
    bags = _bags(b, indices, offsets, number, padding)
    places = from_the_front(b, tensor(b, indices, dtypes.i64), weight, 0)
    rows = widened(b, b.gather(weight, places, axis=0))
    if per_sample is not None:
        rows = b.mul(rows, b.unsqueeze(tensor(b, per_sample, b.dtype(rows)), axes=(1,)))
    counts = _counts(b, bags)
    held = b.unsqueeze(bags.counting, axes=(1,))
    sources = b.expand(b.constant(0, dtypes.i64), b.shape_of(counts))
    if mode == _MAX:
        held_rows = b.where(held, rows, -np.inf)
        largest = _scattered(b, held_rows, bags, "max", -np.inf)
        sources = _sources(b, held_rows, largest, indices, bags)
        result = b.where(b.unsqueeze(b.eq(counts, 0), axes=(1,)), 0.0, largest)
    else:
        result = _scattered(b, b.where(held, rows, 0.0), bags, "add", 0)
    if mode == _MEAN:
        result = b.div(result, b.unsqueeze(b.cast(b.max(counts, 1), dtype=b.dtype(rows)), axes=(1,)))
    rest = _declared(b, n, (bags.of, counts, sources))
    return tensor(b, result, n.dtype), *rest


def _sources(b: Builder, rows: Value, largest: Value, indices: Value, bags: _Bags) -> Value:
    """For each bag and column the index that its largest element comes from, the first one if there are several."""
    count = scalar_size(b, indices, 0)
    padded = b.concat(largest, _filled(b, np.nan, largest, 1, b.size(largest, 1)), axis=0)
    equal = b.eq(rows, b.gather(padded, bags.of, axis=0))
    order = b.where(equal, b.unsqueeze(b.iota(count), axes=(1,)), count)
    first = _scattered(b, order, bags, "min", np.iinfo(np.int64).max)
    known = b.concat(tensor(b, indices, dtypes.i64), b.vector(0), axis=0)
    return b.gather(known, b.min(first, count), axis=0)


def _declared(b: Builder, n: Call, found: tuple[Value, ...]) -> list[Value]:
    """What is kept for the gradient in the dtypes that torch says it has; empty, or longer, where that is said."""
    results: list[Value] = []
    for value, kind in zip(found, n.types[1:], strict=True):
        assert isinstance(kind, TensorType)
        assert kind.shape is not None
        kept = tensor(b, value, kind.dtype)
        length, own = kind.shape[0], b.dims(value)[0]
        if isinstance(length, int) and isinstance(own, int) and length != own:
            kept = b.pad(kept, [0] * b.rank(kept) + [length - own] + [0] * (b.rank(kept) - 1), 0)
        elif length == 0:
            kept = b.slice(kept, [0], [0], [1], axes=(0,))
        results.append(kept)
    return results


@aten("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    b: Builder,
    n: Call,
    grad: Value,
    indices: Value,
    offsets: Value,
    bag_of: Value,
    counts: Value,
    sources: Value,
    number: Number,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    per_sample: Value | None,
    padding: int = -1,
) -> Results:
    if sparse:
        raise ValueError("the gradient is a sparse tensor")
    wide = widened(b, grad)
    bags = _bags(b, indices, offsets, scalar_size(b, grad, 0), padding)
    empty = _filled(b, 0, wide, sizes(b, [number]), b.size(grad, 1))
    sizes_of = _counts(b, bags)
    if mode == _MAX:
        real = b.where(b.unsqueeze(b.eq(sizes_of, 0), axes=(1,)), 0.0, wide)
        positions = tensor(b, sources, dtypes.i64)
        return tensor(b, b.scatter_elements(empty, positions, real, axis=0, reduction="add"), n.dtype)
    if mode == _MEAN:
        wide = b.div(wide, b.unsqueeze(b.cast(b.max(sizes_of, 1), dtype=b.dtype(wide)), axes=(1,)))
    rows = _own_gradients(b, wide, bags)
    places = tensor(b, indices, dtypes.i64)
    if per_sample is not None:
        rows = b.mul(rows, b.unsqueeze(tensor(b, per_sample, b.dtype(rows)), axes=(1,)))
    if by_frequency:
        rows = b.div(rows, b.unsqueeze(b.cast(_frequencies(b, places, number), dtype=b.dtype(rows)), axes=(1,)))
    summed = b.scatter_nd(empty, b.unsqueeze(places, axes=(1,)), rows, reduction="add")
    return tensor(b, summed, n.dtype)


def _own_gradients(b: Builder, grad: Value, bags: _Bags) -> Value:
    """For each index the gradient of its bag; zero where it is in none or does not count."""
    padded = b.concat(grad, _filled(b, 0, grad, 1, b.size(grad, 1)), axis=0)
    return b.where(b.unsqueeze(bags.counting, axes=(1,)), b.gather(padded, bags.of, axis=0), 0.0)


def _frequencies(b: Builder, places: Value, number: Number) -> Value:
    """How often the index at each place occurs."""
    none = b.expand(b.constant(0, dtypes.i64), sizes(b, [number]))
    ones = b.expand(b.constant(1, dtypes.i64), b.shape_of(places))
    return b.gather(b.scatter_nd(none, b.unsqueeze(places, axes=(1,)), ones, reduction="add"), places, axis=0)


@aten("aten._embedding_bag_per_sample_weights_backward.default")
def per_sample_backward(
    b: Builder,
    n: Call,
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    bag_of: Value,
    mode: int,
    padding: int = -1,
) -> Results:
    bags = _bags(b, indices, offsets, scalar_size(b, grad, 0), padding)
    own = _own_gradients(b, widened(b, grad), bags)
    rows = widened(b, b.gather(weight, tensor(b, indices, dtypes.i64), axis=0))
    return tensor(b, b.reduce_sum(b.mul(own, rows), axes=(1,)), n.dtype)


@aten("aten.embedding_renorm.default")
def embedding_renorm(b: Builder, n: Call, weight: Value, indices: Value, most: float, p: float) -> Results:
    wide = widened(b, weight)
    magnitudes = b.abs(wide)
    if p == np.inf:
        norms = b.reduce_max(magnitudes, axes=(1,), keepdims=True)
    else:
        total = b.reduce_sum(b.pow(magnitudes, float(p)), axes=(1,), keepdims=True)
        norms = b.pow(total, 1.0 / float(p))
    places = b.reshape(tensor(b, indices, dtypes.i64), [-1, 1])
    named = b.expand(b.constant(False), b.vector(b.size(weight, 0)))
    named = b.scatter_nd(named, places, b.expand(b.constant(True), b.vector(b.size(places, 0))))
    too_long = b.bit_and(b.unsqueeze(named, axes=(1,)), b.lt(float(most), norms))
    scaled = b.mul(wide, b.div(float(most), b.add(norms, 1e-7)))
    return b.where(too_long, tensor(b, scaled, b.dtype(weight)), weight)
