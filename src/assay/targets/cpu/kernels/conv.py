"""Convolutions. Results lie with their channels innermost, which is how convolutions read best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.ir.dims import Dim, product
from assay.ir.dtypes import FLOATS, NUMERIC, DType, f32, f64
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.cpu.kernels.matmul import (
    arithmetic,
    is_narrow,
    multiply,
    multiply_plain,
    other_width,
    pack,
    panel_width,
    sum_bytes,
)
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View

_SPATIAL = 3
_ROW_BLOCK, _COLUMN_BLOCK = 384, 128
_ROW_BUDGET, _ROW_BUDGET_UNPACKED = 65536, 131072
"""As c/conv.h has them."""
_MOST_ROWS, _MOST_PANELS = 12, 2
"""The largest ROWS and PANELS of c/tile.h."""
_DEEPEST = 1 << 15
"""The longest window whose weights become panels on the way."""
_MOST_DOTS, _LEAST_STRETCH = 4, 32
"""Convolutions with so few output channels are dot products, if the columns of a window have so many numbers."""
_PIXELS, _PIXELS_OF_FEW_CHANNELS = 128, 384
"""How many output pixels a thread takes at a time, about; more where copying the input weighs more."""


class _Shape(NamedTuple):
    """A convolution of x, over spatial axes to which size 1 was added in front until there are three."""

    x: View
    out: View
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    groups: int

    @property
    def numbers(self) -> list[Dim]:
        """From `size` on, the numbers of the `shape` of c/conv.h and c/depthwise.h."""
        size, made = (_three(view.shape[2:], 1) for view in (self.x, self.out))
        fixed = [*self.kernel, *self.strides, *self.dilations, *self.before]
        return [*size, *made, *fixed, *self.x.strides[:2], *_three(self.x.strides[2:], 0)]

    @property
    def is_product(self) -> bool:
        """Whether every output pixel depends on one input pixel, that at the same place."""
        still = all(n == 1 for n in (*self.kernel, *self.strides, self.groups))
        return still and not any(self.before) and self.x.shape[2:] == self.out.shape[2:]


class _Weights(NamedTuple):
    """Weights for `channels` channels: packed as panels (three axes mean one channel a group), else as they lie, as
    (output channels, input channels of a group, kernel positions); `dots` if they multiply windows one by one."""

    view: View
    kernel: Sequence[int]
    channels: int
    packed: bool
    dots: bool = False


def _three(numbers: Sequence[Any], fill: int) -> tuple[Any, ...]:
    return (*[fill] * (_SPATIAL - len(numbers)), *numbers)


@limitation(f"convolutions over no axis, or more than {_SPATIAL}, have no kernel")
def _other_axes(node: Node) -> bool:
    return not 1 <= len(node.attrs["strides"]) <= _SPATIAL


@limitation("weights of a shape that only a run tells, or without elements, have no kernel")
def _unclear_weights(node: Node) -> bool:
    return not all(isinstance(size, int) and size > 0 for size in shape_of(node.inputs[1]))


@emits("cpu.conv_panels", FLOATS, unless=(other_width,))
def conv_panels(p: Planner, node: Node) -> None:
    """With weights that were laid out as panels beforehand."""
    _convolve(p, node, _Weights(p.dense(node.inputs[1]), node.attrs["kernel"], node.attrs["channels"], packed=True))


@emits("conv", NUMERIC, unless=(_other_axes, _unclear_weights))
def conv(p: Planner, node: Node) -> None:
    """With weights as they lie."""
    bias = p.dense(node.inputs[2]) if node.inputs[2:] and node.inputs[2] is not None else None
    weights = _plain_weights(p, node)
    out = _convolve(p, node, weights)
    if bias is not None:
        _add_bias(p, bias, out, weights.channels)


def _plain_weights(p: Planner, node: Node) -> _Weights:
    """The weights as they lie; as panels if each channel is a group by itself, or a window is very long."""
    w = p.view(node.inputs[1])
    channels, each, *kernel = (size for size in w.shape if isinstance(size, int))
    groups, depth, width = node.attrs["groups"], math.prod(kernel) * each, panel_width(w.dtype)
    dots = is_of_dots((channels, each, *kernel), groups, node.attrs["dilations"], w.dtype)
    if each == 1 and channels == groups and not dots:
        dense = p.dense(node.inputs[1])
        panels = p.temporary(w.dtype, (-(-channels // width), depth, width))
        pack(p, View(dense.storage, w.dtype, (1, depth, channels), (0, 1, depth), dense.offset), panels)
        return _Weights(panels, kernel, channels, packed=True)
    if depth > _DEEPEST and not dots:
        dense, out = p.dense(node.inputs[1], (0, *range(2, w.rank), 1)), channels // groups
        panels = p.temporary(w.dtype, (groups, -(-out // width), depth, width))
        matrices = View(dense.storage, w.dtype, (groups, depth, out), (out * depth, 1, depth), dense.offset)
        pack(p, matrices, panels)
        return _Weights(panels, kernel, channels, packed=True)
    shape = (channels, each, math.prod(kernel))
    flat = w.reshaped(shape) or p.dense(node.inputs[1]).reshaped(shape)
    assert flat is not None
    return _Weights(flat, kernel, channels, packed=False, dots=dots)


def is_of_dots(weights: Sequence[int], groups: int, dilations: Sequence[int], dtype: DType) -> bool:
    """Whether a convolution with weights of this shape is computed as dot products along the window: panels would be
    all but empty, having a column for each output channel."""
    channels, each, *kernel = weights
    wide = each * kernel[-1] >= _LEAST_STRETCH and dilations[-1] == 1
    return groups == 1 and channels <= _MOST_DOTS and wide and dtype in (f32, f64)


def _add_bias(p: Planner, bias: View, out: View, channels: int) -> None:
    host = p.tape.steps[-1]
    kernel = template("add_bias.h", **arithmetic(out.dtype))
    p.step(kernel, [bias, out], [channels], rows=host.rows, cols=host.cols)
    p.attach(host)


def _convolve(p: Planner, node: Node, weights: _Weights) -> View:
    """Plan a convolution."""
    x, kernel = p.view(node.inputs[0]), weights.kernel
    last = (0, *range(2, x.rank), 1)
    apart = weights.packed and weights.view.rank == 3
    few = isinstance(x.shape[1], int) and x.shape[1] < 8
    if weights.dots or (x.strides[1] != 1 and (apart or not few)):
        x = p.dense(node.inputs[0], last)
    out = p.result(node.outputs[0], last)
    strides, dilations = (_three(node.attrs[name], 1) for name in ("strides", "dilations"))
    before = _three(node.attrs["pads"][: len(kernel)], 0)
    shape = _Shape(x, out, _three(kernel, 1), strides, dilations, before, node.attrs["groups"])
    if weights.dots:
        _by_dots(p, shape, weights)
    elif apart:
        _by_channel(p, shape, weights.view)
    elif shape.is_product and weights.packed:
        multiply(p, _as_rows(p, node, x), weights.view, out, weights.channels)
    elif shape.is_product:
        multiply_plain(p, _as_rows(p, node, x), weights.view.dropped(2).transposed((1, 0)), out)
    else:
        _by_windows(p, shape, weights)
    return out


def _as_rows(p: Planner, node: Node, x: View) -> View:
    """x as (images, pixels, channels)."""
    last, shape = (0, *range(2, x.rank), 1), (x.shape[0], product(x.shape[2:]), x.shape[1])
    joined = x.transposed(last).reshaped(shape) or p.dense(node.inputs[0], last).transposed(last).reshaped(shape)
    assert joined is not None
    return joined


def _by_channel(p: Planner, s: _Shape, panels: View) -> None:
    channels, width = s.x.shape[1], s.out.shape[-1]
    taps = s.kernel[-1] if s.kernel[-1] < 8 and s.dilations[-1] * s.kernel[-1] < 64 else 1
    p.step(
        template("depthwise.h", TAPS=taps, STEP=s.strides[-1], SPREAD=s.dilations[-1], **arithmetic(s.x.dtype)),
        [s.x, panels, s.out],
        [channels, *s.numbers],
        rows=s.out.shape[0] * product(s.out.shape[2:]),
        cols=channels,
        row_grain=width,
        col_grain=64,
        work=2 * product(s.kernel),
        takes_epilogue=True,
    )


def _by_dots(p: Planner, s: _Shape, weights: _Weights) -> None:
    view, places = weights.view, math.prod(s.kernel)
    p.step(
        template("conv_few.h", OUT=weights.channels, **arithmetic(s.x.dtype)),
        [s.x, view, s.out],
        [weights.channels, *s.numbers, view.shape[1], *view.strides],
        rows=s.out.shape[0] * product(s.out.shape[2:]),
        cols=weights.channels,
        row_grain=_PIXELS,
        col_grain=weights.channels,
        work=2 * places * view.shape[1],
        scratch=view.shape[0] * view.shape[1] * places * s.x.dtype.numpy.itemsize,
        takes_epilogue=True,
    )


def _by_windows(p: Planner, s: _Shape, weights: _Weights) -> None:
    view, channels = weights.view, weights.channels
    places, out = math.prod(s.kernel), channels // s.groups
    each = view.shape[-2] // places if weights.packed else view.shape[1]
    assert isinstance(each, int)
    p.step(
        template("conv.h", **({"PACKED": ""} if weights.packed else {}), **arithmetic(s.x.dtype)),
        [s.x, view, s.out],
        [s.groups, each, out, *s.numbers, *(() if weights.packed else view.strides)],
        rows=s.out.shape[0] * product(s.out.shape[2:]),
        cols=channels,
        row_grain=_row_grain(s.out.shape[-1], each),
        col_grain=64 if s.groups == 1 else out * max(64 // out, 1),
        work=2 * places * each,
        scratch=_scratch(s, each, packed=weights.packed),
        takes_epilogue=True,
    )


def _row_grain(width: Dim, channels: int) -> Dim:
    """Whole output rows, as far as the width is known."""
    pixels = _PIXELS if channels > 8 else _PIXELS_OF_FEW_CHANNELS
    return width * max(pixels // width, 1) if isinstance(width, int) and width else pixels


def _scratch(s: _Shape, each: int, *, packed: bool) -> int:
    """What c/conv.h asks for, in bytes."""
    reach = [(k - 1) * d + 1 for k, d in zip(s.kernel, s.dilations, strict=True)]
    segments = s.kernel[0] * s.kernel[1] * (1 if s.dilations[2] == 1 else s.kernel[2])
    columns = (_MOST_ROWS - 1) * min(s.strides[2], reach[2]) + reach[2]
    copied = max(_ROW_BUDGET if packed else _ROW_BUDGET_UNPACKED, s.kernel[0] * reach[1] * columns * each)
    sums = _ROW_BLOCK * _COLUMN_BLOCK if is_narrow(s.x.dtype) else 16
    laid_out = not packed or is_narrow(s.x.dtype)
    panels = _MOST_PANELS * panel_width(s.x.dtype) * math.prod(s.kernel) * each if laid_out else 0
    return 8 * _ROW_BLOCK * segments + sum_bytes(s.x.dtype) * (sums + panels + copied) + 64
