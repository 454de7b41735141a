"""Orthogonal polynomials of a degree that may differ from element to element, on arrays of f64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.ir.dtypes import Array

Polynomial = Callable[[Array, Array], Array]
Step = Callable[[float, Array, Array, Array], Array]
"""(k, x, p₍ₖ₎, p₍ₖ₋₁₎) → p₍ₖ₊₁₎."""

_MOST = 1 << 20
"""The highest degree that is reached by recurrence."""


def _recurred(x: Array, degree: Array, first: Array, step: Step) -> Array:
    """The polynomial of each element's degree, from p₀ = 1 and p₁ = `first`; 0 for a negative degree."""
    result = np.where(degree == 0, 1.0, np.where(degree == 1, first, 0.0))
    before, here = np.ones_like(first), first
    top = int(degree.max(initial=0))
    if top > _MOST:
        raise ValueError(f"a polynomial of degree {top}")
    for k in range(1, top):
        before, here = here, step(float(k), x, here, before)
        result = np.where(degree == k + 1, here, result)
    return result


def _degrees(x: Array, n: Array) -> tuple[Array, Array]:
    """x and the whole degrees, in one shape; what is not finite counts as no degree."""
    x, n = np.broadcast_arrays(x, n)
    return x, np.where(np.isfinite(n), np.trunc(np.where(np.isfinite(n), n, 0.0)), -1.0)


_FIRST: dict[str, tuple[float, float]] = {"t": (1, 0), "u": (2, 0), "v": (2, -1), "w": (2, 1)}
"""The slope and the offset of the polynomials of degree one."""


def chebyshev(kind: str) -> Polynomial:
    """Chebyshev polynomials of the first (t), second (u), third (v) or fourth (w) kind."""
    slope, offset = _FIRST[kind]

    def polynomial(x: Array, n: Array) -> Array:
        x, degree = _degrees(x, n)
        inside = (degree > 6) & (np.abs(x) < 1)
        first = slope * x + offset if offset else slope * x
        by_steps = _recurred(x, np.where(inside, 0.0, degree), first, lambda k, x, p, q: 2 * x * p - q)
        angle = np.arccos(np.where(inside, x, 0.5))
        half = angle / 2
        by_angle = {
            "t": np.cos(degree * angle),
            "u": np.sin((degree + 1) * angle) / np.sin(angle),
            "v": np.cos((2 * degree + 1) * half) / np.cos(half),
            "w": np.sin((2 * degree + 1) * half) / np.sin(half),
        }[kind]
        return np.where(inside, by_angle, by_steps)

    return polynomial


def hermite(scale: float) -> Polynomial:
    """Hermite polynomials: the physicists' (scale 2) or the probabilists' (scale 1)."""

    def polynomial(x: Array, n: Array) -> Array:
        x, degree = _degrees(x, n)
        return _recurred(x, degree, scale * x, lambda k, x, p, q: scale * (x * p - k * q))

    return polynomial


def laguerre(x: Array, n: Array) -> Array:
    """Laguerre polynomials."""
    x, degree = _degrees(x, n)
    return _recurred(x, degree, 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1))


def legendre(x: Array, n: Array) -> Array:
    """Legendre polynomials."""
    x, degree = _degrees(x, n)
    return _recurred(x, degree, x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1))
