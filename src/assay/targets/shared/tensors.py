"""What is known of the values of a node that the target takes: all are tensors, and all their dims are known."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import Dim, eq
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ir.types import TensorType


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


def _type_of(value: Value | None) -> TensorType:
    assert value is not None
    assert isinstance(value.type, TensorType)
    return value.type
