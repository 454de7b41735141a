"""Elementwise ops: arithmetic, comparisons, functions, choices, casts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from assay.ir.graph import Node, Value
from assay.targets.base import limitation
from assay.targets.ttnn.plan import CHANNELS_LAST, TILE, CallPlanner, Form, Named, Ref, kind_of, on_card
from assay.targets.ttnn.table import ALL, BOOL, FLOAT, INT, lowers

_SAME = (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp",
        "exp2", "expm1", "floor", "gelu", "log", "log10", "log1p", "log2", "mish", "reciprocal", "relu", "round",
        "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
UNARY: Mapping[str, str] = {**{name: name for name in _SAME}, "is_nan": "isnan", "is_inf": "isinf"}
"""Core op to call, for functions of one float."""

BINARY: Mapping[str, str] = {"div": "divide", "pow": "pow", "atan2": "atan2", "hypot": "hypot"}
"""The same for functions of two."""
ARITHMETIC: Mapping[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "mod": "remainder",
    "fmod": "fmod",
    "min": "minimum",
    "max": "maximum",
}
"""The same for what is there for integers, too."""
COMPARISONS: Mapping[str, str] = {"eq": "eq", "ne": "ne", "lt": "lt", "gt": "gt", "le": "le", "ge": "ge"}
LOGICAL: Mapping[str, str] = {"bit_and": "logical_and", "bit_or": "logical_or", "bit_xor": "logical_xor"}


def _unary(p: CallPlanner, node: Node, call: str, **kwargs: Any) -> None:
    """In whichever order the axes lie."""
    form = _present(p, node.inputs[0])
    p.give(node.outputs[0], p.call(call, p.take(node.inputs[0], form), **kwargs), form)


def _present(p: CallPlanner, value: Value | None) -> Form:
    """The form of a value in tiles: as it lies if its channels lie last, or if it is a bool that an integer tells;
    else the usual one."""
    assert value is not None
    usual, there = p.usual(value), p.forms(value)
    last = Form(usual.dtype, TILE, CHANNELS_LAST)
    if last in there or usual in there:
        return last if last in there else usual
    return _WORDS if kind_of(value) == "bool" and _WORDS in there else usual


_WORDS = Form("int32", TILE)


for _op, _call in UNARY.items():
    lowers(_op, calls=(_call,))(partial(_unary, call=_call))


for _op in ("abs", "neg"):
    lowers(_op, calls=(_op,), kinds=(FLOAT | INT,))(partial(_unary, call=_op))


@lowers("bit_not", calls=("logical_not", "bitwise_not"), kinds=(BOOL | INT,))
def _not(p: CallPlanner, node: Node) -> None:
    _unary(p, node, "logical_not" if _is_bool(node.inputs[0]) else "bitwise_not")


def _is_bool(value: Value | None) -> bool:
    return value is not None and kind_of(value) == "bool"


@lowers("leaky_relu", calls=("leaky_relu",))
def _leaky_relu(p: CallPlanner, node: Node) -> None:
    _unary(p, node, "leaky_relu", negative_slope=float(node.attrs["slope"]))


@limitation("elu has no γ in the library")
def _scaled(node: Node) -> bool:
    return node.attrs["gamma"] != 1.0


@lowers("elu", calls=("elu",), unless=(_scaled,))
def _elu(p: CallPlanner, node: Node) -> None:
    _unary(p, node, "elu", alpha=float(node.attrs["alpha"]))


@lowers("clip", calls=("clamp", "maximum", "minimum"), kinds=(FLOAT | INT,))
def _clip(p: CallPlanner, node: Node) -> None:
    """Bounds that are known are numbers, others are tensors; the upper one comes last, as it wins."""
    x, low, high = (*node.inputs, None, None)[:3]
    assert x is not None
    known = {name: p.number(value) for name, value in (("min", low), ("max", high)) if value is not None}
    if None not in known.values():
        _unary(p, node, "clamp", **known)
        return
    found = p.take(x)
    for call, bound in (("maximum", low), ("minimum", high)):
        found = found if bound is None else p.call(call, found, p.take(bound))
    p.give(node.outputs[0], found)


def _binary(p: CallPlanner, node: Node, call: str, **kwargs: Any) -> None:
    """A constant of one element is passed as a number."""
    x, y = node.inputs
    form = _common(p, node)
    number = p.scalar(y)
    right: Ref | float = p.take(y, form) if number is None or on_card(x) != on_card(node.outputs[0]) else number
    p.give(node.outputs[0], p.call(call, p.take(x, form), right, **kwargs), form)


def _common(p: CallPlanner, node: Node) -> Form:
    """The form in which both operands are there already, else the usual one."""
    x, y = node.inputs
    assert x is not None
    form = _present(p, x)
    same = p.number(y) is not None or (on_card(x) == on_card(y) and form in p.forms(y))
    return form if same and on_card(x) == on_card(node.outputs[0]) else p.usual(x)


for _op, _call in BINARY.items():
    if _op != "div":
        lowers(_op, calls=(_call,))(partial(_binary, call=_call))
for _op, _call in ARITHMETIC.items():
    lowers(_op, calls=(_call,), kinds=(FLOAT | INT,))(partial(_binary, call=_call))
for _op, _call in COMPARISONS.items():
    lowers(_op, calls=(_call,), kinds=(ALL,))(partial(_binary, call=_call))


def _logical(p: CallPlanner, node: Node, call: str) -> None:
    """Bools are 0 and 1; of integers, each bit counts."""
    _binary(p, node, call if _is_bool(node.inputs[0]) else call.replace("logical", "bitwise"))


for _op, _call in LOGICAL.items():
    _calls = (_call, _call.replace("logical", "bitwise"))
    lowers(_op, calls=_calls, kinds=(BOOL | INT,))(partial(_logical, call=_call))


@limitation("whole numbers are divided by one number other than 0 alone")
def _whole_by_many(node: Node) -> bool:
    """What the library makes of x / 0 is not known."""
    x, y = node.inputs
    return x is not None and y is not None and kind_of(x) == "int" and on_card(y) != (1,)


@lowers("div", calls=("divide", "div"), kinds=(FLOAT | INT,), unless=(_whole_by_many,))
def _div(p: CallPlanner, node: Node) -> None:
    x, y = node.inputs
    if x is None or kind_of(x) == "float":
        _binary(p, node, "divide")
        return
    if not p.number(y):
        p.refuse("the divisor is not known before a run")
    _binary(p, node, "div", rounding_mode="trunc")


@lowers("where", calls=("where",), kinds=(BOOL, ALL))
def _where(p: CallPlanner, node: Node) -> None:
    """Floats that are known may be numbers; if both are, the result is of the condition's dtype, or wider."""
    condition, x, y = node.inputs
    numbers = kind_of(node.outputs[0]) != "int" and on_card(condition) == on_card(node.outputs[0])
    chosen = [n if numbers and (n := p.scalar(value)) is not None else p.take(value) for value in (x, y)]
    form = _present(p, condition) if any(isinstance(each, Ref) for each in chosen) else None
    p.give(node.outputs[0], p.call("where", p.take(condition, form), *chosen))


@lowers("cast", calls=("typecast", "ne", "trunc"), kinds=(ALL,))
def _cast(p: CallPlanner, node: Node) -> None:
    """Floats and bools are of one dtype on the card, integers of another. What is not zero is true."""
    x, result = node.inputs[0], node.outputs[0]
    assert x is not None
    kinds = kind_of(x), kind_of(result)
    if kinds in (("float", "bool"), ("int", "bool")):
        zero = 0.0 if kinds[0] == "float" else 0
        p.give(result, p.call("ne", p.take(x), zero), p.usual(x))
    elif kinds == ("float", "int"):
        whole = p.call("trunc", p.take(x))
        p.give(result, p.call("typecast", whole, Named("int32")))
    else:
        p.give(result, p.take(x, p.usual(result)))
