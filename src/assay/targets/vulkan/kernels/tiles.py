"""Tiles of sums: lanes along the columns, four of them each, and the left side's elements handed from lane to lane.

A lane loads four elements at a time where they lie side by side, for which some drivers need no longer than for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.ir.dims import Dim
from assay.targets.vulkan.code import ShaderValue, Variable
from assay.targets.vulkan.shader import Shader

QUAD = 4
"""Columns of a lane, and elements that are loaded at a time."""
HEIGHT = 16
"""Rows of a tile, at most."""

Quad = Sequence[ShaderValue]


def in_fours(*dims: Dim) -> bool:
    """Whether all of these are multiples of 4, as far as that can be proved."""
    factors = ([(None, dim)] if isinstance(dim, int) else dim.terms for dim in dims)
    return all(factor % QUAD == 0 for terms in factors for _, factor in terms)


def rows_of_lane(s: Shader, height: int) -> list[ShaderValue]:
    """The rows of a tile of which a lane loads elements for all."""
    lane, size = s.lane(), s.local_size
    return [s.least(lane + first, height - 1) for first in range(0, height, size)]


def add_products(
    s: Shader,
    sums: Sequence[Sequence[Variable]],
    depth: ShaderValue | int,
    left: Callable[[ShaderValue, int], Sequence[Quad]],
    right: Callable[[ShaderValue, int], Sequence[Quad]],
    *,
    whole: bool,
) -> None:
    """Add up products along the depth to `sums`, which has rows and, in each, the columns of a lane.

    For each index of the depth from one on, as many as they are told, `left` gives the elements of the rows that are
    this lane's (`rows_of_lane`), and `right` those of its columns. If `whole`, the depth is a multiple of 4.
    """

    def take(begin: ShaderValue, count: int) -> None:
        own, others = left(begin, count), right(begin, count)
        for row, line in enumerate(sums):
            factors = [s.broadcast(rows[row // s.local_size], row % s.local_size) for rows in own]
            for column, total in enumerate(line):
                found = total.get()
                for factor, columns in zip(factors, others, strict=True):
                    found = found + factor * columns[column]
                total.set(found)

    end = depth if whole else depth / QUAD * QUAD if isinstance(depth, ShaderValue) else depth // QUAD * QUAD
    with s.loop(s.value(0, "u32"), end, QUAD) as begin:
        take(begin, QUAD)
    if not whole:
        with s.loop(end, depth) as begin:
            take(begin, 1)
