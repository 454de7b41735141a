"""aten ops on ordered elements: sorting, ranks, searching, different elements.

Among equal elements torch leaves open which of them `topk`, `kthvalue`, `median` and `mode` point to, and the order in
which an unstable sort of more than 16 elements puts them. Where equal elements are likely in floats, torch runs the op;
elsewhere they stand in the order of positions, and `mode` takes the last.
"""

from __future__ import annotations

from typing import Any

from assay.frontends.torch.ops.common import Number, promoted, tensor
from assay.frontends.torch.ops.scan import along
from assay.frontends.torch.registry import Builder, Call, Results, aten, leave_to_torch
from assay.ir import dtypes
from assay.ir.dims import lt
from assay.ir.graph import Value
from assay.ops.parts import scalar_size
from assay.ops.shapes import axis_of

_AMONG_EQUALS = "which of several equal elements is pointed to only torch's kernel knows"
leave_to_torch(_AMONG_EQUALS, "aten.kthvalue.default", "aten.mode.default")


@aten("aten.sort.default")
def sort(b: Builder, n: Call, x: Value, dim: int = -1, descending: bool = False) -> Results:
    if b.dtype(x) in (dtypes.boolean, dtypes.bf16, dtypes.f16):
        raise ValueError(f"equal elements are common in {b.dtype(x)}, and {_AMONG_EQUALS}")
    return _sorted(b, x, dim, descending)


def _sorted(b: Builder, x: Value, dim: int, descending: bool) -> Results:
    return along(b, x, dim, lambda value, axis: b.emit("sort", value, axis=axis, descending=descending))


