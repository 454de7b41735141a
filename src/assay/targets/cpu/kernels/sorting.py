"""Sorting and what is found in sorted sequences."""

from __future__ import annotations

from assay.ir.dims import eq, product
from assay.ir.dtypes import NUMERIC, DType, bf16, boolean, f16, f32, f64
from assay.ir.graph import Node
from assay.ops.conditions import at_least
from assay.ops.shapes import axis_of
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import computed
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of

_ITEM = 16
"""Bytes of an element's key and position."""
_FEW = 64
"""Up to so many elements are found without sorting all."""
_INFINITE = {f64: "0x7ff0000000000000", f32: "0x7f800000", f16: "0x7c00", bf16: "0x7f80"}


@emits("sort", (*NUMERIC, boolean))
def sort(p: Planner, node: Node) -> None:
    """Whole lines sorted."""
    _sorted(p, node, node.attrs["descending"])


@emits("topk", (*NUMERIC, boolean), reads=(0,))
def topk(p: Planner, node: Node) -> None:
    """The first elements of sorted lines; how many is the size of the result."""
    _sorted(p, node, node.attrs["largest"])


def _sorted(p: Planner, node: Node, descending: bool) -> None:
    x = p.dense(node.inputs[0])
    results = [p.result(value) for value in node.outputs]
    axis = axis_of(node.attrs["axis"], x.rank)
    length, wanted, inner = x.shape[axis], results[0].shape[axis], product(x.shape[axis + 1 :])
    p.require(node, at_least(length - wanted, 0))
    kept = _FEW if isinstance(wanted, int) and wanted <= _FEW else length
    p.step(
        template("sort.h", DESCENDING=int(descending), T=scalar.bits(x.dtype), **_meaning(x.dtype)),
        [x, p.error_cell(node, "more elements are asked for than there are"), *results],
        [length, wanted, inner],
        rows=product(x.shape[:axis]) * inner,
        work=16 * length,
        scratch=2 * _ITEM * kept,
        writes=len(results),
    )


def _meaning(dtype: DType) -> dict[str, str]:
    if dtype.is_float:
        return {"INFINITE": _INFINITE[dtype]}
    return {"SIGNED": "1"} if dtype.kind == "int" else {}


@limitation("only a run tells whether there is a sequence for each row")
def _unclear_rows(node: Node) -> bool:
    edges, x = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    return len(edges) > 1 and not all(eq(a, b) for a, b in zip(edges[:-1], x[:-1], strict=True))


@emits("search_sorted", NUMERIC, unless=(_unclear_rows,))
def search_sorted(p: Planner, node: Node) -> None:
    """A binary search for each element."""
    edges, x, result = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    size, cols = edges.shape[-1], x.shape[-1] if x.shape else 1
    p.step(
        template("search_sorted.h", RIGHT=int(node.attrs["right"]), **computed(x.dtype)),
        [edges, x, result],
        [size, cols, 0 if edges.rank == 1 else size],
        rows=product(x.shape[:-1]),
        cols=cols,
        work=40,
    )
