"""Convolutions, pools and norms of images, whose channels lie last on the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from assay.ir.graph import Node, Value
from assay.ops.definitions.resize import Taps, lines_of, taps_of
from assay.targets.base import limitation
from assay.targets.ttnn.formats import TILE as TILE_SIZE
from assay.targets.ttnn.plan import CHANNELS_LAST, ROWS, TILE, CallPlanner, Form, Make, Named, Ref, sizes
from assay.targets.ttnn.products_config import ACCURATE
from assay.targets.ttnn.rows.positions import PICKING, picked
from assay.targets.ttnn.table import lowers

_ON_CARD = Named("DRAM_MEMORY_CONFIG")
_NO_OPTIONS: Mapping[str, Any] = {}


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


def _lies(p: CallPlanner, value: Value | None) -> Form:
    """The form of an image with its channels last, in tiles or rows as it lies."""
    forms = (Form(p.floats, layout, CHANNELS_LAST) for layout in (TILE, ROWS))
    return next((form for form in forms if form in p.forms(value)), Form(p.floats, ROWS, CHANNELS_LAST))


def _taken(p: CallPlanner, value: Value | None) -> Ref:
    return p.take(value, _lies(p, value))


def _sized(value: Value | None) -> tuple[int, int, int, int]:
    """Count, channels, height, width."""
    count, channels, *places = sizes(value)
    height, width = _plane(places, 1)
    return count, channels, height, width


@lowers("conv", calls=("Tensor", "conv2d"), unless=(_no_image,), layout=ROWS)
def _conv(p: CallPlanner, node: Node) -> None:
    """There always is a bias: without one, the library takes large images of few channels to fit L1 when they do not,
    and does not slice them."""
    x, weights, bias = (*node.inputs, None)[:3]
    out = sizes(weights)[0]
    found = p.call(
        "conv2d",
        input_tensor=_taken(p, x),
        weight_tensor=_kernel_of(p, weights),
        bias_tensor=_no_bias(p, out) if bias is None else p.call("reshape", p.take(bias), [1, 1, 1, out]),
        memory_config=_ON_CARD,
        **_described(p, node, out),
    )
    p.give(node.outputs[0], found, Form(p.floats, TILE, CHANNELS_LAST))


def _no_bias(p: CallPlanner, out: int) -> Ref:
    """A bias of zeros."""
    return p.call("Tensor", np.zeros((1, 1, 1, out), np.float32), Named(p.floats), Named("device"), Named(ROWS))


def _kernel_of(p: CallPlanner, weights: Value | None) -> Ref:
    """Weights of two spatial axes."""
    shape = sizes(weights)
    flat = p.take(weights)
    return p.call("reshape", flat, [*shape[:2], *_plane(shape[2:], 1)]) if len(shape) == 3 else flat


def _described(p: CallPlanner, node: Node, out: int) -> dict[str, Any]:
    """A convolution to so many channels, as the library is told of it."""
    count, channels, height, width = _sized(node.inputs[0])
    return {
        "device": Named("device"),
        "in_channels": channels,
        "out_channels": out,
        "batch_size": count,
        "input_height": height,
        "input_width": width,
        "kernel_size": _plane(sizes(node.inputs[1])[2:], 1),
        "stride": _plane(node.attrs["strides"], 1),
        "padding": _pads(node.attrs["pads"]),
        "dilation": _plane(node.attrs["dilations"], 1),
        "groups": node.attrs["groups"],
        "conv_config": _config(p),
        "compute_config": ACCURATE,
    }


def _config(p: CallPlanner, options: Mapping[str, Any] = _NO_OPTIONS) -> Make:
    return Make("Conv2dConfig", {"weights_dtype": Named(p.floats), **options})


def _sharded(node: Node) -> Mapping[str, Any]:
    """How cores share a transposed convolution where the library's own choice fails: few places, by their channels."""
    count, _, height, width = _sized(node.outputs[0])
    few = count * height * width <= TILE_SIZE and node.attrs["groups"] == 1
    return {"shard_layout": Named("TensorMemoryLayout.WIDTH_SHARDED")} if few else _NO_OPTIONS


@limitation("the library's transposed convolutions take nothing off beyond their kernel")
def _cropped(node: Node) -> bool:
    reach = [(size - 1) * step for size, step in zip(sizes(node.inputs[1])[2:], node.attrs["dilations"], strict=True)]
    pads: tuple[int, ...] = node.attrs["pads"]
    return any(not 0 <= pad <= most for pad, most in zip(pads, [*reach, *reach], strict=True))


