"""Elementwise ops: arithmetic, comparisons, functions, choices, casts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from assay.ir.graph import Node, Value
from assay.targets.base import limitation
from assay.targets.ttnn.plan import CHANNELS_LAST, TILE, CallPlanner, Form, Ref, kind_of, on_card
from assay.targets.ttnn.table import BOOL, HELD, INT, lowers

_SAME = (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "exp2",
        "expm1", "floor", "gelu", "log", "log10", "log1p", "log2", "mish", "neg", "reciprocal", "relu", "round",
        "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
UNARY: Mapping[str, str] = {**{name: name for name in _SAME}, "is_nan": "isnan", "is_inf": "isinf"}
"""Core op to call, for functions of one float."""

BINARY: Mapping[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "mod": "remainder",
    "fmod": "fmod",
    "pow": "pow",
    "min": "minimum",
    "max": "maximum",
    "atan2": "atan2",
    "hypot": "hypot",
}
COMPARISONS: Mapping[str, str] = {"eq": "eq", "ne": "ne", "lt": "lt", "gt": "gt", "le": "le", "ge": "ge"}
LOGICAL: Mapping[str, str] = {"bit_and": "logical_and", "bit_or": "logical_or", "bit_xor": "logical_xor"}


def _unary(p: CallPlanner, node: Node, call: str, **kwargs: Any) -> None:
    """In whichever order the axes lie."""
    form = _present(p, node.inputs[0])
    p.give(node.outputs[0], p.call(call, p.take(node.inputs[0], form), **kwargs), form)


def _present(p: CallPlanner, value: Value | None) -> Form:
    """The form of a value in tiles: as it lies if its channels lie last, else the usual one."""
    assert value is not None
    usual = p.usual(value)
    last = Form(usual.dtype, TILE, CHANNELS_LAST)
    return last if last in p.forms(value) else usual


for _op, _call in UNARY.items():
    lowers(_op, calls=(_call,))(partial(_unary, call=_call))


@lowers("bit_not", calls=("logical_not",), kinds=(BOOL,))
def _not(p: CallPlanner, node: Node) -> None:
    _unary(p, node, "logical_not")


@lowers("leaky_relu", calls=("leaky_relu",))
def _leaky_relu(p: CallPlanner, node: Node) -> None:
    _unary(p, node, "leaky_relu", negative_slope=float(node.attrs["slope"]))


@limitation("elu has no γ in the library")
def _scaled(node: Node) -> bool:
    return node.attrs["gamma"] != 1.0


@lowers("elu", calls=("elu",), unless=(_scaled,))
def _elu(p: CallPlanner, node: Node) -> None:
    _unary(p, node, "elu", alpha=float(node.attrs["alpha"]))


@lowers("clip", calls=("clamp", "maximum", "minimum"))
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


def _binary(p: CallPlanner, node: Node, call: str) -> None:
    """A constant of one element is passed as a number."""
    x, y = node.inputs
    form = _common(p, node)
    number = p.number(y)
    if number is not None and on_card(x) == on_card(node.outputs[0]):
        right: Ref | float = float(number)
    else:
        right = p.take(y, form)
    p.give(node.outputs[0], p.call(call, p.take(x, form), right), form)


def _common(p: CallPlanner, node: Node) -> Form:
    """The form in which both operands are there already, else the usual one."""
    x, y = node.inputs
    assert x is not None
    form = _present(p, x)
    same = p.number(y) is not None or (on_card(x) == on_card(y) and form in p.forms(y))
    return form if same and on_card(x) == on_card(node.outputs[0]) else p.usual(x)


for _op, _call in BINARY.items():
    lowers(_op, calls=(_call,))(partial(_binary, call=_call))
for _op, _call in LOGICAL.items():
    lowers(_op, calls=(_call,), kinds=(BOOL,))(partial(_binary, call=_call))


for _op, _call in COMPARISONS.items():
    lowers(_op, calls=(_call,), kinds=(HELD,))(partial(_binary, call=_call))


@lowers("where", calls=("where",), kinds=(BOOL, HELD))
def _where(p: CallPlanner, node: Node) -> None:
    condition, x, y = node.inputs
    whole = on_card(condition) == on_card(node.outputs[0])
    chosen = [float(n) if (n := p.number(v)) is not None and whole else p.take(v) for v in (x, y)]
    p.give(node.outputs[0], p.call("where", p.take(condition), *chosen))


_CASTS = {("float", "float"), ("bool", "float"), ("int", "float"), ("float", "bool")}


@limitation("casts to integers, and of integers to bool, are left to the host")
def _other_cast(node: Node) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    return source is not None and (kind_of(source), kind_of(result)) not in _CASTS


@lowers("cast", calls=("typecast", "ne"), kinds=(HELD | INT,), unless=(_other_cast,))
def _cast(p: CallPlanner, node: Node) -> None:
    """All floats and bools are of one dtype on the card; what is not zero is true."""
    x, result = node.inputs[0], node.outputs[0]
    assert x is not None
    floats = p.usual(result)
    if kind_of(result) == "bool":
        compared = p.call("ne", p.take(x, floats), 0.0)
    else:
        compared = p.take(x, floats)
    p.give(result, compared, floats)
