"""Hoisting: what depends on static inputs alone moves into a prelude that runs once, not in every run.

Static inputs are those that change rarely: parameters and buffers. A node moves if it reads nothing but
static inputs, constants and moved values, has no bodies and no effects, and is not an `expand`, which costs
nothing at run time and would blow up what has to be kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from assay.ir.graph import Graph, Node, Value, used
from assay.ops.registry import Effect, effect_of


class Hoisted(NamedTuple):
    """A graph in two parts; `rest` has the original inputs, then the outputs of `prelude`."""

    prelude: Graph
    rest: Graph


def hoist(graph: Graph, static: Collection[Value]) -> Hoisted:
    """`graph` cut into what its `static` inputs determine and the rest; the prelude reads only what it needs."""
    known = static_values(graph, static)
    moved = [node for node in graph.nodes if node.outputs and node.outputs[0] in known]
    kept = [node for node in graph.nodes if not node.outputs or node.outputs[0] not in known]
    made = {value for node in moved for value in node.outputs}
    needed_late = {value for node in kept for value in used(node)}.union(graph.outputs)
    read_early = {value for node in moved for value in node.inputs}
    handed_on = tuple(value for node in moved for value in node.outputs if value in needed_late)
    prelude = Graph(
        f"{graph.name}.prelude",
        tuple(value for value in graph.inputs if value in read_early),
        handed_on,
        tuple(moved),
        {value: array for value, array in graph.constants.items() if value in read_early},
    )
    rest = replace(
        graph,
        inputs=(*graph.inputs, *handed_on),
        input_names=(),
        nodes=tuple(kept),
        constants={value: array for value, array in graph.constants.items() if value in needed_late},
        names={name: value for name, value in graph.names.items() if value not in made or value in handed_on},
    )
    return Hoisted(prelude, rest)


def static_values(graph: Graph, static: Collection[Value]) -> set[Value]:
    """Constants, static inputs, and what nodes that may move make of these alone."""
    known: set[Value] = {*static, *graph.constants}
    for node in graph.nodes:
        if _movable(node) and known.issuperset(value for value in node.inputs if value is not None):
            known.update(node.outputs)
    return known


def _movable(node: Node) -> bool:
    plain = not node.regions and effect_of(node) is Effect.PURE
    return plain and bool(node.inputs) and node.op != "expand"
