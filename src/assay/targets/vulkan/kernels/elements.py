"""What kernels share: which dtypes are moved, and places in tensors."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dtypes import FLOATS, TENSORS, DType, string
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.scalar import COMPUTED
from assay.targets.vulkan.shader import Shader, TensorOperand

MOVABLE: tuple[DType, ...] = tuple(dtype for dtype in TENSORS if dtype is not string)
"""The dtypes whose elements are moved as they are; the target refuses those that are too long beforehand."""
NUMBERS: tuple[DType, ...] = tuple(dtype for dtype in COMPUTED if dtype.is_integer or dtype.is_float)
FLOAT: tuple[DType, ...] = tuple(FLOATS)


def unravelled(item: ShaderValue, sizes: Sequence[ShaderValue]) -> list[ShaderValue]:
    """The index along each axis of the item at a place in row-major order; the first size does not matter."""
    found: list[ShaderValue] = []
    for size in reversed(sizes[1:]):
        above = item / size
        found.insert(0, item - above * size)
        item = above
    return [item, *found] if sizes else []


def ravelled(indices: Sequence[ShaderValue], sizes: Sequence[ShaderValue]) -> ShaderValue:
    """The place in row-major order of the item with these indices; the first size does not matter."""
    found = indices[0]
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        found = found * size + index
    return found


def volume_of(sizes: Sequence[ShaderValue]) -> ShaderValue:
    """The product of some sizes."""
    whole = sizes[0]
    for size in sizes[1:]:
        whole = whole * size
    return whole


def place(s: Shader, indices: Sequence[ShaderValue], strides: Sequence[ShaderValue]) -> ShaderValue:
    """The place of an element by its indices."""
    found = s.value(0, "u32")
    for index, stride in zip(indices, strides, strict=True):
        found = found + index * stride
    return found


def position(operand: TensorOperand, index: ShaderValue) -> ShaderValue:
    """A position that is data, as i32: its lowest bits, which are all that a tensor's size has."""
    s = index.shader
    found = operand.load(index)
    return s.cast(found, "i32") if found.kind[1:] == "32" else s.bitcast(s.cast(s.bitcast(found, "u64"), "u32"), "i32")


def within(operand: TensorOperand, index: ShaderValue, size: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
    """A position from the start of an axis (u32), counted from its end if it is negative, and whether it is inside."""
    s = index.shader
    found = operand.load(index)
    wide = s.cast(size, found.kind)
    from_start = s.select(found < 0, found + wide, found) if found.kind[0] == "i" else found
    inside = (from_start >= 0) & (from_start < wide)
    return s.cast(s.select(inside, from_start, s.value(0, found.kind)), "u32"), inside


def report(errors: TensorOperand) -> None:
    """Say that a node cannot be computed."""
    s = errors.shader
    errors.store(s.value(0, "u32"), s.value(1, errors.kind))
