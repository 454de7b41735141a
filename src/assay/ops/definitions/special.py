"""Special functions of real numbers that have no sensible decomposition: the host computes them, in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from assay.ir.dtypes import FLOATS, INTEGERS, Array
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops import samples as make
from assay.ops.definitions.bessel import (
    airy_ai,
    bessel_i,
    bessel_j,
    bessel_k,
    bessel_y,
    scaled_bessel_i,
    scaled_bessel_k,
    spherical_j0,
)
from assay.ops.definitions.elementwise import Binary, Unary
from assay.ops.definitions.polynomials import chebyshev, hermite, laguerre, legendre
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Range
from assay.ops.shapes import broadcasting, same

# --- the error function's relatives

_SQRT_PI = math.sqrt(math.pi)
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _erf_of(x: Array) -> Array:
    return np.asarray(_erf(x), np.float64)


def _erfc_of(x: Array) -> Array:
    return np.asarray(_erfc(x), np.float64)


def _erfcx(x: Array) -> Array:
    size = np.abs(x)
    near = np.exp(np.square(np.minimum(size, 5.0))) * _erfc_of(np.minimum(size, 5.0))
    far = np.maximum(size, 5.0)
    fraction = np.zeros_like(far)
    for k in range(60, 0, -1):  # Laplace's continued fraction
        fraction = (k / 2) / (far + fraction)
    positive = np.where(size < 5.0, near, 1 / (_SQRT_PI * (far + fraction)))
    return np.where(np.isnan(x), x, np.where(x < 0, 2 * np.exp(np.square(x)) - positive, positive))


def _erfinv(x: Array) -> Array:
    """Giles' first guess, then Halley's steps on erf, or on erfc where x is near ±1."""
    size = np.abs(x)
    inside = np.where(size < 1, size, 0.0)
    w = -np.log1p(-np.square(inside))
    middle = 2 / (math.pi * 0.147) + np.where(inside > 0, -w, 0.0) / 2
    guess = np.sqrt(np.sqrt(np.square(middle) + w / 0.147) - middle)
    for _ in range(4):
        error = np.where(inside < 0.5, _erf_of(guess) - inside, (1 - inside) - _erfc_of(guess))
        step = error * (_SQRT_PI / 2) * np.exp(np.square(guess))
        guess = guess - step / (1 + guess * step)
    ends = np.where(size == 1, np.inf, np.nan)
    return np.copysign(np.where(size < 1, guess, ends), x)


_TAIL: tuple[float, ...] = (
    -7.784894002430293e-3,
    -3.223964580411365e-1,
    -2.400758277161838,
    -2.549732539343734,
    4.374664141464968,
    2.938163982698783,
)
_TAIL_BELOW = (7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0)
_BODY: tuple[float, ...] = (
    -3.969683028665376e1,
    2.209460984245205e2,
    -2.759285104469687e2,
    1.383577518672690e2,
    -3.066479806614716e1,
    2.506628277459239,
)
_BODY_BELOW: tuple[float, ...] = (
    -5.447609879822406e1,
    1.615858368580409e2,
    -1.556989798598866e2,
    6.680131188771972e1,
    -1.328068155288572e1,
    1.0,
)


def _ndtri(p: Array) -> Array:
    """Acklam's rational guess, then one step of Halley's on erfc."""
    upper = p > 0.5
    low = np.where(upper, 1 - p, p)
    q = np.sqrt(-2 * np.log(np.where(low > 0, low, 0.1)))
    tail = np.polyval(_TAIL, q) / np.polyval(_TAIL_BELOW, q)
    centred = low - 0.5
    r = np.square(centred)
    body = np.polyval(_BODY, r) * centred / np.polyval(_BODY_BELOW, r)
    guess = np.where(low < 0.02425, tail, body)
    step = (0.5 * _erfc_of(-guess / math.sqrt(2)) - low) * math.sqrt(2 * math.pi) * np.exp(np.square(guess) / 2)
    better = guess - step / (1 + guess * step / 2)
    found = np.where(np.isfinite(better), better, guess)
    signed = np.where(upper, -found, found)
    ends = np.where(p == 0, -np.inf, np.where(p == 1, np.inf, np.nan))
    return np.where((p > 0) & (p < 1), signed, ends)


# --- the gamma function's relatives


def _lgamma_one(x: float) -> float:
    if x <= 0 and x == math.floor(x):
        return math.inf
    return math.lgamma(x)


_lgamma = np.frompyfunc(_lgamma_one, 1, 1)


def _lgamma_of(x: Array) -> Array:
    finite = np.isfinite(x)
    return np.where(finite, np.asarray(_lgamma(np.where(finite, x, 1.0)), np.float64), np.abs(x))


_DIGAMMA_TERMS = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B₂ₖ / 2k of the asymptotic series."""


