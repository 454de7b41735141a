"""Definitions that kernels' templates need for the elements that they work on, and what must hold for them to work."""

from __future__ import annotations

from assay.ir.dtypes import TENSORS, DType, bf16, string
from assay.targets.cpu import scalar

MOVABLE: tuple[DType, ...] = tuple(dtype for dtype in TENSORS if dtype is not string)
"""The dtypes whose elements lie in the tensor's own memory."""


def computed(dtype: DType, wide: str = "") -> dict[str, str]:
    """The definitions T, W, LOAD and STORE (see `c/storage.h`); `wide` replaces the type that is computed with."""
    if dtype is bf16:
        return {"T": "uint16_t", "W": wide or "float", "LOAD(x)": "bf16_to_f32(x)", "STORE(x)": "f32_to_bf16(x)"}
    kind = {"T": scalar.ctype(dtype), "W": wide or scalar.compute_type(dtype)}
    return {**kind, "LOAD(x)": "((W)(x))", "STORE(x)": "((T)(x))"}
