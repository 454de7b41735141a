"""Elementary functions of f32 and f64, made of operations that every device rounds well.

Devices' own are off by thousands of units in the last place where the standard lets them. These are series with as many
terms as the type has digits for; each is within a few units of the last place, as `tests/targets/vulkan` measures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.targets.vulkan.code import KernelCode, ShaderValue
from assay.targets.vulkan.spirv import Ext

_MANTISSA = {"f32": 23, "f64": 52}
_BIAS = {"f32": 127, "f64": 1023}
_BITS = {"f32": "u32", "f64": "u64"}
_SIGNED = {"f32": "i32", "f64": "i64"}
_SPLIT = {"f32": 2.0**12 + 1, "f64": 2.0**27 + 1}


def _terms(value: ShaderValue, f32: int, f64: int) -> int:
    return f32 if value.kind == "f32" else f64


def _series(x: ShaderValue, coefficients: Sequence[float]) -> ShaderValue:
    """A polynomial, its constant term first."""
    s = x.shader
    found = s.value(coefficients[-1], x.kind)
    for each in reversed(coefficients[:-1]):
        found = found * x + each
    return found


def infinity(s: KernelCode, kind: str) -> ShaderValue:
    """∞."""
    return s.value(math.inf, kind)


def nan(s: KernelCode, kind: str) -> ShaderValue:
    """No number."""
    return s.value(math.nan, kind)


def absolute(x: ShaderValue) -> ShaderValue:
    """|x|."""
    return x.shader.call(Ext.FAbs, x)


def floor(x: ShaderValue) -> ShaderValue:
    """⌊x⌋."""
    return x.shader.call(Ext.Floor, x)


def trunc(x: ShaderValue) -> ShaderValue:
    """x without its fraction."""
    return x.shader.call(Ext.Trunc, x)


def sqrt(x: ShaderValue) -> ShaderValue:
    """√x."""
    return x.shader.call(Ext.Sqrt, x)


def nearest(x: ShaderValue) -> ShaderValue:
    """The nearest integer, ties to even."""
    return x.shader.call(Ext.RoundEven, x)


def is_infinite(x: ShaderValue) -> ShaderValue:
    """Whether x is +∞ or −∞."""
    return absolute(x).equals(math.inf)


def clamped(x: ShaderValue, low: float, high: float) -> ShaderValue:
    """x kept within bounds; NaN stays."""
    s = x.shader
    above = s.select(x < low, s.value(low, x.kind), x)
    return s.select(above > high, s.value(high, x.kind), above)


def sign_of(x: ShaderValue) -> ShaderValue:
    """The sign bit, in place."""
    s, bits = x.shader, _BITS[x.kind]
    return s.bitcast(x, bits) & (1 << _MANTISSA[x.kind] + (8 if x.kind == "f32" else 11))


def with_sign(size: ShaderValue, sign: ShaderValue) -> ShaderValue:
    """|size| with a sign bit as `sign_of` gives it."""
    plain = absolute(size)
    return size.shader.select(sign.differs(0), -plain, plain)


# --- powers of two


def power_of_two(s: KernelCode, exponent: ShaderValue, kind: str) -> ShaderValue:
    """2ⁿ for a normal result; n is i32."""
    shifted = exponent + _BIAS[kind]
    if kind == "f64":
        return s.bitcast(s.cast(shifted, "i64") << 52, "f64")
    return s.bitcast(shifted << 23, "f32")


def scaled(x: ShaderValue, exponent: ShaderValue) -> ShaderValue:
    """x · 2ⁿ, n being i32 and at most twice of what a normal number has."""
    s = x.shader
    half = exponent >> 1
    return x * power_of_two(s, half, x.kind) * power_of_two(s, exponent - half, x.kind)


def _parts(x: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
    """Mantissa within [√½, √2) and exponent (i32) of a positive number, tiny ones too."""
    s, kind = x.shader, x.kind
    digits, least = _MANTISSA[kind], 2.0 ** (1 - _BIAS[kind])
    lift = digits + 2
    tiny = x < least
    normal = s.select(tiny, x * 2.0**lift, x)
    bits = s.bitcast(normal, _SIGNED[kind])
    moved = bits + ((_BIAS[kind] << digits) - _root_half(kind))
    exponent = s.cast(moved >> digits, "i32") - _BIAS[kind]
    mantissa = s.bitcast((moved & ((1 << digits) - 1)) + _root_half(kind), kind)
    return mantissa, s.select(tiny, exponent - lift, exponent)


def _root_half(kind: str) -> int:
    """The bits of √½."""
    return {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}[kind]


# --- exponentials

_LN2 = {"f32": (0.693145751953125, 1.42860682030941723212e-6), "f64": (0.6931471803691238, 1.9082149292705877e-10)}


def _reduced(x: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
    """n and r with x = n · ln 2 + r, |r| ≤ ½ ln 2."""
    s, (high, low) = x.shader, _LN2[x.kind]
    whole = nearest(x * (1 / math.log(2)))
    return s.cast(whole, "i32"), (x - whole * high) - whole * low


def _grown(r: ShaderValue) -> ShaderValue:
    """eʳ − 1 for small r."""
    count = _terms(r, 8, 15)
    return r * _series(r, [1 / math.factorial(n) for n in range(1, count)])


def exp(x: ShaderValue) -> ShaderValue:
    """eˣ."""
    inside = clamped(x, *((-105.0, 90.0) if x.kind == "f32" else (-750.0, 711.0)))
    n, r = _reduced(inside)
    return scaled(_grown(r) + 1.0, n)


def expm1(x: ShaderValue) -> ShaderValue:
    """eˣ − 1."""
    s = x.shader
    inside = clamped(x, *((-30.0, 90.0) if x.kind == "f32" else (-50.0, 711.0)))
    n, r = _reduced(inside)
    half = power_of_two(s, n - 1, x.kind)
    found = (_grown(r) * half + (half - 0.5)) * 2.0
    found = s.select(x > (89.0 if x.kind == "f32" else 710.0), infinity(s, x.kind), found)
    return s.select(absolute(x) < 0.25, _grown(x), found)


# --- logarithms


def _log_series(q: ShaderValue) -> ShaderValue:
    """(atanh(s) / s − 1) / q for q = s²."""
    return _series(q, [1 / (2 * n + 1) for n in range(1, _terms(q, 5, 12))])


def _log_limits(x: ShaderValue, found: ShaderValue) -> ShaderValue:
    s = x.shader
    high = s.select(x.equals(math.inf), x, found)
    zero = s.select(x.equals(0.0), -infinity(s, x.kind), high)
    return s.select((x < 0.0) | s.is_nan(x), nan(s, x.kind), zero)


def log(x: ShaderValue) -> ShaderValue:
    """The natural logarithm."""
    s, (high, low) = x.shader, _LN2[x.kind]
    mantissa, exponent = _parts(x)
    n, f = s.cast(exponent, x.kind), mantissa - 1.0
    ratio = f / (f + 2.0)
    q = ratio * ratio
    found = n * high + (f - (ratio * (f - 2.0 * q * _log_series(q)) - n * low))
    return _log_limits(x, found)


def log1p(x: ShaderValue) -> ShaderValue:
    """log(1 + x)."""
    s = x.shader
    whole = x + 1.0
    lost = (whole - 1.0) - x
    found = log(whole) - lost / whole
    tiny = absolute(x) < (2.0**-12 if x.kind == "f32" else 2.0**-27)
    special = s.select(x.equals(math.inf) | (x <= -1.0), log(whole), found)
    return s.select(tiny, x - x * x * 0.5, special)


# --- powers


def _product(a: ShaderValue, b: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
    """a · b as a rounded product and what it lacks."""

    def halves(x: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
        wide = x * _SPLIT[x.kind]
        high = wide - (wide - x)
        return high, x - high

    whole, (a1, a2), (b1, b2) = a * b, halves(a), halves(b)
    return whole, ((a1 * b1 - whole) + a1 * b2 + a2 * b1) + a2 * b2


def _log_pair(x: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
    """The logarithm of a positive number as a sum of two."""
    s, (high, low) = x.shader, _LN2[x.kind]
    mantissa, exponent = _parts(x)
    n, f = s.cast(exponent, x.kind), mantissa - 1.0
    under = f + 2.0
    under_lost = f - (under - 2.0)
    ratio = f / under
    back, back_lost = _product(ratio, under)
    ratio_low = (((f - back) - back_lost) - ratio * under_lost) / under
    q, q_low = _product(ratio, ratio)
    rest = ratio * 2.0 * q * _log_series(q) + ratio * 2.0 * q_low * (1 / 3)
    first = n * high
    top = first + ratio * 2.0
    lost = (first - top) + ratio * 2.0
    lost = s.select(absolute(first) >= absolute(ratio * 2.0), lost, (ratio * 2.0 - top) + first)
    bottom = lost + (rest + ratio_low * 2.0 + n * low)
    whole = top + bottom
    return whole, (top - whole) + bottom


_WHOLE = {"f32": 2.0**24, "f64": 2.0**53}
"""Up to here every whole number is one of the kind."""


def _wide_power(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    """xʸ of positive numbers by way of f64."""
    s = x.shader
    return s.cast(exp(s.cast(y, "f64") * log(s.cast(x, "f64"))), "f32")


def _own_power(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    """xʸ of positive numbers, the logarithm being carried in two numbers."""
    s, kind = x.shader, x.kind
    high, low = _log_pair(x)
    limit = 200.0 if kind == "f32" else 1500.0
    bounded = s.select(absolute(y * high) > limit, s.value(0.0, kind), y)
    top, lost = _product(bounded, high)
    lost = lost + bounded * low
    found = exp(top)
    found = found + found * lost
    beyond = s.select((y * high) > 0.0, infinity(s, kind), s.value(0.0, kind))
    found = s.select(absolute(y * high) > limit, beyond, found)
    count = s.select((y >= 1.0) & (y < 64.0) & floor(y).equals(y), y, s.value(0.0, kind))
    exact = _repeated_product(x, s.cast(count, "u32"))
    return s.select((count > 0.0) & floor(x).equals(x) & (exact < _WHOLE[kind]), exact, found)


def _repeated_product(x: ShaderValue, count: ShaderValue) -> ShaderValue:
    """x multiplied with itself: without an error as long as the result is a whole number that the kind holds."""
    s = x.shader
    left, square, found = s.variable("u32", count), s.variable(x.kind, x), s.variable(x.kind, 1.0)
    with s.looping(lambda: left.get() > 0):
        odd = (left.get() & 1).differs(0)
        found.set(s.select(odd, found.get() * square.get(), found.get()))
        square.set(square.get() * square.get())
        left.set(left.get() >> 1)
    return found.get()


def power(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    """xʸ."""
    s, kind = x.shader, x.kind
    size = absolute(x)
    found = _wide_power(size, y) if kind == "f32" and s.profile.f64 else _own_power(size, y)
    grows = (size > 1.0).equals(y > 0.0)
    at_infinity = s.select(grows, infinity(s, kind), s.value(0.0, kind))
    one = size.equals(1.0)
    found = s.select(is_infinite(y), s.select(one, s.value(1.0, kind), at_infinity), found)
    edge = s.select((y > 0.0).equals(size.equals(0.0)), s.value(0.0, kind), infinity(s, kind))
    found = s.select(size.equals(0.0) | size.equals(math.inf), edge, found)
    whole = floor(y).equals(y)
    odd = whole & (floor(y * 0.5) * 2.0).differs(y) & ~is_infinite(y)
    signed = s.select(odd & sign_of(x).differs(0), -found, found)
    negative = (x < 0.0) & ~whole & (size < math.inf)
    found = s.select(negative, nan(s, kind), signed)
    found = s.select(s.is_nan(x) | s.is_nan(y), nan(s, kind), found)
    return s.select(y.equals(0.0) | x.equals(1.0), s.value(1.0, kind), found)


# --- angles

_QUARTER = {
    "f32": (1.5703125, 4.837512969970703125e-4, 7.54978995489188e-8),
    "f64": (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
}


def _quadrant(x: ShaderValue) -> tuple[ShaderValue, ShaderValue]:
    """n (i32) and r with x = n · ½π + r, |r| ≤ ¼π; f32 by way of f64 where there is one."""
    s = x.shader
    wide = s.cast(x, "f64") if x.kind == "f32" and s.profile.f64 else x
    whole = nearest(wide * (2 / math.pi))
    rest = wide
    for part in _QUARTER[wide.kind]:
        rest = rest - whole * part
    turns = whole - floor(whole * 0.25) * 4.0
    inside = s.select(is_infinite(x) | s.is_nan(x), s.value(0.0, wide.kind), turns)
    return s.cast(inside, "i32"), s.cast(rest, x.kind)


def _sine(r: ShaderValue) -> ShaderValue:
    q = r * r
    odd = [(-1) ** n / math.factorial(2 * n + 1) for n in range(1, _terms(r, 5, 9))]
    return r + r * q * _series(q, odd)


def _cosine(r: ShaderValue) -> ShaderValue:
    q = r * r
    even = [(-1) ** n / math.factorial(2 * n) for n in range(2, _terms(r, 6, 10))]
    return 1.0 - (q * 0.5 - q * q * _series(q, even))


def _wave(x: ShaderValue, ahead: int) -> ShaderValue:
    s = x.shader
    n, r = _quadrant(x)
    n = n + ahead
    found = s.select((n & 1).equals(0), _sine(r), _cosine(r))
    found = s.select((n & 2).equals(0), found, -found)
    return s.select(is_infinite(x) | s.is_nan(x), nan(s, x.kind), found)


def sin(x: ShaderValue) -> ShaderValue:
    """The sine, that of −0 being −0."""
    return x.shader.select(x.equals(0.0), x, _wave(x, 0))


def cos(x: ShaderValue) -> ShaderValue:
    """The cosine."""
    return _wave(x, 1)


def atan(x: ShaderValue) -> ShaderValue:
    """The arc tangent."""
    s = x.shader
    size = absolute(x)
    inverted = size > 1.0
    near = s.select(inverted, 1.0 / size, size)
    turned = near > math.tan(math.pi / 8)
    t = s.select(turned, (near - 1.0) / (near + 1.0), near)
    q = t * t
    base = t + t * q * _series(q, [(-1) ** n / (2 * n + 1) for n in range(1, _terms(x, 10, 22))])
    base = s.select(turned, base + math.pi / 4, base)
    found = s.select(inverted, (math.pi / 2 - base), base)
    return s.select(s.is_nan(x), x, with_sign(found, sign_of(x)))


# --- others


def tanh(x: ShaderValue) -> ShaderValue:
    """The hyperbolic tangent."""
    s = x.shader
    size = clamped(absolute(x), 0.0, 10.0 if x.kind == "f32" else 22.0)
    grown = expm1(size * 2.0)
    return s.select(s.is_nan(x), x, with_sign(grown / (grown + 2.0), sign_of(x)))


_ERFC = (
    -1.3026537197817094,
    0.6419697923564902,
    0.019476473204185836,
    -0.009561514786808632,
    -0.0009465953444820369,
    0.00036683949785276145,
    4.252332480690777e-05,
    -2.0278578112534242e-05,
    -1.6242900046470256e-06,
    1.3036558355805232e-06,
    1.5626441722066142e-08,
    -8.523809591492654e-08,
    6.5290544390988515e-09,
    5.059343495551469e-09,
    -9.91364156493033e-10,
    -2.273651222931836e-10,
    9.646791102015527e-11,
    2.3940380830391146e-12,
    -6.886027526497553e-12,
    8.944879273090725e-13,
    3.130921399342958e-13,
    -1.1270822361367252e-13,
    3.810905255189232e-16,
    7.106097613609237e-15,
    -1.5230282014571043e-15,
    -9.457494571291233e-17,
    1.210237189224279e-16,
    -2.816663087747177e-17,
)
"""log(erfc(x) / t) + x² for t = 2 / (2 + x), as Chebyshev's polynomials of 4t − 2."""