def _digamma(x: Array) -> Array:
    pole = (x <= 0) & (x == np.floor(x))
    mirrored = x < 0
    above = np.where(mirrored, 1 - x, np.where(x > 0, x, 1.0))
    shift = np.zeros_like(above)
    for _ in range(10):
        small = above < 10
        shift = shift - np.where(small, 1 / above, 0.0)
        above = above + small
    inverse = 1 / np.square(above)
    series = inverse * np.polyval(_DIGAMMA_TERMS[::-1], inverse)
    result = np.log(above) - 0.5 / above - series + shift
    turned = result - math.pi / np.tan(math.pi * (x - np.floor(x)))
    result = np.where(mirrored, turned, result)
    ends = np.where(x == 0, np.copysign(np.inf, -x), np.nan)
    return np.where(np.isnan(x) | (x == -np.inf), np.nan, np.where(pole, ends, np.where(x == np.inf, np.inf, result)))


_ZETA_TERMS: tuple[float, ...] = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
)
"""(2k)! / B₂ₖ of the Euler-Maclaurin sum."""


def _zeta(x: Array, q: Array) -> Array:
    """Hurwitz' zeta by the sum of the terms below q + 10 and Euler and Maclaurin's for the rest."""
    x, q = np.broadcast_arrays(x, q)
    whole = (q <= 0) & (q == np.floor(q))
    defined = (x > 1) & ~whole & ~((q <= 0) & (x != np.floor(x)))
    power, start = np.where(defined, x, 2.0), np.where(defined, q, 1.0)
    total, at = np.zeros_like(power), start
    going, settled = np.ones(power.shape, np.bool_), np.zeros(power.shape, np.bool_)
    for count in range(100_000):
        if not going.any():
            break
        term = np.power(at, -power)
        total = np.where(going, total + term, total)
        settled = settled | (going & (np.abs(term) <= 1e-18 * np.abs(total)))
        reached = settled | ((count >= 9) & (at > 9))
        at = np.where(going & ~reached, at + 1, at)
        going = going & ~reached
    last = np.where(settled, 0.0, np.power(at, -power))
    total = total + last * at / (power - 1) - 0.5 * last
    factor, k = np.ones_like(power), 0.0
    for coefficient in _ZETA_TERMS:
        factor = factor * (power + k)
        last = last / at
        total = total + factor * last / coefficient
        factor, last, k = factor * (power + k + 1), last / at, k + 2
    limit = np.where(start < 1, np.inf, np.where(start == 1, 1.0, 0.0))
    found = np.where(np.isinf(power) | np.isinf(start), limit, np.where(np.isnan(total), np.inf, total))
    ends = np.where((x == 1) | ((x > 1) & whole), np.inf, np.nan)
    return np.where(defined & ~np.isnan(x) & ~np.isnan(q), found, ends)


def _gamma_series(a: Array, x: Array) -> Array:
    """Σ xᵏ / (a + 1)…(a + k), for x below a + 1."""
    total, term, k = np.ones_like(a), np.ones_like(a), a
    for _ in range(5000):
        k = k + 1
        term = term * (x / k)
        total = total + term
        if bool(np.all(term <= 1e-17 * total)):
            break
    return total


