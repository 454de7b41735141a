"""Bessel functions of order 0 and 1 and the Airy function, on arrays of f64."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from assay.ir.dtypes import Array

_FAR = 25.0
"""From here on asymptotic series are exact to the last bit."""


def _series(order: int, x: Array, sign: float, weights: Iterable[float] | None = None) -> Array:
    """Σ wₖ (± x² / 4)ᵏ / (k! (k + order)!), times (x / 2)^order."""
    quarter = sign * np.square(x) / 4
    term = np.power(x / 2, order) / math.factorial(order)
    total = np.zeros_like(x)
    for k, weight in enumerate(weights or [1.0] * 90):
        total = total + weight * term
        term = term * quarter / ((k + 1) * (k + 1 + order))
    return total


def _hankel(order: float, x: Array, sign: float, terms: int = 30) -> tuple[Array, Array]:
    """The sums over the even and over the odd terms of Hankel's asymptotic series; signs alternate by pairs if −1."""
    term, sums = np.ones_like(x), [np.zeros_like(x), np.zeros_like(x)]
    for k in range(terms):
        sums[k % 2] = sums[k % 2] + (sign if k % 4 >= 2 else 1.0) * term
        term = term * (4 * order * order - (2 * k + 1) ** 2) / ((k + 1) * 8 * x)
    return sums[0], sums[1]


def scaled_bessel_i(order: int, x: Array) -> Array:
    """e^−|x| · I(x)."""
    size = np.abs(x)
    near, far = np.minimum(size, _FAR), np.maximum(size, _FAR)
    even, odd = _hankel(order, far, 1.0)
    asymptotic = (even - odd) / np.sqrt(2 * math.pi * far)
    result = np.where(size < _FAR, _series(order, near, 1.0) * np.exp(-near), asymptotic)
    return _odd_if(order, x, result)


def bessel_i(order: int, x: Array) -> Array:
    """The modified Bessel function of the first kind."""
    size = np.abs(x)
    half = np.exp(size / 2)  # in two steps, so that e^x does not overflow before the result does
    near = _series(order, np.minimum(size, _FAR), 1.0)
    result = np.where(size < _FAR, near, scaled_bessel_i(order, size) * half * half)
    return _odd_if(order, x, np.where(np.isinf(x), np.inf, result))


def _odd_if(order: int, x: Array, result: Array) -> Array:
    result = np.where(np.isnan(x), x, result)
    return np.where(x < 0, -result, result) if order % 2 else result


def _recurred(x: Array) -> list[Array]:
    """J₀ … J₈₀ by Miller's backward recurrence, for x from 1 to 25."""
    ahead, here = np.zeros_like(x), np.full_like(x, 1e-150)
    found = [here]
    for k in range(80, 0, -1):
        ahead, here = here, 2 * k / x * here - ahead
        found.append(here)
    found.reverse()
    norm = found[0] + 2 * np.sum(found[2::2], axis=0)
    return [value / norm for value in found]


def _waves(order: int, x: Array) -> tuple[Array, Array]:
    """Hankel's asymptotic series of J and Y."""
    even, odd = _hankel(order, x, -1.0)
    turn = (order / 2 + 0.25) * math.pi
    cosine = np.cos(x) * math.cos(turn) + np.sin(x) * math.sin(turn)
    sine = np.sin(x) * math.cos(turn) - np.cos(x) * math.sin(turn)
    scale = np.sqrt(2 / (math.pi * x))
    return scale * (even * cosine - odd * sine), scale * (even * sine + odd * cosine)


def bessel_j(order: int, x: Array) -> Array:
    """The Bessel function of the first kind."""
    size = np.abs(x)
    near = _series(order, np.minimum(size, 1.0), -1.0, [1.0] * 15)
    middle = _recurred(np.clip(size, 1.0, _FAR))[order]
    far = np.where(np.isinf(size), 0.0, _waves(order, np.maximum(size, _FAR))[0])
    result = _odd_if(order, x, np.where(size < 1, near, np.where(size < _FAR, middle, far)))
    return np.where(x == 0, x, result) if order % 2 else result


def bessel_y(order: int, x: Array) -> Array:
    """The Bessel function of the second kind; −∞ at 0, NaN below."""
    near = _y_near(order, np.where((x > 0) & (x < 1), x, 0.5))
    middle = _y_middle(order, np.clip(x, 1.0, _FAR))
    far = np.where(np.isinf(x), 0.0, _waves(order, np.maximum(x, _FAR))[1])
    result = np.where(x < 1, near, np.where(x < _FAR, middle, far))
    return np.where(x > 0, result, np.where(x == 0, -np.inf, np.nan))