def lacking(size: ShaderValue) -> ShaderValue:
    """1 − erf(x) for x ≥ 0, all its digits good."""
    t = 2.0 / (size + 2.0)
    y = t * 4.0 - 2.0
    first, *rest = _ERFC[: _terms(size, 11, 28)]
    b1 = b2 = size.shader.value(0.0, size.kind)
    for each in reversed(rest):
        b1, b2 = y * b1 - b2 + each, b1
    return t * exp((y * b1 + first) * 0.5 - b2 - size * size)


def erf(x: ShaderValue) -> ShaderValue:
    """The error function: its series near 0, else what is lacking to 1."""
    s, size = x.shader, absolute(x)
    scale = 2 / math.sqrt(math.pi)
    terms = [scale * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(_terms(x, 7, 13))]
    found = s.select(size < 0.5, size * _series(size * size, terms), 1.0 - lacking(size))
    return s.select(s.is_nan(x), x, with_sign(found, sign_of(x)))


def sigmoid(x: ShaderValue) -> ShaderValue:
    """1 / (1 + e⁻ˣ)."""
    s = x.shader
    small = exp(-absolute(x))
    return s.select(x < 0.0, small, s.value(1.0, x.kind)) / (small + 1.0)


def remainder(x: ShaderValue, y: ShaderValue) -> ShaderValue:
    """x − ⌊|x| / |y|⌋ · |y| with the sign of x: exact, by long division."""
    s, kind = x.shader, x.kind
    digits, bits = _MANTISSA[kind], _SIGNED[kind]
    strange = s.is_nan(x) | s.is_nan(y) | is_infinite(x) | y.equals(0.0)
    divisor = s.select(strange, s.value(1.0, kind), absolute(y))
    rest = s.variable(kind, s.select(strange, s.value(0.0, kind), absolute(x)))

    def exponent(value: ShaderValue) -> ShaderValue:
        return s.bitcast(value, bits) >> digits

    with s.looping(lambda: rest.get() >= divisor):
        left = rest.get()
        shift = s.cast(exponent(left) - exponent(divisor), "i32")
        near = scaled(divisor, s.greatest(shift, 0))
        rest.set(left - s.select(near > left, scaled(divisor, s.greatest(shift - 1, 0)), near))
    return s.select(strange, nan(s, kind), with_sign(rest.get(), sign_of(x)))
