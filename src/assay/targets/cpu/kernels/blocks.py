"""Weights in quantised blocks: their numbers, and products that read them as they are."""

from __future__ import annotations

from assay.ir.dims import product
from assay.ir.dtypes import f32
from assay.ir.graph import Node
from assay.ops.block_formats import BLOCK_FORMATS, Bits, BlockFormat, BlockScaling
from assay.targets.cpu.kernels.matmul import multiply_lines
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View

_PARTS = {
    **dict.fromkeys((BlockScaling.ONE, BlockScaling.OFFSET), 1),
    **dict.fromkeys((BlockScaling.NIBBLES, BlockScaling.SIXES, BlockScaling.BYTES), 16),
    BlockScaling.PAIRS: 8,
}
"""How many parts of a block have a scale of their own."""

_GRAIN = 32
"""Columns that one thread takes at a time where rows are not known: some hundreds of them are shared evenly."""


def block_words(form: BlockFormat) -> dict[str, object]:
    """The definitions that c/blocks.h needs for a format."""
    low, high = (*form.integers, Bits("low", 0, 1))[:2]
    starts = {name.upper(): form.span(name)[0] for name in form.fields.names or ()}
    sizes = {"BLOCK": form.block_bytes, "ELEMENTS": form.elements, "SCALED_PARTS": _PARTS[form.scaling]}
    lows = {"LOW_BITS": low.width, "LOW_RUN": low.run, "MIDDLE": form.middle}
    highs = {"HIGH_BITS": high.width, "HIGH_RUN": high.run, "HIGH": 0}
    return {**sizes, **lows, **highs, "OFFSET": 0, "SCALES": 0, **starts, f"SCALED_{form.scaling.upper()}": ""}


@emits("block_dequantize")
def block_dequantize(p: Planner, node: Node) -> None:
    """Row after row; threads share whole blocks."""
    form = BLOCK_FORMATS[node.attrs["format"]]
    blocks, result = p.dense(node.inputs[0]), p.result(node.outputs[0])
    p.step(
        template("block_dequantize.h", **block_words(form)),
        [blocks, result],
        [blocks.shape[-1], result.shape[-1]],
        rows=product(result.shape[:-1]),
        cols=result.shape[-1],
        col_grain=form.elements,
        work=2,
        takes_epilogue=True,
    )


@emits("cpu.matmul_blocks", (f32,))
def matmul_blocks(p: Planner, node: Node) -> None:
    """All rows of x at once; blocks are dequantised in registers, or for many rows a few columns at a time."""
    form = BLOCK_FORMATS[node.attrs["format"]]
    x, blocks, out = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    rows, depth = product(x.shape[:-1]), x.shape[-1]
    flat = View(x.storage, x.dtype, (1, rows, depth), (0, depth, 1), x.offset)
    multiply_lines(p, flat, blocks, blocks.shape[1], out, grain=_GRAIN, **block_words(form))
