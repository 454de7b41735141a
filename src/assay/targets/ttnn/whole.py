"""The pass `whole`: where infinities are to be whole numbers, they are the largest that the card's dtypes share."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.passes.rewrite import Rewriting, begin
from assay.targets.ttnn.plan import kind_of

LARGEST = 2.0**31 - 2.0**23
"""The largest bfloat16 below 2³¹."""


def bound_infinities(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Casts to integers read finite numbers in place of infinities. Torch's own result is undefined there; formulas
    that choose another one in its place go on. What is finite and does not fit stays an error."""
    casts = {node for node in graph.nodes if _is_rounding(node)}
    if not casts:
        return graph
    rewriting = begin(graph, static, numbers)
    for node in graph.nodes:
        rewriting.nodes.append(_bounded(node, rewriting) if node in casts else node)
    return rewriting.finished(graph)


def _is_rounding(node: Node) -> bool:
    x = node.inputs[0] if node.op == "cast" else None
    return x is not None and (kind_of(x), kind_of(node.outputs[0])) == ("float", "int")


def _bounded(node: Node, rewriting: Rewriting) -> Node:
    x = node.inputs[0]
    assert x is not None
    assert isinstance(x.type, TensorType)
    number = TensorType(x.type.dtype, ())
    least, most = (rewriting.constant(np.array(each, x.type.dtype.numpy), number) for each in (-LARGEST, LARGEST))
    bounded = rewriting.emit(node.origin, "clip", x, least, most)
    infinite = rewriting.emit(node.origin, "is_inf", x)
    return replace(node, inputs=(rewriting.emit(node.origin, "where", infinite, bounded, x),))
