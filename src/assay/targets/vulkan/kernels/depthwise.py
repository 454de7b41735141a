"""Convolutions of one channel each: a lane takes four pixels of a row, and loads what their windows share only once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations

from assay.ir.dims import ceildiv, product
from assay.ir.dtypes import f32
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import unravelled
from assay.targets.vulkan.kernels.tiles import QUAD, in_fours
from assay.targets.vulkan.kernels.windows import Window, tap_of
from assay.targets.vulkan.shader import ResultElement, Shader
from assay.targets.vulkan.templates import template

_WIDEST = 9
"""Elements of a window's row, at most, which are written out; and its rows, if they are."""


def is_by_rows(x: View, weights: View, out: View, windows: Sequence[Window]) -> bool:
    """Whether each channel is made of one of x, whose rows are read four elements at a time, as they lie."""
    last = windows[-1]
    steps = last.stride == last.dilation == x.strides[-1] == 1 and last.kernel <= _WIDEST
    fours = in_fours(x.offset, *x.strides[:-1], x.shape[-1], out.shape[-1])
    return steps and fours and weights.shape[1] == 1 and x.dtype is f32


def by_rows(p: Planner, x: View, weights: View, bias: View | None, out: View, windows: Sequence[Window]) -> None:
    """Plan such a convolution."""
    operands = [view for view in (x, weights, bias, out) if view is not None]
    kernel = template(
        write_rows,
        [view.dtype for view in operands],
        4 + 3 * len(windows),
        by_group=True,
        lane_columns=QUAD,
        texels=(QUAD, 1),
        windows=tuple(windows),
        biased=bias is not None,
    )
    channels = weights.shape[0]
    sizes = [*x.shape[2:], *x.strides[2:], *out.shape[2:]]
    numbers = [channels, ceildiv(channels, x.shape[1]), x.strides[0], x.strides[1], *sizes]
    p.step(kernel, operands, numbers, rows=out.shape[0] * channels, cols=product(out.shape[2:]), takes_epilogue=True)


def write_rows(s: Shader, *, windows: tuple[Window, ...], biased: bool) -> None:
    """So many channels of the result, of which some in a row are made of the same one of x."""
    x, weights, *_, out = s.operands
    spatial, (*outer, last) = len(windows), windows
    channels, own, image_step, channel_step = (s.number(at) for at in range(4))
    old, strides, sizes = ([s.number(4 + part * spatial + axis) for axis in range(spatial)] for part in range(3))
    quads, back = sizes[-1] / QUAD, -(-last.before // QUAD)
    area = sizes[-1]
    for size in sizes[:-1]:
        area = area * size
    ahead = -(-max(last.kernel - 1 - last.before, 0) // QUAD)
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        down = group / s.cols
        item = (group - down * s.cols) * s.local_size + s.lane()
        image = down / channels
        channel = down - image * channels
        *line, quad = unravelled(s.least(item, area / QUAD - 1), [*sizes[:-1], quads])
        base = image * image_step + channel / own * channel_step
        sums = [s.variable(out.kind, 0) for _ in range(QUAD)]

        def take(taps: Sequence[ShaderValue], row: ShaderValue) -> None:
            """One row of the window."""
            within, at = tap_of(s, outer, line, taps, old, strides)
            found: list[ShaderValue] = []
            for step in range(-back, ahead + 1):
                place = quad + (step & 0xFFFFFFFF)
                inside = within & (place < old[-1] / QUAD)
                loaded = x.quad(s.select(inside, base + at + place * QUAD, s.value(0, "u32")))
                found += [s.select(inside, value, 0) for value in loaded]
            for tap in range(last.kernel):
                factor = weights.load((channel * math.prod(w.kernel for w in outer) + row) * last.kernel + tap)
                for pixel, total in enumerate(sums):
                    total.set(total.get() + factor * found[pixel + tap - last.before + QUAD * back])

        kernel = [window.kernel for window in outer]
        if math.prod(kernel) <= _WIDEST:
            for row, taps in enumerate(combinations(*map(range, kernel))):
                take([s.value(tap, "u32") for tap in taps], s.value(row, "u32"))
        else:
            with s.loop(s.value(0, "u32"), math.prod(kernel)) as row:
                take(unravelled(row, [s.value(size, "u32") for size in kernel]), row)
        shift = s.operands[2].load(channel) if biased else None
        elements: list[ResultElement] = []
        for pixel, total in enumerate(sums):
            value = total.get() if shift is None else total.get() + shift
            elements.append(ResultElement(item < area / QUAD, down * area + item * QUAD + pixel, value))
        s.hand_on(elements)
