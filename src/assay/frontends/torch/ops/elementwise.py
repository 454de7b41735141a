"""Elementwise aten ops. Operands are brought to the dtype that torch says the result has."""

from __future__ import annotations

from typing import Any

from assay.frontends.torch.ops.common import promoted, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value

_UNARY = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "exp": "exp",
    "expm1": "expm1",
    "floor": "floor",
    "log": "log",
    "log1p": "log1p",
    "mish": "mish",
    "neg": "neg",
    "reciprocal": "reciprocal",
    "relu": "relu",
    "round": "round",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
    "trunc": "trunc",
}
_WHOLE = {"ceil", "floor", "round", "trunc"}
"""Integers are whole already."""
_OF_TRUTH = {"abs", "relu"}
"""Truth values stay as they are."""


def _enter_unary(name: str, core: str) -> None:
    @aten(f"aten.{name}.default")
    def unary(b: Builder, n: Call, x: Value) -> Results:  # pyright: ignore[reportUnusedFunction]
        if (name in _WHOLE and not b.dtype(x).is_float) or (name in _OF_TRUTH and n.dtype is dtypes.boolean):
            return x
        return b.emit(core, tensor(b, x, n.dtype))[0]


for _name, _core in _UNARY.items():
    _enter_unary(_name, _core)


@aten("aten.sign.default")
def sign(b: Builder, n: Call, x: Value) -> Results:
    """NaN has no sign: torch gives 0."""
    if n.dtype is dtypes.boolean:
        return x
    found = b.sign(x)
    return b.where(b.is_nan(x), b.constant(0, n.dtype), found) if n.dtype.is_float else found


_BINARY = {
    "bitwise_and": "bit_and",
    "bitwise_left_shift": "shift_left",
    "bitwise_or": "bit_or",
    "bitwise_right_shift": "shift_right",
    "bitwise_xor": "bit_xor",
    "fmod": "fmod",
    "maximum": "max",
    "minimum": "min",
    "mul": "mul",
    "remainder": "mod",
}
_LOGICAL = {"mul": "bit_and", "max": "bit_or", "min": "bit_and"}
"""What stands for arithmetic between truth values."""
_DIVISIONS = {"fmod", "mod"}
_OVERLOADS = ("default", "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor")


def _for(n: Call, core: str) -> str:
    return _LOGICAL.get(core, core) if n.dtype is dtypes.boolean else core


def refuse_zero(b: Builder, dividend: Value, divisor: Value) -> None:
    """The error that eager raises where whole numbers are divided by zero; of no numbers none is."""
    known = b.fact(divisor).concrete
    if not b.dtype(divisor).is_integer or (known is not None and bool(known.all())):
        return
    fine = b.bit_or(b.ne(divisor, 0), b.ne(dividend, dividend))
    b.require(fine, message="ZeroDivisionError: a whole number is divided by zero")


