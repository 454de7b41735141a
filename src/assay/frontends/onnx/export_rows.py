"""Rows of the exporter: arithmetic, movement, indexing, reductions."""

from __future__ import annotations

from typing import Any

from assay.frontends.onnx.export import NotInOnnx, OneOrMoreTerms, OnnxEmitter, Term, exports, ints, rank_of
from assay.ir import dtypes
from assay.ir.dtypes import TINY_FLOATS
from assay.ir.graph import Node

# --- elementwise

_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "det": "Det",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "is_inf": "IsInf",
    "is_nan": "IsNaN",
    "le": "LessOrEqual",
    "log": "Log",
    "lt": "Less",
    "matmul": "MatMul",
    "max": "Max",
    "min": "Min",
    "mish": "Mish",
    "mul": "Mul",
    "neg": "Neg",
    "nonzero": "NonZero",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "shape_of": "Shape",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softplus": "Softplus",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "tile": "Tile",
    "where": "Where",
}
"""Core ops that are one ONNX op with the same inputs and no attributes."""


def _enter(core: str, kind: str, **attrs: Any) -> None:
    @exports(core)
    def row(e: OnnxEmitter, n: Node, *xs: Term) -> OneOrMoreTerms:  # pyright: ignore[reportUnusedFunction]
        return e.op(kind, *xs, **attrs)


for _core, _kind in _SAME.items():
    _enter(_core, _kind)

_enter("pow", "Pow")
_enter("fmod", "Mod", fmod=1)
_enter("gelu", "Gelu")
_enter("gelu_tanh", "Gelu", approximate="tanh")
_enter("expand", "Expand")
_enter("reshape", "Reshape", allowzero=1)
_enter("pad", "Pad", mode="constant")


@exports("fitting")
def _fitting(e: OnnxEmitter, n: Node, x: Term, *others: Term) -> OneOrMoreTerms:
    return e.op("Identity", x)


_BITWISE = {"bit_and": ("And", "BitwiseAnd"), "bit_or": ("Or", "BitwiseOr"), "bit_xor": ("Xor", "BitwiseXor")}
_BITWISE["bit_not"] = ("Not", "BitwiseNot")


def _enter_bitwise(core: str, on_bool: str, on_integers: str) -> None:
    @exports(core)
    def row(e: OnnxEmitter, n: Node, *xs: Term) -> OneOrMoreTerms:  # pyright: ignore[reportUnusedFunction]
        return e.op(on_bool if xs[0].dtype is dtypes.boolean else on_integers, *xs)


for _core, (_on_bool, _on_integers) in _BITWISE.items():
    _enter_bitwise(_core, _on_bool, _on_integers)


@exports("shift_left")
def shift_left(e: OnnxEmitter, n: Node, x: Term, y: Term) -> OneOrMoreTerms:
    return e.op("BitShift", x, y, direction="LEFT")


@exports("shift_right")
def shift_right(e: OnnxEmitter, n: Node, x: Term, y: Term) -> OneOrMoreTerms:
    return e.op("BitShift", x, y, direction="RIGHT")


