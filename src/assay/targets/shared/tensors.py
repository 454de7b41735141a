"""What is known of the values of a node that the target takes: all are tensors, and all their dims are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay.ir.dims import UNKNOWN, Dim, eq, evaluate
from assay.ir.dtypes import DType
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType, Type
from assay.ops.conditions import broadcasts
from assay.targets.shared.views import broadcast_strides, dense_strides


def dtype_of(value: Value | None) -> DType:
    """The dtype of a tensor."""
    return _type_of(value).dtype


def shape_of(value: Value | None) -> tuple[Dim, ...]:
    """The dims of a tensor."""
    shape = _type_of(value).shape
    assert shape is not None
    return shape


def known_shape(value: Value) -> tuple[int, ...]:
    """The shape of a tensor; empty unless it is known and has no axis of size 0."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    sizes = tuple(size for size in shape or () if isinstance(size, int) and size)
    return sizes if shape is not None and len(sizes) == len(shape) else ()


def is_clear_broadcast(shape: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """Whether it can be proved which axes are repeated where a tensor is broadcast to the shape `wanted`."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(old == 1 or eq(old, new) for old, new in pairs)


def is_checked_broadcast(shape: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """Whether a run can tell if a tensor may be broadcast to the shape `wanted`, and which axes are repeated."""
    if len(shape) > len(wanted):
        return False
    pairs = [*zip(reversed(shape), reversed(wanted), strict=False)]
    checks = [broadcasts(old, new).size for old, new in pairs if old != 1 and not eq(old, new)]
    return UNKNOWN not in checks and UNKNOWN not in broadcast_strides(shape, wanted, dense_strides(shape))


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
