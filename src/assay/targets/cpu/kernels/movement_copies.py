"""Movement that takes a kernel or a copy: joins, paddings, repetitions, triangles, counts; and windows, a view."""

from __future__ import annotations

from dataclasses import replace

from assay.ir.dims import Dim, eq, floordiv, product
from assay.ir.graph import Node
from assay.ops.shapes import axes_of, axis_of
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import MOVABLE
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared import tensors
from assay.targets.shared.planner import Planner


@limitation("only a run tells whether the tensors fit together")
def _unclear_fit(node: Node) -> bool:
    kinds = [tensors.shape_of(value) for value in (*node.inputs, *node.outputs) if value is not None]
    axis = axis_of(node.attrs["axis"], len(kinds[-1]))
    pairs = ((i, a, b) for shape in kinds for i, (a, b) in enumerate(zip(shape, kinds[-1], strict=True)))
    return not all(eq(a, b) for i, a, b in pairs if i != axis)


@emits("concat", MOVABLE, unless=(_unclear_fit,))
def concat(p: Planner, node: Node) -> None:
    """Each input is copied to its part of the result, which lies in memory as the first input does."""
    views = [p.view(value) for value in node.inputs]
    axis = axis_of(node.attrs["axis"], views[0].rank)
    result = p.result(node.outputs[0], views[0].order)
    start: Dim = 0
    for view in views:
        p.copy(view, result.sliced(axis, start, view.shape[axis]))
        start = start + view.shape[axis]


@emits("pad", MOVABLE)
def pad(p: Planner, node: Node) -> None:
    """Result rows are x with the value before and behind; the counts are read when the program runs."""
    x, counts, value = p.view(node.inputs[0]), p.dense(node.inputs[1]), p.view(node.inputs[2])
    order = x.order
    result = p.result(node.outputs[0], order)
    if not order:
        p.copy(x, result)
        return
    x, inside = x.transposed(order), result.transposed(order)
    p.step(
        template("pad.h", T=scalar.bits(x.dtype)),
        [x, counts, value, result],
        [len(order), *inside.shape, *inside.strides, *x.shape, *x.strides, *order],
        rows=product(inside.shape[:-1]),
        cols=inside.shape[-1],
        col_grain=64,
    )


def slice_by_data(p: Planner, node: Node) -> None:
    """Plan a slice whose starts or steps are known only when the program runs."""
    x, starts, steps = p.view(node.inputs[0]), p.dense(node.inputs[1]), p.dense(node.inputs[3])
    result = p.result(node.outputs[0])
    axes = axes_of(node.attrs["axes"], x.rank)
    p.step(
        template("slice.h", T=scalar.bits(x.dtype)),
        [x, starts, steps, p.error_cell(node, "the slice is not as long as its type says"), result],
        [x.rank, *result.shape, *x.shape, *x.strides, *(axes.index(i) if i in axes else -1 for i in range(x.rank))],
        rows=product(result.shape[:-1]),
        cols=result.shape[-1],
        col_grain=64,
    )


@emits("tile", MOVABLE, reads=(0,))
def tile(p: Planner, node: Node) -> None:
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


@emits("trilu", MOVABLE)
def trilu(p: Planner, node: Node) -> None:
    """Rows are copied on one side of the diagonal."""
    x, diagonal, result = p.dense(node.inputs[0]), p.view(node.inputs[1]), p.result(node.outputs[0])
    p.step(
        template("trilu.h", T=scalar.bits(x.dtype), UPPER=int(node.attrs["upper"])),
        [x, diagonal, result],
        x.shape[-2:],
        rows=product(x.shape[:-1]),
        cols=x.shape[-1],
        col_grain=64,
    )


@emits("iota", reads=())
def iota(p: Planner, node: Node) -> None:
    """The count is the size of the result."""
    result = p.result(node.outputs[0])
    p.step(template("iota.h"), [result], [], rows=1, cols=result.size)


@emits("shape_of", MOVABLE, reads=())
def shape_of(p: Planner, node: Node) -> None:
    """Sizes are among the numbers that the kernel is given."""
    shape = tensors.shape_of(node.inputs[0])
    p.step(template("shape_of.h"), [p.result(node.outputs[0])], shape, rows=1, cols=len(shape))


@emits("window", MOVABLE, view=True)
def window(p: Planner, node: Node) -> None:
    """Windows overlap in memory."""
    x, attrs = p.view(node.inputs[0]), node.attrs
    axis = axis_of(attrs["axis"], x.rank)
    steps = (x.strides[axis] * attrs["stride"], x.strides[axis] * attrs["dilation"])
    shape = tensors.shape_of(node.outputs[0])
    p.alias(node.outputs[0], replace(x, shape=shape, strides=(*x.strides[:axis], *steps, *x.strides[axis + 1 :])))
