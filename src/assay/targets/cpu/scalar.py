"""The elementwise core ops as C expressions: one row of a table each.

A value that is computed with has the *compute type* of its dtype: the C type itself, but float for f16 and bf16. It
always is a number that the dtype holds: `load` and `store` lead from memory to it and back without loss, and
`expression` rounds where an op needs it, just as the oracle does at every op. Of tiny dtypes it is the byte as it lies
in memory: none but `cast` asks for the number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import INTEGERS, TINY_FLOATS, TINY_INTEGERS, DType
from assay.ir.graph import Node
from assay.ops.registry import CORE, Tolerance
from assay.targets.base import limitation
from assay.targets.shared.tensors import dtype_of

_CTYPES: dict[DType, str] = {
    dtypes.f64: "double",
    dtypes.f32: "float",
    dtypes.f16: "_Float16",
    dtypes.bf16: "uint16_t",
    dtypes.boolean: "uint8_t",
    **{d: f"{'u' if d.kind == 'uint' else ''}int{d.bits}_t" for d in INTEGERS},
    **dict.fromkeys((*TINY_FLOATS, *TINY_INTEGERS), "uint8_t"),
}
_NARROW = frozenset({dtypes.f16, dtypes.bf16})
_TINY = frozenset({*TINY_FLOATS, *TINY_INTEGERS})

# --- from memory to values and back


def ctype(dtype: DType) -> str:
    """The C type of an element in memory."""
    return _CTYPES[dtype]


_BITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "bytes16"}


def bits(dtype: DType) -> str:
    """The C type of elements that are moved as they are, whatever they mean."""
    return _BITS[dtype.numpy.itemsize]


def compute_type(dtype: DType) -> str:
    """The C type of a value that is computed with."""
    return "float" if dtype in _NARROW else _CTYPES[dtype]


_LOADS = {dtypes.f16: "f16_to_f32(*(const bits16 *)&{0})", dtypes.bf16: "bf16_to_f32({0})"}
_STORES = {dtypes.f16: "f16_of_bits(f16_bits({0}))", dtypes.bf16: "bf16_bits({0})"}


def load(dtype: DType, element: str) -> str:
    """The value of an element, an lvalue of `ctype`."""
    return _LOADS.get(dtype, "{0}").format(element)


def store(dtype: DType, value: str) -> str:
    """What to assign to an element for it to hold `value`."""
    return _STORES.get(dtype, "{0}").format(value)


_ROUNDINGS = {
    dtypes.f64: "(double)({0})",
    dtypes.f32: "(float)({0})",
    dtypes.f16: "rounded_f16({0})",
    dtypes.bf16: "rounded_bf16({0})",
}


def rounded(dtype: DType, number: str) -> str:
    """A number as a value of `dtype`, a float type; f16 and bf16 by way of f32, as far as the number is a double."""
    return _ROUNDINGS[dtype].format(number)


def literal(dtype: DType, value: Any) -> str:
    """A number as a C constant of the compute type."""
    if dtype in _TINY:
        return str(_byte(dtype, value))
    if dtype.is_float:
        suffix = "" if dtype is dtypes.f64 else "f"
        number = float(value)
        text = number.hex() + suffix if math.isfinite(number) else "NAN" if math.isnan(number) else "INFINITY"
        return f"({'-' if number == -math.inf else ''}{text})"
    number = int(value)
    if dtype is dtypes.i64 and number == dtype.limits[0]:
        return "INT64_MIN"
    return f"(({ctype(dtype)}){number}{'ull' if dtype.kind == 'uint' else 'll'})"


# --- the table


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """An op as C, for each kind of dtype that it is computed in; empty: not at all.

    {0}, {1}, {2} are the operands: names or constants, so that they may occur twice. {T} is the result's compute type,
    {W} an unsigned type in which integers of the dtype wrap around, {w} i64 or u64, {bits} the dtype's width,
    {dtype} its name, {f} the ending of the C library's names; an attribute's name stands for its number, a double.
    `wide` says that for f32 the expression is a double that is still to be rounded. `work` counts the
    instructions for an element.
    """

    f32: str = ""
    f64: str = ""
    integer: str = ""
    boolean: str = ""
    wide: bool = False
    work: int = 1


def _plain(floats: str = "", integer: str = "", boolean: str = "", work: int = 1) -> ScalarRow:
    """The same for every float."""
    return ScalarRow(floats, floats, integer, boolean, work=work)


def _function(f32: str, f64: str = "", work: int = 20) -> ScalarRow:
    """A function of one float: from math.h for f32, the C library's for f64, which may be called otherwise."""
    return ScalarRow(f"{f32}_f32({{0}})", f"{f64 or f32}({{0}})", work=work)


