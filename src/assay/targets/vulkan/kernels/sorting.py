"""Sorting: every element counts those that come before it, which is its place."""

from __future__ import annotations

from assay.ir.dims import product
from assay.ir.dtypes import boolean
from assay.ir.graph import Node
from assay.ops.conditions import at_least
from assay.ops.shapes import axis_of
from assay.targets.base import limitation
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import NUMBERS, unravelled
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader, TensorOperand
from assay.targets.vulkan.templates import template

_LONGEST = 1 << 14
"""Elements of a line for which counting is still worth its time."""


@limitation(f"lines of more than {_LONGEST} elements are not sorted")
def _too_long(node: Node) -> bool:
    shape = shape_of(node.inputs[0])
    length = shape[axis_of(node.attrs["axis"], len(shape))] if shape else 1
    return isinstance(length, int) and length > _LONGEST


@emits("sort", (*NUMBERS, boolean), unless=(_too_long,))
def sort(p: Planner, node: Node) -> None:
    """Whole lines sorted."""
    _sorted(p, node, node.attrs["descending"])


@emits("topk", (*NUMBERS, boolean), unless=(_too_long,), reads=(0,))
def topk(p: Planner, node: Node) -> None:
    """The first elements of sorted lines; how many is the size of the result."""
    _sorted(p, node, node.attrs["largest"])


def _sorted(p: Planner, node: Node, descending: bool) -> None:
    x = p.dense(node.inputs[0])
    values, places = (p.result(value) for value in node.outputs)
    axis = axis_of(node.attrs["axis"], x.rank)
    length, wanted, inner = x.shape[axis], values.shape[axis], product(x.shape[axis + 1 :])
    p.require(node, at_least(length - wanted, 0))
    kernel = template(write_sort, [x.dtype, values.dtype, places.dtype], 3, descending=bool(descending))
    p.step(kernel, [x, values, places], [length, inner, wanted], rows=x.size, writes=2)


def write_sort(s: Shader, *, descending: bool) -> None:
    """Each element goes to its place, if there is room for it."""
    x, values, places = s.operands
    length, inner, wanted = (s.number(at) for at in range(3))
    with s.items(s.rows) as item:
        outer, index, column = unravelled(item, [length, length, inner])
        own, before = _ordered(x, item), s.variable("u32", 0)
        with s.loop(s.value(0, "u32"), length) as at:
            other = _ordered(x, (outer * length + at) * inner + column)
            earlier = _before(x, other, own, descending) | (_alike(x, other, own) & (at < index))
            before.add(s.cast(earlier, "u32"))
        rank = before.get()
        with s.when(rank < wanted):
            target = (outer * wanted + rank) * inner + column
            values.put_bits(target, x.bits(item))
            places.store(target, s.cast(index, places.kind))


def _ordered(x: TensorOperand, place: ShaderValue) -> ShaderValue:
    value = x.load(place)
    return value.shader.cast(value, "u32") if value.kind == "bool" else value


def _before(x: TensorOperand, a: ShaderValue, b: ShaderValue, descending: bool) -> ShaderValue:
    """Whether a comes before b by its value; NaN counts as the largest."""
    s = a.shader
    first = s.comparison(">" if descending else "<", a, b)
    if not x.dtype.is_float:
        return first
    larger, smaller = (a, b) if descending else (b, a)
    return first | (s.is_nan(larger) & ~s.is_nan(smaller))


def _alike(x: TensorOperand, a: ShaderValue, b: ShaderValue) -> ShaderValue:
    s = a.shader
    same = a.equals(b)
    return same | (s.is_nan(a) & s.is_nan(b)) if x.dtype.is_float else same
