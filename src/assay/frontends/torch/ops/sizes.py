"""Symbolic numbers: Python's operators between sizes, numbers read out of tensors, and conditions on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.frontends.torch.ops.common import promoted, tensor
from assay.frontends.torch.ops.elementwise import floor_divide, truth
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.parts import size_quotient

_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "mod": "mod",
    "pow": "pow",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "sym_max": "max",
    "sym_min": "min",
    "and_": "bit_and",
    "or_": "bit_or",
    "xor": "bit_xor",
    "lshift": "shift_left",
    "rshift": "shift_right",
}
_UNARY = {"neg": "neg", "abs": "abs", "sym_not": "bit_not", "not_": "bit_not"}
_WHOLE = {"ceil": "ceil", "floor": "floor", "trunc": "trunc", "sym_int": "trunc"}
_FUNCTIONS = ("acos", "asin", "atan", "cos", "cosh", "sin", "sinh", "sqrt", "tan", "tanh")


def _number(b: Builder, value: Any) -> Value:
    if isinstance(value, Value):
        return value
    if isinstance(value, bool):
        return b.constant(value, dtypes.boolean)
    return b.constant(value, dtypes.f64 if isinstance(value, float) else dtypes.i64)


def _enter_binary(name: str, core: str) -> None:
    @aten(f"aten.py.{name}")
    def binary(b: Builder, n: Call, first: Any, *others: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        """Of more than two operands where torch writes a product or sum of sizes as one call."""
        result = _number(b, first)
        for other in others:
            result = b.emit(core, *promoted(b, result, _number(b, other)))[0]
        return result


for _name, _core in _BINARY.items():
    _enter_binary(_name, _core)


def _enter_unary(name: str, core: str) -> None:
    @aten(f"aten.py.{name}")
    def unary(b: Builder, n: Call, x: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        return b.emit(core, _number(b, x))[0]


for _name, _core in _UNARY.items():
    _enter_unary(_name, _core)


def _enter_whole(name: str, core: str) -> None:
    @aten(f"aten.py.{name}")
    def whole(b: Builder, n: Call, x: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        number = _number(b, x)
        return tensor(b, b.emit(core, number)[0] if b.dtype(number).is_float else number, n.dtype)


for _name, _core in _WHOLE.items():
    _enter_whole(_name, _core)


def _enter_function(name: str) -> None:
    @aten(f"aten.py._sym_{name}")
    def function(b: Builder, n: Call, x: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        return b.emit(name, tensor(b, x, dtypes.f64))[0]


for _name in _FUNCTIONS:
    _enter_function(_name)


@aten("aten.py.pos")
def pos(b: Builder, n: Call, x: Any) -> Results:
    return _number(b, x)


@aten("aten.py.round")
def round_(b: Builder, n: Call, x: Any, digits: int | None = None) -> Results:
    number = _number(b, x)
    if not b.dtype(number).is_float:
        return number
    if digits:
        raise ValueError("a number is rounded to decimal digits")
    return tensor(b, b.round(number), n.dtype)


@aten("aten.py.floordiv")
def floordiv(b: Builder, n: Call, x: Any, y: Any) -> Results:
    left, right = promoted(b, _number(b, x), _number(b, y))
    return floor_divide(b, left, right) if b.dtype(left).is_float else size_quotient(b, left, right)


@aten("aten.py.truediv")
def truediv(b: Builder, n: Call, x: Any, y: Any) -> Results:
    return b.div(tensor(b, x, dtypes.f64), tensor(b, y, dtypes.f64))


@aten("aten.py.sym_float")
def sym_float(b: Builder, n: Call, x: Any) -> Results:
    return tensor(b, x, dtypes.f64)


@aten("aten.py.sym_ite")
def sym_ite(b: Builder, n: Call, condition: Any, x: Any, y: Any) -> Results:
    return b.where(_number(b, condition), *promoted(b, _number(b, x), _number(b, y)))


@aten("aten.py.sym_sum")
def sym_sum(b: Builder, n: Call, terms: Sequence[Any]) -> Results:
    total = b.constant(0, dtypes.i64)
    for term in terms:
        total = b.add(total, _number(b, term))
    return total


@aten("aten.sym_size.int")
def sym_size(b: Builder, n: Call, x: Value, dim: int) -> Results:
    return b.gather(b.shape_of(x), dim % b.rank(x), axis=0)


@aten("aten.sym_numel.default")
def sym_numel(b: Builder, n: Call, x: Value) -> Results:
    return b.reduce_prod(b.shape_of(x))


@aten("aten._local_scalar_dense.default", "aten.item.default")
def item(b: Builder, n: Call, x: Value) -> Results:
    return tensor(b, b.reshape(x, []), n.dtype)


# --- conditions


@aten("aten._assert_scalar.default", "aten._assert_async.msg")
def assert_scalar(b: Builder, n: Call, condition: Any, message: str) -> Results:
    return b.require(truth(b, _number(b, condition)), message=message)


@aten("aten._assert_async.default")
def assert_async(b: Builder, n: Call, condition: Value) -> Results:
    message = "Expected Tensor with single nonzero value, but got zero"
    return b.require(truth(b, condition), message=message)


@aten("aten._functional_assert_async.msg", "aten._functional_assert_scalar.default")
def functional_assert(b: Builder, n: Call, condition: Any, message: str, token: Value) -> Results:
    assert_scalar(b, n, condition, message)
    return token


@aten("aten._make_dep_token.default")
def make_token(b: Builder, n: Call, **layout: Any) -> Results:
    return b.constant(0, n.dtype)


@aten("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default")
def constrain(b: Builder, n: Call, size: Any, min: int | None = None, max: int | None = None) -> Results:
    number = _number(b, size)
    return [
        b.require(b.emit(compare, number, bound)[0], message=f"a size is {word} {bound}")
        for compare, bound, word in (("ge", min, "below"), ("le", max, "above"))
        if bound is not None
    ]


@aten("aten._assert_tensor_metadata.default")
def assert_metadata(
    b: Builder, n: Call, x: Value, size: Any = None, stride: Any = None, dtype: Any = None, **layout: Any
) -> Results:
    if size is not None or stride is not None or dtype not in (None, b.dtype(x)):
        raise ValueError("the size, the strides or another dtype of a tensor are asserted")
    return ()
