"""What the bytes of tiny dtypes mean: floats and integers of at most 8 bits, each of which takes a byte.

They are moved as bytes; none but `cast` asks for the number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import TINY_FLOATS, TINY_INTEGERS, DType
from assay.targets.vulkan import functions as f
from assay.targets.vulkan.code import ShaderValue

TINY = frozenset({*TINY_FLOATS, *TINY_INTEGERS})
_POWERS = dtypes.by_name("f8e8m0")
_UP = {"nearest": 1 << 22, "up": (1 << 23) - 1, "down": 0}
"""What to add to the bits of an f32 for its exponent to be rounded."""


class _Format(NamedTuple):
    """A tiny float: bits of its mantissa, what is added to its exponent, its sign bit, and numbers as bytes."""

    mantissa: int
    bias: int
    sign: int
    highest: int
    infinity: int
    """What infinity becomes: itself, or NaN where there is none."""
    nan: int
    one_zero: bool
    """Whether zero and NaN have no sign: what were −0 is NaN."""


def byte_of(dtype: DType, number: Any) -> int:
    """A number of a tiny dtype as it lies in memory."""
    return int(np.array(number).astype(dtype.numpy).view(np.uint8))


def _format(dtype: DType) -> _Format:
    facts = cast(Any, ml_dtypes).finfo(dtype.numpy)
    special = (byte_of(dtype, dtype.limits[1]), byte_of(dtype, math.inf), byte_of(dtype, math.nan))
    return _Format(facts.nmant, 1 - facts.minexp, 1 << dtype.bits - 1, *special, byte_of(dtype, -0.0) == 0)


def number_of(byte: ShaderValue, dtype: DType) -> ShaderValue:
    """The number that a byte (u32) stands for: an f32 for floats, an i32 for integers."""
    s = byte.shader
    if dtype in TINY_INTEGERS:
        low = s.bitcast(byte & ((1 << dtype.bits) - 1), "i32")
        sign = 1 << dtype.bits - 1 if dtype.kind == "int" else 0
        return (low ^ sign) - sign
    if dtype is _POWERS:
        usual = s.select(byte.equals(0), s.value(0x00400000, "u32"), byte << 23)
        return s.bitcast(s.select(byte.equals(255), s.value(0x7FC00000, "u32"), usual), "f32")
    form = _format(dtype)
    size = byte & (form.sign - 1)
    usual = s.bitcast((size << 23 - form.mantissa) + (127 - form.bias << 23), "f32")
    least = s.cast(size, "f32") * 2.0 ** (1 - form.bias - form.mantissa)
    finite = s.select(size < 1 << form.mantissa, least, usual)
    special = f.nan(s, "f32")
    if form.infinity != form.nan:
        special = s.select(size.equals(form.infinity), f.infinity(s, "f32"), special)
    strange = size > form.highest
    if form.one_zero:
        strange = strange | byte.equals(form.sign)
    found = s.select(strange, special, finite)
    return s.select((byte & form.sign).differs(0), -found, found)


def byte_from(number: ShaderValue, dtype: DType, saturate: bool, rounding: str) -> ShaderValue:
    """An f32 as the byte (u32) of a tiny float; what is beyond the largest one becomes that, or infinity."""
    s = number.shader
    bits = s.bitcast(number, "u32")
    size = bits & 0x7FFFFFFF
    beyond = byte_of(dtype, dtype.limits[1] if saturate else math.inf)
    if dtype is _POWERS:
        power = (size + _UP[rounding]) >> 23
        return s.select(s.is_nan(number), s.value(255, "u32"), s.least(power, beyond))
    form = _format(dtype)
    shift = 23 - form.mantissa
    rebased = size - (127 - form.bias << 23)
    normal = (rebased + ((1 << shift - 1) - 1) + (rebased >> shift & 1)) >> shift
    coarse = 151 - form.bias - form.mantissa << 23
    tiny = s.bitcast(s.bitcast(size, "f32") + s.bitcast(s.value(coarse, "u32"), "f32"), "u32") - coarse
    nearest = s.select(size < 128 - form.bias << 23, tiny, normal)
    found = s.select(nearest > form.highest, s.value(beyond, "u32"), nearest)
    found = s.select(size > 0x7F800000, s.value(form.nan, "u32"), found)
    sign = s.select((bits >> 31).differs(0), s.value(form.sign, "u32"), s.value(0, "u32"))
    signed = found ^ sign
    return s.select((found & (form.sign - 1)).equals(0), found, signed) if form.one_zero else signed
