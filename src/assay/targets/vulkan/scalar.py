"""The elementwise core ops over the language of kernels: one row of a table each.

A value has the computed kind of its dtype (see `shader.computed_kind`) and always is a number that the dtype holds:
`applied` rounds and wraps where an op needs it, just as the oracle does at every op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from assay.ir import dtypes
from assay.ir.dtypes import INTEGERS, TINY_INTEGERS, DType
from assay.ir.graph import Node
from assay.ops.registry import CORE, Tolerance
from assay.targets.base import limitation
from assay.targets.shared.tensors import dtype_of
from assay.targets.vulkan import functions as f
from assay.targets.vulkan.code import KernelCode, ShaderValue
from assay.targets.vulkan.spirv import WIDTHS, Ext
from assay.targets.vulkan.storage import bf16_bits, computed_kind, f16_bits, rounded, widened
from assay.targets.vulkan.tiny import TINY, byte_from, number_of

COMPUTED: frozenset[DType] = frozenset({*INTEGERS, dtypes.boolean, dtypes.f64, dtypes.f32, dtypes.f16, dtypes.bf16})
"""The dtypes that are computed with. Of tiny ones, only `cast` asks for the number."""

Attributes: TypeAlias = Mapping[str, Any]
Rule: TypeAlias = Callable[..., ShaderValue]
"""A function of the operands; one with attributes takes those by name."""


@dataclass(frozen=True, slots=True)
class ShaderRow:
    """An op for each kind of dtype that it is computed in; None: not at all. `work` counts instructions, about."""

    floats: Rule | None = None
    integer: Rule | None = None
    boolean: Rule | None = None
    work: int = 1


# --- integers


def wrapped(s: KernelCode, value: ShaderValue, dtype: DType) -> ShaderValue:
    """An integer by the lowest bits that its dtype has."""
    if not dtype.is_integer or dtype.bits >= 32:
        return value
    if dtype.kind == "uint":
        return value & ((1 << dtype.bits) - 1)
    return (value << 32 - dtype.bits) >> 32 - dtype.bits


def _is_signed(x: ShaderValue) -> bool:
    return x.kind[0] == "i"


def _quotient(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    """Towards zero; 0 where y is."""
    s = x.shader
    zero = y.equals(0)
    if not _is_signed(x):
        return s.select(zero, s.value(0, x.kind), x / s.select(zero, s.value(1, x.kind), y))
    minus = y.equals(-1)
    found = x / s.select(zero | minus, s.value(1, x.kind), y)
    return s.select(zero, s.value(0, x.kind), s.select(minus, s.value(0, x.kind) - x, found))


def _truncated_rest(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.select(y.equals(0), s.value(0, x.kind), x - _quotient(x, y) * y)


def _floored_rest(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    s, rest = x.shader, _truncated_rest(x, y)
    if not _is_signed(x):
        return rest
    return s.select(rest.differs(0) & ((rest < 0) ^ (y < 0)), rest + y, rest)


def _int_power(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    s, kind = x.shader, x.kind
    unsigned = "u" + kind[1:]
    size = s.bitcast(s.select(y < 0, s.value(0, kind) - y, y), unsigned) if _is_signed(y) else y
    left, base, found = s.variable(unsigned, size), s.variable(kind, x), s.variable(kind, 1)
    with s.looping(lambda: left.get().differs(0)):
        odd = (left.get() & 1).differs(0)
        found.set(s.select(odd, found.get() * base.get(), found.get()))
        base.set(base.get() * base.get())
        left.set(left.get() >> 1)
    if not _is_signed(y):
        return found.get()
    units = x.equals(1) | x.equals(-1)
    return s.select((y >= 0) | units, found.get(), s.value(0, kind))


def _gcd(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    s, kind = x.shader, x.kind
    a, b = (s.variable(kind, _int_size(each)) for each in (x, y))
    with s.looping(lambda: b.get().differs(0)):
        rest = _truncated_rest(a.get(), b.get())
        a.set(b.get())
        b.set(rest)
    return a.get()


def _int_size(x: ShaderValue) -> ShaderValue:
    return x.shader.select(x < 0, x.shader.value(0, x.kind) - x, x) if _is_signed(x) else x


def _lcm(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    return _int_size(x) * _quotient(_int_size(y), _gcd(x, y))


def _shift(x: ShaderValue, y: ShaderValue, *, left: bool, bits: int) -> ShaderValue:
    s = x.shader
    count = s.bitcast(y, "u" + y.kind[1:])
    inside = count < bits
    most = WIDTHS[x.kind] - 1
    if not left and _is_signed(x):
        return x >> s.bitcast(s.select(inside, count, s.value(most, count.kind)), y.kind)
    bounded = s.bitcast(s.select(inside, count, s.value(0, count.kind)), y.kind)
    return s.select(inside, x << bounded if left else x >> bounded, s.value(0, x.kind))


def _int_sign(x: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.cast(x > 0, x.kind) - s.cast(x < 0, x.kind) if _is_signed(x) else s.cast(x > 0, x.kind)


# --- floats


def _float_sign(x: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.select(s.is_nan(x), x, s.cast(x > 0.0, x.kind) - s.cast(x < 0.0, x.kind))


def _float_min(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.select(s.is_nan(y) | (y < x), y, x)


def _float_max(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.select(s.is_nan(y) | (y > x), y, x)


def _float_mod(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    """The remainder with the sign of y, zeros with that of x."""
    s, rest = x.shader, f.remainder(x, y)
    return s.select(rest.differs(0.0) & ((rest < 0.0) ^ (y < 0.0)), rest + y, rest)


def _relu(x: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.select(x < s.value(0, x.kind), s.value(0, x.kind), x)


def _elu(x: ShaderValue, *, alpha: float, gamma: float) -> ShaderValue:
    return x.shader.select(x < 0.0, f.expm1(x) * alpha, x) * gamma


def _softplus(x: ShaderValue) -> ShaderValue:
    s = x.shader
    return s.select(x > 0.0, x, s.value(0.0, x.kind)) + f.log1p(f.exp(-f.absolute(x)))


def _gelu(x: ShaderValue) -> ShaderValue:
    lacks = f.lacking(f.absolute(x) * math.sqrt(0.5))
    return x * 0.5 * x.shader.select(x < 0.0, lacks, 2.0 - lacks)


def _gelu_tanh(x: ShaderValue) -> ShaderValue:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (f.tanh(inner) + 1.0)


def _one(rule: Callable[[ShaderValue], ShaderValue]) -> Rule:
    return rule


def _two(rule: Callable[[ShaderValue, ShaderValue], ShaderValue]) -> Rule:
    return rule


def _arithmetic(sign: str) -> Rule:
    return _two(lambda x, y: x.shader.arithmetic(sign, x, y))


def _compared(sign: str) -> Rule:
    return _two(lambda x, y: x.shader.comparison(sign, x, y))


def _leaky(x: ShaderValue, *, slope: float) -> ShaderValue:
    return x.shader.select(x < 0.0, x * slope, x)


def _sloped(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    return x.shader.select(x < x.shader.value(0, x.kind), x * y, x)


def _square(x: ShaderValue) -> ShaderValue:
    return x * x


def _invert(x: ShaderValue) -> ShaderValue:
    return ~x


def _comparison(sign: str, boolean: bool = False) -> ShaderRow:
    rule = _compared(sign)
    return ShaderRow(rule, rule, rule if boolean else None)


def _chosen(condition: ShaderValue, x: ShaderValue, y: ShaderValue) -> ShaderValue:
    return x.shader.select(condition, x, y)


_ROWS: dict[str, ShaderRow] = {
    "neg": ShaderRow(_one(lambda x: -x), _one(lambda x: x.shader.value(0, x.kind) - x)),
    "abs": ShaderRow(f.absolute, _int_size),
    "sign": ShaderRow(_float_sign, _int_sign),
    "bit_not": ShaderRow(None, _invert, _invert),
    "floor": ShaderRow(f.floor),
    "ceil": ShaderRow(_one(lambda x: x.shader.call(Ext.Ceil, x))),
    "trunc": ShaderRow(f.trunc),
    "round": ShaderRow(f.nearest),
    "sqrt": ShaderRow(f.sqrt, work=4),
    "rsqrt": ShaderRow(_one(lambda x: 1.0 / f.sqrt(x)), work=8),
    "reciprocal": ShaderRow(_one(lambda x: 1.0 / x), work=4),
    "square": ShaderRow(_square, _square),
    "relu": ShaderRow(_relu, _relu),
    "exp": ShaderRow(f.exp, work=20),
    "expm1": ShaderRow(f.expm1, work=30),
    "log": ShaderRow(f.log, work=25),
    "log1p": ShaderRow(f.log1p, work=40),
    "sin": ShaderRow(f.sin, work=40),
    "cos": ShaderRow(f.cos, work=40),
    "atan": ShaderRow(f.atan, work=40),
    "tanh": ShaderRow(f.tanh, work=35),
    "erf": ShaderRow(f.erf, work=70),
    "sigmoid": ShaderRow(f.sigmoid, work=25),
    "silu": ShaderRow(_one(lambda x: x * f.sigmoid(x)), work=26),
    "softplus": ShaderRow(_softplus, work=60),
    "gelu": ShaderRow(_gelu, work=75),
    "gelu_tanh": ShaderRow(_gelu_tanh, work=40),
    "elu": ShaderRow(_elu, work=35),
    "leaky_relu": ShaderRow(_leaky),
    "add": ShaderRow(_arithmetic("+"), _arithmetic("+")),
    "sub": ShaderRow(_arithmetic("-"), _arithmetic("-")),
    "mul": ShaderRow(_arithmetic("*"), _arithmetic("*")),
    "div": ShaderRow(_arithmetic("/"), _quotient, work=4),
    "mod": ShaderRow(_float_mod, _floored_rest, work=30),
    "fmod": ShaderRow(f.remainder, _truncated_rest, work=30),
    "pow": ShaderRow(f.power, _int_power, work=100),
    "min": ShaderRow(_float_min, _two(lambda x, y: x.shader.least(x, y))),
    "max": ShaderRow(_float_max, _two(lambda x, y: x.shader.greatest(x, y))),
    "prelu": ShaderRow(_sloped, _sloped),
    "bit_and": ShaderRow(None, _arithmetic("&"), _arithmetic("&")),
    "bit_or": ShaderRow(None, _arithmetic("|"), _arithmetic("|")),
    "bit_xor": ShaderRow(None, _arithmetic("^"), _arithmetic("^")),
    "eq": _comparison("==", True),
    "ne": _comparison("!=", True),
    "lt": _comparison("<"),
    "le": _comparison("<="),
    "gt": _comparison(">"),
    "ge": _comparison(">="),
    "where": ShaderRow(_chosen, _chosen, _chosen),
    "is_nan": ShaderRow(_one(lambda x: x.shader.is_nan(x))),
    "is_inf": ShaderRow(f.is_infinite),
    "sign_bit": ShaderRow(_one(lambda x: f.sign_of(x).differs(0))),
    "copysign": ShaderRow(_two(lambda x, y: f.with_sign(x, f.sign_of(y)))),
    "gcd": ShaderRow(None, _gcd, work=200),
    "lcm": ShaderRow(None, _lcm, work=200),
}


def _column(row: ShaderRow, dtype: DType) -> Rule | None:
    if dtype.is_float:
        return row.floats
    return row.boolean if dtype is dtypes.boolean else row.integer


def _from_row(
    s: KernelCode, op: str, dtype: DType, result: DType, attrs: Attributes, args: list[ShaderValue]
) -> ShaderValue:
    rule = _column(_ROWS[op], dtype)
    assert rule is not None
    found = rule(*args, **attrs)
    if result.is_float:
        return found if CORE[op].tolerance is Tolerance.EXACT else rounded(s, found, result)
    return wrapped(s, found, result)


# --- ops of which a row does not say all


def _shifted(
    s: KernelCode, op: str, dtype: DType, result: DType, attrs: Attributes, args: list[ShaderValue], *, left: bool
) -> ShaderValue:
    return wrapped(s, _shift(*args, left=left, bits=dtype.bits), result)


def _clip(
    s: KernelCode, op: str, dtype: DType, result: DType, attrs: Attributes, args: list[ShaderValue]
) -> ShaderValue:
    value, *bounds = args
    for name, bound in zip(attrs["given"], bounds, strict=True):
        rule = _column(_ROWS[name], dtype)
        assert rule is not None
        value = rule(value, bound)
    return value


def _cast(
    s: KernelCode, op: str, dtype: DType, result: DType, attrs: Attributes, args: list[ShaderValue]
) -> ShaderValue:
    (value,) = args
    if dtype is result:
        return value
    if dtype in TINY:
        value = number_of(value, dtype)
        dtype = dtypes.f32 if dtype.is_float else dtypes.i32
    if result is dtypes.boolean:
        return s.cast(value, "bool")
    if result in TINY_INTEGERS:
        whole = _whole(s, value, "i32") if dtype.is_float else s.cast(value, "i32")
        return s.bitcast(whole, "u32") & ((1 << result.bits) - 1)
    if result in TINY:
        return byte_from(s.cast(value, "f32"), result, attrs["saturate"], attrs["rounding"])
    kind = computed_kind(result)
    if result.is_float:
        narrow = _to_odd(s, value) if dtype is dtypes.f64 and result is dtypes.f16 else s.cast(value, kind)
        return rounded(s, narrow, result)
    if dtype.is_float:
        return wrapped(s, _whole(s, value, kind), result)
    return wrapped(s, s.cast(value, kind), result)


def _to_odd(s: KernelCode, value: ShaderValue) -> ShaderValue:
    """An f64 as an f32 that a further rounding rounds right: cut off, its last bit set if anything was lost."""
    near = s.cast(value, "f32")
    back, bits = s.cast(near, "f64"), s.bitcast(near, "u32")
    cut = s.select(f.absolute(back) > f.absolute(value), bits - 1, bits)
    odd = s.select(back.differs(value) & ~s.is_nan(value) & ~f.is_infinite(near), cut | 1, bits)
    return s.bitcast(odd, "f32")


def _whole(s: KernelCode, value: ShaderValue, kind: str) -> ShaderValue:
    """A float without its fraction, as NumPy has it where it fits; what does not is the lowest bits of what would."""
    if kind in ("i64", "u64"):
        high = (value >= 2.0**63) if kind == "u64" else s.value(False, "bool")
        moved = s.select(high, value - 2.0**63, value)
        inside = (moved >= -(2.0**63)) & (moved < 2.0**63)
        found = s.cast(s.select(inside, moved, s.value(0.0, value.kind)), "i64")
        found = s.select(inside, found, s.value(-(1 << 63), "i64"))
        flipped = s.bitcast(found, kind) ^ s.select(
            high, s.value(1 << 63 if kind == "u64" else 0, kind), s.value(0, kind)
        )
        return flipped if kind == "u64" else found
    whole = s.select(f.absolute(value) < 2.0**63, f.trunc(value), s.value(0.0, value.kind))
    low = whole - f.floor(whole * 2.0**-32 + 0.5) * 2.0**32
    low = s.select(low < -(2.0**31), low + 2.0**32, low)
    return s.bitcast(s.cast(low, "i32"), kind)


def _bitcast(
    s: KernelCode, op: str, dtype: DType, result: DType, attrs: Attributes, args: list[ShaderValue]
) -> ShaderValue:
    (value,) = args
    bits = _TO_BITS[dtype](s, value) if dtype in _TO_BITS else value
    if result is dtypes.boolean:
        return s.cast(bits, "bool")
    if result in _TO_BITS:
        return widened(s, s.cast(bits, "u16"), result)
    kind = computed_kind(result)
    if bits.kind == "bool" or dtype.bits < 32:
        return wrapped(s, s.cast(bits, kind), result)
    return s.bitcast(bits, kind)


_TO_BITS: dict[DType, Callable[[KernelCode, ShaderValue], ShaderValue]] = {dtypes.f16: f16_bits, dtypes.bf16: bf16_bits}
_FUNCTIONS: dict[str, Callable[..., ShaderValue]] = {
    "clip": _clip,
    "cast": _cast,
    "bitcast": _bitcast,
    "shift_left": partial(_shifted, left=True),
    "shift_right": partial(_shifted, left=False),
}

# --- what others ask


OPS = frozenset({*_ROWS, *_FUNCTIONS})
"""The core ops that are computed element by element, for one dtype at least."""


@limitation("complex numbers are not computed with")
def _uncomputed(node: Node) -> bool:
    values = (value for value in (*node.inputs, *node.outputs) if value is not None)
    return any(dtype_of(value) not in COMPUTED and dtype_of(value) not in TINY for value in values)


LIMITATIONS = (_uncomputed,)
"""Nodes of these ops that have no kernel."""


def attributes(node: Node) -> tuple[tuple[str, Any], ...]:
    """What a kernel must know of a node besides its dtypes."""
    if node.op == "clip":
        sides = zip(("max", "min"), node.inputs[1:], strict=False)
        return (("given", tuple(name for name, limit in sides if limit is not None)),)
    return tuple((name, value) for name, value in node.attrs.items() if type(value) in (int, float, bool, str))


def applied(
    s: KernelCode, op: str, dtype: DType, result: DType, attrs: Attributes, args: list[ShaderValue]
) -> ShaderValue:
    """The result of an op that `LIMITATIONS` leave; `args` are the inputs that there are."""
    return _FUNCTIONS.get(op, _from_row)(s, op, dtype, result, attrs, args)


def work(node: Node) -> int:
    """About how many instructions an element takes."""
    row = _ROWS.get(node.op)
    return 2 if row is None else row.work


def main_dtype(node: Node) -> DType:
    """The dtype that the op's first type variable stands for: the one that is computed in."""
    definition = CORE[node.op]
    index = next(i for i, param in enumerate(definition.params) if param.dtype in definition.typevars)
    return dtype_of(node.inputs[index])
