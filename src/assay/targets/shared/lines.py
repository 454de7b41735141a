"""Tensors as lines along one axis, in whatever order their axes lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from assay.ir.dims import Dim, product
from assay.ir.graph import Value
from assay.ops.shapes import axes_of
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View


class Lines(NamedTuple):
    """A tensor without gaps: lines of `length` elements, and how many places lie above and below these in memory.

    `order` is the memory order of the tensor, `rest` that of one without the axes of the lines.
    """

    view: View
    order: tuple[int, ...]
    rest: tuple[int, ...]
    above: Dim
    length: Dim
    below: Dim


def packed(p: Planner, value: Value | None) -> tuple[View, tuple[int, ...]]:
    """A tensor without gaps, and the order of its axes in memory; a row-major copy if it has gaps."""
    view = p.view(value)
    if view.is_dense_in(view.order):
        return view, view.order
    return p.copied(view), tuple(range(view.rank))


def lines(p: Planner, value: Value | None, *axes: int) -> Lines:
    """A tensor as lines along `axes` together; a copy if these are no neighbours in memory."""
    view, order = packed(p, value)
    gone = axes_of(axes, view.rank)
    begin = min((order.index(axis) for axis in gone), default=view.rank)
    end = begin + len(gone)
    if set(order[begin:end]) != set(gone):
        order = (*(axis for axis in order if axis not in gone), *gone)
        view, begin, end = p.copied(view, order), view.rank - len(gone), view.rank
    parts = (order[:begin], order[begin:end], order[end:])
    above, length, below = (product(view.shape[axis] for axis in part) for part in parts)
    return Lines(view, order, order_left(order, gone), above, length, below)


def order_left(order: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    """The memory order `order` of a tensor without the axes `gone`."""
    return tuple(axis - sum(other < axis for other in gone) for axis in order if axis not in gone)