def _enter_binary(name: str, core: str) -> None:
    @aten(*(f"aten.{name}.{overload}" for overload in _OVERLOADS))
    def binary(b: Builder, n: Call, x: Any, y: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        left, right = tensor(b, x, n.dtype), tensor(b, y, n.dtype)
        if core in _DIVISIONS:
            refuse_zero(b, left, right)
        return b.emit(_for(n, core), left, right)[0]


for _name, _core in _BINARY.items():
    _enter_binary(_name, _core)

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _enter_comparison(name: str) -> None:
    @aten(*(f"aten.{name}.{overload}" for overload in ("default", "Tensor", "Scalar")))
    def comparison(b: Builder, n: Call, x: Any, y: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        left, right = promoted(b, x, y)
        if b.dtype(left) is dtypes.boolean:
            left, right = (b.cast(side, dtype=dtypes.u8) for side in (left, right))
        return b.emit(name, left, right)[0]


for _name in _COMPARISONS:
    _enter_comparison(_name)


def _scaled(b: Builder, n: Call, y: Any, alpha: Any) -> Value:
    scaled = tensor(b, y, n.dtype)
    return scaled if alpha == 1 else b.mul(scaled, tensor(b, alpha, n.dtype))


@aten("aten.add.Tensor", "aten.add.Scalar")
def add(b: Builder, n: Call, x: Any, y: Any, alpha: Any = 1) -> Results:
    if n.dtype is dtypes.boolean:
        left, right = tensor(b, x, n.dtype), tensor(b, y, n.dtype)
        return b.bit_or(left, b.bit_and(right, tensor(b, alpha, n.dtype)))
    return b.add(tensor(b, x, n.dtype), _scaled(b, n, y, alpha))


@aten("aten.sub.Tensor", "aten.sub.Scalar")
def sub(b: Builder, n: Call, x: Any, y: Any, alpha: Any = 1) -> Results:
    return b.sub(tensor(b, x, n.dtype), _scaled(b, n, y, alpha))


@aten("aten.true_divide.Tensor", "aten.true_divide.Scalar")
@aten("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div(b: Builder, n: Call, x: Any, y: Any, rounding_mode: str | None = None) -> Results:
    left, right = tensor(b, x, n.dtype), tensor(b, y, n.dtype)
    refuse_zero(b, left, right)
    if rounding_mode == "floor":
        return floor_divide(b, left, right)
    quotient = b.div(left, right)
    return b.trunc(quotient) if rounding_mode == "trunc" and n.dtype.is_float else quotient


def floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """⌊x / y⌋; for floats by way of the remainder, as torch does it."""
    kind = b.dtype(x)
    if not kind.is_float:
        return _floor_divide_integers(b, x, y)
    work = dtypes.f64 if kind is dtypes.f64 else dtypes.f32
    left, right = tensor(b, x, work), tensor(b, y, work)
    rest, plain = b.fmod(left, right), b.div(left, right)
    whole = b.div(b.sub(left, rest), right)
    crossed = b.bit_and(b.ne(rest, 0.0), b.ne(b.lt(right, 0.0), b.lt(rest, 0.0)))
    lower = b.where(crossed, b.sub(whole, 1.0), whole)
    below = b.floor(lower)
    nearest = b.where(b.lt(0.5, b.sub(lower, below)), b.add(below, 1.0), below)
    signed = b.where(b.eq(lower, 0.0), b.mul(plain, 0.0), nearest)
    return tensor(b, b.where(b.eq(right, 0.0), plain, signed), kind)


def _floor_divide_integers(b: Builder, x: Value, y: Value) -> Value:
    """No step leaves the range of the dtype, so this also holds at its ends."""
    rest = b.fmod(x, y)
    crossed = b.bit_and(b.ne(rest, 0), b.ne(b.lt(rest, 0), b.lt(y, 0)))
    return b.sub(b.div(x, y), b.cast(crossed, dtype=b.dtype(x)))


@aten("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide_tensor(b: Builder, n: Call, x: Any, y: Any) -> Results:
    dividend, divisor = tensor(b, x, n.dtype), tensor(b, y, n.dtype)
    refuse_zero(b, dividend, divisor)
    return floor_divide(b, dividend, divisor)


@aten("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def power(b: Builder, n: Call, x: Any, y: Any) -> Results:
    return b.pow(tensor(b, x, n.dtype), tensor(b, y, n.dtype))


@aten("aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default")
def logical(b: Builder, n: Call, x: Value, y: Value) -> Results:
    core = {"and": "bit_and", "or": "bit_or", "xor": "bit_xor"}[n.node.op.split(".")[1].removeprefix("logical_")]
    return b.emit(core, truth(b, x), truth(b, y))[0]


def truth(b: Builder, x: Value) -> Value:
    """True where x is not zero."""
    return x if b.dtype(x) is dtypes.boolean else b.ne(x, 0)


@aten("aten.logical_not.default")
def logical_not(b: Builder, n: Call, x: Value) -> Results:
    return b.bit_not(truth(b, x))


@aten("aten.bitwise_not.default")
def bitwise_not(b: Builder, n: Call, x: Value) -> Results:
    return b.bit_not(x)


@aten("aten.where.self")
def where(b: Builder, n: Call, condition: Value, x: Any, y: Any) -> Results:
    return b.where(truth(b, condition), tensor(b, x, n.dtype), tensor(b, y, n.dtype))


@aten("aten.clamp.default", "aten.clamp.Tensor")
def clamp(b: Builder, n: Call, x: Value, low: Any = None, high: Any = None) -> Results:
    result = tensor(b, x, n.dtype)
    for core, bound in (("max", low), ("min", high)):
        if bound is not None:
            result = b.emit(_for(n, core), result, tensor(b, bound, n.dtype))[0]
    return result


@aten("aten.fmax.default", "aten.fmin.default")
def without_nan(b: Builder, n: Call, x: Value, y: Value) -> Results:
    """The larger or smaller of two; a NaN gives way to the other."""
    left, right = tensor(b, x, n.dtype), tensor(b, y, n.dtype)
    core = "max" if ".fmax." in n.node.op else "min"
    chosen = b.emit(_for(n, core), left, right)[0]
    if not n.dtype.is_float:
        return chosen
    return b.where(b.is_nan(left), right, b.where(b.is_nan(right), left, chosen))


@aten("aten.gelu.default")
def gelu(b: Builder, n: Call, x: Value, approximate: str = "none") -> Results:
    return b.gelu_tanh(x) if approximate == "tanh" else b.gelu(x)


@aten("aten.leaky_relu.default")
def leaky_relu(b: Builder, n: Call, x: Value, slope: float = 0.01) -> Results:
    return b.leaky_relu(x, slope=float(slope))


@aten("aten.elu.default")
def elu(b: Builder, n: Call, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Results:
    negative = b.mul(b.expm1(b.mul(x, float(input_scale))), float(alpha) * float(scale))
    return b.where(b.lt(0.0, x), b.mul(x, float(scale)), negative)


@aten("aten.hardtanh.default")
def hardtanh(b: Builder, n: Call, x: Value, low: float = -1.0, high: float = 1.0) -> Results:
    return b.clip(x, low, high)


@aten("aten._to_copy.default", "aten.prims.convert_element_type.default")
def convert(b: Builder, n: Call, x: Value, dtype: Any = None, **layout: Any) -> Results:
    if b.dtype(x).kind != "complex" or n.dtype.kind == "complex":
        return tensor(b, x, n.dtype)
    if n.dtype is dtypes.boolean:
        return b.ne(x, 0)
    return tensor(b, b.cast(x, dtype=dtypes.f32 if b.dtype(x) is dtypes.c64 else dtypes.f64), n.dtype)


@aten(
    "aten.clone.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.detach.default",
    "aten.detach_copy.default",
    "aten.lift.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
)
def same(b: Builder, n: Call, x: Value, **layout: Any) -> Results:
    return x
