"""Matrix products: with weights that were laid out as panels beforehand, and with matrices as they lie."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir import dtypes
from assay.ir.dims import Dim, eq, product
from assay.ir.dtypes import NUMERIC, DType
from assay.ir.graph import Node
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import bits
from assay.targets.cpu.planner import Planner
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import Kernel, template
from assay.targets.cpu.views import View

SCRATCH = 5 << 18
"""Bytes that hold the `workspace` of c/gemm.h in every variant."""
PACKED = (dtypes.f32, dtypes.f64)
"""The dtypes of weights that are laid out as panels."""
ROW_GRAIN = 192
"""Rows that one thread takes at a time, so that a panel is read once for all of them."""


def panel_width(dtype: DType) -> int:
    """The columns of a panel, as c/tile.h has it: 64 bytes."""
    return 64 // dtype.numpy.itemsize


def column_grain(columns: Dim) -> int:
    """Columns that one thread takes at a time: a few panels, more where there are many."""
    return 256 if isinstance(columns, int) and columns >= 4096 else 64


def gemm(dtype: DType, **defines: object) -> Kernel:
    """The kernel of c/gemm.h for elements of `dtype`. Integers wrap, so their sign does not matter."""
    if dtype in (dtypes.f32, dtypes.f64):
        kind = scalar.ctype(dtype)
        return template("gemm.h", T=kind, ACC=kind, IN_PLACE="", **defines)
    if dtype is dtypes.f16:
        return template("gemm.h", T="_Float16", ACC="float", **defines)
    if dtype is dtypes.bf16:
        narrow = {"WIDEN(x)": "bf16_to_f32(x)", "NARROW(x)": "f32_to_bf16(x)"}
        return Kernel('#include "math.h"\n' + template("gemm.h", T="uint16_t", ACC="float", **narrow, **defines).source)
    kind = bits(dtype)
    return template("gemm.h", T=kind, ACC=kind, IN_PLACE="", **defines)


@emits("pack_panels", NUMERIC)
def pack_panels(p: Planner, node: Node) -> None:
    """Reads matrices as they lie, transposed ones too."""
    x = p.view(node.inputs[0])
    lead = View(x.buffer, x.dtype, x.shape[:-2], x.strides[:-2], x.offset).reshaped((product(x.shape[:-2]),))
    if lead is None:
        x = p.dense(node.inputs[0])
        lead = View(x.buffer, x.dtype, (product(x.shape[:-2]),), (x.shape[-2] * x.shape[-1],))
    result = p.result(node.outputs[0])
    panels, rows, width = result.shape[-3:]
    p.step(
        template("pack.h", T=bits(x.dtype)),
        [x, result],
        [rows, x.shape[-1], width, panels, lead.strides[0], *x.strides[-2:]],
        rows=lead.shape[0] * panels,
        work=rows * width,
    )


@emits("matmul_panels", PACKED)
def matmul_panels(p: Planner, node: Node) -> None:
    x, panels, out = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    depth, columns = x.shape[-1], out.shape[-1]
    _, _, width = panels.shape
    rows = product(x.shape[:-1])
    p.step(
        gemm(x.dtype, B_PANELS="", B_T=scalar.ctype(x.dtype)),
        [x, panels, out],
        [rows, columns, depth, 1, 0, 0, depth, 1, 0, 0, depth * width],
        rows=rows,
        cols=columns,
        row_grain=ROW_GRAIN,
        col_grain=column_grain(columns),
        work=2 * depth,
        scratch=SCRATCH,
        may_continue=True,
    )


@emits("matmul", NUMERIC)
def matmul(p: Planner, node: Node) -> None:
    x, y = p.view(node.inputs[0]), p.view(node.inputs[1])
    x = x if x.rank > 1 else View(x.buffer, x.dtype, (1, *x.shape), (0, *x.strides), x.offset)
    y = y if y.rank > 1 else View(y.buffer, y.dtype, (*y.shape, 1), (*y.strides, 0), y.offset)
    out = p.result(node.outputs[0])
    batch = out.shape[: max(x.rank, y.rank) - 2]
    rows, depth, columns = x.shape[-2], x.shape[-1], y.shape[-1]
    if y.rank == 2 and x.is_dense:
        batch, rows = (), product(x.shape[:-1])
        x = View(x.buffer, x.dtype, (rows, depth), (depth, 1), x.offset)
    x, y, sizes = _two_batch_axes(p, x, y, batch)
    p.step(
        gemm(x.dtype),
        [x, y, out],
        [rows, columns, depth, sizes[1], *x.strides, *y.strides],
        rows=product(sizes) * rows,
        cols=columns,
        row_grain=ROW_GRAIN,
        col_grain=column_grain(columns),
        work=2 * depth,
        scratch=SCRATCH,
        may_continue=True,
    )


def _two_batch_axes(p: Planner, x: View, y: View, batch: Sequence[Dim]) -> tuple[View, View, tuple[Dim, Dim]]:
    """Both operands with two batch axes, and the sizes of these; copies where the axes cannot be joined to two."""
    x, y = (view.expanded((*batch, *view.shape[-2:])) for view in (x, y))
    blocks: list[list[int]] = []
    for axis, size in enumerate(batch):
        if size == 1:
            continue
        joins = blocks and all(eq(v.strides[blocks[-1][-1]], v.strides[axis] * size) for v in (x, y))
        if joins:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    if len(blocks) > 2:
        return _two_batch_axes(p, p.copied(x), p.copied(y), batch)
    axes = [[], []][len(blocks) :] + blocks
    sizes = tuple(product(batch[axis] for axis in block) for block in axes)

    def joined(view: View) -> View:
        strides = tuple(view.strides[block[-1]] if block else 0 for block in axes)
        return View(view.buffer, view.dtype, (*sizes, *view.shape[-2:]), (*strides, *view.strides[-2:]), view.offset)

    return joined(x), joined(y), (sizes[0], sizes[1])