@aten("aten.sort.stable")
def stable_sort(
    b: Builder, n: Call, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Results:
    return _sorted(b, x, dim, descending) if stable else sort(b, n, x, dim, descending)


@aten("aten.topk.default")
def topk(b: Builder, n: Call, x: Value, k: Number, dim: int = -1, largest: bool = True, sorted: bool = True) -> Results:
    if b.dtype(x) not in (dtypes.f32, dtypes.f64):
        raise ValueError(f"equal elements are common in {b.dtype(x)}, and {_AMONG_EQUALS}")
    count = tensor(b, k, dtypes.i64)
    return along(b, x, dim, lambda value, axis: b.emit("topk", value, count, axis=axis, largest=largest))


def _picked(b: Builder, x: Value, dim: int, keepdim: bool, place: Any) -> tuple[Value, ...]:
    """The element, and where it lies, that stands at `place(x, axis)` (with the axis kept) once an axis is sorted."""

    def pick(value: Value, axis: int) -> tuple[Value, ...]:
        axis = axis_of(axis, b.rank(value))
        at = place(value, axis)
        found = tuple(b.gather_elements(part, at, axis=axis) for part in b.emit("sort", value, axis=axis))
        return found if keepdim or b.rank(x) == 0 else tuple(b.squeeze(part, axes=(axis,)) for part in found)

    return along(b, x, dim, pick)


def _kept(b: Builder, x: Value, axis: int) -> Value:
    """The shape of x with an axis of size one."""
    return b.vector(*(1 if i == axis else b.size(x, i) for i in range(b.rank(x))))


def _middle(b: Builder, count: Value) -> Value:
    return b.max(b.shift_right(b.sub(count, 1), 1), 0)


def _require_elements(b: Builder, x: Value, axis: int) -> None:
    """An error, as in eager, in runs in which the axis has no elements, also if there are no lines along it."""
    if lt(0, b.dims(x)[axis]) is not True:
        message = f"median(): Expected reduction dim {axis} to have non-zero size."
        b.require(b.lt(0, scalar_size(b, x, axis)), message=message)


@aten("aten.median.dim", "aten.nanmedian.dim")
def median_along(b: Builder, n: Call, x: Value, dim: int, keepdim: bool = False) -> Results:
    skips = ".nanmedian." in n.node.op
    if b.rank(x):
        _require_elements(b, x, axis_of(dim, b.rank(x)))

    def place(value: Value, axis: int) -> Value:
        size = scalar_size(b, value, axis)
        if not b.dtype(value).is_float:
            return b.expand(_middle(b, size), _kept(b, value, axis))
        missing = b.reduce_sum(b.cast(b.is_nan(value), dtype=dtypes.i64), axes=(axis,), keepdims=True)
        there = b.sub(size, missing)
        middle = _middle(b, there if skips else b.expand(size, b.shape_of(missing)))
        return middle if skips else b.where(b.lt(0, missing), there, middle)  # the first NaN follows the numbers

    return _picked(b, x, dim, keepdim, place)


@aten("aten.median.default", "aten.nanmedian.default")
def median(b: Builder, n: Call, x: Value) -> Results:
    flat = b.reshape(x, [-1])
    if 0 in b.dims(x):
        return b.constant(float("nan") if n.dtype.is_float else n.dtype.limits[0], n.dtype)
    found = median_along(b, n, flat, 0)
    assert isinstance(found, tuple)
    return found[0]


# --- searching


@aten("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    b: Builder,
    n: Call,
    edges: Value,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Results:
    ordered = edges if sorter is None else b.gather_elements(edges, tensor(b, sorter, dtypes.i64), axis=-1)
    value = x if isinstance(x, Value) else tensor(b, x, b.dtype(edges))
    sequence, sought = promoted(b, ordered, value)
    return tensor(b, b.search_sorted(sequence, sought, right=right or side == "right"), n.dtype)


@aten("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(b: Builder, n: Call, x: Any, edges: Value, *, out_int32: bool = False, right: bool = False) -> Results:
    return searchsorted(b, n, edges, x, right=right)


# --- different elements


@aten("aten._unique2.default")
def unique2(
    b: Builder, n: Call, x: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Results:
    ranked, order = b.emit("sort", b.reshape(x, [-1]), axis=0)
    values, groups, counts = _runs(b, ranked)
    inverse = b.scatter_nd(groups, b.unsqueeze(order, axes=(1,)), groups)
    return values, *_asked(b, (b.reshape(inverse, b.shape_of(x)), counts), return_inverse, return_counts)


@aten("aten._unique.default")
def unique(b: Builder, n: Call, x: Value, sorted: bool = True, return_inverse: bool = False) -> Results:
    found = unique2(b, n, x, sorted, return_inverse)
    assert isinstance(found, tuple)
    return found[:2]


@aten("aten.unique_consecutive.default")
def unique_consecutive(
    b: Builder, n: Call, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Results:
    if dim is not None:
        return unique_dim_consecutive(b, n, x, dim, return_inverse, return_counts)
    values, groups, counts = _runs(b, b.reshape(x, [-1]))
    return values, *_asked(b, (b.reshape(groups, b.shape_of(x)), counts), return_inverse, return_counts)


@aten("aten.unique_dim_consecutive.default")
def unique_dim_consecutive(
    b: Builder, n: Call, x: Value, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Results:
    axis = axis_of(dim, b.rank(x))
    line = b.iota(scalar_size(b, x, axis))
    before = b.gather(x, b.max(b.sub(line, 1), 0), axis=axis)
    others = tuple(i for i in range(b.rank(x)) if i != axis)
    differs = b.reduce_max(b.ne(x, before), axes=others)
    first, groups, counts = _numbered(b, differs)
    return b.gather(x, first, axis=axis), *_asked(b, (groups, counts), return_inverse, return_counts)


@aten("aten.unique_dim.default")
def unique_dim(
    b: Builder,
    n: Call,
    x: Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Results:
    first, inverse, counts = b.emit("unique", x, axis=axis_of(dim, b.rank(x)))
    return b.gather(x, first, axis=dim), inverse, counts


def _runs(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """One element of each run of equal ones in a vector, the number of the run of each, their lengths."""
    line = b.iota(scalar_size(b, x, 0))
    previous = b.gather(x, b.max(b.sub(line, 1), 0), axis=0)
    first, groups, counts = _numbered(b, b.ne(x, previous))
    return b.gather(x, first, axis=0), groups, counts


def _numbered(b: Builder, differs: Value) -> tuple[Value, Value, Value]:
    """For places that differ from the one before: where runs begin, the run of each place, the lengths of runs."""
    size = scalar_size(b, differs, 0)
    starts = b.bit_or(differs, b.eq(b.iota(size), 0))
    begins = b.reshape(b.nonzero(starts), [-1])
    groups = b.sub(b.cum_sum(b.cast(starts, dtype=dtypes.i64), axis=0), 1)
    bounds = b.concat(begins, b.reshape(size, [1]), axis=0)
    ends = b.slice(bounds, [1], [2**62], [1], axes=(0,))
    return begins, groups, b.sub(b.slice(ends, [0], b.shape_of(begins), [1], axes=(0,)), begins)


def _asked(b: Builder, results: tuple[Value, Value], *wanted: bool) -> tuple[Value, ...]:
    """What was asked for; torch gives an empty vector in place of the rest."""
    nothing = b.constant([], dtypes.i64)
    return tuple(result if flag else nothing for result, flag in zip(results, wanted, strict=True))
