"""Random numbers: one milli-op gives the bits, everything else is built on it."""

from __future__ import annotations

import math
import random
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.registry import Compute, Effect, Sample, Tolerance, op
from assay.ops.samples import Rng
from assay.ops.shapes import requested

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _drawn(shape: Fact, seed: Fact, *, dtype: DType | None = None) -> list[Shape]:
    return [requested(shape)]


def _bits_samples(rng: Rng, dtype: DType) -> list[Sample]:
    return [Sample((np.array([2, 3]), np.array(7)), {}, (0, 1))]


def _float_samples(rng: Rng, dtype: DType) -> list[Sample]:
    return [Sample((np.array([2, 3]), np.array(7)), {"dtype": kind}, (0, 1)) for kind in FLOATS]


class Seeds:
    """Where fresh seeds come from: the machine's entropy, or the sequence that begins with a number given to it."""

    def __init__(self) -> None:
        self._draw = secrets.randbits

    def begin(self, start: int) -> None:
        """Give the same seeds after this as after the last `begin` with the same number."""
        self._draw = random.Random(start).getrandbits

    def next(self) -> int:
        """A seed of 63 bits."""
        return self._draw(63)


SEEDS = Seeds()
"""The seeds of this process."""


@op("-> i64", shape=lambda: [()], host=True, effect=Effect.ORDERED)
def fresh_seed() -> Array:
    """A seed that is new in every run, out of the machine's entropy unless `SEEDS` was told where to begin."""
    return np.array(SEEDS.next(), np.int64)


_RANKS = {"shape": 1, "seed": 0}


@op("i64, i64 -> u32", ranks=_RANKS, shape=_drawn, samples=_bits_samples)
def random_bits(shape: Array, seed: Array) -> Array:
    """Uniform 32-bit words: the counter-based Philox 4×64 stream of the key `seed`, in row-major order."""
    stream = np.random.Generator(np.random.Philox(key=int(seed) & (2**64 - 1)))
    return stream.integers(0, 2**32, size=tuple(int(d) for d in shape), dtype=np.uint32)


def _uniform(b: Builder, shape: Any, seed: Any, *, dtype: DType) -> Any:
    bits = b.shift_right(b.random_bits(shape, seed), 8)
    return b.cast(b.mul(b.cast(bits, dtype=dtypes.f64), 2.0**-24), dtype=dtype)


def _uniform_reference(shape: Array, seed: Array) -> Array:
    return (random_bits.reference(shape, seed) >> 8) * 2.0**-24


@op(
    "i64, i64 -> @dtype",
    ranks=_RANKS,
    shape=_drawn,
    parts=_uniform,
    tolerance=Tolerance.ROUNDED,
    samples=_float_samples,
)
def random_uniform(shape: Array, seed: Array, *, dtype: DType) -> Array:
    """Uniform floats in [0, 1) on a grid of 2⁻²⁴."""
    return _uniform_reference(shape, seed)


def _normal(b: Builder, shape: Any, seed: Any, *, dtype: DType) -> Any:
    first = b.random_uniform(shape, seed, dtype=dtypes.f64)
    second = b.random_uniform(shape, b.bit_xor(seed, _OTHER), dtype=dtypes.f64)
    radius = b.sqrt(b.mul(-2.0, b.log1p(b.neg(first))))
    return b.cast(b.mul(radius, b.cos(b.mul(2 * math.pi, second))), dtype=dtype)


_OTHER = 0x5851F42D4C957F2D


@op(
    "i64, i64 -> @dtype",
    ranks=_RANKS,
    shape=_drawn,
    parts=_normal,
    tolerance=Tolerance.FUNCTION,
    compute=Compute.WIDE,
    samples=_float_samples,
)
def random_normal(shape: Array, seed: Array, *, dtype: DType) -> Array:
    """Standard normal floats, by Box and Muller's transform of two uniform streams."""
    first, second = _uniform_reference(shape, seed), _uniform_reference(shape, seed ^ _OTHER)
    return np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2 * math.pi * second)
