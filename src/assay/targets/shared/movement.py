"""Movement ops that leave the memory alone, their results being other views of it, and those that copies make up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from assay.ir.dims import Dim, dim_max, dim_min, eq, floordiv, product
from assay.ir.dtypes import DType
from assay.ir.graph import Node
from assay.ops.conditions import equal
from assay.ops.shapes import axis_of
from assay.targets.base import limitation
from assay.targets.shared.growth import MOVED
from assay.targets.shared.kernels import Emit, KernelTable
from assay.targets.shared.limitations import unclear_broadcast
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of


def enter_views(kernels: KernelTable, slice_by_data: Emit) -> None:
    """Enter the ops whose results are views, whatever the target. A slice whose starts or steps only a run tells is
    planned by `slice_by_data`."""
    for op in ("reshape", "squeeze", "unsqueeze"):
        kernels.emits(op, reads=(0,), view=True)(_reshape)
    kernels.emits("fitting", reads=(0,), view=True)(_fitting)
    kernels.emits("transpose", view=True)(_transpose)
    kernels.emits("expand", reads=(0,), view=True, unless=(_UNCLEAR,))(_expand)
    kernels.emits("flip", view=True)(_flip)
    kernels.emits("split", view=True)(_split)
    kernels.emits("slice", reads=(0, 1, 3), view=True)(partial(_slice, by_data=slice_by_data))


def enter_copies(kernels: KernelTable, movable: Collection[DType]) -> None:
    """Enter the ops that copies alone make up, for elements that can be moved, and windows, which are views."""
    kernels.emits("concat", movable, unless=(_unclear_fit,))(_concat)
    kernels.emits("tile", movable, reads=(0,))(_tile)
    kernels.emits("window", movable, view=True)(_window)


def _reshape(p: Planner, node: Node) -> None:
    """Also for squeeze and unsqueeze: the result's type says all."""
    wanted = shape_of(node.outputs[0])
    p.require(node, *equal(product(shape_of(node.inputs[0])), product(wanted)))
    view = p.view(node.inputs[0]).reshaped(wanted)
    if view is None:
        view = p.dense(node.inputs[0]).reshaped(wanted)
    assert view is not None
    p.alias(node.outputs[0], view)


def _fitting(p: Planner, node: Node) -> None:
    """The planner asks of every node whether sizes fit: nothing else is left to do."""
    p.alias(node.outputs[0], p.view(node.inputs[0]))


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


# --- copies


@limitation("only a run tells whether the tensors fit together")
def _unclear_fit(node: Node) -> bool:
    kinds = [shape_of(value) for value in (*node.inputs, *node.outputs) if value is not None]
    axis = axis_of(node.attrs["axis"], len(kinds[-1]))
    pairs = ((i, a, b) for shape in kinds for i, (a, b) in enumerate(zip(shape, kinds[-1], strict=True)))
    return not all(eq(a, b) for i, a, b in pairs if i != axis)


def _concat(p: Planner, node: Node) -> None:
    """Each input is copied to its part of the result, which lies in memory as the first input does."""
    views = [p.view(value) for value in node.inputs]
    axis = axis_of(node.attrs["axis"], views[0].rank)
    grows = p.grows(node.outputs[0])
    result = p.grown_result(node.outputs[0]) if grows else p.result(node.outputs[0], views[0].order)
    start: Dim = 0
    if grows:
        first, *views = views
        p.copy(first.sliced(axis, 0, MOVED), result.sliced(axis, 0, MOVED))
        start = first.shape[axis]
    for view in views:
        p.copy(view, result.sliced(axis, start, view.shape[axis]))
        start = start + view.shape[axis]


def _tile(p: Planner, node: Node) -> None:
    """One copy, in which every axis of the result is two: which repetition, and where in it."""
    x, result = p.view(node.inputs[0]), p.result(node.outputs[0])
    if 0 in x.shape:
        return
    repeats = [floordiv(new, old) for new, old in zip(result.shape, x.shape, strict=True)]
    shape = [size for pair in zip(repeats, x.shape, strict=True) for size in pair]
    source = [stride for stride in x.strides for stride in (0, stride)]
    target = [step for size, stride in zip(x.shape, result.strides, strict=True) for step in (size * stride, stride)]
    p.copy(
        replace(x, shape=tuple(shape), strides=tuple(source)),
        replace(result, shape=tuple(shape), strides=tuple(target)),
    )


def _window(p: Planner, node: Node) -> None:
    """Windows overlap in memory."""
    x, attrs = p.view(node.inputs[0]), node.attrs
    axis = axis_of(attrs["axis"], x.rank)
    steps = (x.strides[axis] * attrs["stride"], x.strides[axis] * attrs["dilation"])
    shape = shape_of(node.outputs[0])
    p.alias(node.outputs[0], replace(x, shape=shape, strides=(*x.strides[:axis], *steps, *x.strides[axis + 1 :])))