def _gamma_fraction(a: Array, x: Array) -> Array:
    """Lentz' continued fraction, for x from a + 1 on."""
    b = x + 1 - a
    c, d = np.full_like(b, 1e300), 1 / b
    total = d
    for i in range(1, 5000):
        weight = -i * (i - a)
        b = b + 2
        d = weight * d + b
        c = b + weight / c
        d = 1 / np.where(d == 0, 1e-300, d)
        change = c * d
        total = total * change
        if bool(np.all(np.abs(change - 1) < 1e-16)):
            break
    return total


def _igamma_both(a: Array, x: Array) -> tuple[Array, Array]:
    """The regularised incomplete gamma functions, from below and from above."""
    a, x = np.broadcast_arrays(a, x)
    plain = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    shape, at = np.where(plain, a, 1.0), np.where(plain, x, 1.0)
    scale = np.exp(shape * np.log(at) - at - _lgamma_of(shape))
    near = at < shape + 1
    series = scale / shape * _gamma_series(np.where(near, shape, 2.0), np.where(near, at, 1.0))
    fraction = scale * _gamma_fraction(np.where(near, 1.0, shape), np.where(near, 3.0, at))
    lower = np.where(near, series, 1 - fraction)
    upper = np.where(near, 1 - series, fraction)
    invalid = np.isnan(a) | np.isnan(x) | (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
    ends = np.where(np.isinf(a) | ((x == 0) & (a > 0)), 0.0, 1.0)
    lower, upper = np.where(plain, lower, ends), np.where(plain, upper, 1 - ends)
    return np.where(invalid, np.nan, lower), np.where(invalid, np.nan, upper)


def _polygamma(x: Array, order: int) -> Array:
    if order == 0:
        return _digamma(x)
    mirrored = (x < 0.5) & (order == 1)
    sums = math.exp(math.lgamma(order + 1)) * _zeta(np.asarray(order + 1.0), np.where(mirrored, 1 - x, x))
    signed = sums if order % 2 else -sums
    sine = np.sin(math.pi * (x - np.floor(x)))
    return np.where(mirrored, np.square(math.pi / sine) - signed, signed)


# --- tables

# name: (documentation, function in f64, sample range)
_UNARY: dict[str, tuple[str, Unary, Range]] = {
    "airy_ai": ("The Airy function Ai.", airy_ai, (-12, 6)),
    "bessel_i0": ("The modified Bessel function I₀.", lambda x: bessel_i(0, x), (-30, 30)),
    "bessel_i0e": ("e^−|x| · I₀(x).", lambda x: scaled_bessel_i(0, x), (-30, 30)),
    "bessel_i1": ("The modified Bessel function I₁.", lambda x: bessel_i(1, x), (-30, 30)),
    "bessel_i1e": ("e^−|x| · I₁(x).", lambda x: scaled_bessel_i(1, x), (-30, 30)),
    "bessel_j0": ("The Bessel function J₀.", lambda x: bessel_j(0, x), (-40, 40)),
    "bessel_j1": ("The Bessel function J₁.", lambda x: bessel_j(1, x), (-40, 40)),
    "bessel_k0": ("The modified Bessel function K₀.", lambda x: bessel_k(0, x), (0, 9)),
    "bessel_k0e": ("eˣ · K₀(x).", lambda x: scaled_bessel_k(0, x), (0, 9)),
    "bessel_k1": ("The modified Bessel function K₁.", lambda x: bessel_k(1, x), (0, 9)),
    "bessel_k1e": ("eˣ · K₁(x).", lambda x: scaled_bessel_k(1, x), (0, 9)),
    "bessel_y0": ("The Bessel function Y₀.", lambda x: bessel_y(0, x), (0, 40)),
    "bessel_y1": ("The Bessel function Y₁.", lambda x: bessel_y(1, x), (0, 40)),
    "digamma": ("The logarithmic derivative of Γ; ∓∞ at ±0, NaN at the other poles.", _digamma, (-4, 9)),
    "erfc": ("1 − erf(x), accurate for large x.", _erfc_of, (-4, 9)),
    "erfcx": ("exp(x²) · erfc(x).", _erfcx, (-4, 9)),
    "erfinv": ("The inverse of erf; ±∞ at ±1.", _erfinv, (-1, 1)),
    "lgamma": ("log |Γ(x)|; ∞ at the poles.", _lgamma_of, (-4, 9)),
    "ndtri": ("The quantile function of the normal distribution.", _ndtri, (0, 1)),
    "spherical_bessel_j0": ("sin(x) / x, 1 at 0.", spherical_j0, (-9, 9)),
}

_BINARY: dict[str, tuple[str, Binary, Range]] = {
    "igamma": ("The regularised lower incomplete gamma function P(x, y).", lambda a, x: _igamma_both(a, x)[0], (0, 9)),
    "igammac": ("The regularised upper incomplete gamma function Q(x, y).", lambda a, x: _igamma_both(a, x)[1], (0, 9)),
    "zeta": ("Hurwitz' zeta function Σ (k + y)⁻ˣ over k ≥ 0.", _zeta, (1.1, 9)),
    "chebyshev_t": ("The Chebyshev polynomial of the first kind of degree y.", chebyshev("t"), (-1, 9)),
    "chebyshev_u": ("The Chebyshev polynomial of the second kind of degree y.", chebyshev("u"), (-1, 9)),
    "chebyshev_v": ("The Chebyshev polynomial of the third kind of degree y.", chebyshev("v"), (-1, 9)),
    "chebyshev_w": ("The Chebyshev polynomial of the fourth kind of degree y.", chebyshev("w"), (-1, 9)),
    "hermite_h": ("The physicists' Hermite polynomial of degree y.", hermite(2.0), (-1, 9)),
    "hermite_he": ("The probabilists' Hermite polynomial of degree y.", hermite(1.0), (-1, 9)),
    "laguerre_l": ("The Laguerre polynomial of degree y.", laguerre, (-1, 9)),
    "legendre_p": ("The Legendre polynomial of degree y.", legendre, (-1, 9)),
}

_INTEGER: dict[str, tuple[str, Binary]] = {
    "gcd": ("The greatest common divisor, never negative.", np.gcd),
    "lcm": ("The least common multiple, never negative.", np.lcm),
}


def _documented(function: Callable[..., Any], doc: str, inputs: int) -> Callable[..., Any]:
    def unary(x: Array) -> Any:
        return function(x)

    def binary(x: Array, y: Array) -> Any:
        return function(x, y)

    wrapped = unary if inputs == 1 else binary
    wrapped.__doc__ = doc
    return wrapped


def _define() -> None:
    wide: dict[str, Any] = {"compute": Compute.WIDE, "tolerance": Tolerance.FUNCTION, "host": True, "T": FLOATS}
    for name, (doc, function, (low, high)) in _UNARY.items():
        op("T -> T", name=name, shape=same, samples=make.elementwise(1, low, high), **wide)(
            _documented(function, doc, 1)
        )
    for name, (doc, function, (low, high)) in _BINARY.items():
        op("T, T -> T", name=name, shape=broadcasting, samples=make.elementwise(2, low, high), **wide)(
            _documented(function, doc, 2)
        )
    for name, (doc, function) in _INTEGER.items():
        op("T, T -> T", name=name, T=INTEGERS, shape=broadcasting, samples=make.elementwise(2), host=True)(
            _documented(function, doc, 2)
        )


_define()


@op(
    "T -> T",
    T=FLOATS,
    shape=same,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    host=True,
    samples=make.listed(
        lambda rng, dtype: [(make.draw(rng, dtype, (3, 4), -4, 9), {"order": order}) for order in (0, 1, 2, 5)]
    ),
)
def polygamma(x: Array, *, order: int) -> Array:
    """The derivative number `order` of digamma."""
    return _polygamma(x, order)


def _twice(x: Fact) -> list[Shape]:
    return [x.shape, x.shape]


@op(
    "T -> T, i32",
    T=FLOATS,
    shape=_twice,
    compute=Compute.WIDE,
    host=True,
    samples=lambda rng, dtype: [Sample((make.draw(rng, dtype, shape, -9, 9),)) for shape in ((3, 4), (), (0,))],
)
def frexp(x: Array) -> tuple[Array, Array]:
    """x as mantissa · 2^exponent, the mantissa being 0 or of a size in [½, 1)."""
    mantissa, exponent = np.frexp(x)
    return mantissa, exponent
