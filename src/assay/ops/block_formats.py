"""Formats of quantised weights in blocks, as GGUF files hold them.

A block of a row holds its elements as small integers, with one or two scales for the block or for parts of it. Values
are f32, computed in f32 in the order that is written here, so that they are those of other readers bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, cast

import numpy as np

from assay.ir.dtypes import Array

_SMALL, _LARGE = 32, 256
"""Elements of a block in the older formats, and in those with scales of their own for parts of it (`K`)."""


@dataclass(frozen=True)
class Bits:
    """Numbers of `width` bits in a field of bytes: of each run of bytes first the lowest bits, then the next."""

    field: str
    width: int
    run: int


class BlockScaling(StrEnum):
    """What the integers of a block are multiplied by, and what is added then."""

    ONE = "one"
    """A scale for the block."""
    OFFSET = "offset"
    """A scale and an offset for the block."""
    NIBBLES = "nibbles"
    """Parts of the block have scales and offsets to take off, of four bits each, in one byte."""
    SIXES = "sixes"
    """Parts have scales of six bits with a sign: low nibbles in eight bytes, the bits above in four."""
    PAIRS = "pairs"
    """Parts have scales and offsets to take off, of six bits each: four of each whole in the first eight bytes, the low
    bits of the others in the last four, and their high bits above those of the first."""
    BYTES = "bytes"
    """Parts have scales of eight bits with a sign."""


@dataclass(frozen=True)
class BlockFormat:
    """A format: its name, the number by which GGUF files call it, the elements of a block and its fields in memory.

    An element is an integer made of `integers`, the lowest bits first, less `middle`, scaled as `scaling` says.
    """

    name: str
    code: int
    elements: int
    fields: np.dtype[Any]
    integers: tuple[Bits, ...]
    middle: int
    scaling: BlockScaling

    def __str__(self) -> str:
        return self.name

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.fields.itemsize

    def span(self, field: str) -> tuple[int, int]:
        """Where a field of a block begins and ends."""
        kind, start = cast(Mapping[str, Any], self.fields.fields)[field][:2]
        return start, start + kind.itemsize

    def bytes_of(self, elements: int) -> int:
        """Bytes of a row of so many elements; ValueError if these are no whole blocks."""
        blocks, rest = divmod(elements, self.elements)
        if rest:
            raise ValueError(f"{elements} elements are no whole blocks of {self.elements}")
        return blocks * self.block_bytes

    def dequantized(self, packed: Array) -> Array:
        """Rows of bytes (…, bytes) as f32 (…, elements)."""
        shape = (*packed.shape[:-1], packed.shape[-1] // self.block_bytes * self.elements)
        if not packed.size:
            return np.zeros(shape, np.float32)
        blocks = np.ascontiguousarray(packed).view(self.fields)
        with np.errstate(all="ignore"):  # a scale may be infinite or NaN in a file
            return self._values(blocks.reshape(-1)).reshape(shape)

    def _values(self, blocks: Array) -> Array:
        scales, offsets = _SCALES[self.scaling](blocks)
        values = scales[..., None] * _wide(self._integers(blocks)).reshape(*scales.shape, -1)
        if offsets is None:
            return values
        return values + offsets[..., None] if self.scaling is BlockScaling.OFFSET else values - offsets[..., None]

    def _integers(self, blocks: Array) -> Array:
        whole, shift = np.zeros((len(blocks), self.elements), np.uint8), 0
        for each in self.integers:
            whole |= _bits(blocks[each.field], each.width, each.run) << np.uint8(shift)
            shift += each.width
        return whole.astype(np.int8) - np.int8(self.middle)


def _bits(packed: Array, width: int, run: int) -> Array:
    """The numbers in bytes (blocks, bytes), as `Bits` says."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    parts = packed.reshape(len(packed), -1, 1, run) >> shifts[:, None]
    return (parts & np.uint8((1 << width) - 1)).reshape(len(packed), -1)


def _wide(x: Array) -> Array:
    return x.astype(np.float32)


_Scales: TypeAlias = tuple[Array, Array | None]
"""For blocks, the scales of parts (blocks, parts) and their offsets, if there are any."""


def _scaled_by_nibbles(blocks: Array) -> _Scales:
    packed = blocks["scales"]
    return _wide(blocks["scale"]) * _wide(packed & 0x0F), _wide(blocks["offset"]) * _wide(packed >> 4)


