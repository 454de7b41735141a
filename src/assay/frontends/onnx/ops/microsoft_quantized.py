"""`com.microsoft` ops on quantised tensors: out of the quantised range, the op itself, back into it."""

from __future__ import annotations

from collections.abc import Callable

from assay.frontends.onnx.ops.common import axes_operand, scalar
from assay.frontends.onnx.ops.microsoft import microsoft_op, standard
from assay.frontends.onnx.ops.quantization import integer_product
from assay.frontends.onnx.registry import Builder, Results, Source
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.registry import as_results


def dequantized(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    """x as f32."""
    return b.dequantize_linear(x, scale, zero, dtype=dtypes.f32)


def quantized(b: Builder, x: Value, scale: Value, zero: Value | None, like: Value) -> Value:
    """x in the dtype of `like`."""
    return b.quantize_linear(x, scale, zero, dtype=b.dtype(like))


# --- elementwise

_BINARY = {"QLinearAdd": "add", "QLinearMul": "mul"}


def _enter_binary(name: str, core: str) -> None:
    @microsoft_op(name)
    def binary(  # pyright: ignore[reportUnusedFunction]
        b: Builder,
        n: Source,
        x: Value,
        x_scale: Value,
        x_zero: Value | None,
        y: Value,
        y_scale: Value,
        y_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
    ) -> Results:
        result = b.emit(core, dequantized(b, x, x_scale, x_zero), dequantized(b, y, y_scale, y_zero))[0]
        return quantized(b, result, scale, zero, x)


for _name, _core in _BINARY.items():
    _enter_binary(_name, _core)


def _softmax(b: Builder, n: Source, x: Value) -> Results:
    return standard(b, n, "Softmax", n.int("opset"), x, axis=n.int("axis", -1))


def _average(b: Builder, n: Source, x: Value) -> Results:
    return standard(b, n, "AveragePool", 11, x)


def _global_average(b: Builder, n: Source, x: Value) -> Results:
    return standard(b, n, "GlobalAveragePool", 1, x)


def _mean(b: Builder, n: Source, x: Value) -> Results:
    return b.reduce_mean(x, axes=axes_operand(b, n, None), keepdims=n.flag("keepdims", 1))


def _leaky_relu(b: Builder, n: Source, x: Value) -> Results:
    return b.leaky_relu(x, slope=n.float("alpha", 0.01))


def _sigmoid(b: Builder, n: Source, x: Value) -> Results:
    return b.sigmoid(x)


_UNARY: dict[str, Callable[[Builder, Source, Value], Results]] = {
    "QLinearAveragePool": _average,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearLeakyRelu": _leaky_relu,
    "QLinearReduceMean": _mean,
    "QLinearSigmoid": _sigmoid,
    "QLinearSoftmax": _softmax,
}


def _enter_unary(name: str, rule: Callable[[Builder, Source, Value], Results]) -> None:
    @microsoft_op(name)
    def unary(  # pyright: ignore[reportUnusedFunction]
        b: Builder,
        n: Source,
        x: Value,
        x_scale: Value,
        x_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
    ) -> Results:
        last = n.flag("channels_last", 0)
        plain = dequantized(b, channels_first(b, x) if last else x, x_scale, x_zero)
        result = quantized(b, as_results(rule(b, n, plain))[0], scale, zero, x)
        return channels_last(b, result) if last else result


def channels_first(b: Builder, x: Value) -> Value:
    """(N, …, C) → (N, C, …)."""
    return b.transpose(x, perm=(0, b.rank(x) - 1, *range(1, b.rank(x) - 1)))


def channels_last(b: Builder, x: Value) -> Value:
    """(N, C, …) → (N, …, C)."""
    return b.transpose(x, perm=(0, *range(2, b.rank(x)), 1))


for _name, _rule in _UNARY.items():
    _enter_unary(_name, _rule)


@microsoft_op("QLinearConcat")
def qlinear_concat(b: Builder, n: Source, scale: Value, zero: Value, *triples: Value) -> Results:
    rows = zip(triples[::3], triples[1::3], triples[2::3], strict=True)
    return quantized(b, b.concat(*(dequantized(b, *row) for row in rows), axis=n.int("axis")), scale, zero, zero)


@microsoft_op("QLinearWhere")
def qlinear_where(
    b: Builder,
    n: Source,
    condition: Value,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    scale: Value,
    zero: Value,
) -> Results:
    chosen = b.where(condition, dequantized(b, x, x_scale, x_zero), dequantized(b, y, y_scale, y_zero))
    return quantized(b, chosen, scale, zero, x)


@microsoft_op("MulInteger")
def mul_integer(
    b: Builder, n: Source, x: Value, x_zero: Value | None, y: Value, y_zero: Value | None = None
) -> Results:
    sides = [(x, x_zero), (y, y_zero)]
    wide = [b.cast(value, dtype=dtypes.i32) for value, _ in sides]
    moved = [
        value if zero is None else b.sub(value, b.cast(zero, dtype=dtypes.i32))
        for value, (_, zero) in zip(wide, sides, strict=True)
    ]
    return b.mul(*moved)


# --- products


@microsoft_op("QLinearConv")
def qlinear_conv(b: Builder, n: Source, x: Value, *others: Value | None) -> Results:
    if not n.flag("channels_last", 0):
        return standard(b, n, "QLinearConv", 10, x, *others)
    return channels_last(b, as_results(standard(b, n, "QLinearConv", 10, channels_first(b, x), *others))[0])


@microsoft_op("MatMulIntegerToFloat")
def matmul_integer_to_float(
    b: Builder,
    n: Source,
    x: Value,
    y: Value,
    x_scale: Value,
    y_scale: Value,
    x_zero: Value | None = None,
    y_zero: Value | None = None,
    bias: Value | None = None,
) -> Results:
    product = b.cast(integer_product(b, x, x_zero, y, y_zero), dtype=b.dtype(x_scale))
    scaled = b.mul(product, b.mul(x_scale, y_scale))
    return scaled if bias is None else b.add(scaled, bias)


@microsoft_op("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    b: Builder, n: Source, x: Value, y: Value, y_scale: Value, y_zero: Value | None = None, bias: Value | None = None
) -> Results:
    values, scale, zero = b.emit("dynamic_quantize", x)
    return matmul_integer_to_float(b, n, values, y, scale, y_scale, zero, y_zero, bias)


@microsoft_op("QGemm")
def qgemm(
    b: Builder,
    n: Source,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    added: Value | None = None,
    scale: Value | None = None,
    zero: Value | None = None,
) -> Results:
    left = b.transpose(x, perm=(1, 0)) if n.flag("transA", 0) else x
    right = b.transpose(y, perm=(1, 0)) if n.flag("transB", 0) else y
    product = integer_product(b, left, x_zero, right, y_zero)
    total = product if added is None else b.add(product, added)
    factor = b.mul(b.mul(scalar(b, x_scale), y_scale), n.float("alpha", 1.0))
    result = b.mul(b.cast(total, dtype=dtypes.f32), factor)
    return result if scale is None else quantized(b, result, scale, zero, x if zero is None else zero)
