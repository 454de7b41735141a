"""Conversions between element types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import ml_dtypes
import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Expr
from assay.ir.dtypes import TENSORS, TINY_FLOATS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.registry import Compute, Sample, op
from assay.ops.samples import Rng, draw
from assay.ops.shapes import same

_PLAIN = {d.numpy for d in dtypes.ALL if d.numpy.kind in "fiub" and d.bits >= 8}
_SPECIALS = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}


def _to_string(x: Array) -> Array:
    def text(item: Any) -> str:
        if isinstance(item, bool | np.bool_):
            return "1" if item else "0"
        plain = str(item)
        return _SPECIALS.get(plain, plain)

    wide = x if x.dtype.kind in "fiub" else x.astype(np.float32 if _is_float(x) else np.int64)
    return np.array([text(item) for item in wide.reshape(-1)], dtype=object).reshape(x.shape)


def _from_string(x: Array, dtype: DType) -> Array:
    convert: Any = float if dtype.is_float else int
    if dtype.kind == "bool":
        return np.array([item not in ("", "0", "False", "false") for item in x.reshape(-1)]).reshape(x.shape)
    return np.array([convert(item) for item in x.reshape(-1)]).reshape(x.shape).astype(dtype.numpy)


def saturated(x: Array, dtype: DType) -> Array:
    """Floats cast to a tiny float, values beyond its range clamped to the largest finite ones; NaN stays."""
    lowest, highest = dtype.limits
    return np.clip(x.astype(np.float64), lowest, highest).astype(np.float32).astype(dtype.numpy)


def _to_exponent_only(x: Array, rounding: str, saturate: bool) -> Array:
    """Floats as powers of two (f8e8m0)."""
    wide = x.astype(np.float64)
    mantissa, exponent = np.frexp(np.abs(wide))
    exponent = exponent - 1
    above = mantissa > 0.5
    up = {"up": above, "down": np.zeros_like(above), "nearest": mantissa >= 0.75}[rounding]
    power = exponent + up
    limit = np.where(power > 127, 127 if saturate else 128, power)
    code = np.where(wide == 0, 0, np.clip(limit + 127, 0, 255))
    code = np.where(np.isinf(wide), 254 if saturate else 255, code)
    return np.where(np.isnan(wide), 255, code).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def _is_float(x: Array) -> bool:
    return dtypes.of(x).is_float


def cast_array(x: Array, dtype: DType, *, saturate: bool = True, rounding: str = "nearest") -> Array:
    """`x` converted to `dtype`; see the op `cast`."""
    source = dtypes.of(x)
    if source is dtype:
        return x
    if source.kind == "complex":
        return x.astype(dtype.numpy) if dtype.kind == "complex" else cast_array(np.real(x), dtype)
    if dtype is dtypes.string:
        return _to_string(x)
    if source is dtypes.string:
        return cast_array(_from_string(x, dtypes.f64), dtype) if dtype in TINY_FLOATS else _from_string(x, dtype)
    if dtype.name == "f8e8m0":
        return _to_exponent_only(x, rounding, saturate)
    if dtype in TINY_FLOATS:
        return saturated(x, dtype) if saturate or dtype.bits < 8 else x.astype(np.float32).astype(dtype.numpy)
    if dtype.is_integer and (source.is_float or dtype.bits < 8):
        return _to_integer(x, dtype)
    return x.astype(dtype.numpy) if x.dtype in _PLAIN else x.astype(np.float64).astype(dtype.numpy)


def _to_integer(x: Array, dtype: DType) -> Array:
    """Truncation towards zero, then wrap-around into the width of `dtype`."""
    whole = np.trunc(x.astype(np.float64)) if _is_float(x) else x
    if dtype.bits < 8:
        bits = whole.astype(np.int64) & ((1 << dtype.bits) - 1)
        sign = 1 << (dtype.bits - 1)
        signed = bits - 2 * (bits & sign) if dtype.kind == "int" else bits
        return signed.astype(np.int8 if dtype.kind == "int" else np.uint8).astype(dtype.numpy)
    if dtype.bits == 64:
        return whole.astype(dtype.numpy)
    return whole.astype(np.int64).astype(dtype.numpy)


def _on_dims(x: Array, *, dtype: DType, saturate: bool, rounding: str) -> Array:
    if dtype in (dtypes.i64, dtypes.i32):
        return x
    mapped = np.frompyfunc(lambda d: UNKNOWN if isinstance(d, Expr) else d, 1, 1)
    return np.asarray(mapped(x), dtype=object)


def _cast_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    """Values that every target holds; text stands for numbers, and numbers that become text are short."""
    for target in TENSORS:
        if "complex" in (dtype.kind, target.kind) and "string" in (dtype.kind, target.kind):
            continue
        values = draw(rng, dtype, (3, 4), 0, 3)
        if dtype is dtypes.string:
            values = rng.choice(np.array(["0", "1", "2", "3"], dtype=object), size=(3, 4))
        elif target is dtypes.string and dtype.is_float:
            values = np.round(values.astype(np.float64)).astype(dtype.numpy)
        yield Sample((values,), {"dtype": target}, (0,) if dtype is dtypes.string else ())


@op(
    "T -> @dtype",
    T=TENSORS,
    shape=same,
    symbolic=_on_dims,
    samples=_cast_samples,
)
def cast_(x: Array, *, dtype: DType, saturate: bool = True, rounding: str = "nearest") -> Array:
    """x as another dtype. Floats become integers by truncation, integers wrap. With `saturate`, tiny floats take
    values beyond their range as their largest finite one. `rounding` (nearest, up, down) is for f8e8m0 alone."""
    return cast_array(x, dtype, saturate=saturate, rounding=rounding)


def _bitcast_shape(x: Fact, *, dtype: DType) -> list[Shape]:
    source = cast(Any, x.type).dtype
    if source.bits != dtype.bits:
        raise ValueError(f"{source} and {dtype} differ in width")
    return [x.shape]


@op(
    "T -> @dtype",
    T=tuple(d for d in TENSORS if d is not dtypes.string),
    shape=_bitcast_shape,
    compute=Compute.STORED,
    samples=lambda rng, dtype: [
        Sample((draw(rng, dtype, (3, 4)),), {"dtype": target})
        for target in TENSORS
        if target.bits == dtype.bits and target.kind != "bool"
    ],
)
def bitcast(x: Array, *, dtype: DType) -> Array:
    """The same bits read as another dtype of equal width."""
    return np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape)
