"""What is known of the values of a node that the target takes: all are tensors, and all their dims are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay.ir.dims import Dim, eq, evaluate
from assay.ir.dtypes import DType
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType, Type


def dtype_of(value: Value | None) -> DType:
    """The dtype of a tensor."""
    return _type_of(value).dtype


def shape_of(value: Value | None) -> tuple[Dim, ...]:
    """The dims of a tensor."""
    shape = _type_of(value).shape
    assert shape is not None
    return shape


def is_clear_broadcast(shape: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """Whether it can be proved which axes are repeated where a tensor is broadcast to the shape `wanted`."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(old == 1 or eq(old, new) for old, new in pairs)


def hungriest_node(graph: Graph, bound: Mapping[str, int]) -> Node:
    """The node that makes the largest result where symbols stand for these numbers."""
    return max(graph.nodes, key=lambda node: max((_bytes(value.type, bound) for value in node.outputs), default=0))


def _bytes(kind: Type, bound: Mapping[str, int]) -> int:
    """The bytes of a tensor; 0 for what is none."""
    if not isinstance(kind, TensorType):
        return 0
    sizes = (dim if isinstance(dim, int) else evaluate(dim, bound) or 0 for dim in kind.shape or ())
    return math.prod(sizes) * kind.dtype.numpy.itemsize


def _type_of(value: Value | None) -> TensorType:
    assert value is not None
    assert isinstance(value.type, TensorType)
    return value.type
