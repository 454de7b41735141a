"""Convolutions by rows: a lane takes four pixels of some rows, and loads what their windows share only once.

Where each channel is made of one of x, lanes lie along all channels. Else a workgroup makes some channels, whose
weights its lanes load for each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as combinations

from assay.ir.dims import Dim, ceildiv, product
from assay.ir.dtypes import f32
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View
from assay.targets.vulkan.code import ShaderValue, Variable
from assay.targets.vulkan.kernels.elements import ravelled, unravelled, volume_of
from assay.targets.vulkan.kernels.tiles import QUAD, in_fours, rows_of_lane
from assay.targets.vulkan.kernels.windows import Window, tap_of
from assay.targets.vulkan.planning import profile_of
from assay.targets.vulkan.shader import ResultElement, Shader
from assay.targets.vulkan.templates import template

_WIDEST, _FASTEST = 9, 4
"""Elements of a window's row, and its stride along it, at most."""
_CHANNELS = 8
"""Channels of a group that several of x make, at most; tiles are for more. Also channels times rows of a lane."""
_WRITTEN_OUT = 400
"""Products of a lane, at most, which are written out; else the rows of the window are a loop."""

_Sums = Sequence[Sequence[Sequence[Variable]]]
"""By channel, row and pixel."""


def is_by_rows(p: Planner, x: View, weights: View, windows: Sequence[Window], groups: int) -> bool:
    """Whether windows share what they have in a row, and lanes make one channel or few."""
    last, channels, single = windows[-1], weights.shape[0], weights.shape[1] == 1
    narrow = last.kernel <= _WIDEST and last.stride <= _FASTEST
    few = isinstance(channels, int) and channels // groups <= _CHANNELS and profile_of(p).tiles
    return narrow and (single or few) and x.dtype is weights.dtype is f32


def by_rows(
    p: Planner, x: View, weights: View, bias: View | None, out: View, windows: Sequence[Window], groups: int
) -> None:
    """Plan such a convolution."""
    operands = [view for view in (x, weights, bias, out) if view is not None]
    channels, each = (size for size in weights.shape[:2] if isinstance(size, int))
    own, single = channels // groups, each == 1
    height = 1 if single else next(size for size in (1, 2, 4, 8) if size >= own)
    *above, down, across = (1, *out.shape[2:])
    lines = _lines_of_lane(windows, height, down)
    fours = x.strides[-1] == 1 and in_fours(x.offset, *x.strides[:-1], x.shape[-1])
    kernel = template(
        write_rows,
        [view.dtype for view in operands],
        8 + 3 * len(windows),
        by_group=True,
        gridded=True,
        height=height,
        texels=(QUAD if fours else 1, 1, *[1] * (bias is not None)),
        windows=tuple(windows),
        lines=lines,
        fours=fours,
        single=single,
        biased=bias is not None,
    )
    lanes = product([out.shape[0], *above, ceildiv(down, lines), ceildiv(across, QUAD), channels if single else 1])
    grid = [1 if single else groups * ceildiv(own, height), ceildiv(lanes, profile_of(p).subgroup)]
    sizes = [*x.shape[2:], *x.strides[2:], *out.shape[2:]]
    numbers = [*grid, own, each, groups, out.shape[0], x.strides[0], x.strides[1], *sizes]
    rows, cols = out.shape[0] * channels, product(out.shape[2:])
    p.step(kernel, operands, numbers, rows=rows, cols=cols, takes_epilogue=True)


