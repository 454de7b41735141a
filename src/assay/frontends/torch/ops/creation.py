"""aten ops that make tensors out of numbers. Memory that torch leaves uninitialised holds zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.frontends.torch.ops.common import Number, sizes, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.parts import size_quotient


def filled(b: Builder, n: Call, value: Any, shape: Value) -> Value:
    """A tensor of the result's dtype that holds one number everywhere."""
    return b.expand(tensor(b, value, n.dtype), shape)


@aten("aten.full.default")
def full(b: Builder, n: Call, shape: Sequence[Number], value: Any, **layout: Any) -> Results:
    return filled(b, n, value, sizes(b, shape))


@aten("aten.full_like.default")
def full_like(b: Builder, n: Call, x: Value, value: Any, **layout: Any) -> Results:
    return filled(b, n, value, b.shape_of(x))


@aten("aten.new_full.default")
def new_full(b: Builder, n: Call, x: Value, shape: Sequence[Number], value: Any, **layout: Any) -> Results:
    return filled(b, n, value, sizes(b, shape))


@aten(
    "aten.empty.memory_format",
    "aten.empty_permuted.default",
    "aten.empty_strided.default",
    "aten.zeros.default",
    "aten._efficientzerotensor.default",
)
def zeros(b: Builder, n: Call, shape: Sequence[Number], strides: Any = None, **layout: Any) -> Results:
    return filled(b, n, 0, sizes(b, shape))


@aten("aten.ones.default")
def ones(b: Builder, n: Call, shape: Sequence[Number], **layout: Any) -> Results:
    return filled(b, n, 1, sizes(b, shape))


@aten("aten.empty_like.default", "aten.zeros_like.default", "aten.zero.default")
def zeros_like(b: Builder, n: Call, x: Value, **layout: Any) -> Results:
    return filled(b, n, 0, b.shape_of(x))


@aten("aten.ones_like.default")
def ones_like(b: Builder, n: Call, x: Value, **layout: Any) -> Results:
    return filled(b, n, 1, b.shape_of(x))


@aten("aten.new_empty.default", "aten.new_empty_strided.default", "aten.new_zeros.default")
def new_zeros(b: Builder, n: Call, x: Value, shape: Sequence[Number], strides: Any = None, **layout: Any) -> Results:
    return filled(b, n, 0, sizes(b, shape))


@aten("aten.new_ones.default")
def new_ones(b: Builder, n: Call, x: Value, shape: Sequence[Number], **layout: Any) -> Results:
    return filled(b, n, 1, sizes(b, shape))


@aten("aten.fill.Scalar", "aten.fill.Tensor")
def fill(b: Builder, n: Call, x: Value, value: Any) -> Results:
    return filled(b, n, value, b.shape_of(x))


@aten("aten.copy.default")
def copy(b: Builder, n: Call, x: Value, source: Value, non_blocking: bool = False) -> Results:
    return b.expand(tensor(b, source, n.dtype), b.shape_of(x))


@aten("aten.scalar_tensor.default", "aten.prims.scalar_tensor.default")
def scalar_tensor(b: Builder, n: Call, value: Any, **layout: Any) -> Results:
    return tensor(b, value, n.dtype)


@aten("aten.arange.start_step", "aten.arange.start")
def arange(b: Builder, n: Call, start: Number, end: Number, step: Number = 1, **layout: Any) -> Results:
    wide = dtypes.f64 if n.dtype.is_float else dtypes.i64
    low, high, by = (tensor(b, value, wide) for value in (start, end, step))
    return _stepped(b, n, low, by, _steps(b, b.sub(high, low), by))


@aten("aten.arange.default")
def arange_from_zero(b: Builder, n: Call, end: Number, **layout: Any) -> Results:
    return arange(b, n, 0, end)


@aten("aten.range.step", "aten.range.default")
def range_(b: Builder, n: Call, start: Number, end: Number, step: Number = 1, **layout: Any) -> Results:
    low, high, by = (tensor(b, value, dtypes.f64) for value in (start, end, step))
    count = b.add(b.cast(b.floor(b.div(b.sub(high, low), by)), dtype=dtypes.i64), 1)
    return _stepped(b, n, low, by, count)


def _steps(b: Builder, span: Value, by: Value) -> Value:
    """⌈span / by⌉."""
    if b.dtype(span).is_float:
        return b.cast(b.ceil(b.div(span, by)), dtype=dtypes.i64)
    if b.fact(by).concrete is not None and b.array(by, "step") == 1:
        return span
    return b.neg(size_quotient(b, b.neg(span), by))


def _stepped(b: Builder, n: Call, low: Value, by: Value, count: Value) -> Value:
    steps = tensor(b, b.iota(count), b.dtype(low))
    return tensor(b, b.add(low, b.mul(steps, by)), n.dtype)


@aten("aten.tril_indices.default", "aten.triu_indices.default")
def triangle_indices(b: Builder, n: Call, rows: int, columns: int, offset: int = 0, **layout: Any) -> Results:
    distance = np.arange(columns) - np.arange(rows)[:, None]
    held = distance <= offset if ".tril" in n.node.op else distance >= offset
    return tensor(b, b.constant(np.stack(np.nonzero(held))), n.dtype)


@aten("aten.prims.iota.default")
def iota(b: Builder, n: Call, length: Number, *, start: Number, step: Number, **layout: Any) -> Results:
    return _stepped(b, n, tensor(b, start, dtypes.i64), tensor(b, step, dtypes.i64), tensor(b, length, dtypes.i64))
