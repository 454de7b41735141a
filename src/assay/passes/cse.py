"""Common subexpressions: of several nodes that compute the same, the first stays.

Two nodes are the same if op, inputs and attributes are. Constants are the same if their bytes are
(compared up to 4 KiB). Nodes with bodies or effects (random numbers without a seed) never merge. A
body may reuse what an enclosing graph has computed before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.ir.dtypes import is_array
from assay.ir.graph import Graph, Node, Value
from assay.ops import CORE
from assay.passes.rewrite import Replaced

_COMPARED_BYTES = 4096


def cse(graph: Graph) -> Graph:
    """`graph` in which equal computations are done once."""
    return _merge(graph, {}, Replaced())


def _merge(graph: Graph, seen: dict[Any, tuple[Value, ...]], replaced: Replaced) -> Graph:
    known = dict(seen) if seen else {}
    for value, array in graph.constants.items():
        if array.nbytes <= _COMPARED_BYTES and array.dtype != object:
            first = known.setdefault((value.type, array.tobytes()), (value,))
            replaced.note(value, first[0])
    nodes: list[Node] = []
    for node in graph.nodes:
        fresh = replaced.in_node(node)
        if fresh.regions and fresh.op != "deferred":
            fresh = replace(fresh, regions=tuple(_merge(region, known, replaced) for region in node.regions))
        first = known.setdefault(_key(fresh), fresh.outputs) if _mergeable(fresh) else fresh.outputs
        if first is fresh.outputs:
            nodes.append(fresh)
        for value, earlier in zip(fresh.outputs, first, strict=True):
            replaced.note(value, earlier)
    return replaced.in_graph(graph, nodes)


def _mergeable(node: Node) -> bool:
    definition = CORE.get(node.op)
    return definition is not None and not definition.regions and not definition.effects


def _key(node: Node) -> Any:
    return node.op, node.inputs, _frozen(node.attrs)


def _frozen(item: Any) -> Any:
    """A hashable stand-in in which 0 and 0.0, 0.0 and −0.0, and True and 1 differ."""
    if isinstance(item, Mapping):
        return tuple((key, _frozen(value)) for key, value in item.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(item, tuple | list):
        return tuple(_frozen(part) for part in item)  # pyright: ignore[reportUnknownVariableType]
    if is_array(item):
        return item.dtype, item.shape, item.tobytes()
    return type(item), repr(item)
