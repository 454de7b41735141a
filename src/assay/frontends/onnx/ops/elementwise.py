"""Elementwise ONNX ops."""

from __future__ import annotations

from functools import reduce

import numpy as np

from assay.frontends.onnx.ops.common import scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.graph import Value

_SAME_MEANING = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "And": "bit_and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseAnd": "bit_and",
    "BitwiseNot": "bit_not",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Det": "det",
    "Div": "div",
    "Equal": "eq",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "IsNaN": "is_nan",
    "Less": "lt",
    "LessOrEqual": "le",
    "Log": "log",
    "MatMul": "matmul",
    "Mish": "mish",
    "Mul": "mul",
    "Neg": "neg",
    "Not": "bit_not",
    "Or": "bit_or",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Sub": "sub",
    "Tan": "tan",
    "Tanh": "tanh",
    "Where": "where",
    "Xor": "bit_xor",
}


def _enter(name: str, core: str) -> None:
    @onnx_op(name)
    def same(b: Builder, n: Source, *inputs: Value) -> Results:  # pyright: ignore[reportUnusedFunction]
        return b.emit(core, *inputs)


for _name, _core in _SAME_MEANING.items():
    _enter(_name, _core)

_FOLDS = {"Max": "max", "Min": "min", "Sum": "add"}


def _enter_fold(name: str, core: str) -> None:
    @onnx_op(name)
    def fold(b: Builder, n: Source, *inputs: Value) -> Results:  # pyright: ignore[reportUnusedFunction]
        return reduce(lambda x, y: b.emit(core, x, y)[0], inputs)


for _name, _core in _FOLDS.items():
    _enter_fold(_name, _core)


@onnx_op("Mean")
def mean(b: Builder, n: Source, *inputs: Value) -> Results:
    return b.div(reduce(lambda x, y: b.add(x, y), inputs), len(inputs))


@onnx_op("Pow")
def power(b: Builder, n: Source, x: Value, y: Value) -> Results:
    base, exponent = b.dtype(x), b.dtype(y)
    if base is exponent:
        return b.pow(x, y)
    if base.is_integer and exponent.is_integer:
        return b.pow(x, b.cast(y, dtype=base))
    wide = b.pow(b.cast(x, dtype=dtypes.f64), b.cast(y, dtype=dtypes.f64))
    return b.cast(wide, dtype=base)


@onnx_op("Mod")
def mod(b: Builder, n: Source, x: Value, y: Value) -> Results:
    return b.fmod(x, y) if n.flag("fmod", 0) else b.mod(x, y)


@onnx_op("BitShift")
def bit_shift(b: Builder, n: Source, x: Value, y: Value) -> Results:
    return b.shift_left(x, y) if n.str("direction") == "LEFT" else b.shift_right(x, y)


@onnx_op("IsInf")
def is_inf(b: Builder, n: Source, x: Value) -> Results:
    positive, negative = n.flag("detect_positive", 1), n.flag("detect_negative", 1)
    wide = x if b.dtype(x) in dtypes.FLOATS else b.cast(x, dtype=dtypes.f32)
    if positive and negative:
        return b.is_inf(wide)
    if not positive and not negative:
        return b.expand(b.constant(False), b.shape_of(x))
    return b.eq(wide, np.inf if positive else -np.inf)


@onnx_op("IsNaN", since=20)
def is_nan(b: Builder, n: Source, x: Value) -> Results:
    return b.is_nan(x if b.dtype(x) in dtypes.FLOATS else b.cast(x, dtype=dtypes.f32))


@onnx_op("Clip")
def clip_attributes(b: Builder, n: Source, x: Value) -> Results:
    return b.clip(x, n.float("min", None), n.float("max", None))


@onnx_op("Clip", since=11)
def clip(b: Builder, n: Source, x: Value, low: Value | None = None, high: Value | None = None) -> Results:
    return b.clip(x, low and scalar(b, low), high and scalar(b, high))


@onnx_op("Elu")
def elu(b: Builder, n: Source, x: Value) -> Results:
    return b.elu(x, alpha=n.float("alpha"))


@onnx_op("Selu")
def selu(b: Builder, n: Source, x: Value) -> Results:
    return b.elu(x, alpha=n.float("alpha"), gamma=n.float("gamma"))


@onnx_op("Celu")
def celu(b: Builder, n: Source, x: Value) -> Results:
    alpha = n.float("alpha")
    return b.where(b.lt(x, 0.0), b.mul(alpha, b.expm1(b.div(x, alpha))), x)


@onnx_op("LeakyRelu")
def leaky_relu(b: Builder, n: Source, x: Value) -> Results:
    return b.leaky_relu(x, slope=n.float("alpha"))


@onnx_op("PRelu")
def prelu_by_channel(b: Builder, n: Source, x: Value, slope: Value) -> Results:
    return b.prelu(x, slope if b.shape(slope) == (1,) else b.reshape(slope, [-1] + [1] * (b.rank(x) - 2)))


@onnx_op("PRelu", since=7)
def prelu(b: Builder, n: Source, x: Value, slope: Value) -> Results:
    return b.prelu(x, slope)


@onnx_op("ThresholdedRelu")
def thresholded_relu(b: Builder, n: Source, x: Value) -> Results:
    return b.where(b.lt(n.float("alpha"), x), x, 0.0)


@onnx_op("HardSigmoid")
def hard_sigmoid(b: Builder, n: Source, x: Value) -> Results:
    return b.clip(b.add(b.mul(x, n.float("alpha")), n.float("beta")), 0.0, 1.0)


@onnx_op("HardSwish")
def hard_swish(b: Builder, n: Source, x: Value) -> Results:
    return b.mul(x, b.clip(b.add(b.mul(x, 1 / 6), 0.5), 0.0, 1.0))


@onnx_op("Softsign")
def softsign(b: Builder, n: Source, x: Value) -> Results:
    return b.div(x, b.add(1.0, b.abs(x)))


@onnx_op("Swish")
def swish(b: Builder, n: Source, x: Value) -> Results:
    alpha = n.float("alpha")
    return b.silu(x) if alpha == 1.0 else b.mul(x, b.sigmoid(b.mul(x, alpha)))


@onnx_op("Gelu")
def gelu(b: Builder, n: Source, x: Value) -> Results:
    return b.gelu_tanh(x) if n.str("approximate") == "tanh" else b.gelu(x)


@onnx_op("Shrink")
def shrink(b: Builder, n: Source, x: Value) -> Results:
    lambd, bias = n.float("lambd"), n.float("bias")
    if not b.dtype(x).is_float:
        wide = shrink(b, n, b.cast(x, dtype=dtypes.f64))
        return b.cast(wide, dtype=b.dtype(x))
    zero = b.mul(x, 0.0)
    return b.where(b.lt(x, -lambd), b.add(x, bias), b.where(b.lt(lambd, x), b.sub(x, bias), zero))
