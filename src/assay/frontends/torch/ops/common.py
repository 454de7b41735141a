"""Small helpers that several families of aten lowerings share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay.errors import LowerFailed
from assay.frontends.torch.registry import Builder
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ops.parts import scalar_size

Number = int | float | bool | Value
"""A number of the source: known, or a symbolic one (a value of rank 0)."""


def wide_dtype(dtype: DType) -> DType:
    """The dtype that torch computes in on floats of `dtype`."""
    return dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype


def from_the_front(b: Builder, places: Value, x: Value, axis: int) -> Value:
    """Positions along an axis of x, negative ones beyond its end: what may not count from there, eager refuses."""
    known = b.fact(places).concrete
    if known is not None and bool((known >= 0).all()):
        return places
    return b.where(b.lt(places, 0), scalar_size(b, x, axis), places)


def tensor(b: Builder, value: Any, dtype: DType) -> Value:
    """A tensor or number as a tensor of `dtype`; TypeError where that would drop an imaginary part."""
    if not isinstance(value, Value):
        return b.constant(value, dtype)
    if b.dtype(value).kind == "complex" and dtype.kind != "complex":
        raise TypeError(f"{b.dtype(value)} as {dtype} would drop the imaginary part")
    if b.dtype(value).is_float and dtype in _BY_WAY_OF_I32:
        value = _within_i32(b, value)
    return value if b.dtype(value) is dtype else b.cast(value, dtype=dtype)


_BY_WAY_OF_I32 = (dtypes.i32, dtypes.i16, dtypes.i8, dtypes.u16)
"""Integers that torch converts floats to through i32, in which all that does not fit is the lowest number."""


def _within_i32(b: Builder, x: Value) -> Value:
    wide = x if b.dtype(x) in (dtypes.f32, dtypes.f64) else b.cast(x, dtype=dtypes.f32)
    fits = b.bit_and(b.le(-(2.0**31), wide), b.lt(wide, 2.0**31))
    return b.where(fits, wide, -(2.0**31))


def sizes(b: Builder, dims: Sequence[Number]) -> Value:
    """Sizes, known or symbolic, as an i64 vector."""
    return b.vector(*(d if isinstance(d, Value) else int(d) for d in dims))


def promoted(b: Builder, left: Any, right: Any) -> tuple[Value, Value]:
    """Two operands in the dtype that torch computes a comparison of them in; numbers follow the tensor."""
    if not isinstance(left, Value):
        return tensor(b, left, _with_number(b.dtype(right), left)), tensor(b, right, _with_number(b.dtype(right), left))
    if not isinstance(right, Value):
        kind = _with_number(b.dtype(left), right)
        return tensor(b, left, kind), tensor(b, right, kind)
    kind = common_dtype(b.dtype(left), b.rank(left), b.dtype(right), b.rank(right))
    return tensor(b, left, kind), tensor(b, right, kind)


def _with_number(dtype: DType, number: Any) -> DType:
    """The dtype of a tensor joined with a Python number, which only lifts the kind."""
    if isinstance(number, float) and not (dtype.is_float or dtype.kind == "complex"):
        return dtypes.f32
    if isinstance(number, int) and not isinstance(number, bool) and dtype is dtypes.boolean:
        return dtypes.i64
    return dtype


def common_dtype(a: DType, rank_a: int, b: DType, rank_b: int) -> DType:
    """torch's promotion of two tensors: those of rank 0 only lift the kind."""
    import torch

    from assay.frontends.torch.types import dtype_of, torch_dtype

    shapes = [torch.empty((1,) * min(rank, 1), dtype=torch_dtype(kind)) for kind, rank in ((a, rank_a), (b, rank_b))]
    return dtype_of(torch.result_type(*shapes))


def with_elements(b: Builder, x: Value, axes: Iterable[int] | None = None) -> Value:
    """x, none of whose axes (or of these) may be known to be empty: torch is left to say what is wrong with that."""
    dims = b.dims(x)
    if 0 in (dims if axes is None else [dims[axis] for axis in axes]):
        raise ValueError("torch says what is wrong with an axis without elements")
    return x


def check_bias(b: Builder, bias: Value, product: Value) -> None:
    """LowerFailed if a bias has not the shape of what it is added to, nor one that repeats: torch's kernels refuse what
    would make the result larger, its rules for tracing do not."""
    given, wanted = b.dims(bias), b.dims(product)
    pairs = zip(reversed(given), reversed(wanted), strict=False)
    known = [(old, new) for old, new in pairs if isinstance(old, int) and isinstance(new, int)]
    if len(given) > len(wanted) or any(old not in (1, new) for old, new in known):
        shapes = f"{[str(size) for size in given]} cannot be added to a product of {[str(size) for size in wanted]}"
        raise LowerFailed(f"a bias of the shape {shapes}".replace("'", ""), hint="torch refuses it, too")
