"""Dead code: drops what no output needs.

A node stays if one of its results is used by an output or by a node that stays, or if its effect is
observable (it draws from a generator, checks a condition). Bodies are treated the same way. Constants and
names that nothing refers to any more go too; inputs stay.
"""

from __future__ import annotations

from dataclasses import replace

from assay.ir.graph import Graph, Node, Value, used
from assay.ops.registry import Effect, effect_of


def dce(graph: Graph) -> Graph:
    """`graph` without nodes and constants that its outputs do not depend on."""
    live: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs) or effect_of(node) is Effect.OBSERVABLE:
            lean = _lean(node)
            live.update(used(lean))
            kept.append(lean)
    kept.reverse()
    made = live.union(graph.inputs, *(node.outputs for node in kept))
    return replace(
        graph,
        nodes=tuple(kept),
        constants={value: array for value, array in graph.constants.items() if value in live},
        names={name: value for name, value in graph.names.items() if value in made},
    )


def _lean(node: Node) -> Node:
    if not node.regions or node.op == "deferred":
        return node
    return replace(node, regions=tuple(dce(region) for region in node.regions))
