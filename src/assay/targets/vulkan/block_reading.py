"""Numbers of quantised blocks as kernels read them, part by part: elements with a scale of their own.

The rows of `ops/block_formats.py` say how a format lies in memory; numbers are those of `BlockFormat.dequantized`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from assay.ops.block_formats import Bits, BlockFormat, BlockScaling
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.shader import TensorOperand
from assay.targets.vulkan.storage import f16_number

_PARTS = {
    **dict.fromkeys((BlockScaling.ONE, BlockScaling.OFFSET), 1),
    **dict.fromkeys((BlockScaling.NIBBLES, BlockScaling.SIXES, BlockScaling.BYTES), 16),
    BlockScaling.PAIRS: 8,
}
"""How many parts of a block have a scale of their own."""


def part_size(form: BlockFormat) -> int:
    """The elements that share a scale."""
    return form.elements // _PARTS[form.scaling]


class BlockPart(NamedTuple):
    """A part of a block: the operand and the byte where its block begins, the number of the part, what its integers are
    multiplied by, and what is added then."""

    operand: TensorOperand
    form: BlockFormat
    begin: ShaderValue
    part: ShaderValue
    scale: ShaderValue
    offset: ShaderValue | None

    def number(self, at: ShaderValue) -> ShaderValue:
        """The number at a place in the part (f32)."""
        s = at.shader
        element, whole, shift = self.part * part_size(self.form) + at, s.value(0, "u32"), 0
        for each in self.form.integers:
            whole = whole | _bits(self.operand, self.begin + self.form.span(each.field)[0], each, element) << shift
            shift += each.width
        value = self.scale * s.cast(_signed(whole) - self.form.middle, "f32")
        return value if self.offset is None else value + self.offset


def read_part(operand: TensorOperand, form: BlockFormat, number: ShaderValue) -> BlockPart:
    """A part by its number, counting those of all blocks that an operand of bytes holds."""
    block = number / _PARTS[form.scaling]
    begin, part = block * form.block_bytes, number - block * _PARTS[form.scaling]
    return BlockPart(operand, form, begin, part, *_SCALES[form.scaling](operand, form, begin, part))


def _bits(operand: TensorOperand, begin: ShaderValue, bits: Bits, index: ShaderValue) -> ShaderValue:
    """The number at an index of those in a field, as `Bits` says."""
    span = bits.run * (8 // bits.width)
    run = index / span
    within = index - run * span
    turn = within / bits.run
    byte = operand.load(begin + run * bits.run + (within - turn * bits.run))
    return byte >> turn * bits.width & (1 << bits.width) - 1


def _signed(byte: ShaderValue) -> ShaderValue:
    """A byte (u32) as a number with a sign (i32)."""
    return (byte.shader.bitcast(byte, "i32") ^ 0x80) - 0x80


_Scales = tuple[ShaderValue, ShaderValue | None]


def _half(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, field: str) -> ShaderValue:
    place = begin + form.span(field)[0]
    return f16_number(begin.shader, operand.load(place) | operand.load(place + 1) << 8)


def _number(value: ShaderValue) -> ShaderValue:
    return value.shader.cast(value, "f32")


def _by_one(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, part: ShaderValue) -> _Scales:
    return _half(operand, form, begin, "scale"), None


def _by_offset(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, part: ShaderValue) -> _Scales:
    return _half(operand, form, begin, "scale"), _half(operand, form, begin, "offset")


def _by_nibbles(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, part: ShaderValue) -> _Scales:
    both = operand.load(begin + form.span("scales")[0] + part)
    scale, offset = (_half(operand, form, begin, field) for field in ("scale", "offset"))
    return scale * _number(both & 0x0F), -(offset * _number(both >> 4))


def _by_sixes(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, part: ShaderValue) -> _Scales:
    first = begin + form.span("scales")[0]
    low, high = _bits(operand, first, Bits("", 4, 8), part), _bits(operand, first + 8, Bits("", 2, 4), part)
    signed = part.shader.bitcast(low | high << 4, "i32") - 32
    return _half(operand, form, begin, "scale") * _number(signed), None


def _by_pairs(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, part: ShaderValue) -> _Scales:
    s, first = part.shader, begin + form.span("scales")[0]
    early, which = part < 4, part & 3
    above, below, rest = (operand.load(first + start + which) for start in (0, 4, 8))
    scale = s.select(early, above & 0x3F, rest & 0x0F | above >> 2 & 0x30)
    offset = s.select(early, below & 0x3F, rest >> 4 | below >> 2 & 0x30)
    scales, offsets = (_half(operand, form, begin, field) for field in ("scale", "offset"))
    return scales * _number(scale), -(offsets * _number(offset))


def _by_bytes(operand: TensorOperand, form: BlockFormat, begin: ShaderValue, part: ShaderValue) -> _Scales:
    byte = operand.load(begin + form.span("scales")[0] + part)
    return _half(operand, form, begin, "scale") * _number(_signed(byte)), None


_SCALES: Mapping[BlockScaling, Callable[[TensorOperand, BlockFormat, ShaderValue, ShaderValue], _Scales]] = {
    BlockScaling.ONE: _by_one,
    BlockScaling.OFFSET: _by_offset,
    BlockScaling.NIBBLES: _by_nibbles,
    BlockScaling.SIXES: _by_sixes,
    BlockScaling.PAIRS: _by_pairs,
    BlockScaling.BYTES: _by_bytes,
}
