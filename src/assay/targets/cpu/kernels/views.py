"""Movement ops that leave the memory alone: their results are other views of it, or copies where that cannot be."""

from __future__ import annotations

from assay.ir.dims import Dim, dim_max, dim_min, product
from assay.ir.graph import Node
from assay.ops.conditions import equal
from assay.targets.cpu.kernels.movement_copies import slice_by_data
from assay.targets.cpu.planner import Planner
from assay.targets.cpu.registry import emits
from assay.targets.shared.tensors import shape_of, unclear_broadcast


@emits("reshape", reads=(0,), view=True)
def reshape(p: Planner, node: Node) -> None:
    """Also for squeeze and unsqueeze: the result's type says all."""
    wanted = shape_of(node.outputs[0])
    p.require(node, *equal(product(shape_of(node.inputs[0])), product(wanted)))
    view = p.view(node.inputs[0]).reshaped(wanted)
    if view is None:
        view = p.dense(node.inputs[0]).reshaped(wanted)
    assert view is not None
    p.alias(node.outputs[0], view)


emits("squeeze", reads=(0,), view=True)(reshape)
emits("unsqueeze", reads=(0,), view=True)(reshape)


@emits("transpose", view=True)
def transpose(p: Planner, node: Node) -> None:
    p.alias(node.outputs[0], p.view(node.inputs[0]).transposed(node.attrs["perm"]))


def _unclear(node: Node) -> str:
    return unclear_broadcast(shape_of(node.inputs[0]), shape_of(node.outputs[0]))


@emits("expand", reads=(0,), view=True, unless=_unclear)
def expand(p: Planner, node: Node) -> None:
    p.alias(node.outputs[0], p.view(node.inputs[0]).expanded(shape_of(node.outputs[0])))


@emits("flip", view=True)
def flip(p: Planner, node: Node) -> None:
    view = p.view(node.inputs[0])
    axes: tuple[int, ...] = node.attrs["axes"]
    for axis in axes:
        size = view.shape[axis]
        view = view.sliced(axis % view.rank, size - 1, size, -1)
    p.alias(node.outputs[0], view)


@emits("split", view=True)
def split(p: Planner, node: Node) -> None:
    view = p.view(node.inputs[0])
    axis = node.attrs["axis"] % view.rank
    start = 0
    for size, value in zip(node.attrs["sizes"], node.outputs, strict=True):
        p.alias(value, view.sliced(axis, start, size))
        start += size


@emits("slice", reads=(0, 1, 3), view=True)
def slice_(p: Planner, node: Node) -> None:
    starts, steps = p.constant_of(node.inputs[1]), p.constant_of(node.inputs[3])
    if starts is None or steps is None:
        slice_by_data(p, node)
        return
    view, wanted = p.view(node.inputs[0]), shape_of(node.outputs[0])
    axes: tuple[int, ...] = node.attrs["axes"]
    for axis, start, step in zip(axes, starts.tolist(), steps.tolist(), strict=True):
        place = axis % view.rank
        view = view.sliced(place, _clamped(start, step, view.shape[place]), wanted[place], step)
    p.alias(node.outputs[0], view)


def _clamped(start: int, step: int, size: Dim) -> Dim:
    """Where a slice starts; as in Python, one that starts outside starts at the end that is nearer."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    return dim_max(size + start, low) if start < 0 else dim_min(start, high)
