"""Results that continue inputs: caches to which every run adds rows. Their memory has room for the rows of later runs.

How much room there is, and how much of an input must still be moved there, are sizes like others: symbols of which a
run gives the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.ir.dims import Dim, symbol, symbol_name
from assay.ir.graph import Graph, Node, Value
from assay.ops.shapes import axis_of
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import dense_strides

if TYPE_CHECKING:
    from assay.targets.shared.kernels import KernelTable

_READERS = frozenset({"sdpa"})
"""Ops that read a tensor with gaps in it as it lies."""
CAPACITY, MOVED = symbol("capacity of caches"), symbol("moved to caches")
"""Places along the axis that grows, and those that a run copies from its input: all, or none if they are there."""
GROWTH_SYMBOLS = ("capacity of caches", "moved to caches")


@dataclass(frozen=True)
class CacheGrowth:
    """The results of a graph that continue inputs, all along axes of one size, `before`, to `after`."""

    inputs: Mapping[Value, Value]
    """By the results."""
    axes: Mapping[Value, int]
    """Of the results."""
    before: Dim
    after: Dim

    def room(self, value: Value) -> list[Dim]:
        """The sizes of the memory of a result."""
        shape = list(shape_of(value))
        shape[self.axes[value]] = CAPACITY
        return shape

    def strides(self, value: Value) -> tuple[Dim, ...]:
        """How a result lies in its memory."""
        return dense_strides(self.room(value))


def growth_of(graph: Graph, kernels: KernelTable) -> CacheGrowth | None:
    """What grows in a graph: concatenations of an input that nobody else reads with new rows, which attention reads."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in kernels.reads(node):
            readers.setdefault(value, []).append(node)
    outer = {value for node in graph.walk() if node not in graph.nodes for value in kernels.reads(node)}
    found = [node for node in graph.nodes if node.op == "concat" and _grows(graph, node, readers, outer)]
    sizes = [_sizes(node) for node in found]
    if not found or any(each != sizes[0] for each in sizes) or symbol_name(sizes[0][0]) is None:
        return None
    pairs = {node.outputs[0]: node.inputs[0] for node in found}
    inputs = {result: source for result, source in pairs.items() if source is not None}
    return CacheGrowth(inputs, {node.outputs[0]: _axis(node) for node in found}, *sizes[0])


def _grows(graph: Graph, node: Node, readers: Mapping[Value, Sequence[Node]], outer: set[Value]) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source not in graph.inputs or source in graph.outputs or graph.outputs.count(result) != 1:
        return False
    if node.inputs.count(source) != 1 or readers[source] != [node] or not outer.isdisjoint((source, result)):
        return False
    return all(reader.op in _READERS for reader in readers.get(result, ()))


def _axis(node: Node) -> int:
    return axis_of(node.attrs["axis"], len(shape_of(node.outputs[0])))


def _sizes(node: Node) -> tuple[Dim, Dim]:
    axis = _axis(node)
    return shape_of(node.inputs[0])[axis], shape_of(node.outputs[0])[axis]