def _comparison(sign: str, boolean: bool = False) -> ScalarRow:
    text = f"({{0}} {sign} {{1}})"
    return _plain(text, text, text if boolean else "")


_ROWS: dict[str, ScalarRow] = {
    "neg": _plain("(-{0})", "({T})(0 - ({W}){0})"),
    "abs": _plain("__builtin_fabs{f}({0})", "({0} < 0 ? ({T})(0 - ({W}){0}) : {0})"),
    "sign": _plain("({0} != {0} ? {0} : ({T})(({0} > 0) - ({0} < 0)))", "({T})(({0} > 0) - ({0} < 0))"),
    "bit_not": _plain("", "({T})~{0}", "({0} ^ 1)"),
    "floor": _plain("__builtin_floor{f}({0})"),
    "ceil": _plain("__builtin_ceil{f}({0})"),
    "trunc": _plain("__builtin_trunc{f}({0})"),
    "round": _plain("__builtin_rint{f}({0})"),
    "sqrt": _plain("__builtin_sqrt{f}({0})", work=4),
    "rsqrt": _plain("(1 / __builtin_sqrt{f}({0}))", work=8),
    "reciprocal": _plain("(1 / {0})", work=4),
    "square": _plain("({0} * {0})", "({T})(({W}){0} * ({W}){0})"),
    "relu": _plain("({0} < 0 ? 0 : {0})", "({0} > 0 ? {0} : 0)"),
    "exp": _function("exp", work=15),
    "expm1": _function("expm1", work=30),
    "exp2": _function("exp2", work=15),
    "log": _function("log"),
    "log1p": _function("log1p", work=40),
    "log2": _function("log2", work=40),
    "log10": _function("log10", work=40),
    "sin": _function("sin", work=60),
    "cos": _function("cos", work=60),
    "tan": _function("tan", work=80),
    "asin": _function("asin", work=60),
    "acos": _function("acos", work=60),
    "atan": _function("atan", work=40),
    "sinh": _function("sinh", work=40),
    "cosh": _function("cosh", work=40),
    "tanh": _function("tanh"),
    "asinh": _function("asinh", work=60),
    "acosh": _function("acosh", work=60),
    "atanh": _function("atanh", work=50),
    "erf": _function("erf", work=40),
    "sigmoid": _function("sigmoid", "sigmoid_f64"),
    "softplus": _function("softplus", "softplus_f64", work=60),
    "silu": _function("silu", "silu_f64"),
    "mish": _function("mish", "mish_f64"),
    "gelu": _function("gelu", "gelu_f64", work=35),
    "gelu_tanh": _function("gelu_tanh", "gelu_tanh_f64", work=25),
    "elu": ScalarRow(
        "({gamma} * ({0} < 0 ? {alpha} * exp_wide({0}, 1.0) : {0}))",
        "({gamma} * ({0} < 0 ? {alpha} * expm1({0}) : {0}))",
        wide=True,
        work=30,
    ),
    "leaky_relu": ScalarRow("({0} < 0 ? {slope} * {0} : {0})", "({0} < 0 ? {slope} * {0} : {0})", wide=True, work=4),
    "add": _plain("({0} + {1})", "({T})(({W}){0} + ({W}){1})"),
    "sub": _plain("({0} - {1})", "({T})(({W}){0} - ({W}){1})"),
    "mul": _plain("({0} * {1})", "({T})(({W}){0} * ({W}){1})"),
    "div": _plain("({0} / {1})", "({T})div_{w}({0}, {1})", work=4),
    "mod": ScalarRow("mod_f32({0}, {1})", "mod_f64({0}, {1})", "({T})mod_{w}({0}, {1})", work=20),
    "fmod": _plain("__builtin_fmod{f}({0}, {1})", "({T})fmod_{w}({0}, {1})", work=20),
    "pow": ScalarRow("pow_f32({0}, {1})", "pow({0}, {1})", "({T})pow_{w}({0}, {1})", work=80),
    "min": ScalarRow("min_f32({0}, {1})", "min_f64({0}, {1})", "({0} < {1} ? {0} : {1})"),
    "max": ScalarRow("max_f32({0}, {1})", "max_f64({0}, {1})", "({0} > {1} ? {0} : {1})"),
    "prelu": _plain("({0} < 0 ? {0} * {1} : {0})", "({0} < 0 ? ({T})(({W}){0} * ({W}){1}) : {0})"),
    "bit_and": _plain("", "({0} & {1})", "({0} & {1})"),
    "bit_or": _plain("", "({0} | {1})", "({0} | {1})"),
    "bit_xor": _plain("", "({0} ^ {1})", "({0} ^ {1})"),
    "shift_left": _plain("", "({T})shift_left({0}, {1}, {bits})", work=4),
    "shift_right": _plain("", "({T})shift_right_{w}({0}, {1}, {bits})", work=4),
    "eq": _comparison("==", True),
    "ne": _comparison("!=", True),
    "lt": _comparison("<"),
    "le": _comparison("<="),
    "gt": _comparison(">"),
    "ge": _comparison(">="),
    "where": _plain("({0} ? {1} : {2})", "({0} ? {1} : {2})", "({0} ? {1} : {2})"),
    "is_nan": _plain("({0} != {0})"),
    "is_inf": _plain("(__builtin_fabs{f}({0}) == INFINITY)"),
    "sign_bit": ScalarRow("(bits_of_f32({0}) >> 31)", "(bits_of_f64({0}) >> 63)"),
    "copysign": _plain("__builtin_copysign{f}({0}, {1})"),
    "hypot": ScalarRow("hypot_f32({0}, {1})", "hypot({0}, {1})", work=20),
    "atan2": ScalarRow("atan2_f32({0}, {1})", "atan2({0}, {1})", work=60),
    "nextafter": ScalarRow("nextafter_{dtype}({0}, {1})", "nextafter({0}, {1})", work=15),
    "erfc": ScalarRow("erfc({0})", "erfc({0})", wide=True, work=80),
    "gcd": _plain("", "({T})gcd_{w}({0}, {1})", work=200),
    "lcm": _plain("", "({T})lcm_{w}({0}, {1})", work=200),
}


