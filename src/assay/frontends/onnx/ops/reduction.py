"""ONNX reductions, products and sums."""

from __future__ import annotations

from collections.abc import Callable

from assay.frontends.onnx.ops.common import axes_operand, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.graph import Value

Axes = tuple[int, ...] | None
Reduce = Callable[[Builder, Value, Axes, bool], Value]


def _plain(core: str) -> Reduce:
    return lambda b, x, axes, keep: b.emit(core, x, axes=axes, keepdims=keep)[0]


def _on_floats(rule: Reduce) -> Reduce:
    """For integers, the rule in f64, truncated back."""

    def apply(b: Builder, x: Value, axes: Axes, keep: bool) -> Value:
        dtype = b.dtype(x)
        if dtype.is_float:
            return rule(b, x, axes, keep)
        return b.cast(rule(b, b.cast(x, dtype=dtypes.f64), axes, keep), dtype=dtype)

    return apply


def _sum_of(core: str) -> Reduce:
    return lambda b, x, axes, keep: b.reduce_sum(b.emit(core, x)[0], axes=axes, keepdims=keep)


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": _plain("reduce_sum"),
    "ReduceProd": _plain("reduce_prod"),
    "ReduceMax": _plain("reduce_max"),
    "ReduceMin": _plain("reduce_min"),
    "ReduceMean": _plain("reduce_mean"),
    "ReduceL1": _sum_of("abs"),
    "ReduceSumSquare": _sum_of("square"),
    "ReduceL2": _on_floats(lambda b, x, axes, keep: b.sqrt(b.reduce_sum(b.square(x), axes=axes, keepdims=keep))),
    "ReduceLogSum": _on_floats(lambda b, x, axes, keep: b.log(b.reduce_sum(x, axes=axes, keepdims=keep))),
    "ReduceLogSumExp": _on_floats(lambda b, x, axes, keep: b.log_sum_exp(x, axes=axes, keepdims=keep)),
}


def _enter(name: str, rule: Reduce) -> None:
    @onnx_op(name)
    def reduction(b: Builder, n: Source, x: Value, axes: Value | None = None) -> Results:  # pyright: ignore[reportUnusedFunction]
        chosen = axes_operand(b, n, axes)
        if not chosen and n.flag("noop_with_empty_axes", 0):
            return rule(b, x, (), True)
        return rule(b, x, chosen or None, n.flag("keepdims"))


for _name, _rule in _REDUCTIONS.items():
    _enter(_name, _rule)


@onnx_op("ArgMax", "ArgMin")
def arg_max(b: Builder, n: Source, x: Value) -> Results:
    axis, keep = n.int("axis"), n.flag("keepdims")
    core = "arg_max" if "ArgMax" in n.node.op else "arg_min"
    if not n.flag("select_last_index", 0):
        return b.emit(core, x, axis=axis, keepdims=keep)[0]
    mirrored = b.emit(core, b.flip(x, axes=(axis,)), axis=axis, keepdims=keep)[0]
    return b.sub(b.sub(scalar(b, b.vector(b.size(x, axis))), 1), mirrored)


@onnx_op("CumSum", "CumProd")
def cumulative(b: Builder, n: Source, x: Value, axis: Value) -> Results:
    along = b.ints(axis, "axis")[0]
    summing = "CumSum" in n.node.op
    reverse, exclusive = n.flag("reverse"), n.flag("exclusive")
    turned = b.flip(x, axes=(along,)) if reverse else x
    if exclusive:
        rank = b.rank(x)
        pads = [0] * (2 * rank)
        pads[along % rank], pads[along % rank + rank] = 1, -1
        turned = b.pad(turned, pads, 0 if summing else 1)
    total = b.cum_sum(turned, axis=along) if summing else b.cum_prod(turned, axis=along)
    return b.flip(total, axes=(along,)) if reverse else total


@onnx_op("TopK")
def topk(b: Builder, n: Source, x: Value, k: Value | None = None) -> Results:
    count = b.constant(n.int("k"), dtypes.i64) if k is None else scalar(b, k)
    return b.emit("topk", x, count, axis=n.int("axis"), largest=n.flag("largest", 1))
