"""ONNX quantisation."""

from __future__ import annotations

from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, DType
from assay.ir.graph import Value
from assay.ops.definitions.attention import cast_to


def _stated(n: Source, name: str) -> DType | None:
    """An attribute that holds an element type's code, of which zero means none."""
    return n.dtype(name) if n.int(name, 0) else None


def _carrier_of(dtype: DType) -> DType:
    """The float that products and quotients with a scale of `dtype` are taken in."""
    return dtype if dtype in FLOATS else dtypes.f32


@onnx_op("QuantizeLinear")
@onnx_op("QuantizeLinear", domain="com.microsoft")
def quantize_linear(b: Builder, n: Source, x: Value, scale: Value, zero: Value | None = None) -> Results:
    target = _stated(n, "output_dtype") or (dtypes.u8 if zero is None else b.dtype(zero))
    if zero is not None and b.dtype(zero) is not target:
        raise ValueError(f"output_dtype asks for {target}, the zero point is {b.dtype(zero)}")
    wide = _stated(n, "precision") or _carrier_of(b.dtype(scale))
    return b.quantize_linear(
        cast_to(b, x, wide),
        cast_to(b, scale, wide),
        zero,
        dtype=target,
        axis=n.int("axis", 1),
        block=n.int("block_size", 0),
        saturate=n.flag("saturate", 1),
    )


@onnx_op("DequantizeLinear")
@onnx_op("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(b: Builder, n: Source, x: Value, scale: Value, zero: Value | None = None) -> Results:
    carrier = _carrier_of(b.dtype(scale))
    return b.dequantize_linear(
        x,
        cast_to(b, scale, carrier),
        zero,
        dtype=_stated(n, "output_dtype") or carrier,
        axis=n.int("axis", 1),
        block=n.int("block_size", 0),
    )


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Builder, n: Source, x: Value) -> Results:
    return b.emit("dynamic_quantize", x)


def integer_product(b: Builder, x: Value, x_zero: Value | None, y: Value, y_zero: Value | None) -> Value:
    """(x − its zero point) @ (y − its zero point) in i32, for tiny floats in f32; zero points may be one for all, one
    for each row of x and one for each column of y, or of the operand's own rank."""
    wide = dtypes.i32 if b.dtype(x).is_integer else dtypes.f32
    left, right = b.cast(x, dtype=wide), b.cast(y, dtype=wide)
    if x_zero is not None:
        left = b.sub(left, by_row(b, b.cast(x_zero, dtype=wide)))
    if y_zero is not None:
        right = b.sub(right, b.cast(y_zero, dtype=wide))
    return b.matmul(left, right)


def by_row(b: Builder, param: Value) -> Value:
    """A vector of one element for each row of a matrix as a column; anything else as it is."""
    return b.unsqueeze(param, axes=(1,)) if b.rank(param) == 1 and b.shape(param) != (1,) else param


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    b: Builder,
    n: Source,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    scale: Value,
    zero: Value,
) -> Results:
    product = cast_to(b, integer_product(b, x, x_zero, y, y_zero), dtypes.f32)
    factor = b.div(b.mul(by_row(b, x_scale), y_scale), scale)
    scaled = b.mul(product, cast_to(b, factor, dtypes.f32))
    return b.quantize_linear(scaled, 1.0, zero, dtype=b.dtype(zero))
