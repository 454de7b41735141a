"""aten ops that write at positions: scatter, index_reduce, put, masks, slices and diagonals written back, counts."""

from __future__ import annotations

from typing import Any

from assay.frontends.torch.ops.common import Number, from_the_front, sizes, tensor
from assay.frontends.torch.ops.elementwise import floor_divide, truth
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ops.parts import scalar_size
from assay.ops.shapes import axis_of

_COMBINED = {"add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}
"""How a core op combines what torch's words for a reduction name."""


def _identity(reduction: str, dtype: DType) -> Any:
    """What a combination starts from: any element joined with it stays."""
    if reduction in ("add", "mul"):
        return {"add": 0, "mul": 1}[reduction]
    lowest, highest = (float("-inf"), float("inf")) if dtype.is_float else dtype.limits
    return lowest if reduction == "max" else highest


def _carrier(dtype: DType, reduction: str) -> DType:
    """The dtype in which elements are combined: sums and products of narrow floats are rounded once."""
    if dtype is dtypes.boolean and reduction != "none":
        return dtypes.u8
    return dtypes.f32 if dtype in (dtypes.f16, dtypes.bf16) and reduction in ("add", "mul") else dtype


def _scattered(b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value, word: str, own: bool) -> Value:
    """x with the elements of `source` combined along `dim`; unless `own`, x itself counts only where nothing comes."""
    if 0 in b.dims(index):
        return x
    if b.rank(x) == 0:
        x, dim = b.reshape(x, [1]), 0
    positions, updates = (b.reshape(part, [1]) if b.rank(part) == 0 else part for part in (index, source))
    rank, reduction = b.rank(x), _COMBINED.get(word, "none")
    attrs: dict[str, Any] = {"axis": axis_of(dim, rank), "reduction": reduction}
    places = from_the_front(b, tensor(b, positions, dtypes.i64), x, dim)
    shape = b.shape_of(places)
    kind = _carrier(n.dtype, reduction)
    base = tensor(b, x, kind)
    used = b.slice(tensor(b, updates, kind), [0] * rank, shape, [1] * rank, axes=tuple(range(rank)))
    if not own and reduction != "none":
        blank = b.expand(b.constant(_identity(reduction, kind), kind), shape)
        base = b.scatter_elements(base, places, blank, axis=attrs["axis"])
    total = b.scatter_elements(base, places, used, **attrs)
    if word == "mean":
        start = b.expand(b.constant(1 if own else 0, kind), b.shape_of(x))
        count = b.scatter_elements(start, places, b.expand(b.constant(1, kind), shape), **attrs)
        several = b.max(count, 1)
        total = b.div(total, several) if kind.is_float else floor_divide(b, total, several)
    return tensor(b, total, n.dtype)


@aten("aten.scatter.src", "aten.scatter.reduce")
def scatter(b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value, *, reduce: str = "none") -> Results:
    return _as(b, _scattered(b, n, x, dim, index, source, reduce, True), x)


@aten("aten.scatter.value", "aten.scatter.value_reduce")
def scatter_value(
    b: Builder, n: Call, x: Value, dim: int, index: Value, value: Any, *, reduce: str = "none"
) -> Results:
    source = b.expand(tensor(b, value, n.dtype), b.shape_of(index))
    return _as(b, _scattered(b, n, x, dim, index, source, reduce, True), x)


@aten("aten.scatter_add.default")
def scatter_add(b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value) -> Results:
    return _as(b, _scattered(b, n, x, dim, index, source, "sum", True), x)


@aten("aten.scatter_reduce.two")
def scatter_reduce(
    b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Results:
    return _as(b, _scattered(b, n, x, dim, index, source, reduce, include_self), x)


def _as(b: Builder, result: Value, x: Value) -> Value:
    """A result with the rank of x, which may be 0."""
    return result if b.rank(x) else b.reshape(result, [])


@aten("aten.index_reduce.default")
def index_reduce(
    b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Results:
    if b.rank(x) == 0:
        return scatter_reduce(b, n, x, 0, index, source, reduce, include_self=include_self)
    axis = axis_of(dim, b.rank(x))
    spread = b.reshape(index, b.vector(*(-1 if i == axis else 1 for i in range(b.rank(x)))))
    places = b.expand(spread, b.shape_of(source))
    return _scattered(b, n, x, axis, places, source, reduce, include_self)


# --- along one axis


def written_along(b: Builder, x: Value, axis: int, places: Value, updates: Value, reduction: str = "none") -> Value:
    """x with slices of `updates` written, or combined with what is there, at `places` (a vector) of one axis."""
    rank = b.rank(x)
    front = (axis, *(i for i in range(rank) if i != axis))
    back = tuple(sorted(range(rank), key=lambda i: front[i]))
    turned = b.transpose(updates, perm=front)
    written = b.scatter_nd(b.transpose(x, perm=front), b.unsqueeze(places, axes=(1,)), turned, reduction=reduction)
    return b.transpose(written, perm=back)


@aten("aten.index_add.default")
def index_add(b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1) -> Results:
    if 0 in b.dims(x):
        return x
    kind = _carrier(n.dtype, "add")
    updates = b.mul(tensor(b, source, kind), tensor(b, alpha, kind))
    return tensor(b, _indexed(b, tensor(b, x, kind), dim, index, updates, "add"), n.dtype)


@aten("aten.index_copy.default")
def index_copy(b: Builder, n: Call, x: Value, dim: int, index: Value, source: Value) -> Results:
    return _indexed(b, x, dim, index, tensor(b, source, n.dtype), "none")


def _indexed(b: Builder, x: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    """x with slices of `source` at places of an axis that do not count from its end; a scalar is one place."""
    line = x if b.rank(x) else b.reshape(x, [1])
    if _is_void_beside(b, line, dim):
        return x
    updates = source if b.rank(source) == b.rank(line) else b.reshape(source, [-1])
    places = from_the_front(b, b.reshape(tensor(b, index, dtypes.i64), [-1]), line, dim)
    written = written_along(b, line, axis_of(dim, b.rank(line)), places, updates, reduction)
    return _as(b, written, x)


def _is_void_beside(b: Builder, x: Value, dim: int) -> bool:
    """Whether another axis is empty: then eager looks at no position, wrong ones included."""
    axis = axis_of(dim, b.rank(x))
    return any(size == 0 for i, size in enumerate(b.dims(x)) if i != axis)


@aten("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(b: Builder, n: Call, x: Value, dim: int, index: Value, value: Any) -> Results:
    line = x if b.rank(x) else b.reshape(x, [1])
    axis, places = axis_of(dim, b.rank(line)), b.reshape(tensor(b, index, dtypes.i64), [-1])
    if _is_void_beside(b, line, dim):
        return x
    shape = b.vector(*(b.shape_of(places) if i == axis else b.size(line, i) for i in range(b.rank(line))))
    return _as(b, written_along(b, line, axis, places, b.expand(tensor(b, value, n.dtype), shape)), x)


@aten("aten.slice_scatter.default")
def slice_scatter(
    b: Builder, n: Call, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: Number = 1
) -> Results:
    axis = axis_of(dim, b.rank(x))
    low, high = 0 if start is None else start, 2**62 if end is None else end
    line = b.iota(scalar_size(b, x, axis))
    places = b.slice(line, sizes(b, [low]), sizes(b, [high]), sizes(b, [step]), axes=(0,))
    shape = b.vector(*(b.shape_of(places) if i == axis else b.size(x, i) for i in range(b.rank(x))))
    return written_along(b, x, axis, places, b.expand(tensor(b, source, n.dtype), shape))


@aten("aten.select_scatter.default")
def select_scatter(b: Builder, n: Call, x: Value, source: Value, dim: int, index: Number) -> Results:
    axis = axis_of(dim, b.rank(x))
    shape = b.vector(*(1 if i == axis else b.size(x, i) for i in range(b.rank(x))))
    updates = b.expand(b.unsqueeze(tensor(b, source, n.dtype), axes=(axis,)), shape)
    return written_along(b, x, axis, sizes(b, [index]), updates)


# --- in row-major order


@aten("aten.put.default")
def put(b: Builder, n: Call, x: Value, index: Value, source: Value, accumulate: bool = False) -> Results:
    reduction = "add" if accumulate else "none"
    kind = _carrier(n.dtype, reduction)
    places = b.reshape(tensor(b, index, dtypes.i64), [-1, 1])
    updates = b.reshape(tensor(b, source, kind), [-1])
    written = b.scatter_nd(b.reshape(tensor(b, x, kind), [-1]), places, updates, reduction=reduction)
    return tensor(b, b.reshape(written, b.shape_of(x)), n.dtype)


@aten("aten.take.default")
def take(b: Builder, n: Call, x: Value, index: Value) -> Results:
    return b.gather(b.reshape(x, [-1]), tensor(b, index, dtypes.i64), axis=0)


@aten("aten.masked_scatter.default")
def masked_scatter(b: Builder, n: Call, x: Value, mask: Value, source: Value) -> Results:
    held = b.bit_or(truth(b, mask), b.expand(b.constant(False), b.shape_of(x)))
    flat = b.cast(b.reshape(held, [-1]), dtype=dtypes.i64)
    place = b.reshape(b.sub(b.cum_sum(flat, axis=0), 1), b.shape_of(held))
    spare = b.expand(b.constant(0, n.dtype), [1])  # what places outside of the mask read
    values = b.concat(b.reshape(tensor(b, source, n.dtype), [-1]), spare, axis=0)
    return b.where(held, b.gather(values, b.where(held, place, -1), axis=0), x)


@aten("aten.masked_scatter_backward.default")
def masked_scatter_backward(b: Builder, n: Call, gradient: Value, mask: Value, shape: list[Number]) -> Results:
    held = b.expand(truth(b, mask), b.shape_of(gradient))
    kept = b.gather_nd(gradient, _held(b, held))
    target = sizes(b, shape)
    count = b.reshape(b.reduce_prod(target), [1])
    missing = b.max(b.sub(count, b.shape_of(kept)), 0)
    full = b.pad(kept, b.concat(b.constant([0]), missing, axis=0), b.constant(0, n.dtype))
    return b.reshape(b.slice(full, [0], count, [1], axes=(0,)), target)


# --- what depends on data


@aten("aten.nonzero.default")
def nonzero(b: Builder, n: Call, x: Value) -> Results:
    return _held(b, truth(b, x))


def _held(b: Builder, mask: Value) -> Value:
    """Where a mask holds, one row a place; a place of rank 0 is told by no numbers."""
    if b.rank(mask):
        return b.transpose(b.nonzero(mask), perm=(1, 0))
    return b.slice(b.transpose(b.nonzero(b.reshape(mask, [1])), perm=(1, 0)), [0], [0], [1], axes=(1,))


@aten("aten.nonzero_static.default")
def nonzero_static(b: Builder, n: Call, x: Value, *, size: Number, fill_value: int = -1) -> Results:
    found = _held(b, truth(b, x))
    filler = b.expand(b.constant(fill_value, dtypes.i64), sizes(b, [size, b.rank(x)]))
    return b.slice(b.concat(found, filler, axis=0), [0], sizes(b, [size]), [1], axes=(0,))


@aten("aten.masked_select.default")
def masked_select(b: Builder, n: Call, x: Value, mask: Value) -> Results:
    held = b.bit_or(truth(b, mask), b.expand(b.constant(False), b.shape_of(x)))
    line = b.reshape(b.expand(x, b.shape_of(held)), [-1])
    return b.gather(line, b.reshape(b.nonzero(b.reshape(held, [-1])), [-1]), axis=0)


@aten("aten.repeat_interleave.Tensor")
def repeat_interleave(b: Builder, n: Call, repeats: Value, *, output_size: Any = None) -> Results:
    """Each place as often as `repeats` says: at p stands the number of running sums that do not exceed p."""
    sums = b.cum_sum(tensor(b, repeats, dtypes.i64), axis=0)
    total = b.reshape(b.reduce_sum(tensor(b, repeats, dtypes.i64)), [1])
    blank = b.expand(b.constant(0, dtypes.i64), b.add(total, 1))
    ones = b.expand(b.constant(1, dtypes.i64), b.shape_of(sums))
    marked = b.scatter_nd(blank, b.unsqueeze(sums, axes=(1,)), ones, reduction="add")
    return tensor(b, b.slice(b.cum_sum(marked, axis=0), [0], total, [1], axes=(0,)), n.dtype)


@aten("aten.bincount.default")
def bincount(b: Builder, n: Call, x: Value, weights: Value | None = None, minlength: Number = 0) -> Results:
    places = tensor(b, x, dtypes.i64)
    highest = b.reduce_max(b.concat(places, b.constant([-1]), axis=0))
    count = b.max(b.add(highest, 1), tensor(b, minlength, dtypes.i64))
    one = b.constant(1, n.dtype) if weights is None else tensor(b, weights, n.dtype)
    blank = b.expand(b.constant(0, n.dtype), b.reshape(count, [1]))
    return b.scatter_nd(blank, b.unsqueeze(places, axes=(1,)), b.expand(one, b.shape_of(places)), reduction="add")
