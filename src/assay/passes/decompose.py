"""Decomposition in place: composites that are refused become their parts, all other nodes stay the nodes they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import is_

import numpy as np

from assay.ir.dtypes import Array, i64
from assay.ir.graph import Graph, Node, Origin, Value, used
from assay.ir.types import TensorType
from assay.limits import Limits
from assay.ops import OPS
from assay.ops.lowering import parts_of
from assay.passes.rewrite import renamed


def decompose(graph: Graph, accepts: Callable[[Node], bool], numbers: Iterator[int], limits: Limits) -> Graph:
    """`graph` with the composites that `accepts` refuses in parts, in bodies too; new values get ids from `numbers`."""
    made = _Decomposing(accepts, numbers, limits, dict(graph.constants))
    for node in graph.nodes:
        made.add(node)
    if len(made.nodes) == len(graph.nodes) and all(map(is_, made.nodes, graph.nodes)):
        return graph
    return replace(graph, nodes=tuple(made.nodes), constants=made.constants)


@dataclass(slots=True)
class _Decomposing:
    accepts: Callable[[Node], bool]
    numbers: Iterator[int]
    limits: Limits
    constants: dict[Value, Array]
    nodes: list[Node] = field(default_factory=list[Node])

    def add(self, node: Node) -> None:
        """The node as it is, or its parts."""
        if node.op not in OPS or node.op == "deferred":
            self.nodes.append(node)
            return
        whole = self._with_bodies(node)
        if OPS[node.op].is_milli or self.accepts(whole):
            self.nodes.append(whole)
            return
        parts = parts_of(whole, self.constants, self.accepts, self.limits, self.numbers)
        given = (value for value in used(whole) if value not in self.constants)
        table = dict(zip(parts.inputs, given, strict=True))
        same: list[Node] = []
        for value, output in zip(parts.outputs, whole.outputs, strict=True):
            if table.setdefault(value, output) is not output:
                same.append(self._same(table[value], output, whole.origin))
        self.nodes += (*renamed(parts.nodes, table), *same)
        self.constants.update((table.get(value, value), array) for value, array in parts.constants.items())

    def _with_bodies(self, node: Node) -> Node:
        bodies = tuple(decompose(body, self.accepts, self.numbers, self.limits) for body in node.regions)
        return node if all(map(is_, bodies, node.regions)) else replace(node, regions=bodies)

    def _same(self, value: Value, output: Value, origin: Origin) -> Node:
        """A node that gives `value` as it is, for an output that is an argument or another output."""
        none = Value(next(self.numbers), TensorType(i64, (0,)))
        self.constants[none] = np.zeros(0, np.int64)
        return Node("expand", (value, none), (output,), origin)
