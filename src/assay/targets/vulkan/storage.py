"""Elements as they lie in memory, and as values that are computed with."""

from __future__ import annotations

from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.targets.vulkan.code import KernelCode, ShaderValue
from assay.targets.vulkan.spirv import WIDTHS

_STORED: dict[DType, str] = {dtypes.f16: "u16", dtypes.bf16: "u16", dtypes.boolean: "u8"}
_COMPUTED: dict[DType, str] = {
    dtypes.f16: "f32",
    dtypes.bf16: "f32",
    dtypes.boolean: "bool",
    **dict.fromkeys((*dtypes.TINY_FLOATS, *dtypes.TINY_INTEGERS), "u32"),
}


def stored_kind(dtype: DType) -> str:
    """The type of an element in memory."""
    return _STORED.get(dtype) or (dtype.name if dtype.name in WIDTHS else f"u{8 * dtype.numpy.itemsize}")


def computed_kind(dtype: DType) -> str:
    """The type of a value that is computed with: 32 bits at least."""
    if dtype in _COMPUTED:
        return _COMPUTED[dtype]
    if dtype.is_integer and dtype.bits < 32:
        return "i32" if dtype.kind == "int" else "u32"
    return stored_kind(dtype)


def widened(s: KernelCode, bits: ShaderValue, dtype: DType) -> ShaderValue:
    """An element as a value that is computed with."""
    kind = computed_kind(dtype)
    if dtype is dtypes.bf16:
        return s.bitcast(s.cast(bits, "u32") << 16, "f32")
    if dtype is dtypes.f16:
        return f16_number(s, s.cast(bits, "u32"))
    return s.cast(bits, kind)


def narrowed(s: KernelCode, value: ShaderValue, dtype: DType) -> ShaderValue:
    """A value that is one of the dtype as it lies in memory."""
    if dtype is dtypes.bf16:
        return s.cast(bf16_bits(s, value), "u16")
    if dtype is dtypes.f16:
        return s.cast(f16_bits(s, value), "u16")
    return s.cast(value, stored_kind(dtype))


def f16_number(s: KernelCode, half: ShaderValue) -> ShaderValue:
    """The bits of an f16 in a u32 as an f32."""
    shifted = (half & 0x7FFF) << 13
    exponent = shifted & 0x0F800000
    moved = shifted + (112 << 23)
    special = s.select(exponent.equals(0x0F800000), moved + (112 << 23), moved)
    tiny = s.bitcast(s.bitcast(moved + (1 << 23), "f32") - 2.0**-14, "u32")
    found = s.select(exponent.equals(0), tiny, special)
    return s.bitcast(found | (half & 0x8000) << 16, "f32")


def f16_bits(s: KernelCode, value: ShaderValue) -> ShaderValue:
    """An f32 rounded to f16, ties to even, as bits in a u32."""
    whole = s.bitcast(value, "u32")
    sign, size = (whole >> 16) & 0x8000, whole & 0x7FFFFFFF
    tiny = s.bitcast(s.bitcast(size, "f32") + 0.5, "u32") - 0x3F000000
    usual = (size - (112 << 23) + 0xFFF + (size >> 13 & 1)) >> 13
    beyond = s.select(size > 0x7F800000, s.value(0x7E00, "u32"), s.value(0x7C00, "u32"))
    found = s.select(size >= 143 << 23, beyond, s.select(size < 113 << 23, tiny, usual))
    return found | sign


def bf16_bits(s: KernelCode, value: ShaderValue) -> ShaderValue:
    """An f32 rounded to bf16, ties to even, as bits in a u32."""
    whole = s.bitcast(value, "u32")
    rounded = (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
    nan = (whole >> 16 & 0x8000) | 0x7FC0
    return s.select((whole & 0x7FFFFFFF) > 0x7F800000, nan, rounded)


def rounded(s: KernelCode, value: ShaderValue, dtype: DType) -> ShaderValue:
    """A float, as it was computed, as a number that the dtype holds."""
    if dtype is dtypes.bf16:
        return s.bitcast(bf16_bits(s, value) << 16, "f32")
    if dtype is dtypes.f16:
        return f16_number(s, f16_bits(s, value))
    return value
