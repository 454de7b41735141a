"""Evenly spaced numbers, counted from the nearer end as torch's kernel does it."""

from __future__ import annotations

from typing import Any

from assay.frontends.torch.ops.common import Number, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value


@aten(
    "aten.linspace.default",
    "aten.linspace.Tensor_Tensor",
    "aten.linspace.Tensor_Scalar",
    "aten.linspace.Scalar_Tensor",
)
def linspace(b: Builder, n: Call, start: Any, end: Any, steps: Number, **layout: Any) -> Results:
    """Whole numbers are spaced in f64 and cut off at the end; the others in their own dtype."""
    if n.dtype.kind == "complex":
        raise TypeError("complex numbers are spaced by torch itself")
    first, last = (tensor(b, tensor(b, value, n.dtype), _step_dtype(n)) for value in (start, end))
    count = tensor(b, steps, dtypes.i64)
    place = b.iota(count)
    gaps = b.cast(b.max(b.sub(count, 1), 1), dtype=b.dtype(first))
    step = b.div(b.sub(last, first), gaps)
    ahead = b.add(first, b.mul(step, _as(b, place, first)))
    behind = b.sub(last, b.mul(step, _as(b, b.sub(b.sub(count, place), 1), first)))
    near_start = b.bit_or(b.lt(place, b.div(count, 2)), b.eq(count, 1))
    return tensor(b, b.where(near_start, ahead, behind), n.dtype)


def _step_dtype(n: Call) -> Any:
    return n.dtype if n.dtype.is_float else dtypes.f64


def _as(b: Builder, counted: Value, like: Value) -> Value:
    return b.cast(counted, dtype=b.dtype(like))
