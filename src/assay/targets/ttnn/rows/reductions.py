"""Reductions, running sums, softmax and norms over an axis."""

from __future__ import annotations

from functools import partial
from math import prod

from assay.ir.dtypes import f32
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.ttnn.plan import CHANNELS_LAST, ROWS, TILE, CallPlanner, Form, kind_of, on_card, sizes
from assay.targets.ttnn.products_config import ACCURATE
from assay.targets.ttnn.table import ALL, FLOAT, INT, lowers


def _axes(node: Node) -> list[int]:
    rank = len(sizes(node.inputs[0]))
    axes = node.attrs["axes"]
    return sorted(range(rank) if axes is None else {axis % rank for axis in axes})


@limitation("there is no axis to reduce")
def _no_axis(node: Node) -> bool:
    return not sizes(node.inputs[0]) or not _axes(node)


@limitation("sums are not added one by one, as accumulate asks for")
def _one_by_one(node: Node) -> bool:
    return node.attrs.get("accumulate") not in (None, f32)


def _reduce(p: CallPlanner, node: Node, call: str) -> None:
    """Axes are kept by the call and removed afterwards where no axis is left."""
    x, result = node.inputs[0], node.outputs[0]
    last = Form(p.floats, TILE, CHANNELS_LAST)
    if last in p.forms(x) and _axes(node) == list(range(2, len(sizes(x)))):
        count, channels, *places = sizes(x)
        rows = p.call("reshape", p.take(x, last), [count, 1, prod(places), channels])
        found = p.call(call, rows, dim=2, keepdim=True)
        p.give(result, p.call("reshape", found, list(on_card(result))))
        return
    keep = bool(node.attrs["keepdims"]) or not sizes(result)
    found = p.call(call, p.take(node.inputs[0]), dim=_axes(node), keepdim=keep)
    p.give(result, p.call("reshape", found, [1]) if not sizes(result) and sizes(node.inputs[0]) != (1,) else found)


lowers("reduce_sum", calls=("sum",), kinds=(FLOAT | INT,), unless=(_no_axis, _one_by_one))(partial(_reduce, call="sum"))
lowers("reduce_mean", calls=("mean",), unless=(_no_axis,))(partial(_reduce, call="mean"))
lowers("reduce_max", calls=("max",), kinds=(ALL,), unless=(_no_axis,))(partial(_reduce, call="max"))
lowers("reduce_min", calls=("min",), kinds=(ALL,), unless=(_no_axis,))(partial(_reduce, call="min"))


@lowers("reduce_prod", calls=("prod",), unless=(_no_axis,))
def _prod(p: CallPlanner, node: Node) -> None:
    """One axis after the other."""
    found = p.take(node.inputs[0])
    for axis in _axes(node):
        found = p.call("prod", found, dim=axis, keepdim=True)
    kept = tuple(1 if at in _axes(node) else size for at, size in enumerate(sizes(node.inputs[0])))
    wanted = on_card(node.outputs[0])
    p.give(node.outputs[0], found if kept == wanted else p.call("reshape", found, list(wanted)))


@lowers("cum_sum", calls=("cumsum",), kinds=(FLOAT | INT,))
def _cum_sum(p: CallPlanner, node: Node) -> None:
    p.give(node.outputs[0], p.call("cumsum", p.take(node.inputs[0]), dim=node.attrs["axis"]))


@lowers("cum_prod", calls=("cumprod",))
def _cum_prod(p: CallPlanner, node: Node) -> None:
    p.give(node.outputs[0], p.call("cumprod", p.take(node.inputs[0]), dim=node.attrs["axis"]))


@limitation("steps are not rounded as precision, softmax_precision or accumulate may ask for")
def coarser(node: Node) -> bool:
    stated = (node.attrs.get(name) for name in ("precision", "accumulate", "softmax_precision"))
    return any(each not in (None, f32) for each in stated)


@lowers("softmax", calls=("softmax",), unless=(coarser,))
def _softmax(p: CallPlanner, node: Node) -> None:
    x = p.take(node.inputs[0])
    axis = node.attrs["axis"] % len(on_card(node.inputs[0]))
    p.give(node.outputs[0], p.call("softmax", x, dim=axis, numeric_stable=True, compute_kernel_config=ACCURATE))


@limitation("the library's norms are over the last axis alone")
def _not_the_last_axis(node: Node) -> bool:
    rank = len(sizes(node.inputs[0]))
    return not rank or node.attrs["axis"] % rank != rank - 1


@lowers("layer_norm", calls=("layer_norm",), unless=(_not_the_last_axis,))
def _layer_norm(p: CallPlanner, node: Node) -> None:
    x, scale, bias = (*node.inputs, None, None)[:3]
    given = {name: p.take(value) for name, value in (("weight", scale), ("bias", bias)) if value is not None}
    epsilon = float(node.attrs["epsilon"])
    p.give(
        node.outputs[0],
        p.call("layer_norm", p.take(x), epsilon=epsilon, compute_kernel_config=ACCURATE, **given),
    )


@lowers("rms_norm", calls=("rms_norm",), unless=(_not_the_last_axis,))
def _rms_norm(p: CallPlanner, node: Node) -> None:
    x, scale = (*node.inputs, None)[:2]
    given = {"weight": p.take(scale)} if scale is not None else {}
    epsilon = float(node.attrs["epsilon"])
    p.give(
        node.outputs[0],
        p.call("rms_norm", p.take(x), epsilon=epsilon, compute_kernel_config=ACCURATE, **given),
    )


@limitation("the library finds the largest integer along the last axis alone")
def _integers_across(node: Node) -> bool:
    x = node.inputs[0]
    rank = len(on_card(x))
    return x is not None and kind_of(x) == "int" and node.attrs["axis"] % rank != rank - 1


@lowers("arg_max", calls=("argmax",), kinds=(FLOAT | INT,), layout=ROWS, unless=(_integers_across,))
def _arg_max(p: CallPlanner, node: Node) -> None:
    result, rank = node.outputs[0], len(on_card(node.inputs[0]))
    axis, keep = node.attrs["axis"] % rank, bool(node.attrs["keepdims"])
    found = p.call("argmax", p.take(node.inputs[0]), dim=axis, keepdim=keep or not sizes(result))
    p.give(result, p.call("reshape", found, [1]) if not sizes(result) and rank > 1 else found, Form("uint32", ROWS))