def _scaled_by_sixes(blocks: Array) -> _Scales:
    low, high = _bits(blocks["scales"][:, :8], 4, 8), _bits(blocks["scales"][:, 8:], 2, 4)
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    return _wide(blocks["scale"]) * _wide(scales), None


def _scaled_by_pairs(blocks: Array) -> _Scales:
    first, second, third = (blocks["scales"][:, start : start + 4] for start in (0, 4, 8))
    scales = np.concatenate([first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)], axis=1)
    offsets = np.concatenate([second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)], axis=1)
    return _wide(blocks["scale"]) * _wide(scales), _wide(blocks["offset"]) * _wide(offsets)


_SCALES: Mapping[BlockScaling, Callable[[Array], _Scales]] = {
    BlockScaling.ONE: lambda blocks: (_wide(blocks["scale"]), None),
    BlockScaling.OFFSET: lambda blocks: (_wide(blocks["scale"]), _wide(blocks["offset"])),
    BlockScaling.NIBBLES: _scaled_by_nibbles,
    BlockScaling.SIXES: _scaled_by_sixes,
    BlockScaling.PAIRS: _scaled_by_pairs,
    BlockScaling.BYTES: lambda blocks: (_wide(blocks["scale"]) * _wide(blocks["scales"]), None),
}


def _fields(**sizes: tuple[str, int]) -> np.dtype[Any]:
    """Fields in order, each an element type and how many there are."""
    return np.dtype([(name, kind, (count,)) for name, (kind, count) in sizes.items()])


def _low(width: int, run: int) -> Bits:
    return Bits("low", width, run)


def _high(width: int, run: int) -> Bits:
    return Bits("high", width, run)


_SCALE = {"scale": ("<f2", 1)}
_BOTH = {"scale": ("<f2", 1), "offset": ("<f2", 1)}
_HALF, _FIFTHS, _TWELVE = {"low": ("u1", 16)}, {"high": ("u1", 4)}, {"scales": ("u1", 12)}
_Q8_0 = _fields(**_SCALE, low=("u1", 32))
_Q2_K = _fields(scales=("u1", 16), low=("u1", 64), **_BOTH)
_Q3_K = _fields(high=("u1", 32), low=("u1", 64), **_TWELVE, **_SCALE)
_Q4_K = _fields(**_BOTH, **_TWELVE, low=("u1", 128))
_Q5_K = _fields(**_BOTH, **_TWELVE, high=("u1", 32), low=("u1", 128))
_Q6_K = _fields(low=("u1", 128), high=("u1", 64), scales=("i1", 16), **_SCALE)

_ALL = (
    BlockFormat("Q4_0", 2, _SMALL, _fields(**_SCALE, **_HALF), (_low(4, 16),), 8, BlockScaling.ONE),
    BlockFormat("Q4_1", 3, _SMALL, _fields(**_BOTH, **_HALF), (_low(4, 16),), 0, BlockScaling.OFFSET),
    BlockFormat(
        "Q5_0", 6, _SMALL, _fields(**_SCALE, **_FIFTHS, **_HALF), (_low(4, 16), _high(1, 1)), 16, BlockScaling.ONE
    ),
    BlockFormat(
        "Q5_1", 7, _SMALL, _fields(**_BOTH, **_FIFTHS, **_HALF), (_low(4, 16), _high(1, 1)), 0, BlockScaling.OFFSET
    ),
    BlockFormat("Q8_0", 8, _SMALL, _Q8_0, (_low(8, 32),), 0, BlockScaling.ONE),
    BlockFormat("Q2_K", 10, _LARGE, _Q2_K, (_low(2, 32),), 0, BlockScaling.NIBBLES),
    BlockFormat("Q3_K", 11, _LARGE, _Q3_K, (_low(2, 32), _high(1, 32)), 4, BlockScaling.SIXES),
    BlockFormat("Q4_K", 12, _LARGE, _Q4_K, (_low(4, 32),), 0, BlockScaling.PAIRS),
    BlockFormat("Q5_K", 13, _LARGE, _Q5_K, (_low(4, 32), _high(1, 32)), 0, BlockScaling.PAIRS),
    BlockFormat("Q6_K", 14, _LARGE, _Q6_K, (_low(4, 64), _high(2, 32)), 32, BlockScaling.BYTES),
)
BLOCK_FORMATS: Mapping[str, BlockFormat] = {each.name: each for each in _ALL}
"""By name."""
