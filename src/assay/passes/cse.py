"""Common subexpressions: of several nodes that compute the same, the first stays and keeps the origins of all.

Two nodes are the same if op, inputs and attributes are. Constants are the same if their bytes are
(compared up to 4 KiB). Nodes with bodies or effects (random numbers without a seed) never merge. A
body may reuse what an enclosing graph has computed before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from assay.ir.dtypes import is_array
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ops.registry import Effect, effect_of
from assay.passes.rewrite import Replaced

_COMPARED_BYTES = 4096


class _First(NamedTuple):
    """The results of the first node of its kind, and the origins of those that were merged into it."""

    outputs: tuple[Value, ...]
    origins: list[Origin]


def cse(graph: Graph) -> Graph:
    """`graph` in which equal computations are done once."""
    return _merge(graph, {}, Replaced())


def _merge(graph: Graph, seen: dict[Any, _First], replaced: Replaced) -> Graph:
    known = dict(seen) if seen else {}
    for value, array in graph.constants.items():
        if array.nbytes <= _COMPARED_BYTES and array.dtype != object:
            first = known.setdefault((value.type, array.tobytes()), _First((value,), []))
            replaced.note(value, first.outputs[0])
    nodes: list[tuple[Node, _First]] = []
    for node in graph.nodes:
        fresh = replaced.in_node(node)
        if fresh.regions and fresh.op != "deferred":
            fresh = replace(fresh, regions=tuple(_merge(region, known, replaced) for region in node.regions))
        here = _First(fresh.outputs, [])
        first = known.setdefault(_key(fresh), here) if _mergeable(fresh) else here
        if first is here:
            nodes.append((fresh, here))
            continue
        first.origins.extend((replace(fresh.origin, merged=()), *fresh.origin.merged))
        for value, earlier in zip(fresh.outputs, first.outputs, strict=True):
            replaced.note(value, earlier)
    return replaced.in_graph(graph, [_with_origins(node, first.origins) for node, first in nodes])


def _with_origins(node: Node, merged: Sequence[Origin]) -> Node:
    """The node with the origins of those that it stands for; one that only repeats its own tells nothing."""
    if not merged:
        return node
    own = replace(node.origin, merged=())
    others = tuple(origin for origin in dict.fromkeys((*node.origin.merged, *merged)) if origin != own)
    return replace(node, origin=replace(own, merged=others))


def _mergeable(node: Node) -> bool:
    return not node.regions and effect_of(node) is Effect.PURE


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
