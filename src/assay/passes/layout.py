"""Inputs in the order of memory: an input whose axes lie in another order is taken in that order and turned back.

To turn it back costs nothing where movement ops are views, and nobody has to copy it to read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.ir.graph import Graph, Node, Origin, Value, fresh_ids
from assay.ir.types import TensorType


def take_as_laid_out(graph: Graph, orders: Mapping[int, Sequence[int]]) -> Graph:
    """`graph` with the inputs at the places `orders` given with their axes in these orders."""
    numbers = fresh_ids(graph)
    inputs, nodes = list(graph.inputs), list[Node]()
    for index, order in orders.items():
        value = graph.inputs[index]
        assert isinstance(value.type, TensorType)
        assert value.type.shape is not None
        shape = tuple(value.type.shape[axis] for axis in order)
        inputs[index] = Value(next(numbers), TensorType(value.type.dtype, shape))
        back = tuple(sorted(range(len(order)), key=lambda axis: order[axis]))
        nodes.append(Node("transpose", (inputs[index],), (value,), Origin("input"), {"perm": back}))
    return replace(graph, inputs=tuple(inputs), nodes=(*nodes, *graph.nodes))
