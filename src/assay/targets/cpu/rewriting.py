"""What the target's passes over nodes ask of values."""

from __future__ import annotations

from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.targets.shared.tensors import known_shape as known_shape


def known_dtype(value: Value) -> DType | None:
    """The dtype of a tensor; None for anything else."""
    return value.type.dtype if isinstance(value.type, TensorType) else None


def is_single(value: Value) -> bool:
    """Whether a tensor surely has one element and at most one axis: one number for all."""
    return isinstance(value.type, TensorType) and value.type.shape in ((), (1,))
