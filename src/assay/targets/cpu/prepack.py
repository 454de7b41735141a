"""Prepacking: products with weights become products with panels of them, which are computed once.

A weight is a matrix that depends on constants and static inputs alone. What packs it is an ordinary node, so
hoisting moves it out of the way, and weights that several nodes share are packed once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.passes.hoist import settled
from assay.targets.cpu.kernels.matmul import PACKED, panel_width


@dataclass
class _Packing:
    """The packed weights so far, and numbers for new values."""

    numbers: Iterator[int]
    packed: dict[tuple[Value, int], Value] = field(default_factory=dict[tuple[Value, int], Value])
    nodes: list[Node] = field(default_factory=list[Node])


def prepack(graph: Graph, static: Collection[Value]) -> Graph:
    """`graph` with packed weights; `graph` itself if it has no weights."""
    known = settled(graph, static)
    highest = max((v.id for v in (*graph.inputs, *graph.constants, *_made(graph))), default=0)
    packing = _Packing(itertools.count(highest + 1))
    for node in graph.nodes:
        rule = _RULES.get(node.op)
        rewritten = None if rule is None else rule(packing, node, known)
        packing.nodes.append(rewritten or node)
    return replace(graph, nodes=tuple(packing.nodes)) if packing.packed else graph


def _made(graph: Graph) -> Iterator[Value]:
    for node in graph.walk():
        yield from node.outputs
        for region in node.regions:
            yield from (*region.inputs, *region.constants)


def _product(packing: _Packing, node: Node, known: Collection[Value]) -> Node | None:
    """matmul(x, w) → matmul_panels(x, pack_panels(w)) for a weight w of two axes."""
    x, w = node.inputs
    kind = None if w is None else w.type
    if w not in known or x in known or not isinstance(kind, TensorType) or kind.dtype not in PACKED:
        return None
    if kind.shape is None or len(kind.shape) != 2 or not isinstance(kind.shape[1], int):
        return None
    assert w is not None
    rows, columns = kind.shape
    width = panel_width(kind.dtype)
    panels = packing.packed.get((w, width))
    if panels is None:
        shape = (-(-columns // width), rows, width)
        panels = packing.packed[w, width] = Value(next(packing.numbers), TensorType(kind.dtype, shape))
        packing.nodes.append(Node("pack_panels", (w,), (panels,), node.origin, {"width": width}))
    return replace(node, op="matmul_panels", inputs=(x, panels), attrs={"columns": columns})


_RULES: dict[str, Callable[[_Packing, Node, Collection[Value]], Node | None]] = {"matmul": _product}
