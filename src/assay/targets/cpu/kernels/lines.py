"""The elements of lines as numbers."""

from __future__ import annotations

from assay.ir.dtypes import DType, f16
from assay.targets.cpu.kernels.elements import computed


def numbers(dtype: DType, wide: str = "") -> dict[str, str]:
    """As `elements.computed`, but f16 by its bits: loops over such conversions vectorise."""
    if dtype is not f16:
        return computed(dtype, wide)
    ways = {"LOAD(x)": "f16_to_f32(x)", "STORE(x)": "f16_bits(rounded_f16(x))"}
    return {"T": "uint16_t", "W": wide or "float", **ways}


def wide_bytes(dtype: DType) -> int:
    """The size of what elements of a float `dtype` are computed in."""
    return max(dtype.numpy.itemsize, 4)