def _lines_of_lane(windows: Sequence[Window], height: int, down: Dim) -> int:
    """Rows of the result that a lane takes: no more than there are, as far as that is known."""
    products = math.prod(window.kernel for window in windows) * height * QUAD
    most = min(_CHANNELS // height, _WRITTEN_OUT // products, down if isinstance(down, int) else QUAD)
    return next((lines for lines in (4, 2) if lines <= most), 1) if len(windows) > 1 else 1


class _Grid:
    """Where the pixels of a lane lie, and which channels it makes of which of x."""

    def __init__(
        self,
        s: Shader,
        group: ShaderValue,
        windows: Sequence[Window],
        lines: int,
        height: int,
        *,
        fours: bool,
        single: bool,
    ) -> None:
        spatial, self.loads = len(windows), QUAD if fours else 1
        own, self.each, groups, images, image_step, self.channel_step = (s.number(at) for at in range(2, 8))
        self.old, self.strides, self.sizes = (
            [s.number(8 + part * spatial + axis) for axis in range(spatial)] for part in range(3)
        )
        steps = [*[1] * (spatial - 2), *[lines] * (spatial > 1), QUAD]
        blocks = [(size + (step - 1)) / step for size, step in zip(self.sizes, steps, strict=True)]
        axes = [images, *[own * groups] * single, *blocks]
        down = group / s.cols
        item, items = (group - down * s.cols) * s.local_size + s.lane(), volume_of(axes)
        self.inside = item < items
        image, *rest = unravelled(s.least(item, items - 1), axes)
        self.first = [index * step for index, step in zip(rest[-spatial:], steps, strict=True)]
        tiles = (own + (height - 1)) / height
        self.which = rest[0] / own if single else down / tiles
        tile = rest[0] - self.which * own if single else (down - self.which * tiles) * height
        self.there = [tile + at < own for at in range(height)]
        self.channels, self.loaded = (
            [self.which * own + s.least(tile + at, own - 1) for at in rows]
            for rows in (range(height), [0] if single else rows_of_lane(s, height))
        )
        self.results = [(image * (own * groups) + channel) * volume_of(self.sizes) for channel in self.channels]
        self.begin = image * image_step + self.which * self.each * self.channel_step


def write_rows(
    s: Shader, *, windows: tuple[Window, ...], lines: int, fours: bool, single: bool, biased: bool, height: int = 1
) -> None:
    """`own` channels of the result and `each` of x belong to a group; a workgroup makes `height` of them, or if each is
    made of a `single` one of x, a lane makes one. A lane takes so many `lines`, and reads rows by `fours`."""
    out = s.operands[-1]
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        grid = _Grid(s, group, windows, lines, height, fours=fours, single=single)
        sums = [[[s.variable(out.kind, 0) for _ in range(QUAD)] for _ in range(lines)] for _ in range(height)]
        if single:
            _add_channel(s, grid, windows, sums, s.value(0, "u32"), single=True)
        else:
            with s.loop(s.value(0, "u32"), grid.each) as channel:
                _add_channel(s, grid, windows, sums, channel, single=False)
        elements: list[ResultElement] = []
        for at, (there, channel) in enumerate(zip(grid.there, grid.channels, strict=True)):
            shift = s.operands[2].load(channel) if biased else None
            for line, pixel in combinations(range(lines), range(QUAD)):
                *above, across = grid.first
                where = [*above[:-1], *(index + line for index in above[-1:]), across + pixel]
                inside = grid.inside & there & (where[-1] < grid.sizes[-1])
                inside = inside & (where[-2] < grid.sizes[-2]) if lines > 1 else inside
                total = sums[at][line][pixel].get()
                value = total if shift is None else total + shift
                elements.append(ResultElement(inside, grid.results[at] + ravelled(where, grid.sizes), value))
        s.hand_on(elements)


def _add_channel(
    s: Shader, grid: _Grid, windows: Sequence[Window], sums: _Sums, channel: ShaderValue, *, single: bool
) -> None:
    """Add what one channel of x gives."""
    *outer, last = windows
    lines, volume = len(sums[0]), math.prod(window.kernel for window in windows)
    weights, begins = s.operands[1], [(number * grid.each + channel) * volume for number in grid.loaded]
    known: dict[int, list[ShaderValue]] = {}

    def factors(place: ShaderValue | int) -> list[ShaderValue]:
        """The weights at a place of the window, for all channels."""
        if isinstance(place, int) and place in known:
            return known[place]
        own = [weights.load(begin + place) for begin in begins]
        found = own if single else [s.broadcast(own[at // s.local_size], at % s.local_size) for at in range(len(sums))]
        if isinstance(place, int):
            known[place] = found
        return found

    def add(row: Callable[[int, int], ShaderValue], line: int, number: ShaderValue | int) -> None:
        """Add what a row of the window, by its number, makes of a row of x."""
        for tap in range(last.kernel):
            for of_channel, factor in zip(sums, factors(number * last.kernel + tap), strict=True):
                for pixel, total in enumerate(of_channel[line]):
                    total.set(total.get() + factor * row(pixel, tap))

    above, begin = grid.first[:-1], grid.begin + channel * grid.channel_step
    if volume * lines * len(sums) * QUAD > _WRITTEN_OUT:
        kernel = [window.kernel for window in outer]
        with s.loop(s.value(0, "u32"), math.prod(kernel)) as number:
            taps = unravelled(number, [s.value(size, "u32") for size in kernel])
            add(_row_of(s, grid, last, begin, tap_of(s, outer, above, taps, grid.old, grid.strides)), 0, number)
        return
    dense = [window._replace(dilation=1) for window in outer]
    for steps, parts in _rows_reached(outer, lines).items():
        row = _row_of(s, grid, last, begin, tap_of(s, dense, above, steps, grid.old, grid.strides))
        for line, number in parts:
            add(row, line, number)


def _rows_reached(outer: Sequence[Window], lines: int) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """The rows of x of which `lines` rows of the result are made, in steps from the first one's window on; for each,
    what is made of it by which row of the window."""
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, taps in enumerate(combinations(*(range(window.kernel) for window in outer))):
        for line in range(lines):
            steps = [tap * window.dilation for tap, window in zip(taps, outer, strict=True)]
            steps[-1:] = [step + line * outer[-1].stride for step in steps[-1:]]
            found.setdefault(tuple(steps), []).append((line, number))
    return found


def _row_of(
    s: Shader, grid: _Grid, last: Window, begin: ShaderValue, reached: tuple[ShaderValue, ShaderValue]
) -> Callable[[int, int], ShaderValue]:
    """Elements of a row of x by pixel and tap, 0 where it has none; `reached` says whether and where x has the row.

    Each is loaded when it is asked for first.
    """
    (within, at), x, known = reached, s.operands[0], dict[int, list[ShaderValue]]()

    def element(pixel: int, tap: int) -> ShaderValue:
        block, rest = divmod(pixel * last.stride + tap * last.dilation - last.before, grid.loads)
        if block not in known:
            place = grid.first[-1] * last.stride + (block * grid.loads & 0xFFFFFFFF)
            inside = within & (place < grid.old[-1])
            index = s.select(inside, begin + at + place * grid.strides[-1], s.value(0, "u32"))
            loaded = x.quad(index) if grid.loads == QUAD else [x.load(index)]
            known[block] = [s.select(inside, value, 0) for value in loaded]
        return known[block][rest]

    return element