@exports("expm1")
def expm1(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    """tanh(x / 2) · (eˣ + 1), which is accurate near 0."""
    return e.op("Mul", e.op("Tanh", e.op("Mul", x, e.like(0.5, x))), e.op("Add", e.op("Exp", x), e.like(1, x)))


@exports("log1p")
def log1p(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    """2 · atanh(x / (2 + x)) near 0, log(1 + x) elsewhere."""
    ratio = e.op("Div", x, e.op("Add", x, e.like(2, x)))
    near = e.op("Mul", e.op("Atanh", ratio), e.like(2, x))
    far = e.op("Log", e.op("Add", x, e.like(1, x)))
    return e.op("Where", e.op("Less", e.op("Abs", x), e.like(0.5, x)), near, far)


def unless_zero(e: OnnxEmitter, kind: str, x: Term, y: Term) -> Term:
    """An integer division, in which ONNX does not say what a zero divisor gives; ours gives 0."""
    zero = e.op("Equal", y, e.like(0, y))
    return e.op("Where", zero, e.like(0, x), e.op(kind, x, e.op("Where", zero, e.like(1, y), y)))


@exports("div")
def div(e: OnnxEmitter, n: Node, x: Term, y: Term) -> OneOrMoreTerms:
    return unless_zero(e, "Div", x, y) if x.dtype.is_integer else e.op("Div", x, y)


@exports("mod")
def mod(e: OnnxEmitter, n: Node, x: Term, y: Term) -> OneOrMoreTerms:
    if x.dtype.is_integer:
        return unless_zero(e, "Mod", x, y)
    rest = e.op("Mod", x, y, fmod=1)
    zero = e.like(0, x)
    signs = e.op("Xor", e.op("Less", rest, zero), e.op("Less", y, zero))
    away = e.op("And", signs, e.op("Not", e.op("Equal", rest, zero)))
    return e.op("Where", away, e.op("Add", rest, y), rest)


@exports("prelu")
def prelu(e: OnnxEmitter, n: Node, x: Term, slope: Term) -> OneOrMoreTerms:
    return e.op("PRelu", e.op("Expand", x, e.op("Shape", slope)), slope)


@exports("clip")
def clip(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    return e.op("Clip", *xs)


@exports("elu")
def elu(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("Mul", e.op("Elu", x, alpha=float(n.attrs["alpha"])), e.like(n.attrs["gamma"], x))


@exports("leaky_relu")
def leaky_relu(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("LeakyRelu", x, alpha=float(n.attrs["slope"]))


@exports("cast")
def cast(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    target = n.attrs["dtype"]
    tiny = target in TINY_FLOATS
    mode = n.attrs["rounding"] if target.name == "f8e8m0" else None
    return e.op("Cast", x, dtype=target, to=target, saturate=n.attrs["saturate"] if tiny else None, round_mode=mode)


@exports("bitcast")
def bitcast(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("BitCast", x, dtype=n.attrs["dtype"], to=n.attrs["dtype"])


# --- movement and indexing


@exports("iota")
def iota(e: OnnxEmitter, n: Node, count: Term) -> OneOrMoreTerms:
    return e.op("Range", e.like(0, count), count, e.like(1, count))


@exports("transpose")
def transpose(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("Transpose", x, perm=n.attrs["perm"]) if n.attrs["perm"] else e.op("Identity", x)


@exports("unsqueeze")
def unsqueeze(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("Unsqueeze", x, ints(e, *n.attrs["axes"]))


@exports("squeeze")
def squeeze(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("Squeeze", x, None if n.attrs["axes"] is None else ints(e, *n.attrs["axes"]))


@exports("slice")
def slice_(e: OnnxEmitter, n: Node, x: Term, starts: Term, ends: Term, steps: Term) -> OneOrMoreTerms:
    return e.op("Slice", x, starts, ends, ints(e, *n.attrs["axes"]), steps)


@exports("concat")
def concat(e: OnnxEmitter, n: Node, *xs: Term) -> OneOrMoreTerms:
    return e.op("Concat", *xs, axis=n.attrs["axis"])


@exports("split")
def split(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    sizes = n.attrs["sizes"]
    return e.ops("Split", len(sizes), x, ints(e, *sizes), axis=n.attrs["axis"])


@exports("trilu")
def trilu(e: OnnxEmitter, n: Node, x: Term, k: Term) -> OneOrMoreTerms:
    return e.op("Trilu", x, k, upper=n.attrs["upper"])


@exports("gather")
def gather(e: OnnxEmitter, n: Node, x: Term, positions: Term) -> OneOrMoreTerms:
    return e.op("Gather", x, positions, axis=n.attrs["axis"])


@exports("gather_nd")
def gather_nd(e: OnnxEmitter, n: Node, x: Term, positions: Term) -> OneOrMoreTerms:
    return e.op("GatherND", x, positions, batch_dims=n.attrs["batch_dims"])


@exports("gather_elements")
def gather_elements(e: OnnxEmitter, n: Node, x: Term, positions: Term) -> OneOrMoreTerms:
    return e.op("GatherElements", x, positions, axis=n.attrs["axis"])


@exports("scatter_nd")
def scatter_nd(e: OnnxEmitter, n: Node, x: Term, positions: Term, updates: Term) -> OneOrMoreTerms:
    return e.op("ScatterND", x, positions, updates, reduction=n.attrs["reduction"])


@exports("scatter_elements")
def scatter_elements(e: OnnxEmitter, n: Node, x: Term, positions: Term, updates: Term) -> OneOrMoreTerms:
    return e.op("ScatterElements", x, positions, updates, axis=n.attrs["axis"], reduction=n.attrs["reduction"])


# --- reductions

_REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_prod": "ReduceProd",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_mean": "ReduceMean",
    "log_sum_exp": "ReduceLogSumExp",
}


def _enter_reduction(core: str, kind: str) -> None:
    @exports(core)
    def row(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:  # pyright: ignore[reportUnusedFunction]
        if n.attrs.get("accumulate") not in (None, dtypes.f64):
            raise NotInOnnx(f"ONNX does not say how {kind} accumulates")
        axes = n.attrs["axes"]
        keepdims = int(n.attrs["keepdims"])
        if axes is None:
            return e.op(kind, x, keepdims=keepdims)
        return e.op(kind, x, ints(e, *axes), keepdims=keepdims, noop_with_empty_axes=1)


for _core, _kind in _REDUCTIONS.items():
    _enter_reduction(_core, _kind)


def _enter_extreme(core: str, kind: str) -> None:
    @exports(core)
    def row(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:  # pyright: ignore[reportUnusedFunction]
        return e.op(kind, x, axis=n.attrs["axis"], keepdims=int(n.attrs["keepdims"]))


_enter_extreme("arg_max", "ArgMax")
_enter_extreme("arg_min", "ArgMin")


def _enter_running(core: str, kind: str) -> None:
    @exports(core)
    def row(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:  # pyright: ignore[reportUnusedFunction]
        return e.op(kind, x, e.constant(n.attrs["axis"], dtypes.i64))


_enter_running("cum_sum", "CumSum")
_enter_running("cum_prod", "CumProd")


@exports("sort")
def sort(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    axis = n.attrs["axis"] % rank_of(n.inputs[0])
    count = e.op("Shape", x, start=axis, end=axis + 1)
    return e.ops("TopK", 2, x, count, axis=axis, largest=n.attrs["descending"])


@exports("topk")
def topk(e: OnnxEmitter, n: Node, x: Term, k: Term) -> OneOrMoreTerms:
    return e.ops("TopK", 2, x, e.op("Reshape", k, ints(e, 1)), axis=n.attrs["axis"], largest=n.attrs["largest"])
