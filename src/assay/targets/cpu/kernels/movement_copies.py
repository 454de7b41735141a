"""Movement that takes a kernel: paddings, slices by data, triangles, counts."""

from __future__ import annotations

from assay.ir.dims import product
from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import MOVABLE
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared import tensors
from assay.targets.shared.planner import Planner


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
