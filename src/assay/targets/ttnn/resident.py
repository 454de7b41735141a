"""The pass `resident`: weights that a segment reads as they are go to the card once, not with every run."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from assay.ir.graph import Graph, Origin, Value
from assay.passes.rewrite import Rewriting
from assay.targets.shared.resident import keep_static
from assay.targets.ttnn.plan import matrices_of


def keep_weights(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Nodes that read static inputs beside others read what `ttnn.resident` makes of them."""
    matrices = matrices_of(graph)

    def keep(rewriting: Rewriting, origin: Origin, value: Value) -> Value:
        return rewriting.emit(origin, "ttnn.resident", value, matrix=value in matrices)

    return keep_static(graph, static, numbers, keep)
