"""Convolutions. Results lie with their channels innermost, which is how convolutions read best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.ir.dims import Dim, product
from assay.ir.dtypes import FLOATS, NUMERIC
from assay.ir.graph import Node
from assay.targets.cpu.kernels.matmul import arithmetic, multiply, other_width, pack, panel_width, sum_bytes
from assay.targets.cpu.planner import Planner
from assay.targets.cpu.registry import emits
from assay.targets.cpu.tensors import shape_of
from assay.targets.cpu.toolchain import template
from assay.targets.cpu.views import View

_SPATIAL = 3
_ROW_BLOCK, _COLUMN_BLOCK, _DEPTH, _ROW_BUDGET = 384, 128, 768, 65536
"""As c/conv.h has them."""
_MOST_ROWS, _MOST_PANELS = 12, 8
"""The largest ROWS and MOST of c/tile.h."""
_PIXELS, _PIXELS_OF_FEW_CHANNELS = 128, 384
"""How many output pixels a thread takes at a time, about; more where copying the input weighs more."""


@dataclass(frozen=True)
class _Shape:
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


def _three(numbers: Sequence[Any], fill: int) -> tuple[Any, ...]:
    return (*[fill] * (_SPATIAL - len(numbers)), *numbers)


def _too_many_axes(node: Node) -> str:
    axes = len(node.attrs["strides"])
    return "" if 1 <= axes <= _SPATIAL else f"a convolution over {axes} axes has no kernel"


def _unclear_weights(node: Node) -> str:
    known = all(isinstance(size, int) and size > 0 for size in shape_of(node.inputs[1]))
    return _too_many_axes(node) or ("" if known else "the shape of the weights is known only when the program runs")


@emits("conv_panels", FLOATS, unless=lambda node: _too_many_axes(node) or other_width(node))
def conv_panels(p: Planner, node: Node) -> None:
    """With weights that were laid out as panels beforehand."""
    _convolve(p, node, p.dense(node.inputs[1]), node.attrs["kernel"], node.attrs["channels"])


@emits("conv", NUMERIC, unless=_unclear_weights)
def conv(p: Planner, node: Node) -> None:
    """With weights as they lie, which are laid out as panels in every run."""
    w = p.view(node.inputs[1])
    channels, each, *kernel = (size for size in w.shape if isinstance(size, int))
    groups, depth, width = node.attrs["groups"], math.prod(kernel) * each, panel_width(w.dtype)
    if each == 1 and channels == groups:
        dense = p.dense(node.inputs[1])
        shape, strides, lead = (1, depth, channels), (0, 1, depth), ()
    else:
        dense = p.dense(node.inputs[1], (0, *range(2, w.rank), 1))
        out = channels // groups
        shape, strides, lead = (groups, depth, out), (out * depth, 1, depth), (groups,)
    panels = p.temporary(w.dtype, (*lead, -(-shape[2] // width), depth, width))
    pack(p, View(dense.buffer, w.dtype, shape, strides, dense.offset), panels)
    bias = p.dense(node.inputs[2]) if node.inputs[2:] and node.inputs[2] is not None else None
    out = _convolve(p, node, panels, kernel, channels)
    if bias is not None:
        _add_bias(p, bias, out, channels)


def _add_bias(p: Planner, bias: View, out: View, channels: int) -> None:
    host = p.tape.steps[-1]
    kernel = template("add_bias.h", **arithmetic(out.dtype))
    p.step(kernel, [bias, out], [channels], rows=host.rows, cols=host.cols)
    p.attach(host)


def _convolve(p: Planner, node: Node, panels: View, kernel: Sequence[int], channels: int) -> View:
    """Plan a convolution with weights that lie as panels; three axes of these mean one channel a group."""
    x = p.view(node.inputs[0])
    last = (0, *range(2, x.rank), 1)
    apart = panels.rank == 3
    few = isinstance(x.shape[1], int) and x.shape[1] < 8
    if x.strides[1] != 1 and (apart or not few):
        x = p.dense(node.inputs[0], last)
    out = p.result(node.outputs[0], last)
    strides, dilations = (_three(node.attrs[name], 1) for name in ("strides", "dilations"))
    before = _three(node.attrs["pads"][: len(kernel)], 0)
    shape = _Shape(x, out, _three(kernel, 1), strides, dilations, before, node.attrs["groups"])
    if apart:
        _by_channel(p, shape, panels)
    elif shape.is_product:
        multiply(p, _as_rows(p, node, x), panels, out, channels)
    else:
        _by_windows(p, shape, panels, channels)
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
        may_continue=True,
    )


def _by_windows(p: Planner, s: _Shape, panels: View, channels: int) -> None:
    depth = panels.shape[-2]
    assert isinstance(depth, int)
    each, out = depth // math.prod(s.kernel), channels // s.groups
    p.step(
        template("conv.h", **arithmetic(s.x.dtype)),
        [s.x, panels, s.out],
        [s.groups, each, out, *s.numbers],
        rows=s.out.shape[0] * product(s.out.shape[2:]),
        cols=channels,
        row_grain=_row_grain(s.out.shape[-1], each),
        col_grain=64 if s.groups == 1 else out * max(64 // out, 1),
        work=2 * depth,
        scratch=_scratch(s, each),
        may_continue=True,
    )


def _row_grain(width: Dim, channels: int) -> Dim:
    """Whole output rows, as far as the width is known."""
    pixels = _PIXELS if channels > 8 else _PIXELS_OF_FEW_CHANNELS
    return width * max(pixels // width, 1) if isinstance(width, int) and width else pixels


def _scratch(s: _Shape, each: int) -> int:
    """What c/conv.h asks for, in bytes."""
    reach = [(k - 1) * d + 1 for k, d in zip(s.kernel, s.dilations, strict=True)]
    segments = s.kernel[0] * s.kernel[1] * (1 if s.dilations[2] == 1 else s.kernel[2])
    columns = (_MOST_ROWS - 1) * min(s.strides[2], reach[2]) + reach[2]
    copied = max(_ROW_BUDGET, s.kernel[0] * reach[1] * columns * each)
    narrow = s.x.dtype.is_float and s.x.dtype.bits == 16
    sums = _ROW_BLOCK * _COLUMN_BLOCK + _MOST_PANELS * panel_width(s.x.dtype) * _DEPTH if narrow else 16
    return 8 * _ROW_BLOCK * segments + sum_bytes(s.x.dtype) * (sums + copied) + 64