def _filled(template: str, node: Node, args: Sequence[str]) -> str:
    """A template of a row with all that it names put in."""
    dtype = _main_dtype(node)
    numbers = {key: literal(dtypes.f64, value) for key, value in node.attrs.items() if isinstance(value, int | float)}
    return template.format(
        *args,
        T=compute_type(dtype_of(node.outputs[0])),
        W="uint64_t" if dtype.bits == 64 else "uint32_t",
        w="u64" if dtype.kind == "uint" else "i64",
        bits=dtype.bits,
        dtype=dtype.name,
        f="" if dtype is dtypes.f64 else "f",
        **numbers,
    )


def _column(row: ScalarRow, dtype: DType) -> str:
    """The template for a dtype."""
    if dtype.is_float:
        return row.f64 if dtype is dtypes.f64 else row.f32
    return row.boolean if dtype is dtypes.boolean else row.integer


def _from_row(node: Node, args: Sequence[str]) -> str:
    row, result = _ROWS[node.op], dtype_of(node.outputs[0])
    text = _filled(_column(row, _main_dtype(node)), node, args)
    if row.wide:
        return _rounded_once(result, text)
    exact = CORE[node.op].tolerance is Tolerance.EXACT
    return rounded(result, text) if result in _NARROW and not exact else text


def _rounded_once(dtype: DType, number: str) -> str:
    """A double as a value of `dtype`. The oracle takes f16 from f64 directly, bf16 by way of f32."""
    return rounded(dtype, f"f32_to_odd({number})" if dtype is dtypes.f16 else number)


# --- ops of which a row does not say all


def _clip(node: Node, args: Sequence[str]) -> str:
    value, *bounds = args
    sides = zip(("max", "min"), node.inputs[1:], strict=False)
    given = [name for name, limit in sides if limit is not None]
    for name, bound in zip(given, bounds, strict=True):
        value = _filled(_column(_ROWS[name], _main_dtype(node)), node, [value, bound])
    return value


def _cast(node: Node, args: Sequence[str]) -> str:
    source, target, (value,) = _main_dtype(node), dtype_of(node.outputs[0]), args
    if source is target:
        return value
    number = _number(source, value)
    if target is dtypes.boolean:
        return f"({number} != 0)"
    if target in TINY_FLOATS:
        return _tiny_float(target, number, node.attrs["saturate"], node.attrs["rounding"])
    if target.is_float:
        return _rounded_once(target, number) if source is dtypes.f64 else rounded(target, number)
    whole = _whole(target, number) if source.is_float else number
    return f"({whole} & {_mask(target)})" if target in TINY_INTEGERS else f"(({ctype(target)}){whole})"


