"""Weights in quantised blocks: their numbers, and products that read them as they are.

Lanes lie along the depth. Each takes parts of a block, elements that share a scale, for some rows and columns.
"""

from __future__ import annotations

from itertools import product

from assay.ir.dims import Dim, floordiv
from assay.ir.dims import product as size_of
from assay.ir.dtypes import f32
from assay.ir.graph import Node
from assay.ops.block_formats import BLOCK_FORMATS
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View
from assay.targets.vulkan.block_reading import part_size, read_part
from assay.targets.vulkan.kernels.matmul import multiply
from assay.targets.vulkan.kernels.tiles import QUAD
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import ResultElement, Shader
from assay.targets.vulkan.templates import template

_COLUMNS = 4
"""Columns of a workgroup."""
_ROWS = 4
"""Rows of a workgroup, at most."""
_MANY = 24
"""From so many rows on it is worth its time to make floats of the weight first."""


@emits("block_dequantize")
def block_dequantize(p: Planner, node: Node) -> None:
    """Part by part."""
    _dequantize(p, p.dense(node.inputs[0]), p.result(node.outputs[0]), node.attrs["format"])


def _dequantize(p: Planner, blocks: View, result: View, form: str) -> None:
    kernel = template(write_numbers, [blocks.dtype, result.dtype], 0, form=form)
    parts = floordiv(result.shape[-1], part_size(BLOCK_FORMATS[form]))
    p.step(
        kernel, [blocks, result], [], rows=size_of(result.shape[:-1]), cols=parts, work=part_size(BLOCK_FORMATS[form])
    )


@emits("vulkan.matmul_blocks", (f32,))
def matmul_blocks(p: Planner, node: Node) -> None:
    """By a kernel that reads blocks; many rows by making floats of them first."""
    x, blocks, out = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    rows, depth, columns, form = size_of(x.shape[:-1]), x.shape[-1], blocks.shape[0], node.attrs["format"]
    if isinstance(rows, int) and rows >= _MANY:
        weight = p.temporary(f32, (columns, depth))
        _dequantize(p, blocks, weight, form)
        left = View(x.storage, f32, (1, 1, rows, depth), (0, 0, depth, 1), x.offset)
        right = View(weight.storage, f32, (1, 1, depth, columns), (0, 0, 1, depth), weight.offset)
        multiply(p, left, right, out)
        return
    kernel = template(
        write_blocks_product,
        [f32, blocks.dtype, f32],
        3,
        by_group=True,
        height=_height(rows),
        texels=(QUAD,) if x.offset == 0 else (),
        form=form,
    )
    p.step(
        kernel,
        [x, blocks, out],
        [rows, columns, depth],
        rows=rows,
        cols=columns,
        col_grain=_COLUMNS,
        takes_epilogue=True,
    )


def _height(rows: Dim) -> int:
    return next((height for height in (1, 2) if isinstance(rows, int) and rows <= height), _ROWS)


def write_numbers(s: Shader, *, form: str) -> None:
    """The numbers of blocks, one after the other."""
    blocks, out = s.operands
    with s.items(s.rows * s.cols) as item:
        part, size = read_part(blocks, BLOCK_FORMATS[form], item), part_size(BLOCK_FORMATS[form])
        with s.loop(s.value(0, "u32"), size) as at:
            out.store(item * size + at, part.number(at))


def write_blocks_product(s: Shader, *, form: str, height: int = 1) -> None:
    """A product with rows of blocks, of which a workgroup takes as many as it has columns."""
    x, blocks, _ = s.operands
    rows, columns, depth = (s.number(at) for at in range(3))
    size = part_size(BLOCK_FORMATS[form])
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        across = group / s.rows
        first = (group - across * s.rows) * height
        own = [across * _COLUMNS + at for at in range(_COLUMNS)]
        lines = [first + at for at in range(height)]
        begins = [s.least(line, rows - 1) * depth for line in lines]
        sums = [[s.variable("f32", 0) for _ in own] for _ in lines]
        parts = depth / size
        with s.loop(s.lane(), parts, s.local_size) as number:
            found = [
                read_part(blocks, BLOCK_FORMATS[form], s.least(column, columns - 1) * parts + number) for column in own
            ]
            with s.loop(s.value(0, "u32"), size, QUAD) as at:
                left = [x.quad(begin + number * size + at) for begin in begins]
                right = [[part.number(at + step) for step in range(QUAD)] for part in found]
                for line, factors in zip(sums, left, strict=True):
                    for total, numbers in zip(line, right, strict=True):
                        for factor, value in zip(factors, numbers, strict=True):
                            total.set(total.get() + factor * value)
        joined = s.together(
            [total.get() for line in sums for total in line],
            lambda a, b: [one + other for one, other in zip(a, b, strict=True)],
        )
        with s.when(s.lane().equals(0)):
            places = product(lines, own)
            s.hand_on(
                [
                    ResultElement((row < rows) & (column < columns), row * columns + column, value)
                    for (row, column), value in zip(places, joined, strict=True)
                ]
            )
