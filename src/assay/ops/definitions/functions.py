"""Functions of one or two real numbers that are built out of simpler ones, some by way of the bits of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import COMPLEX, FLOATS, Array, DType
from assay.ops import samples as make
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Range
from assay.ops.shapes import broadcasting, same

if TYPE_CHECKING:
    from assay.ops.builder import Builder

Reference: TypeAlias = Callable[..., Any]
Parts: TypeAlias = Callable[..., Any]

_BITS: dict[DType, DType] = {
    dtypes.f64: dtypes.i64,
    dtypes.f32: dtypes.i32,
    dtypes.f16: dtypes.i16,
    dtypes.bf16: dtypes.i16,
}


def _sign_bit_parts(b: Builder, x: Any) -> Any:
    return b.lt(b.bitcast(x, dtype=_BITS[b.dtype(x)]), 0)


def _copysign_parts(b: Builder, x: Any, y: Any) -> Any:
    size = b.abs(x)
    return b.where(b.sign_bit(y), b.neg(size), size)


def _hypot_parts(b: Builder, x: Any, y: Any) -> Any:
    larger, smaller = b.max(b.abs(x), b.abs(y)), b.min(b.abs(x), b.abs(y))
    ratio = b.div(smaller, b.where(b.eq(larger, 0.0), 1.0, larger))
    length = b.mul(larger, b.sqrt(b.add(b.mul(ratio, ratio), 1.0)))
    return b.where(b.bit_or(b.is_inf(x), b.is_inf(y)), math.inf, length)


def _atan2_parts(b: Builder, y: Any, x: Any) -> Any:
    """From the angle in the first eighth of the circle to the whole of it."""
    across, along = b.abs(y), b.abs(x)
    equal = b.cast(b.ne(across, 0.0), dtype=b.dtype(x))
    ratio = b.where(b.eq(across, along), equal, b.div(b.min(across, along), b.max(across, along)))
    angle = b.atan(ratio)
    angle = b.where(b.lt(along, across), b.sub(math.pi / 2, angle), angle)
    return b.copysign(b.where(b.sign_bit(x), b.sub(math.pi, angle), angle), y)


def _nextafter(x: Array, y: Array) -> Array:
    return np.nextafter(x, y)


def _nextafter_parts(b: Builder, x: Any, y: Any) -> Any:
    bits = _BITS[b.dtype(x)]
    away = b.eq(b.lt(x, y), b.lt(0.0, x))
    stepped = b.bitcast(b.add(b.bitcast(x, dtype=bits), b.where(away, b.constant(1, bits), -1)), dtype=b.dtype(x))
    least = b.bitcast(b.constant(1, bits), dtype=b.dtype(x))
    moved = b.where(b.eq(x, 0.0), b.copysign(least, y), stepped)
    invalid = b.bit_or(b.is_nan(x), b.is_nan(y))
    return b.where(invalid, b.add(x, y), b.where(b.eq(x, y), y, moved))


def _exp2_parts(b: Builder, x: Any) -> Any:
    return b.pow(2.0, x)


def _log2_parts(b: Builder, x: Any) -> Any:
    return b.mul(b.log(x), 1 / math.log(2))


def _log10_parts(b: Builder, x: Any) -> Any:
    return b.mul(b.log(x), 1 / math.log(10))


WIDE, FUNCTION = Compute.WIDE, Tolerance.FUNCTION

# name: (documentation, inputs, reference, parts, how it is computed, tolerance, sample range)
_TABLE: dict[str, tuple[str, int, Reference, Parts, Compute, Tolerance, Range]] = {
    "copysign": ("|x| with the sign of y.", 2, np.copysign, _copysign_parts, WIDE, Tolerance.EXACT, (-4, 4)),
    "exp2": ("2ˣ.", 1, np.exp2, _exp2_parts, WIDE, FUNCTION, (-4, 4)),
    "log2": ("The logarithm to base 2.", 1, np.log2, _log2_parts, WIDE, FUNCTION, (0.1, 4)),
    "log10": ("The logarithm to base 10.", 1, np.log10, _log10_parts, WIDE, FUNCTION, (0.1, 4)),
    "hypot": ("√(x² + y²), without overflow on the way.", 2, np.hypot, _hypot_parts, WIDE, FUNCTION, (-4, 4)),
    "atan2": ("The angle of the point (y, x), in (−π, π].", 2, np.arctan2, _atan2_parts, WIDE, FUNCTION, (-4, 4)),
    "nextafter": (
        "The number next to x in the direction of y.",
        2,
        _nextafter,
        _nextafter_parts,
        Compute.STORED,
        Tolerance.EXACT,
        (-4, 4),
    ),
}


_ON_COMPLEX = {"exp2", "log2", "log10"}
"""The functions that are also defined on complex numbers."""


def _named(name: str, function: Reference, doc: str, inputs: int) -> Reference:
    def unary(x: Array) -> Any:
        return function(x)

    def binary(x: Array, y: Array) -> Any:
        return function(x, y)

    wrapped = unary if inputs == 1 else binary
    wrapped.__doc__, wrapped.__name__ = doc, name
    return wrapped


@op("T -> bool", T=FLOATS, shape=same, parts=_sign_bit_parts, samples=make.elementwise(1))
def sign_bit(x: Array) -> Array:
    """True where the sign of x is set, that of −0 included."""
    return np.signbit(x)


for _name, (_doc, _inputs, _reference, _parts, _compute, _tolerance, (_low, _high)) in _TABLE.items():
    op(
        "T -> T" if _inputs == 1 else "T, T -> T",
        T=(*FLOATS, *COMPLEX) if _name in _ON_COMPLEX else FLOATS,
        shape=same if _inputs == 1 else broadcasting,
        parts=_parts,
        compute=_compute,
        tolerance=_tolerance,
        samples=make.elementwise(_inputs, _low, _high),
    )(_named(_name, _reference, _doc, _inputs))