def _whole(target: DType, value: str) -> str:
    """A float as an integer of which `target` keeps the lowest bits."""
    wide = {dtypes.i64: "i64", dtypes.u64: "u64"}
    return f"f64_to_{wide.get(target, 'i32')}({value})"


# --- what the bytes of tiny dtypes mean


def _number(dtype: DType, value: str) -> str:
    """The number that a value stands for: an f32 for tiny floats, an i32 for tiny integers, else the value itself."""
    if dtype in TINY_INTEGERS:
        sign = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
        return f"((({value} & {_mask(dtype)}) ^ {sign}) - {sign})"
    if dtype in TINY_FLOATS:
        return f"power_to_f32({value})" if dtype is _POWERS else f"tiny_to_f32({value}, {_format(dtype)})"
    return value


def _tiny_float(dtype: DType, number: str, saturate: bool, rounding: str) -> str:
    """A number as the byte of a tiny float; where there is neither infinity nor NaN, infinity is the largest one."""
    beyond = _byte(dtype, dtype.limits[1] if saturate else math.inf)
    if dtype is _POWERS:
        up = {"nearest": 1 << 51, "up": (1 << 52) - 1, "down": 0}[rounding]
        return f"f64_to_power({number}, {up}, {beyond})"
    return f"f32_to_tiny({number}, {_format(dtype)}, {beyond})"


_POWERS = dtypes.by_name("f8e8m0")


@cache
def _format(dtype: DType) -> str:
    """A tiny float as a `tiny_float` of `c/tiny.h`."""
    facts = cast(Any, ml_dtypes).finfo(dtype.numpy)
    fields = {
        "mantissa": facts.nmant,
        "bias": 1 - facts.minexp,
        "sign": 1 << (dtype.bits - 1),
        "highest": _byte(dtype, dtype.limits[1]),
        "infinity": _byte(dtype, math.inf),
        "nan": _byte(dtype, math.nan),
        "one_zero": int(_byte(dtype, -0.0) == 0),
    }
    return f"(tiny_float){{{', '.join(f'.{name} = {number}' for name, number in fields.items())}}}"


def _byte(dtype: DType, number: Any) -> int:
    """A number of a tiny dtype as it lies in memory."""
    return int(np.array(number).astype(dtype.numpy).view(np.uint8))


def _mask(dtype: DType) -> int:
    return (1 << dtype.bits) - 1


# --- the bits of values


def _bitcast(node: Node, args: Sequence[str]) -> str:
    source, target = _main_dtype(node), dtype_of(node.outputs[0])
    bits = _TO_BITS.get(source, "{0}").format(*args)
    return _FROM_BITS.get(target, "(({T}){0})").format(bits, T=compute_type(target))


_TO_BITS = {
    dtypes.f64: "bits_of_f64({0})",
    dtypes.f32: "bits_of_f32({0})",
    dtypes.f16: "f16_bits({0})",
    dtypes.bf16: "bf16_bits({0})",
}
_FROM_BITS = {
    dtypes.f64: "f64_of_bits((uint64_t){0})",
    dtypes.f32: "f32_of_bits((uint32_t){0})",
    dtypes.f16: "f16_to_f32((uint16_t){0})",
    dtypes.bf16: "bf16_to_f32((uint16_t){0})",
    dtypes.boolean: "({0} != 0)",
}

_FUNCTIONS: dict[str, Callable[[Node, Sequence[str]], str]] = {"clip": _clip, "cast": _cast, "bitcast": _bitcast}

# --- what others ask


@limitation("complex numbers are not computed with")
def _complex(node: Node) -> bool:
    return any(value is not None and dtype_of(value) not in _CTYPES for value in (*node.inputs, *node.outputs))


LIMITATIONS = (_complex,)
"""Nodes of these ops that are no elementwise C."""


def expression(node: Node, args: Sequence[str]) -> str:
    """The result of a node that `LIMITATIONS` leave. `args` are the inputs that there are: names or constants, of
    their dtypes' compute types."""
    return _FUNCTIONS.get(node.op, _from_row)(node, args)


def work(node: Node) -> int:
    """About how many instructions an element takes."""
    row = _ROWS.get(node.op)
    return 2 if row is None else row.work


def _main_dtype(node: Node) -> DType:
    """The dtype that the op's first type variable stands for: the one that is computed in."""
    definition = CORE[node.op]
    index = next(i for i, param in enumerate(definition.params) if param.dtype in definition.typevars)
    return dtype_of(node.inputs[index])


OPS = frozenset({*_ROWS, *_FUNCTIONS})
"""The core ops that have C for at least one dtype."""
