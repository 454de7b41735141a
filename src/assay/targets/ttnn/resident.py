"""The pass `resident`: weights that a segment reads as they are go to the card once, not with every run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from assay.ir.graph import Graph, Node, Value
from assay.passes.rewrite import begin, renamed
from assay.targets.ttnn.plan import matrices_of


def keep_weights(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Nodes that read static inputs beside others read what `ttnn.resident` makes of them, which depends on weights
    alone and is therefore hoisted and bound."""
    rewriting = begin(graph, static, numbers)
    given = set(static)
    mixed = [node for node in graph.nodes if not rewriting.known.issuperset(_read(node))]
    wanted = dict.fromkeys(value for node in mixed for value in _read(node) if value in given)
    if not wanted:
        return graph
    matrices = matrices_of(graph)
    kept = {
        value: rewriting.emit(_first_reader(value, mixed).origin, "ttnn.resident", value, matrix=value in matrices)
        for value in wanted
    }
    changed = set(mixed)
    for node in graph.nodes:
        rewriting.nodes += renamed([node], kept) if node in changed else [node]
    return rewriting.finished(graph)


def _first_reader(value: Value, nodes: Sequence[Node]) -> Node:
    return next(node for node in nodes if value in node.inputs)


def _read(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]
