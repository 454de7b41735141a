"""Convolutions, pools and norms of images, whose channels lie last on the card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.ir.graph import Node, Value
from assay.targets.base import limitation
from assay.targets.ttnn.plan import CHANNELS_LAST, ROWS, TILE, CallPlanner, Form, Make, Named, Ref, sizes
from assay.targets.ttnn.products_config import ACCURATE
from assay.targets.ttnn.table import lowers

_ON_CARD = Named("DRAM_MEMORY_CONFIG")


@limitation("the library has images of one or two axes alone")
def _no_image(node: Node) -> bool:
    return len(sizes(node.inputs[0])) not in (3, 4)


def _plane(numbers: Sequence[int], filling: int) -> list[int]:
    """What is said for each axis of an image, for two axes."""
    return [filling] * (2 - len(numbers)) + list(numbers)


def _pads(pads: Sequence[int]) -> list[int]:
    """Padding as the library has it: above, below, left, right."""
    half = len(pads) // 2
    before, after = _plane(pads[:half], 0), _plane(pads[half:], 0)
    return [before[0], after[0], before[1], after[1]]


def _taken(p: CallPlanner, value: Value | None) -> Ref:
    """An image with its channels last, in tiles or rows as it lies."""
    for layout in (TILE, ROWS):
        form = Form(p.floats, layout, CHANNELS_LAST)
        if form in p.forms(value):
            return p.take(value, form)
    return p.take(value, Form(p.floats, ROWS, CHANNELS_LAST))


def _sized(value: Value | None) -> tuple[int, int, int, int]:
    """Count, channels, height, width."""
    count, channels, *places = sizes(value)
    height, width = _plane(places, 1)
    return count, channels, height, width


@lowers("conv", calls=("conv2d",), unless=(_no_image,), layout=ROWS)
def _conv(p: CallPlanner, node: Node) -> None:
    x, weights, bias = (*node.inputs, None)[:3]
    count, channels, height, width = _sized(x)
    out, per_group, *_ = sizes(weights)
    kernel = _plane(sizes(weights)[2:], 1)
    flat = p.take(weights)
    if len(sizes(weights)) == 3:
        flat = p.call("reshape", flat, [out, per_group, *kernel])
    found = p.call(
        "conv2d",
        input_tensor=_taken(p, x),
        weight_tensor=flat,
        bias_tensor=None if bias is None else p.call("reshape", p.take(bias), [1, 1, 1, out]),
        device=Named("device"),
        in_channels=channels,
        out_channels=out,
        batch_size=count,
        input_height=height,
        input_width=width,
        kernel_size=kernel,
        stride=_plane(node.attrs["strides"], 1),
        padding=_pads(node.attrs["pads"]),
        dilation=_plane(node.attrs["dilations"], 1),
        groups=node.attrs["groups"],
        conv_config=Make("Conv2dConfig", {"weights_dtype": Named(p.floats)}),
        compute_config=ACCURATE,
        memory_config=_ON_CARD,
    )
    p.give(node.outputs[0], found, Form(p.floats, TILE, CHANNELS_LAST))


def _pooled(p: CallPlanner, node: Node, call: str, **kwargs: Any) -> None:
    count, channels, height, width = _sized(node.inputs[0])
    found = p.call(
        call,
        input_tensor=_taken(p, node.inputs[0]),
        batch_size=count,
        input_h=height,
        input_w=width,
        channels=channels,
        kernel_size=_plane(node.attrs["kernel"], 1),
        stride=_plane(node.attrs["strides"], 1),
        padding=_pads(node.attrs["pads"]),
        ceil_mode=bool(node.attrs["ceil"]),
        memory_config=_ON_CARD,
        **kwargs,
    )
    p.give(node.outputs[0], found, Form(p.floats, ROWS, CHANNELS_LAST))


@lowers("max_pool", calls=("max_pool2d",), unless=(_no_image,), layout=ROWS)
def _max_pool(p: CallPlanner, node: Node) -> None:
    _pooled(p, node, "max_pool2d", dilation=_plane(node.attrs["dilations"], 1))


@limitation("the library's means are of neighbours alone")
def _dilated(node: Node) -> bool:
    return any(each != 1 for each in node.attrs["dilations"])


@lowers("average_pool", calls=("avg_pool2d",), unless=(_no_image, _dilated), layout=ROWS)
def _average_pool(p: CallPlanner, node: Node) -> None:
    _pooled(p, node, "avg_pool2d", count_include_pad=bool(node.attrs["include_pad"]))


@limitation("there is no image")
def _no_places(node: Node) -> bool:
    return len(sizes(node.inputs[0])) < 3


@lowers("batch_norm", calls=("add", "rsqrt", "multiply", "subtract", "neg"), unless=(_no_places,))
def _batch_norm(p: CallPlanner, node: Node) -> None:
    """As x · s + t: s and t depend on the statistics alone."""
    x, mean, variance, scale, bias = (*node.inputs, None, None)[:5]
    assert x is not None
    factor = p.call("rsqrt", p.call("add", p.take(variance), float(node.attrs["epsilon"])))
    if scale is not None:
        factor = p.call("multiply", factor, p.take(scale))
    moved = p.call("multiply", factor, p.take(mean))
    shift = p.call("neg", moved) if bias is None else p.call("subtract", p.take(bias), moved)
    form = Form(p.floats, TILE, CHANNELS_LAST)
    p.give(node.outputs[0], p.call("add", p.call("multiply", p.take(x, form), factor), shift), form)
