"""Loop invariants: what a loop carries from round to round unchanged is read where it was made.

A state that the body gives back as it got it is in every round what it was before the first. The body reads that value
itself, the loop carries it no more, and who read it behind the loop reads it where it was made. So weights that an
exporter handed through a loop are constants for its body: nobody copies them, and targets can prepare them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from assay.ir.graph import Graph, Node
from assay.passes.rewrite import Replaced

_T = TypeVar("_T")


def invariants(graph: Graph) -> Graph:
    """`graph`, whose loops carry only what changes."""
    return _in_graph(graph, Replaced())


def _in_graph(graph: Graph, replaced: Replaced) -> Graph:
    nodes: list[Node] = []
    for each in graph.nodes:
        node = replaced.in_node(each)
        if node.regions and node.op != "deferred":
            node = _without_invariants(node, replaced) if node.op == "loop" else node
            node = replace(node, regions=tuple(_in_graph(region, replaced) for region in node.regions))
        nodes.append(node)
    return replaced.in_graph(graph, nodes)


def _without_invariants(node: Node, replaced: Replaced) -> Node:
    """A loop that carries the others; what stands for its invariant states is noted."""
    trip, go, *carried = node.inputs
    (body,) = node.regions
    states = list(zip(carried, body.inputs[2:], body.outputs[1:], strict=False))
    same: set[int] = set()
    for at, (first, state, after) in enumerate(states):
        if after is state and first is not None and first.type == state.type:
            same.add(at)
            replaced.note(state, first)
            replaced.note(node.outputs[at], first)
    if not same:
        return node
    inner = replace(
        body,
        inputs=_left(body.inputs, same, 2),
        input_names=_left(body.input_names, same, 2),
        outputs=_left(body.outputs, same, 1),
        output_names=_left(body.output_names, same, 1),
    )
    inputs, outputs = (trip, go, *_left(carried, same, 0)), _left(node.outputs, same, 0)
    return replace(node, inputs=inputs, outputs=outputs, regions=(inner,))


def _left(items: Sequence[_T], gone: Collection[int], behind: int) -> tuple[_T, ...]:
    """The items without those of the states that are gone; the states come behind so many others."""
    return tuple(item for at, item in enumerate(items) if at - behind not in gone)
