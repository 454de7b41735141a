"""Stamping: what a pass made or changed says so in its origin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from operator import is_

from assay.ir.graph import Graph, Node, Value


def stamped(before: Graph, after: Graph, pass_name: str) -> Graph:
    """`after`, in which every node that `before` does not have names the pass in its origin.

    A node that was only rebuilt, with the same op, inputs and attributes, is not touched; its bodies are looked at.
    """
    if after is before:
        return after
    known = set(before.walk())
    makers = {node.outputs[0]: node for node in known if node.outputs}
    return _in_graph(after, known, makers, pass_name)


def _in_graph(graph: Graph, known: Collection[Node], makers: Mapping[Value, Node], name: str) -> Graph:
    nodes = tuple(node if node in known else _in_node(node, known, makers, name) for node in graph.nodes)
    return graph if all(map(is_, nodes, graph.nodes)) else replace(graph, nodes=nodes)


def _in_node(node: Node, known: Collection[Node], makers: Mapping[Value, Node], name: str) -> Node:
    inside = node.regions
    if node.op != "deferred":
        inside = tuple(_in_graph(region, known, makers, name) for region in inside)
    if _is_rebuilt(makers.get(node.outputs[0]) if node.outputs else None, node):
        return node if all(map(is_, inside, node.regions)) else replace(node, regions=inside)
    return replace(node, origin=node.origin.touched_by(name), regions=inside)


def _is_rebuilt(old: Node | None, new: Node) -> bool:
    """Whether `new` is `old` but for its bodies."""
    return old is not None and old.op == new.op and old.inputs == new.inputs and old.attrs is new.attrs
