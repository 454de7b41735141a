"""Convolutions: lanes along the pixels of the result, each keeping the sums of some channels for some pixels.

Where the device is best at tiles, lanes lie along the channels, and each loads x for one of the pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from assay.ir.dims import ceildiv, product
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View
from assay.targets.vulkan import scalar
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import NUMBERS, unravelled, volume_of
from assay.targets.vulkan.kernels.handing import along
from assay.targets.vulkan.kernels.matmul import height_of, multiply, takes_tiles
from assay.targets.vulkan.kernels.rows import by_rows, is_by_rows
from assay.targets.vulkan.kernels.tiles import HEIGHT, QUAD, add_products, in_fours, rows_of_lane
from assay.targets.vulkan.kernels.windows import Window, tap_of
from assay.targets.vulkan.planning import profile_of
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import ResultElement, Shader
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

_SPATIAL = 3
_PIXELS = 4
"""Pixels of a lane."""
_CHANNELS = 8
"""Channels of a workgroup, at most."""
_LEAST_CHANNELS = 8
"""So many channels are a lane each; tiles are for more."""
_UNROLLED = 9
"""Windows of up to so many elements are written out where a workgroup makes one channel."""


@limitation(f"convolutions over none or more than {_SPATIAL} axes have no kernel")
def _other_axes(node: Node) -> bool:
    return not 1 <= len(node.attrs["strides"]) <= _SPATIAL


@limitation("the shape of the weights is known only when the program runs")
def _unclear_weights(node: Node) -> bool:
    return not all(isinstance(size, int) and size > 0 for size in shape_of(node.inputs[1]))


@emits("conv", NUMBERS, unless=(_other_axes, _unclear_weights))
def conv(p: Planner, node: Node) -> None:
    """Where every pixel depends on one at the same place it is a product of matrices, if lanes find enough of them."""
    x, weights = p.view(node.inputs[0]), p.dense(node.inputs[1])
    bias = p.dense(node.inputs[2]) if node.inputs[2:] and node.inputs[2] is not None else None
    out = p.result(node.outputs[0])
    windows = _windows(node, weights)
    still = all((kernel, stride, before) == (1, 1, 0) for kernel, stride, before, _ in windows)
    pixels, tiles = product(out.shape[2:]), takes_tiles(p, x, weights)
    scarce = tiles and isinstance(pixels, int) and pixels < QUAD * profile_of(p).subgroup
    if still and node.attrs["groups"] == 1 and (bias is None or tiles) and not scarce and x.shape[2:] == out.shape[2:]:
        _product(p, x, weights, bias, out)
    elif is_by_rows(p, x, weights, windows, node.attrs["groups"]):
        by_rows(p, x, weights, bias, out, windows, node.attrs["groups"])
    elif tiles and channels_of(node, weights) > _LEAST_CHANNELS:
        _by_tiles(p, node, x, weights, bias, out, windows)
    else:
        _by_windows(p, node, x, weights, bias, out, windows)


def _windows(node: Node, weights: View) -> tuple[Window, ...]:
    attrs, kernel = node.attrs, [size for size in weights.shape[2:] if isinstance(size, int)]
    befores = attrs["pads"][: len(kernel)]
    parts = zip(kernel, attrs["strides"], befores, attrs["dilations"], strict=True)
    return tuple(Window(size, stride, before, dilation) for size, stride, before, dilation in parts)


def channels_of(node: Node, weights: View) -> int:
    """The channels of the result that belong to a group."""
    whole = weights.shape[0]
    assert isinstance(whole, int)
    return whole // node.attrs["groups"]


def _product(p: Planner, x: View, weights: View, bias: View | None, out: View) -> None:
    """Weights times pixels, image by image."""
    images, channels, pixels = x.shape[0], x.shape[1], product(x.shape[2:])
    flat = x.reshaped((images, channels, pixels)) or p.copied(x).reshaped((images, channels, pixels))
    assert flat is not None
    rows = weights.shape[0]
    left = View(weights.storage, weights.dtype, (images, 1, rows, channels), (0, 0, channels, 1), weights.offset)
    multiply(p, left, flat.split(1), out, bias)


def _by_windows(
    p: Planner, node: Node, x: View, weights: View, bias: View | None, out: View, windows: Sequence[Window]
) -> None:
    groups: int = node.attrs["groups"]
    channels, each = (size for size in weights.shape[:2] if isinstance(size, int))
    own = channels // groups
    height = next(size for size in (1, 2, 4, 8) if size >= min(own, _CHANNELS))
    operands = [view for view in (x, weights, bias, out) if view is not None]
    kernel = template(
        write_conv,
        [view.dtype for view in operands],
        6 + 3 * len(windows),
        by_group=True,
        lane_columns=_PIXELS,
        texels=(1, 1),
        pixels=_PIXELS,
        windows=tuple(windows),
        height=height,
        single=each == 1,
        biased=bias is not None,
    )
    numbers = [own, x.strides[0], x.strides[1], own, each, groups, *x.shape[2:], *x.strides[2:], *out.shape[2:]]
    rows, pixels = out.shape[0] * channels, product(out.shape[2:])
    p.step(kernel, operands, numbers, rows=rows, cols=pixels, takes_epilogue=True)


def _by_tiles(
    p: Planner, node: Node, x: View, weights: View, bias: View | None, out: View, windows: Sequence[Window]
) -> None:
    groups: int = node.attrs["groups"]
    own, each = channels_of(node, weights), weights.shape[1]
    operands = [view for view in (x, weights, bias, out) if view is not None]
    depth = math.prod(window.kernel for window in windows) * each
    columns = min(QUAD, -(-own // _LEAST_CHANNELS))
    pixels = product((out.shape[0], *out.shape[2:]))
    height = height_of(pixels, HEIGHT)
    kernel = template(
        write_conv_tiles,
        [view.dtype for view in operands],
        7 + 3 * len(windows),
        by_group=True,
        gridded=True,
        height=height,
        texels=(1, QUAD if in_fours(depth) else 1, *[1] * (bias is not None)),
        windows=tuple(windows),
        columns=columns,
        whole=in_fours(depth),
        biased=bias is not None,
    )
    grid = [groups * ceildiv(pixels, height), ceildiv(own, columns * profile_of(p).subgroup)]
    numbers = [*grid, own, out.shape[0], x.strides[0], x.strides[1], each]
    numbers += [*x.shape[2:], *x.strides[2:], *out.shape[2:]]
    rows, cols = out.shape[0] * groups * own, product(out.shape[2:])
    p.step(kernel, operands, numbers, rows=rows, cols=cols, takes_epilogue=True)


def write_conv_tiles(
    s: Shader,
    *,
    windows: tuple[Window, ...],
    columns: int,
    whole: bool,
    biased: bool,
    height: int = 1,
) -> None:
    """`own` channels of the result belong to a group, of which a lane takes so many `columns`; each is made of the
    elements of x in `each` channels, place by place of the window. If `whole`, these are a multiple of 4."""
    x, weights, *_, out = s.operands
    bias = s.operands[2] if biased else None
    spatial, volume = len(windows), math.prod(window.kernel for window in windows)
    own, images, image_step, channel_step, each = (s.number(at) for at in range(2, 7))
    old, strides, sizes = ([s.number(7 + part * spatial + axis) for axis in range(spatial)] for part in range(3))
    depth, area, pixels = each * volume, volume_of(sizes), volume_of([images, *sizes])
    taps = [s.value(window.kernel, "u32") for window in windows]
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        across = group / s.rows
        down = group - across * s.rows
        tiles = (pixels + (height - 1)) / height
        channels_of_all = s.rows / tiles * own
        which = down / tiles
        first = (down - which * tiles) * height
        lane = s.lane()
        places = [unravelled(s.least(first + row, pixels - 1), [images, *sizes]) for row in rows_of_lane(s, height)]
        bases = [image * image_step + which * each * channel_step for image, *_ in places]
        channels = [(across * columns + at) * s.local_size + lane for at in range(columns)]
        begins = [(which * own + s.least(channel, own - 1)) * depth for channel in channels]
        sums = [[s.variable(out.kind, 0) for _ in channels] for _ in range(height)]

        def of_pixels(k: ShaderValue, count: int) -> Sequence[Sequence[ShaderValue]]:
            return [elements_at(k + at) for at in range(count)]

        def elements_at(k: ShaderValue) -> list[ShaderValue]:
            channel = k / volume
            tap, begin = unravelled(k - channel * volume, taps), channel * channel_step
            found = [tap_of(s, windows, pixel, tap, old, strides) for _, *pixel in places]
            return [
                s.select(inside, x.load(s.select(inside, base + begin + at, s.value(0, "u32"))), 0)
                for base, (inside, at) in zip(bases, found, strict=True)
            ]

        def of_channels(k: ShaderValue, count: int) -> Sequence[Sequence[ShaderValue]]:
            if whole:
                return list(zip(*(weights.quad(begin + k) for begin in begins), strict=True))
            return [[weights.load(begin + k + at) for begin in begins] for at in range(count)]

        add_products(s, sums, depth, of_pixels, of_channels, whole=whole)
        elements: list[ResultElement] = []
        numbers = [which * own + s.least(channel, own - 1) for channel in channels]
        shifts = [None if bias is None else bias.load(number) for number in numbers]
        for at, line in enumerate(sums):
            begin = (first + at) / area * ((channels_of_all - 1) * area) + first + at
            for total, channel, number, shift in zip(line, channels, numbers, shifts, strict=True):
                inside = (first + at < pixels) & (channel < own)
                value = total.get() if shift is None else total.get() + shift
                elements.append(ResultElement(inside, begin + number * area, value))
        s.hand_on(elements)


def write_conv(
    s: Shader,
    *,
    windows: tuple[Window, ...],
    single: bool,
    biased: bool,
    pixels: int,
    height: int = 1,
) -> None:
    """`own` channels of the result and `each` of x belong to a group; a workgroup makes `height` of them. `single` says
    that it is one of x.

    A lane takes so many `pixels`. Place by place of the window: where that lies in x is the same for all channels.
    """
    x, weights, *_, out = s.operands
    bias = s.operands[2] if biased else None
    spatial, volume = len(windows), math.prod(window.kernel for window in windows)
    image_step, channel_step, own, groups = (s.number(at) for at in (1, 2, 3, 5))
    each = 1 if single else s.number(4)
    old, strides, sizes = ([s.number(6 + part * spatial + axis) for axis in range(spatial)] for part in range(3))
    area = sizes[0]
    for size in sizes[1:]:
        area = area * size
    tiles = (own + (height - 1)) / height
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        down = group / s.cols
        across = group - down * s.cols
        rest = down / tiles
        tile = down - rest * tiles
        image = rest / groups
        which = rest - image * groups
        columns = [(across * pixels + at) * s.local_size + s.lane() for at in range(pixels)]
        places = [unravelled(s.least(column, area - 1), sizes) for column in columns]
        first = which * own + tile * height
        lines = [s.least(tile * height + at, own - 1) + which * own for at in range(height)]
        sums = [[s.variable(out.kind, 0) for _ in columns] for _ in lines]
        base = image * image_step + which * each * channel_step

        def take(taps: Sequence[Any], tap: ShaderValue) -> None:
            """One place of the window, in all channels of x."""
            found = [tap_of(s, windows, pixel, taps, old, strides) for pixel in places]
            reached = [(inside, s.select(inside, base + at, s.value(0, "u32"))) for inside, at in found]

            def add(channel: ShaderValue, factors: Sequence[ShaderValue]) -> None:
                values = [
                    s.select(inside, x.load(s.select(inside, at + channel * channel_step, s.value(0, "u32"))), 0)
                    for inside, at in reached
                ]
                for line, factor in zip(sums, factors, strict=True):
                    for total, value in zip(line, values, strict=True):
                        total.set(total.get() + factor * value)

            def weight(line: ShaderValue, channel: ShaderValue) -> ShaderValue:
                return weights.load((line * each + channel) * volume + tap)

            along(s, each, lines, weight, add)

        if volume <= _UNROLLED and height == 1:
            for tap in range(volume):
                take(_unravelled(tap, windows), s.value(tap, "u32"))
        else:
            with s.loop(s.value(0, "u32"), volume) as tap:
                take(unravelled(tap, [s.value(w.kernel, "u32") for w in windows]), tap)
        elements: list[ResultElement] = []
        for at, (line, number) in enumerate(zip(sums, lines, strict=True)):
            for total, column in zip(line, columns, strict=True):
                inside = (column < area) & (tile * height + at < own)
                whole = total.get() if bias is None else total.get() + bias.load(number)
                done = rounded(s, whole, out.dtype) if out.dtype.is_float else scalar.wrapped(s, whole, out.dtype)
                place = (image * (groups * own) + first + at) * area + column
                elements.append(ResultElement(inside, place, done))
        s.hand_on(elements)


def _unravelled(tap: int, windows: Sequence[Window]) -> list[int]:
    found: list[int] = []
    for window in reversed(windows):
        found.insert(0, tap % window.kernel)
        tap //= window.kernel
    return found
