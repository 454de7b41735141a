"""Formats of quantised weights in blocks, as GGUF files hold them.

A block of a row holds its elements as small integers, with one or two scales for the block or for parts of it. Values
are f32, computed in f32 in the order that is written here, so that they are those of other readers bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.ir.dtypes import Array

_SMALL, _LARGE = 32, 256
"""Elements of a block in the older formats, and in those with scales of their own for parts of it (`K`)."""


@dataclass(frozen=True)
class BlockFormat:
    """A format: its name, the number by which GGUF files call it, the elements of a block, its fields in memory, and
    what gives the elements (blocks, elements) of an array of blocks."""

    name: str
    code: int
    elements: int
    fields: np.dtype[Any]
    values: Callable[[Array], Array]

    def __str__(self) -> str:
        return self.name

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.fields.itemsize

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
            return self.values(blocks.reshape(-1)).reshape(shape)


def _fields(**sizes: tuple[str, int]) -> np.dtype[Any]:
    """Fields in order, each an element type and how many there are."""
    return np.dtype([(name, kind, (count,)) for name, (kind, count) in sizes.items()])


def _bits(packed: Array, width: int, run: int) -> Array:
    """Numbers of `width` bits from bytes (blocks, bytes): of each run of bytes first the lowest bits, then the next."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    parts = packed.reshape(len(packed), -1, 1, run) >> shifts[:, None]
    return (parts & np.uint8((1 << width) - 1)).reshape(len(packed), -1)


def _wide(x: Array) -> Array:
    return x.astype(np.float32)


# --- one scale a block, and an offset in some


def _nibbles(blocks: Array) -> Array:
    return _bits(blocks["low"], 4, _SMALL // 2)


def _with_fifth_bits(blocks: Array) -> Array:
    """Low nibbles with a fifth bit: those of the elements are the bits of four bytes in order."""
    high = np.unpackbits(blocks["high"], axis=1, bitorder="little")
    return _nibbles(blocks) | high << np.uint8(4)


def _centred(integers: Callable[[Array], Array], middle: int) -> Callable[[Array], Array]:
    return lambda blocks: _wide(blocks["scale"]) * _wide(integers(blocks).astype(np.int8) - np.int8(middle))


def _shifted(integers: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda blocks: _wide(blocks["scale"]) * _wide(integers(blocks)) + _wide(blocks["offset"])


# --- scales of their own for parts of a block


def _scaled(scales: Array, integers: Array, offsets: Array | None = None) -> Array:
    """Each part of a block (blocks, parts) by its scale, less its offset."""
    parts = _wide(integers).reshape(*scales.shape, -1)
    values = scales[..., None] * parts
    return values if offsets is None else values - offsets[..., None]


def _six_bit_pairs(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight offsets of six bits from twelve bytes: four of each whole in the first eight, the low bits
    of the others in the last four, and their high bits above those of the first."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)], axis=1)
    offsets = np.concatenate([second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)], axis=1)
    return scales, offsets


def _q2_k(blocks: Array) -> Array:
    scales = _wide(blocks["scale"]) * _wide(blocks["scales"] & 0x0F)
    offsets = _wide(blocks["offset"]) * _wide(blocks["scales"] >> 4)
    return _scaled(scales, _bits(blocks["low"], 2, 32), offsets)


def _q3_k(blocks: Array) -> Array:
    packed = blocks["scales"]
    low = _bits(packed[:, :8], 4, 8)
    high = _bits(packed[:, 8:], 2, 4)
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    missing = _bits(blocks["high"], 1, 32) ^ np.uint8(1)
    integers = _bits(blocks["low"], 2, 32).astype(np.int8) - (missing << np.uint8(2)).astype(np.int8)
    return _scaled(_wide(blocks["scale"]) * _wide(scales), integers)


def _scaled_in_pairs(blocks: Array, integers: Array) -> Array:
    scales, offsets = _six_bit_pairs(blocks["scales"])
    return _scaled(_wide(blocks["scale"]) * _wide(scales), integers, _wide(blocks["offset"]) * _wide(offsets))


def _q4_k(blocks: Array) -> Array:
    return _scaled_in_pairs(blocks, _bits(blocks["low"], 4, 32))


def _q5_k(blocks: Array) -> Array:
    high = _bits(blocks["high"], 1, 32)
    return _scaled_in_pairs(blocks, _bits(blocks["low"], 4, 32) | high << np.uint8(4))


def _q6_k(blocks: Array) -> Array:
    low, high = _bits(blocks["low"], 4, 64), _bits(blocks["high"], 2, 32)
    integers = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    return _scaled(_wide(blocks["scale"]) * _wide(blocks["scales"]), integers)


_SCALE = {"scale": ("<f2", 1)}
_BOTH = {"scale": ("<f2", 1), "offset": ("<f2", 1)}
_LOW, _HIGH = {"low": ("u1", 16)}, {"high": ("u1", 4)}

_ALL = (
    BlockFormat("Q4_0", 2, _SMALL, _fields(**_SCALE, **_LOW), _centred(_nibbles, 8)),
    BlockFormat("Q4_1", 3, _SMALL, _fields(**_BOTH, **_LOW), _shifted(_nibbles)),
    BlockFormat("Q5_0", 6, _SMALL, _fields(**_SCALE, **_HIGH, **_LOW), _centred(_with_fifth_bits, 16)),
    BlockFormat("Q5_1", 7, _SMALL, _fields(**_BOTH, **_HIGH, **_LOW), _shifted(_with_fifth_bits)),
    BlockFormat("Q8_0", 8, _SMALL, _fields(**_SCALE, low=("i1", 32)), _centred(lambda blocks: blocks["low"], 0)),
    BlockFormat("Q2_K", 10, _LARGE, _fields(scales=("u1", 16), low=("u1", 64), **_BOTH), _q2_k),
    BlockFormat("Q3_K", 11, _LARGE, _fields(high=("u1", 32), low=("u1", 64), scales=("u1", 12), **_SCALE), _q3_k),
    BlockFormat("Q4_K", 12, _LARGE, _fields(**_BOTH, scales=("u1", 12), low=("u1", 128)), _q4_k),
    BlockFormat("Q5_K", 13, _LARGE, _fields(**_BOTH, scales=("u1", 12), high=("u1", 32), low=("u1", 128)), _q5_k),
    BlockFormat("Q6_K", 14, _LARGE, _fields(low=("u1", 128), high=("u1", 64), scales=("i1", 16), **_SCALE), _q6_k),
)
BLOCK_FORMATS: Mapping[str, BlockFormat] = {each.name: each for each in _ALL}
"""By name."""
