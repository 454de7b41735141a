"""Movement ops that leave the memory alone: their results are other views of it, or copies where that cannot be."""

from __future__ import annotations

from functools import partial

from assay.ir.dims import Dim, dim_max, dim_min, product
from assay.ir.graph import Node
from assay.ops.conditions import equal
from assay.targets.shared.kernels import Emit, KernelTable
from assay.targets.shared.limitations import unclear_broadcast
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of


def enter_views(kernels: KernelTable, slice_by_data: Emit) -> None:
    """Enter the ops whose results are views, whatever the target. A slice whose starts or steps only a run tells is
    planned by `slice_by_data`."""
    for op in ("reshape", "squeeze", "unsqueeze"):
        kernels.emits(op, reads=(0,), view=True)(_reshape)
    kernels.emits("transpose", view=True)(_transpose)
    kernels.emits("expand", reads=(0,), view=True, unless=(_UNCLEAR,))(_expand)
    kernels.emits("flip", view=True)(_flip)
    kernels.emits("split", view=True)(_split)
    kernels.emits("slice", reads=(0, 1, 3), view=True)(partial(_slice, by_data=slice_by_data))


def _reshape(p: Planner, node: Node) -> None:
    """Also for squeeze and unsqueeze: the result's type says all."""
    wanted = shape_of(node.outputs[0])
    p.require(node, *equal(product(shape_of(node.inputs[0])), product(wanted)))
    view = p.view(node.inputs[0]).reshaped(wanted)
    if view is None:
        view = p.dense(node.inputs[0]).reshaped(wanted)
    assert view is not None
    p.alias(node.outputs[0], view)


def _transpose(p: Planner, node: Node) -> None:
    p.alias(node.outputs[0], p.view(node.inputs[0]).transposed(node.attrs["perm"]))


_UNCLEAR = unclear_broadcast(lambda node: [(shape_of(node.inputs[0]), shape_of(node.outputs[0]))])


def _expand(p: Planner, node: Node) -> None:
    p.alias(node.outputs[0], p.view(node.inputs[0]).expanded(shape_of(node.outputs[0])))


def _flip(p: Planner, node: Node) -> None:
    view = p.view(node.inputs[0])
    axes: tuple[int, ...] = node.attrs["axes"]
    for axis in axes:
        size = view.shape[axis]
        view = view.sliced(axis % view.rank, size - 1, size, -1)
    p.alias(node.outputs[0], view)


def _split(p: Planner, node: Node) -> None:
    view = p.view(node.inputs[0])
    axis = node.attrs["axis"] % view.rank
    start = 0
    for size, value in zip(node.attrs["sizes"], node.outputs, strict=True):
        p.alias(value, view.sliced(axis, start, size))
        start += size


def _slice(p: Planner, node: Node, by_data: Emit) -> None:
    starts, steps = p.constant_of(node.inputs[1]), p.constant_of(node.inputs[3])
    if starts is None or steps is None:
        by_data(p, node)
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
