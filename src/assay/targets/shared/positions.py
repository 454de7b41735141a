"""What must be known of positions before a run: where those lie that are constants, and whether others fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from assay.ir.dims import Dim, Expr, eq, le
from assay.ir.dtypes import NUMERIC, Array
from assay.ir.graph import Node
from assay.ops.shapes import axis_of
from assay.targets.base import limitation
from assay.targets.shared.tensors import dtype_of, shape_of

OUTSIDE = "a position lies outside of its axis"


def spaced(positions: Array, size: Dim) -> tuple[Dim, int] | None:
    """Start and step of positions that are evenly spaced and surely lie within an axis of `size`."""
    numbers: list[int] = positions.reshape(-1).tolist()
    steps = {after - before for before, after in pairwise(numbers)}
    if positions.ndim > 1 or not numbers or len(steps) > 1 or (numbers[0] < 0) != (numbers[-1] < 0):
        return None
    first, last = (number if number >= 0 else size + number for number in (numbers[0], numbers[-1]))
    within = all(le(0, place) and le(place + 1, size) for place in (first, last))
    return (first, min(steps, default=1)) if within else None


def _same(first: Sequence[Dim], second: Sequence[Dim]) -> bool:
    return len(first) == len(second) and all(eq(a, b) for a, b in zip(first, second, strict=True))


@limitation("the positions have another rank than what they point into")
def other_rank(node: Node) -> bool:
    shape, picked = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    return len(shape) != len(picked) or not shape


@limitation("only a run tells whether there are more positions than elements along another axis")
def unclear_elements(node: Node) -> bool:
    shape, picked = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    axis = axis_of(node.attrs["axis"], len(shape))
    return not all(le(b, a) for i, (a, b) in enumerate(zip(shape, picked, strict=True)) if i != axis)


@limitation("the number of positions for one place is known only when the program runs")
def unclear_places(node: Node) -> bool:
    picked = shape_of(node.inputs[1])
    return not picked or isinstance(picked[-1], Expr)


@limitation("there is no kernel for places without positions")
def no_places(node: Node) -> bool:
    return shape_of(node.inputs[1])[-1] == 0


@limitation("only a run tells whether the shared axes are of one size")
def unclear_shared(node: Node) -> bool:
    shared = node.attrs["batch_dims"]
    return not _same(shape_of(node.inputs[0])[:shared], shape_of(node.inputs[1])[:shared])


_UPDATES = "only a run tells whether there is one update for each position"


@limitation(_UPDATES)
def unclear_updates(node: Node) -> bool:
    return not _same(shape_of(node.inputs[2]), shape_of(node.inputs[1]))


@limitation(_UPDATES)
def unclear_slices(node: Node) -> bool:
    shape, picked = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    return not _same(shape_of(node.inputs[2]), (*picked[:-1], *shape[cast(int, picked[-1]) :]))


@limitation("there is no kernel that combines updates of this dtype")
def combines_others(node: Node) -> bool:
    return node.attrs["reduction"] != "none" and dtype_of(node.outputs[0]) not in NUMERIC
