"""The ops that this target owns: products with weights that stay packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dtypes import Array, DType, f32, i8, i32, u8
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.definitions.blocks import define_matmul_blocks
from assay.ops.definitions.linear import matmul
from assay.ops.registry import OPS, Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed

if TYPE_CHECKING:
    from assay.ops.builder import Builder

VULKAN_OPS = OPS.owned_by("vulkan")


matmul_blocks = define_matmul_blocks(VULKAN_OPS, ((3,), 5), ((), 17), ((2, 5), 2), ((40,), 9))


def _bytes_shape(x: Fact, q: Fact) -> list[Shape]:
    if q.shape is not None and len(q.shape) != 2:
        raise ValueError("a matrix of bytes has two axes")
    assert isinstance(x.type, TensorType)
    (made,) = matmul.infer([x, Fact(TensorType(x.type.dtype, q.shape))], {})
    assert isinstance(made, TensorType)
    return [made.shape]


def _bytes_parts(b: Builder, x: Any, q: Any) -> Any:
    return b.matmul(x, b.cast(q, dtype=b.dtype(x)))


def _bytes_samples(rng: Rng, dtype: DType) -> Any:
    for lead, depth, columns in (((3,), 5, 7), ((), 17, 9), ((2, 5), 8, 33), ((40,), 20, 1)):
        for kind in (i8, u8):
            low, high = kind.limits
            yield draw(rng, dtype, (*lead, depth)), draw(rng, kind, (depth, columns), low, high), {}


@op(
    "T, Q -> T",
    into=VULKAN_OPS,
    T=(f32, i32),
    Q=(i8, u8),
    shape=_bytes_shape,
    parts=_bytes_parts,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(_bytes_samples),
)
def matmul_bytes(x: Array, q: Array) -> Array:
    """`matmul` of x with a matrix of 8-bit integers: a weight in a quarter of the memory."""
    return np.matmul(x, q.astype(x.dtype))
