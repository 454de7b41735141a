"""Weights that a segment reads as they are go to a device once, not with every run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from assay.ir.graph import Graph, Node, Origin, Value
from assay.passes.rewrite import Rewriting, begin, renamed

Keep = Callable[[Rewriting, Origin, Value], Value]
"""Gives a node's result that stands for a weight, for the origin of who reads it first."""


def keep_static(graph: Graph, static: Collection[Value], numbers: Iterator[int], keep: Keep) -> Graph:
    """Nodes that read static inputs beside others read what `keep` makes of them, which depends on weights alone and is
    therefore hoisted and bound; `graph` itself if there is no such node."""
    rewriting = begin(graph, static, numbers)
    given = set(static)
    mixed = [node for node in graph.nodes if not rewriting.known.issuperset(_read(node))]
    wanted = dict.fromkeys(value for node in mixed for value in _read(node) if value in given)
    if not wanted:
        return graph
    kept = {value: keep(rewriting, _first_reader(value, mixed).origin, value) for value in wanted}
    changed = set(mixed)
    for node in graph.nodes:
        rewriting.nodes += renamed([node], kept) if node in changed else [node]
    return rewriting.finished(graph)


def _first_reader(value: Value, nodes: Sequence[Node]) -> Node:
    return next(node for node in nodes if value in node.inputs)


def _read(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]
