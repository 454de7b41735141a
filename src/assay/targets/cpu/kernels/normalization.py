"""Softmax and the normalizations: along rows, or along columns side by side where the axis is not the innermost."""

from __future__ import annotations

from assay.ir.dims import Dim, floordiv, product
from assay.ir.dtypes import FLOATS, f32, f64
from assay.ir.graph import Node, Value
from assay.ops.shapes import axes_of, axis_of
from assay.targets.base import Limitation, limitation
from assay.targets.cpu.kernels.lines import Lines, lines, numbers, wide_bytes
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.limitations import Broadcasts, unclear_broadcast
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.shared.views import View

_BLOCK = 64
"""How many columns c/softmax.h takes at a time."""


def other_roundings(*names: str) -> Limitation:
    """Nodes whose attributes `names` ask for other roundings than those of their own dtype."""

    @limitation(f"steps are not rounded as {', '.join(names[:-1])} or {names[-1]} may ask for")
    def asked(node: Node) -> bool:
        return not all(_is_met(node, name) for name in names)

    return asked


def _is_met(node: Node, name: str) -> bool:
    wanted = node.attrs[name]
    return wanted in (None, f64) or (wanted is f32 and dtype_of(node.inputs[0]) is not f64 and name != "accumulate")


# --- softmax


@emits("softmax", FLOATS, unless=(other_roundings("precision", "accumulate"),))
def softmax(p: Planner, node: Node) -> None:
    """Exponentials over their sum."""
    _softmax(p, node, "SOFTMAX")


@emits("log_softmax", FLOATS)
def log_softmax(p: Planner, node: Node) -> None:
    """The logarithm of it."""
    _softmax(p, node, "LOG_SOFTMAX")


def _softmax(p: Planner, node: Node, kind: str) -> None:
    x = lines(p, node.inputs[0], node.attrs["axis"])
    _exponentials(p, kind, x, p.result(node.outputs[0], x.order))


@emits("log_sum_exp", FLOATS)
def log_sum_exp(p: Planner, node: Node) -> None:
    """The logarithm of the sum of exponentials."""
    x = lines(p, node.inputs[0], *axes_of(node.attrs["axes"], len(shape_of(node.inputs[0]))))
    _exponentials(p, "LOG_SUM_EXP", x, p.result(node.outputs[0], x.order if node.attrs["keepdims"] else x.rest))


def _exponentials(p: Planner, kind: str, x: Lines, result: View) -> None:
    last, whole = x.below == 1, kind != "LOG_SUM_EXP"
    cols = x.length if last and whole else x.below
    p.step(
        template("softmax.h", KIND=kind, LAST=int(last), **numbers(x.view.dtype)),
        [x.view, result],
        [x.length, x.below],
        rows=x.above,
        cols=cols,
        col_grain=cols if last else _BLOCK,
        work=20 if last and whole else 20 * x.length,
        scratch=x.length * (wide_bytes(x.view.dtype) * (1 if last else _BLOCK)),
        takes_epilogue=last and whole,
    )


# --- normalizations over trailing axes


@unclear_broadcast
def _unclear_parameters(node: Node) -> Broadcasts:
    return [(shape_of(value), shape_of(node.inputs[0])) for value in node.inputs[1:] if value is not None]


@emits("layer_norm", FLOATS, unless=(_unclear_parameters,))
def layer_norm(p: Planner, node: Node) -> None:
    """Rows of all trailing axes."""
    _trailing_norm(p, node, centred=True)


@emits("rms_norm", FLOATS, unless=(_unclear_parameters,))
def rms_norm(p: Planner, node: Node) -> None:
    """The same without the mean."""
    _trailing_norm(p, node, centred=False)


