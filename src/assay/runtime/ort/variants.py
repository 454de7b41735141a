"""Graphs that serve feeds which the model's own graph does not: replaced initializers, dims that only share a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.ir.dims import Dim, Expr, symbol
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import OptionalType, SequenceType, TensorType, Type
from assay.passes.rewrite import Replaced


def with_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with the constants of these names as further inputs."""
    values = tuple(graph.names[name] for name in names)
    constants = {value: array for value, array in graph.constants.items() if value not in values}
    inputs, input_names = (*graph.inputs, *values), (*graph.input_names, *names)
    return replace(graph, inputs=inputs, input_names=input_names, constants=constants)


def loosened(graph: Graph) -> Graph:
    """The graph in which each symbolic dim of an input has a name of its own, so that no two need be equal."""
    inputs = [
        Value(value.id, _loose(name, value.type)) for name, value in zip(graph.input_names, graph.inputs, strict=True)
    ]
    replaced = Replaced(dict(zip(graph.inputs, inputs, strict=True)))
    return replace(_rewritten(graph, replaced), inputs=tuple(inputs))


def _loose(name: str, kind: Type) -> Type:
    if isinstance(kind, OptionalType | SequenceType):
        return replace(kind, elem=_loose(name, kind.elem))
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return replace(kind, shape=tuple(_own(name, axis, dim) for axis, dim in enumerate(kind.shape)))


def _own(name: str, axis: int, dim: Dim) -> Dim:
    return symbol(f"{name}.{axis}") if isinstance(dim, Expr) else dim


def _rewritten(graph: Graph, replaced: Replaced) -> Graph:
    return replaced.in_graph(graph, [_in_node(node, replaced) for node in graph.nodes])


def _in_node(node: Node, replaced: Replaced) -> Node:
    """The node, its bodies included."""
    regions = tuple(_rewritten(region, replaced) for region in node.regions)
    return replace(replaced.in_node(node), regions=regions) if regions else replaced.in_node(node)