def _harmonic(order: int, count: int) -> list[float]:
    """ψ(k + 1) + ψ(k + order + 1), for k = 0, 1, …"""
    sums = [0.0]
    for k in range(1, count + order + 1):
        sums.append(sums[-1] + 1 / k)
    return [sums[k] + sums[k + order] - 2 * np.euler_gamma for k in range(count)]


def _y_near(order: int, x: Array) -> Array:
    log_part = 2 / math.pi * np.log(x / 2) * _series(order, x, -1.0, [1.0] * 15)
    pole = 2 / (math.pi * x) if order else 0.0
    return log_part - pole - _series(order, x, -1.0, _harmonic(order, 15)) / math.pi


def _y_middle(order: int, x: Array) -> Array:
    """Neumann's series in Bessel functions of the first kind, which are never large."""
    found = _recurred(x)
    rising = np.log(x / 2) + np.euler_gamma
    if order == 0:
        rest = sum(((-1) ** k / k * found[2 * k] for k in range(1, 40)), start=np.zeros_like(x))
        return 2 / math.pi * rising * found[0] - 4 / math.pi * rest
    terms = ((-1) ** k * (2 * k + 1) / (k * (k + 1)) * found[2 * k + 1] for k in range(1, 40))
    rest = sum(terms, start=np.zeros_like(x))
    return 2 / math.pi * ((rising - 1) * found[1] - found[0] / x - rest)


def _k_integral(order: float, x: Array) -> Array:
    """eˣ K(x) = ∫ exp(−2 x sinh²(t / 2)) cosh(order · t) dt over t ≥ 0, for x from 1 on: the trapezoidal rule
    converges faster than any power of its step."""
    step = 0.18 / np.sqrt(x)
    total = np.full_like(x, 0.5)
    for i in range(1, 60):
        t = i * step
        total = total + np.exp(-2 * x * np.square(np.sinh(t / 2))) * np.cosh(order * t)
    return total * step


def _k_near(order: int, x: Array) -> Array:
    log_part = np.log(x / 2) * _series(order, x, 1.0, [1.0] * 15)
    rest = _series(order, x, 1.0, _harmonic(order, 15)) / 2
    return 1 / x + log_part - rest if order else rest - log_part


def scaled_bessel_k(order: int, x: Array) -> Array:
    """eˣ · K(x); ∞ at 0, NaN below."""
    small = np.where((x > 0) & (x < 1), x, 0.5)
    large = np.where(x < np.inf, np.maximum(x, 1.0), 1.0)
    result = np.where(x < 1, np.exp(small) * _k_near(order, small), _k_integral(order, large))
    ends = np.where(x == np.inf, 0.0, np.where(x == 0, np.inf, np.nan))
    return np.where((x > 0) & (x < np.inf), result, ends)


def bessel_k(order: int, x: Array) -> Array:
    """The modified Bessel function of the second kind; ∞ at 0, NaN below."""
    return np.where(x == 0, np.inf, np.exp(-x) * scaled_bessel_k(order, x))


_AI_0, _AI_SLOPE = 0.355028053887817239, 0.258819403792806798
"""Ai(0) and −Ai′(0)."""


def airy_ai(x: Array) -> Array:
    """The Airy function Ai."""
    middle = np.clip(x, -8.0, 2.0)
    cube = middle**3
    first, second = np.full_like(middle, _AI_0), _AI_SLOPE * middle
    total = np.zeros_like(middle)
    for k in range(60):
        total = total + first - second
        first = first * cube / ((3 * k + 2) * (3 * k + 3))
        second = second * cube / ((3 * k + 3) * (3 * k + 4))
    above = np.maximum(np.where(np.isfinite(x), x, 2.0), 2.0)
    rise = 2 / 3 * above * np.sqrt(above)
    right = np.sqrt(above / 3) / math.pi * np.exp(-rise) * _k_integral(1 / 3, rise)
    below = np.maximum(-np.where(np.isfinite(x), x, -8.0), 8.0)
    phase = 2 / 3 * below * np.sqrt(below)
    even, odd = _hankel(1 / 3, phase, -1.0, 16)
    angle = phase - math.pi / 4
    left = (even * np.cos(angle) - odd * np.sin(angle)) / np.sqrt(math.pi * np.sqrt(below))
    result = np.where(x < -8, left, np.where(x <= 2, total, right))
    return np.where(np.isnan(x), x, np.where(np.isinf(x), 0.0, result))


def spherical_j0(x: Array) -> Array:
    """sin(x) / x, 1 at 0 and 0 at ±∞."""
    plain = np.where((x == 0) | np.isinf(x), 1.0, x)
    return np.where(x == 0, 1.0, np.where(np.isinf(x), 0.0, np.sin(plain) / plain))