@limitation("the library's transposed convolutions by one pixel take as many tiles of channels as they make")
def _changes_channels(node: Node) -> bool:
    incoming, outgoing, *kernel = sizes(node.inputs[1])
    return node.attrs["groups"] == 1 and set(kernel) == {1} and -(-incoming // TILE_SIZE) != -(-outgoing // TILE_SIZE)


_SPREAD = "conv_transpose2d"


@lowers(
    "conv_transpose",
    calls=("from_device", f"prepare_{_SPREAD}_weights", f"prepare_{_SPREAD}_bias", _SPREAD),
    unless=(_no_image, _cropped, _changes_channels),
    layout=ROWS,
)
def _conv_transpose(p: CallPlanner, node: Node) -> None:
    """The library prepares weights on the host, which is done once for weights that stay; it turns the kernel around
    itself."""
    x, weights, bias = (*node.inputs, None)[:3]
    out = sizes(weights)[1] * node.attrs["groups"]
    told, form, image = _described(p, node, out), _lies(p, x), _taken(p, x)
    told["conv_config"] = _config(p, _sharded(node))
    turned = {"output_padding": _plane(node.attrs["output_padding"], 0), "mirror_kernel": True}
    given = {"input_memory_config": _ON_CARD, "input_layout": Named(form.layout), "input_dtype": Named(p.floats)}
    kernel = p.call(
        f"prepare_{_SPREAD}_weights",
        weight_tensor=p.call("from_device", _kernel_of(p, weights)),
        weights_format="IOHW",
        has_bias=bias is not None,
        **given,
        **turned,
        **told,
    )
    row = None
    if bias is not None:
        flat = p.call("from_device", p.call("reshape", p.take(bias), [1, 1, 1, out]))
        row = p.call(f"prepare_{_SPREAD}_bias", bias_tensor=flat, **given, **told)
    found = p.call(
        _SPREAD,
        input_tensor=image,
        weight_tensor=kernel,
        bias_tensor=row,
        memory_config=_ON_CARD,
        **turned,
        **told,
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


@limitation("the library's norms of groups are of whole tiles: 32 places and 32 channels")
def _partly_tiled(node: Node) -> bool:
    _, channels, *places = sizes(node.inputs[0])
    return bool(channels % TILE_SIZE or prod(places) % TILE_SIZE)


@lowers(
    "group_norm",
    "instance_norm",
    calls=("reshape", "group_norm", "multiply", "add"),
    unless=(_no_places, _partly_tiled),
)
def _group_norm(p: CallPlanner, node: Node) -> None:
    """The library wants scale and bias in a form of its own, so that they are applied afterwards."""
    x, scale, bias = (*node.inputs, None, None)[:3]
    count, channels, *places = sizes(x)
    form = Form(p.floats, TILE, CHANNELS_LAST)
    found = p.call(
        "group_norm",
        p.call("reshape", p.take(x, form), [count, 1, prod(places), channels]),
        num_groups=node.attrs.get("groups", channels),
        epsilon=float(node.attrs["epsilon"]),
        inplace=False,
        output_layout=Named(TILE),
        memory_config=_ON_CARD,
        compute_kernel_config=ACCURATE,
    )
    for call, value in (("multiply", scale), ("add", bias)):
        found = found if value is None else p.call(call, found, p.take(value))
    p.give(node.outputs[0], p.call("reshape", found, [1, 1, count * prod(places), channels]), form)


# --- resampling


def _taps_of(node: Node) -> dict[int, Taps]:
    """How each axis that changes is resampled."""
    old, new = sizes(node.inputs[0]), sizes(node.outputs[0])
    stated: tuple[int, ...] = node.attrs["axes"]
    axes = [axis % len(old) for axis in stated]
    lines = lines_of([old[axis] for axis in axes], [new[axis] for axis in axes], node.attrs)
    return {axis: taps_of(line, node.attrs) for axis, line in zip(axes, lines, strict=True)}


@limitation("what lies outside of a part is not filled")
def _outside(node: Node) -> bool:
    return any(taps.outside is not None and taps.outside.any() for taps in _taps_of(node).values())


@lowers(
    "resize",
    calls=("upsample", "Tensor", "matmul", *PICKING),
    constants=(1,),
    unless=(_outside,),
)
def _resize(p: CallPlanner, node: Node) -> None:
    """Images of which each element is repeated are the library's own. Else each axis is read at positions, or is a
    product with the matrix of its weights."""
    x, result = node.inputs[0], node.outputs[0]
    old, new = sizes(x), sizes(result)
    lines = _taps_of(node)
    repeats = [_repeats(lines[axis], old[axis]) if axis in lines else 1 for axis in range(2, len(old))]
    if len(old) == 4 and not {0, 1} & lines.keys() and all(repeats):
        count, channels, height, width = old
        rows = p.call("reshape", p.take(x, Form(p.floats, ROWS, CHANNELS_LAST)), [count, height, width, channels])
        found = p.call("upsample", rows, repeats, mode="nearest", memory_config=_ON_CARD)
        flat = p.call("reshape", found, [1, 1, count * new[2] * new[3], channels])
        p.give(result, flat, Form(p.floats, ROWS, CHANNELS_LAST))
        return
    found, shape = p.take(x), old
    for axis, taps in lines.items():
        if taps.weights is None:
            found, shape = picked(p, found, shape, axis, taps.positions[:, 0], "float")
        else:
            found, shape = _weighted(p, found, shape, axis, taps)
    p.give(result, found)


def _repeats(taps: Taps, size: int) -> int:
    """How many times each element follows itself; 0 if they do not do just that."""
    times, rest = divmod(len(taps.positions), size)
    same = taps.weights is None and not rest
    return times if same and np.array_equal(taps.positions[:, 0], np.repeat(np.arange(size), times)) else 0


def _weighted(p: CallPlanner, x: Ref, shape: tuple[int, ...], axis: int, taps: Taps) -> tuple[Ref, tuple[int, ...]]:
    """A tensor resampled along an axis, and its shape: the axis goes last, for the product."""
    assert taps.weights is not None
    count, size, last = len(taps.positions), shape[axis], len(shape) - 1
    matrix = np.zeros((size, count), np.float32)
    np.add.at(matrix, (taps.positions, np.arange(count)[:, None]), taps.weights)
    turn = list(range(len(shape)))
    turn[axis], turn[last] = last, axis
    weights = p.call("Tensor", matrix, Named(p.floats), Named("device"), Named(TILE))
    turned = x if axis == last else p.call("permute", x, turn)
    found = p.call("matmul", turned, weights, compute_kernel_config=ACCURATE)
    return found if axis == last else p.call("permute", found, turn), (*shape[:axis], count, *shape[axis + 1 :])
