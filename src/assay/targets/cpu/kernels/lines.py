"""Tensors as lines along one axis, in whatever order their axes lie in memory, and their elements as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from assay.ir.dims import Dim, product
from assay.ir.dtypes import DType, f16
from assay.ir.graph import Value
from assay.ops.shapes import axis_of
from assay.targets.cpu.kernels.elements import computed
from assay.targets.cpu.planner import Planner
from assay.targets.cpu.views import View


@dataclass(frozen=True, slots=True)
class Lines:
    """A tensor without gaps: `length` elements along an axis, and how many places lie above and below it in memory.

    `order` is the memory order of the tensor, `rest` that of one without the axis.
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


def lines(p: Planner, value: Value | None, axis: int) -> Lines:
    """A tensor as lines along `axis`."""
    view, order = packed(p, value)
    axis = axis_of(axis, view.rank)
    at = order.index(axis)
    above, below = (product(view.shape[other] for other in part) for part in (order[:at], order[at + 1 :]))
    rest = tuple(other - (other > axis) for other in order if other != axis)
    return Lines(view, order, rest, above, view.shape[axis], below)


def numbers(dtype: DType, wide: str = "") -> dict[str, str]:
    """As `elements.computed`, but f16 by its bits: loops over such conversions vectorise."""
    if dtype is not f16:
        return computed(dtype, wide)
    ways = {"LOAD(x)": "f16_to_f32(x)", "STORE(x)": "f16_bits(rounded_f16(x))"}
    return {"T": "uint16_t", "W": wide or "float", **ways}


def wide_bytes(dtype: DType) -> int:
    """The size of what elements of a float `dtype` are computed in."""
    return max(dtype.numpy.itemsize, 4)
