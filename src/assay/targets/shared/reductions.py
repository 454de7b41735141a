"""How reductions are cut: into runs of axes that go or stay, and long runs into parts."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import Dim
from assay.ir.dtypes import f64
from assay.ir.graph import Node
from assay.targets.base import limitation

_PART = 16384
"""A long axis is cut into parts of about so many elements, which threads share; sizes alone decide where."""
_SHORT = 256
"""No part has fewer places along the axis."""
_MANY = 1024
"""From so many results on, threads share these instead; from 1/16 of it if the axis is the innermost."""


@limitation("sums are not rounded after every addition")
def rounded_sums(node: Node) -> bool:
    return node.attrs["accumulate"] not in (None, f64)


def runs_of(axes: Sequence[tuple[Dim, bool]]) -> list[tuple[Dim, bool]]:
    """Neighbours of one kind as one."""
    runs: list[tuple[Dim, bool]] = []
    for size, is_gone in axes:
        if runs and runs[-1][1] == is_gone:
            runs[-1] = (runs[-1][0] * size, is_gone)
        else:
            runs.append((size, is_gone))
    return runs


def part_of(above: Dim, length: Dim, below: Dim) -> int | None:
    """How long the parts of an axis are; None if it is not cut: it is short, or there are many results."""
    if not isinstance(above, int) or not isinstance(below, int):
        return None
    if above * below >= (_MANY // 16 if below == 1 else _MANY):
        return None
    part = max(_PART // max(below, 1), _SHORT)
    return None if isinstance(length, int) and length <= 2 * part else part
