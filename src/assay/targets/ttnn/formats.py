"""The floats of the cards: what is left of a number in each, bit for bit as the library's host code converts it.

In a block format, 16 neighbouring elements of a row share one exponent, that of the largest, and each has a sign and a
short mantissa without a hidden bit. Rows are those of tiles: a tensor's last axis, filled up with zeros.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

import ml_dtypes
import numpy as np

from assay.errors import NotFound, hint_for
from assay.ir.dtypes import Array

BLOCK = 16
"""Elements that share an exponent."""
TILE = 32
"""Rows and columns of a tile."""
_FRACTION = 23
_INFINITE = 255
"""The exponent of infinities and NaN."""
ENVIRONMENT = "ASSAY_TTNN_WEIGHTS"
"""The variable with the format that the matrices of products have on the card."""


def bfloat16(array: Array) -> Array:
    """A float32 array rounded to bfloat16: to nearest, ties to even. There is one NaN."""
    return np.where(np.isnan(array), np.float32(np.nan), array.astype(ml_dtypes.bfloat16).astype(np.float32))


def block_float(array: Array, bits: int) -> Array:
    """A float32 array rounded to a block format with mantissas of so many bits: to nearest, ties to even.

    What would round up beyond the largest mantissa stays at it. Subnormal numbers are zero, and there is no −0.
    """
    shape, width = array.shape, array.shape[-1]
    rows = np.pad(array.reshape(-1, width), ((0, 0), (0, -width % BLOCK)))
    blocks = rows.view(np.uint32).reshape(rows.shape[0], -1, BLOCK).astype(np.int64)
    exponents = blocks >> _FRACTION & _INFINITE
    shared = exponents.max(axis=-1, keepdims=True)
    whole = np.where(exponents > 0, blocks & 0x7F_FFFF | 1 << _FRACTION, 0)
    shift = _FRACTION + 1 - bits
    mantissas = _shifted(whole >> np.minimum(shared - exponents, 62), shift)
    found = _decoded(np.minimum(mantissas, (1 << bits) - 1), shared, shift, blocks >> 31)
    return found.astype(np.uint32).view(np.float32).reshape(rows.shape)[:, :width].reshape(shape)


def _shifted(mantissas: Array, shift: int) -> Array:
    """Mantissas without their last bits, rounded to nearest, ties to even."""
    rest, half = mantissas & ((1 << shift) - 1), 1 << (shift - 1)
    kept = mantissas >> shift
    return kept + ((rest > half) | ((rest == half) & (kept & 1 == 1)))


def _decoded(mantissas: Array, shared: Array, shift: int, signs: Array) -> Array:
    """The bits of the floats that signs, mantissas and shared exponents stand for."""
    aligned = mantissas << shift
    lost = np.zeros_like(aligned)
    for step in (16, 8, 4, 2, 1):
        short = (aligned >> (_FRACTION + 1 - step) == 0) & (aligned > 0)
        aligned = np.where(short, aligned << step, aligned)
        lost += np.where(short, step, 0)
    exponents = shared - lost
    bits = signs << 31 | exponents << _FRACTION | aligned & 0x7F_FFFF
    return np.where(aligned > 0, bits, 0)


BLOCK_BYTES: Mapping[str, int] = {"bfloat8_b": 1088, "bfloat4_b": 576}
"""The bytes of a tile in each block format: mantissas with signs, and an exponent for each block."""
ROUNDING: Mapping[str, Callable[[Array], Array]] = {
    "float32": lambda array: array,
    "bfloat16": bfloat16,
    "bfloat8_b": partial(block_float, bits=7),
    "bfloat4_b": partial(block_float, bits=3),
}
"""What each dtype of the library leaves of a float32 array of at least one axis."""


def chosen_weights(environment: Mapping[str, str] = os.environ) -> str:
    """The block format of matrices that products alone read: `$ASSAY_TTNN_WEIGHTS`; empty if they are as wide as other
    floats. NotFound if there is no such format."""
    name = environment.get(ENVIRONMENT, "")
    if name in ("", "bfloat16"):
        return ""
    if name not in BLOCK_BYTES:
        raise NotFound(f"there is no format '{name}' of weights ({ENVIRONMENT})", hint=hint_for(name, BLOCK_BYTES))
    return name