def _trailing_norm(p: Planner, node: Node, *, centred: bool) -> None:
    x = p.dense(node.inputs[0])
    axis = axis_of(node.attrs["axis"], x.rank)
    length = product(x.shape[axis:])
    scale, bias = (_parameter(p, value, x, axis) for value in (*node.inputs[1:], None, None)[:2])
    steps = [0 if view is None or view.rank < x.rank else length for view in (scale, bias)]
    _norm(p, node, x, scale, bias, product(x.shape[:axis]), [length, *steps], centred=centred, by_channel=False)


def _parameter(p: Planner, value: Value | None, x: View, axis: int) -> View | None:
    """A scale or bias with an element for each of a row, or if rows differ in theirs, for each of x."""
    if value is None:
        return None
    view = p.view(value)
    above = max(view.rank - (x.rank - axis), 0)
    if all(size == 1 for size in view.shape[:above]):
        view = View(view.storage, view.dtype, view.shape[above:], view.strides[above:], view.offset)
    expanded = view.expanded(x.shape[axis:] if view.rank <= x.rank - axis else x.shape)
    return expanded if expanded.is_dense else p.copied(expanded)


def _norm(
    p: Planner,
    node: Node,
    x: View,
    scale: View | None,
    bias: View | None,
    rows: Dim,
    sizes: list[Dim],
    *,
    centred: bool,
    by_channel: bool,
) -> None:
    flags = {
        "CENTRED": int(centred),
        "SCALED": int(scale is not None),
        "SHIFTED": int(bias is not None),
        "BY_CHANNEL": int(by_channel),
    }
    p.step(
        template("norm.h", **flags, **numbers(x.dtype)),
        [view for view in (x, scale, bias, p.result(node.outputs[0])) if view is not None],
        sizes,
        rows=rows,
        cols=sizes[0],
        col_grain=sizes[0],
        work=4,
        floats=[node.attrs["epsilon"]],
        scratch=sizes[0] * wide_bytes(x.dtype),
        takes_epilogue=True,
    )


# --- normalizations of channels


@limitation("there is no axis of channels")
def _no_channels(node: Node) -> bool:
    return len(shape_of(node.inputs[0])) < 2


@emits("group_norm", FLOATS, unless=(_no_channels,))
def group_norm(p: Planner, node: Node) -> None:
    """Rows of some channels."""
    _channel_norm(p, node, node.attrs["groups"])


@emits("instance_norm", FLOATS, unless=(_no_channels,))
def instance_norm(p: Planner, node: Node) -> None:
    """Rows of one channel."""
    _channel_norm(p, node, shape_of(node.inputs[0])[1])


def _channel_norm(p: Planner, node: Node, groups: Dim) -> None:
    x = p.view(node.inputs[0])
    scale, bias = (None if value is None else p.dense(value) for value in (*node.inputs[1:], None, None)[:2])
    channels, run = x.shape[1], product(x.shape[2:])
    group = floordiv(channels, groups)
    order = (0, *range(2, x.rank), 1)
    if not x.is_dense and x.is_dense_in(order):
        _norm_last(p, node, x, scale, bias, [run, channels, group])
        return
    rows, sizes = x.shape[0] * groups, [group * run, run, groups]
    _norm(p, node, p.dense(node.inputs[0]), scale, bias, rows, sizes, centred=True, by_channel=True)


def _norm_last(p: Planner, node: Node, x: View, scale: View | None, bias: View | None, sizes: list[Dim]) -> None:
    """For channels that lie innermost, where they stay."""
    result = p.result(node.outputs[0], (0, *range(2, x.rank), 1))
    places, channels, group = sizes
    flags = {"SCALED": int(scale is not None), "SHIFTED": int(bias is not None)}
    p.step(
        template("norm_last.h", **flags, **numbers(x.dtype)),
        [view for view in (x, scale, bias, result) if view is not None],
        sizes,
        rows=x.shape[0],
        cols=channels,
        col_grain=group,
        work=6 * places,
        floats=[node.attrs["epsilon"]],
        scratch=channels * (6 * wide_bytes(x.dtype)),
    )
