"""Sample arguments for op definitions: small, varied, valid; tests and fuzzing are derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from assay.ir.dtypes import Array, DType
from assay.ops.registry import Sample, Samples

Rng: TypeAlias = "np.random.Generator"
Range: TypeAlias = tuple[float, float]
"""The least and the greatest number that is drawn."""


def draw(rng: Rng, dtype: DType, shape: Sequence[int], low: float = -4.0, high: float = 4.0) -> Array:
    """A random array of `dtype`; floats and signed integers in [low, high], the rest clipped to what they hold."""
    if dtype.kind == "string":
        words = np.array(["", "a", "b", "ab", "zürich"], dtype=object)
        return rng.choice(words, size=tuple(shape))
    if dtype.kind == "bool":
        return rng.integers(0, 2, size=tuple(shape)).astype(bool)
    if dtype.kind == "complex":
        real, imag = rng.uniform(low, high, size=(2, *shape))
        return np.asarray(real + 1j * imag).astype(dtype.numpy)
    if dtype.is_float:
        return np.asarray(rng.uniform(low, high, size=tuple(shape))).astype(dtype.numpy)
    lowest, highest = dtype.limits
    drawn = rng.integers(int(max(low, lowest)), int(min(high, highest)) + 1, size=tuple(shape))
    return np.asarray(drawn).astype(dtype.numpy)


_SPECIAL = (
    np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5]),
    np.array([300.0, -300.0, 3e4, -3e4, 1e-3, -1e-3, 1e-7, -1e-7]),
    np.array([0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2.0, -7.0]),
)
"""Floats at which functions go wrong first: not finite, zero; large and small (within the range of f16); halfway."""


def elementwise(inputs: int = 1, low: float = -4.0, high: float = 4.0) -> Samples:
    """Arguments of one shape, of shapes that broadcast, scalars and empty ones; for floats also special values."""
    shapes = [((3, 4),), ((2, 1, 3), (4, 1)), ((), (5,)), ((0, 3), (1,))]

    def samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
        for group in shapes:
            yield Sample(tuple(draw(rng, dtype, group[i % len(group)], low, high) for i in range(inputs)))
        if dtype.is_float:
            for group in _SPECIAL:
                yield Sample(tuple(np.roll(group, 3 * i).astype(dtype.numpy) for i in range(inputs)))

    return samples


def along(*shapes: tuple[tuple[int, ...], int], low: float = -4.0, high: float = 4.0) -> Samples:
    """One input and an `axis` attribute, for each (shape, axis)."""
    chosen = shapes or (((3, 4), -1), ((2, 3, 4), 1), ((5,), 0), ((0, 3), 1))

    def samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
        for shape, axis in chosen:
            yield Sample((draw(rng, dtype, shape, low, high),), {"axis": axis})

    return samples


def reducing(rng: Rng, dtype: DType) -> Iterable[Sample]:
    """One input and `axes`, `keepdims`."""
    for shape, axes in [((3, 4), (1,)), ((2, 3, 4), (0, -1)), ((2, 3), None), ((), None), ((2, 3), ())]:
        for keepdims in (False, True):
            yield Sample((draw(rng, dtype, shape, -2, 2),), {"axes": axes, "keepdims": keepdims})


def listed(make: Callable[[Rng, DType], Iterable[tuple[Any, ...]]], *fixed: int) -> Samples:
    """Samples from `(inputs…, attrs)` tuples; `fixed` inputs keep their content when graphs are made of them."""

    def samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
        for *inputs, attrs in make(rng, dtype):
            yield Sample(tuple(inputs), attrs, fixed)

    return samples
