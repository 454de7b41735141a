"""Constant folding: what depends on constants alone is computed once, by the oracle.

A node is folded if all its inputs are constants, it has no bodies and no effects, is not for the host, its results are
tensors of at most 64 MiB, and it is none that would blow up: an `expand`, which costs nothing at run time, or a
dequantised matrix, which a target may rather read as it is stored. Weight-only work (transposes, casts) is hoisted
out of the run this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.ops import OPS
from assay.ops.registry import Effect, carrier, effect_of, evaluate

_LARGEST = 64 << 20
_DEQUANTIZE = frozenset({"dequantize_linear", "block_dequantize"})
_MATRIX = 1 << 14
"""Bytes from which on a dequantised tensor is worth keeping narrow."""


def fold(graph: Graph) -> Graph:
    """`graph` with constant nodes replaced by constants."""
    return _fold(graph, {})


def _fold(graph: Graph, outer: Mapping[Value, Array]) -> Graph:
    constants = dict(graph.constants)
    visible = {**outer, **constants} if outer else constants
    nodes: list[Node] = []
    for node in graph.nodes:
        results = _computed(node, visible)
        if results is None:
            nodes.append(_with_folded_bodies(node, visible))
            continue
        made = dict(zip(node.outputs, results, strict=True))
        constants.update(made)
        visible.update(made)
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _with_folded_bodies(node: Node, visible: Mapping[Value, Array]) -> Node:
    if not node.regions or node.op == "deferred":
        return node
    return replace(node, regions=tuple(_fold(region, visible) for region in node.regions))


def _computed(node: Node, constants: Mapping[Value, Array]) -> tuple[Array, ...] | None:
    definition = OPS.get(node.op)
    if definition is None or definition.host or node.regions or effect_of(node) is not Effect.PURE or _blows_up(node):
        return None
    if not all(value is None or value in constants for value in node.inputs):
        return None
    if not all(_bytes(value) <= _LARGEST for value in node.outputs):
        return None
    arrays: list[Any] = [None if value is None else constants[value] for value in node.inputs]
    with np.errstate(all="ignore"):
        return evaluate(definition, arrays, node.attrs, [carrier(value.type) for value in node.outputs])


def _blows_up(node: Node) -> bool:
    return node.op == "expand" or (node.op in _DEQUANTIZE and _bytes(node.outputs[0]) >= _MATRIX)


def _bytes(value: Value) -> float:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return np.inf
    total = kind.dtype.numpy.itemsize
    for dim in kind.shape:
        if not isinstance(dim, int):
            return np.inf
        total *= dim
    return total
