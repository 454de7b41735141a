"""aten's ops on lists of tensors, as optimizers use them: each is the op of one tensor, done for all."""

from __future__ import annotations

from typing import Any, cast

from assay.frontends.torch.ops.common import tensor, wide_dtype
from assay.frontends.torch.registry import Builder, Call, Results, aten, rule_for
from assay.ir.graph import Value

_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "lgamma"),
    *("log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh"),
    *("sqrt", "tan", "tanh", "trunc", "clone", "zero"),
)
_BINARY = {
    "add": "aten.add.Tensor",
    "sub": "aten.sub.Tensor",
    "mul": "aten.mul.Tensor",
    "div": "aten.div.Tensor",
    "maximum": "aten.maximum.default",
    "minimum": "aten.minimum.default",
    "clamp_max": "aten.minimum.default",
    "clamp_min": "aten.maximum.default",
    "pow": "aten.pow.Tensor_Tensor",
    "copy": "aten.copy.default",
}
_OVERLOADS = ("default", "List", "Scalar", "ScalarList", "Tensor")


def _applied(b: Builder, n: Call, name: str, result: int, *args: Any, **kwargs: Any) -> Results:
    rule = rule_for(name)
    if rule is None:
        raise ValueError(f"{name} has no lowering")
    return rule(b, n.one(name, result), *args, **kwargs)


def _at(argument: Any, place: int) -> Any:
    """The part of an argument that belongs to one tensor: a list has one for each, all else serves them all."""
    return cast("list[Any]", argument)[place] if isinstance(argument, list) else argument


def _enter(name: str, one: str, *overloads: str) -> None:
    @aten(*(f"aten._foreach_{name}.{overload}" for overload in overloads))
    def each(b: Builder, n: Call, xs: list[Any], *args: Any, **kwargs: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        return [
            _applied(b, n, one, place, x, *(_at(arg, place) for arg in args), **kwargs) for place, x in enumerate(xs)
        ]


for _name in _UNARY:
    _enter(_name, f"aten.{_name}.default", "default")
for _name, _one in _BINARY.items():
    _enter(_name, _one, *_OVERLOADS)


@aten("aten._foreach_pow.ScalarAndTensor")
def pow_of(b: Builder, n: Call, base: Any, exponents: list[Any]) -> Results:
    return [_applied(b, n, "aten.pow.Scalar", place, base, x) for place, x in enumerate(exponents)]


@aten("aten._foreach_norm.Scalar")
def norm(b: Builder, n: Call, xs: list[Any], order: Any = 2, dtype: Any = None) -> Results:
    return [_applied(b, n, "aten.linalg_vector_norm.default", place, x, order) for place, x in enumerate(xs)]


@aten(*(f"aten._foreach_lerp.{overload}" for overload in ("List", "Scalar", "ScalarList")))
def lerp(b: Builder, n: Call, starts: list[Any], ends: list[Any], weights: Any) -> Results:
    """start + weight · (end − start), from the nearer side as torch does it."""
    return [
        _lerp(b, n, place, start, end, _at(weights, place))
        for place, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _lerp(b: Builder, n: Call, place: int, start: Any, end: Any, weight: Any) -> Results:
    span = _applied(b, n, "aten.sub.Tensor", place, end, start)
    if not isinstance(weight, int | float):
        near = b.add(start, b.mul(weight, span))
        far = b.sub(end, b.mul(span, b.sub(1.0, weight)))
        return b.where(b.lt(b.abs(weight), 0.5), near, far)
    if abs(weight) < 0.5:
        return _applied(b, n, "aten.add.Tensor", place, start, _applied(b, n, "aten.mul.Tensor", place, span, weight))
    return _applied(b, n, "aten.sub.Tensor", place, end, _applied(b, n, "aten.mul.Tensor", place, span, 1 - weight))


def _enter_term(name: str, combine: str) -> None:
    @aten(*(f"aten._foreach_{name}.{overload}" for overload in ("Scalar", "ScalarList", "Tensor")))
    def plus_term(b: Builder, n: Call, xs: list[Any], lefts: list[Any], rights: list[Any], values: Any = 1) -> Results:  # pyright: ignore[reportUnusedFunction]
        """x + value · left · right, or with a quotient; narrow floats are rounded once, as torch does it."""
        results: list[Any] = []
        for place, (x, left, right) in enumerate(zip(xs, lefts, rights, strict=True)):
            value = b.gather(values, place, axis=0) if isinstance(values, Value) else _at(values, place)
            dtype = n.one(n.node.op, place).dtype
            base, first, second, factor = (tensor(b, each, wide_dtype(dtype)) for each in (x, left, right, value))
            term = b.emit(combine, b.mul(first, factor), second)[0]
            results.append(tensor(b, b.add(base, term), dtype))
        return results


for _name, _combine in {"addcmul": "mul", "addcdiv": "div"}.items():
    _enter_term(_name, _combine)
