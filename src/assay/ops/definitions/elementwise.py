"""Elementwise ops: rows of tables. Composites give their parts as one expression over the builder."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, dim_max, dim_min, eq, floordiv, lt, mod
from assay.ir.dtypes import COMPLEX, FLOATS, INTEGERS, NUMERIC, TENSORS, Array, DType, boolean
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops import samples as make
from assay.ops.definitions.complex_parts import ON_COMPLEX, of_any_kind
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Range
from assay.ops.shapes import broadcasting, need_to_broadcast, same

if TYPE_CHECKING:
    from assay.ops.builder import Builder

BITS = (boolean, *INTEGERS)
COMPARABLE = (*NUMERIC, boolean, dtypes.string, *COMPLEX)
SIGNED = (*FLOATS, *INTEGERS)
FIELDS = (*FLOATS, *COMPLEX)

Kinds: TypeAlias = tuple[DType, ...]
Unary: TypeAlias = Callable[[Array], Any]
Binary: TypeAlias = Callable[[Array, Array], Any]
UnaryParts: TypeAlias = Callable[[Any, Any], Any]
BinaryParts: TypeAlias = Callable[[Any, Any, Any], Any]
OnDims: TypeAlias = Callable[..., Any] | bool

_erf = np.frompyfunc(math.erf, 1, 1)


def _erf_f64(x: Array) -> Array:
    return np.asarray(_erf(x), dtype=np.float64)


def _int_div(x: Array, y: Array) -> Array:
    """Integer division that truncates; x/0 is 0."""
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "u":
        return quotient
    inexact = (quotient * y != x) & (y != 0)
    return quotient + (inexact & (quotient < 0)).astype(x.dtype)


def _div(x: Array, y: Array) -> Array:
    return _int_div(x, y) if x.dtype.kind in "iu" else np.divide(_rounded_once(x), y)


def _mul(x: Array, y: Array) -> Array:
    return np.multiply(_rounded_once(x), y)


def _sqrt(x: Array) -> Array:
    return np.sqrt(_rounded_once(x))


def _rounded_once(x: Array) -> Array:
    """An operand with which a product or quotient is computed so that it rounds but once: complex ones need it."""
    return x.astype(np.complex128) if x.dtype == np.complex64 else x


def _int_pow(x: Array, y: Array) -> Array:
    """Integer power with wrap-around; a negative exponent gives the truncated real result."""
    if y.dtype.kind == "u" or not bool(np.any(y < 0)):
        return np.power(x, y)
    positive = np.power(x, np.abs(y))
    return np.where(y >= 0, positive, np.where(np.abs(x) == 1, positive, 0)).astype(x.dtype)


def _pow(x: Array, y: Array) -> Array:
    return _int_pow(x, y) if x.dtype.kind in "iu" else np.power(x, y)


def _min(x: Array, y: Array) -> Array:
    return np.where((y < x) | (y != y), y, x)


def _max(x: Array, y: Array) -> Array:
    return np.where((y > x) | (y != y), y, x)


def _mod(x: Array, y: Array) -> Array:
    rest = np.mod(x, y)
    return np.where(rest == 0, np.copysign(rest, x), rest) if rest.dtype.kind == "f" else rest


def _shift(function: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    def shift(x: Array, y: Array) -> Array:
        width = np.asarray(8 * x.dtype.itemsize, y.dtype)
        fill = x >> (width - 1) if function is np.right_shift and x.dtype.kind == "i" else np.zeros_like(x)
        return np.where(y < width, function(x, np.minimum(y, width - 1)), fill)

    return shift


def _over_dims(function: Callable[..., Any], inputs: int) -> Callable[..., Array]:
    """`function` on dims as a function on object arrays; what cannot be decided is UNKNOWN."""

    def apply(*dims: Dim) -> Any:
        result = function(*dims)
        return UNKNOWN if result is None else result

    mapped = np.frompyfunc(apply, inputs, 1)
    return lambda *arrays: np.asarray(mapped(*arrays), dtype=object)


def _dim_div(a: Dim, b: Dim) -> Dim:
    """Truncating division, which floors only where no operand is negative."""
    if isinstance(a, int) and isinstance(b, int):
        return 0 if b == 0 else int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))
    return floordiv(a, b) if lt(a, 0) is False and lt(0, b) is True else UNKNOWN


def _dim_abs(a: Dim) -> Dim:
    return dim_max(a, -a)


def _dim_mod(a: Dim, b: Dim) -> Dim:
    """The remainder, where the divisor is surely not zero."""
    return mod(a, b) if eq(b, 0) is False else UNKNOWN


def _dim_where(condition: Any, a: Dim, b: Dim) -> Dim:
    if isinstance(condition, Expr):
        return a if eq(a, b) is True else UNKNOWN
    return a if condition else b


def _dim_and(a: Any, b: Builder) -> Any:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return 0 if a is False or b is False else UNKNOWN
    return a & b


NATIVE, WIDE = Compute.NATIVE, Compute.WIDE
EXACT, ROUNDED, FUNCTION = Tolerance.EXACT, Tolerance.ROUNDED, Tolerance.FUNCTION

# name: (documentation, dtypes, NumPy function, how it is computed, tolerance, on dims, sample range)
_UNARY_MILLI: dict[str, tuple[str, Kinds, Unary, Compute, Tolerance, OnDims, Range]] = {
    "neg": ("−x; integers wrap.", (*SIGNED, *COMPLEX), np.negative, NATIVE, EXACT, True, (-4, 4)),
    "abs": ("|x|.", SIGNED, np.abs, NATIVE, EXACT, _over_dims(_dim_abs, 1), (-4, 4)),
    "bit_not": ("Bitwise complement; on bool, logical not.", BITS, np.invert, NATIVE, EXACT, False, (-4, 4)),
    "floor": ("The largest integer not above x.", FLOATS, np.floor, NATIVE, EXACT, False, (-4, 4)),
    "round": ("The nearest integer, ties to even.", FLOATS, np.rint, NATIVE, EXACT, False, (-4, 4)),
    "sqrt": ("√x.", FIELDS, _sqrt, NATIVE, ROUNDED, False, (0, 4)),
    "exp": ("eˣ.", FIELDS, np.exp, WIDE, FUNCTION, False, (-4, 4)),
    "expm1": ("eˣ − 1, accurate near 0.", FIELDS, np.expm1, WIDE, FUNCTION, False, (-4, 4)),
    "log": ("Natural logarithm.", FIELDS, np.log, WIDE, FUNCTION, False, (0.1, 4)),
    "log1p": ("log(1 + x), accurate near 0.", FIELDS, np.log1p, WIDE, FUNCTION, False, (-0.9, 4)),
    "sin": ("Sine.", FIELDS, np.sin, WIDE, FUNCTION, False, (-4, 4)),
    "cos": ("Cosine.", FIELDS, np.cos, WIDE, FUNCTION, False, (-4, 4)),
    "atan": ("Arc tangent.", FIELDS, np.arctan, WIDE, FUNCTION, False, (-4, 4)),
    "tanh": ("Hyperbolic tangent.", FIELDS, np.tanh, WIDE, FUNCTION, False, (-4, 4)),
    "erf": ("The error function.", FLOATS, _erf_f64, WIDE, FUNCTION, False, (-4, 4)),
}

_BINARY_MILLI: dict[str, tuple[str, Kinds, Binary, Compute, Tolerance, OnDims]] = {
    "add": ("x + y; integers wrap.", (*NUMERIC, *COMPLEX), np.add, NATIVE, ROUNDED, True),
    "sub": ("x − y; integers wrap.", (*NUMERIC, *COMPLEX), np.subtract, NATIVE, ROUNDED, True),
    "mul": ("x · y; integers wrap.", (*NUMERIC, *COMPLEX), _mul, NATIVE, ROUNDED, True),
    "div": (
        "x / y; integers truncate, and x / 0 is 0.",
        (*NUMERIC, *COMPLEX),
        _div,
        NATIVE,
        ROUNDED,
        _over_dims(_dim_div, 2),
    ),
    "mod": (
        "x − ⌊x / y⌋ · y: the remainder with the sign of y, 0 with that of x; for integers x mod 0 is 0.",
        NUMERIC,
        _mod,
        WIDE,
        ROUNDED,
        _over_dims(_dim_mod, 2),
    ),
    "pow": ("xʸ.", (*NUMERIC, *COMPLEX), _pow, WIDE, FUNCTION, False),
    "min": ("The smaller, x of equal zeros; NaN if either is.", NUMERIC, _min, NATIVE, EXACT, _over_dims(dim_min, 2)),
    "max": ("The larger, x of equal zeros; NaN if either is.", NUMERIC, _max, NATIVE, EXACT, _over_dims(dim_max, 2)),
    "bit_and": ("Bitwise and; on bool, logical.", BITS, np.bitwise_and, NATIVE, EXACT, _over_dims(_dim_and, 2)),
    "bit_or": ("Bitwise or; on bool, logical.", BITS, np.bitwise_or, NATIVE, EXACT, False),
    "bit_xor": ("Bitwise exclusive or.", BITS, np.bitwise_xor, NATIVE, EXACT, False),
    "shift_left": (
        "x shifted up by y ≥ 0 bits; 0 beyond the width.",
        INTEGERS,
        _shift(np.left_shift),
        NATIVE,
        EXACT,
        False,
    ),
    "shift_right": (
        "x shifted down by y ≥ 0 bits, the sign kept; its fill beyond the width.",
        INTEGERS,
        _shift(np.right_shift),
        NATIVE,
        EXACT,
        False,
    ),
}

_COMPARISONS: dict[str, tuple[str, Kinds, Binary, OnDims]] = {
    "eq": ("x = y.", COMPARABLE, np.equal, _over_dims(eq, 2)),
    "lt": ("x < y.", NUMERIC, np.less, _over_dims(lt, 2)),
}

_POSITIVE_ONLY = {"shift_left", "shift_right"}


def _define_milli() -> None:
    for name, (doc, kinds, function, compute, tolerance, symbolic, (low, high)) in _UNARY_MILLI.items():
        op(
            "T -> T",
            name=name,
            T=kinds,
            shape=same,
            compute=compute,
            tolerance=tolerance,
            symbolic=symbolic,
            samples=make.elementwise(1, low, high),
        )(_documented(function, doc, 1))
    for name, (doc, kinds, function, compute, tolerance, symbolic) in _BINARY_MILLI.items():
        low = 0 if name in _POSITIVE_ONLY else -4
        op(
            "T, T -> T",
            name=name,
            T=kinds,
            shape=broadcasting,
            compute=compute,
            tolerance=tolerance,
            symbolic=symbolic,
            samples=make.elementwise(2, low),
        )(_documented(function, doc, 2))
    for name, (doc, kinds, function, symbolic) in _COMPARISONS.items():
        op(
            "T, T -> bool",
            name=name,
            T=kinds,
            shape=broadcasting,
            symbolic=symbolic,
            samples=make.elementwise(2),
        )(_documented(function, doc, 2))


def _documented(function: Callable[..., Any], doc: str, inputs: int) -> Callable[..., Any]:
    """`function` under parameter names x, y and with a docstring, as `op` wants it."""

    def unary(x: Array) -> Any:
        return function(x)

    def binary(x: Array, y: Array) -> Any:
        return function(x, y)

    wrapped = unary if inputs == 1 else binary
    wrapped.__doc__ = doc
    return wrapped


_define_milli()


@op(
    "bool, T, T -> T",
    T=TENSORS,
    shape=broadcasting,
    symbolic=_over_dims(_dim_where, 3),
    samples=lambda rng, dtype: [
        make.Sample((make.draw(rng, boolean, (3, 4)), make.draw(rng, dtype, (3, 4)), make.draw(rng, dtype, (4,)))),
        make.Sample((make.draw(rng, boolean, ()), make.draw(rng, dtype, (2,)), make.draw(rng, dtype, (3, 1)))),
    ],
)
def where(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y."""
    return np.where(condition, x, y)


# --- composites: name → (documentation, dtypes, reference, parts, tolerance, sample range)


def _sign(b: Builder, x: Any) -> Any:
    rest = b.add(x, 0.0) if b.dtype(x).is_float else x
    above = b.where(b.lt(0, x), 1, rest)
    return above if b.dtype(x).kind == "uint" else b.where(b.lt(x, 0), -1, above)


def _sign_reference(x: Array) -> Array:
    return np.sign(x) + np.zeros((), x.dtype)


def _odd(b: Builder, x: Any, result: Any) -> Any:
    """The `result` for |x| with the sign of x, where it is x itself if that is a zero."""
    return b.where(b.eq(x, 0.0), x, b.where(b.lt(x, 0.0), b.neg(result), result))


def _sinh(b: Builder, x: Any) -> Any:
    grown = b.expm1(b.abs(x))
    ratio = b.where(b.is_inf(grown), 1.0, b.div(grown, b.add(grown, 1.0)))
    return _odd(b, x, b.mul(b.add(grown, ratio), 0.5))


def _asinh(b: Builder, x: Any) -> Any:
    size = b.abs(x)
    inner = b.div(size, b.add(1.0, b.sqrt(b.add(b.mul(size, size), 1.0))))
    near = b.log1p(b.add(size, b.mul(size, inner)))
    inverse = b.div(1.0, size)
    far = b.add(b.log(size), b.log1p(b.sqrt(b.add(1.0, b.mul(inverse, inverse)))))
    return _odd(b, x, b.where(b.lt(size, 1.0), near, far))


def _atanh(b: Builder, x: Any) -> Any:
    size = b.abs(x)
    return _odd(b, x, b.mul(0.5, b.log1p(b.div(b.mul(2.0, size), b.sub(1.0, size)))))


def _acosh(b: Builder, x: Any) -> Any:
    t = b.sub(x, 1.0)
    near = b.log1p(b.add(t, b.mul(b.sqrt(t), b.sqrt(b.add(t, 2.0)))))
    inverse = b.div(1.0, x)
    far = b.add(b.log(x), b.log1p(b.sqrt(b.mul(b.sub(1.0, inverse), b.add(1.0, inverse)))))
    return b.where(b.lt(x, 2.0), near, far)


def _asin(b: Builder, x: Any) -> Any:
    return b.atan(b.div(x, b.sqrt(b.mul(b.sub(1.0, x), b.add(1.0, x)))))


def _acos(b: Builder, x: Any) -> Any:
    return b.mul(2.0, b.atan(b.sqrt(b.div(b.sub(1.0, x), b.add(1.0, x)))))


def _fmod(b: Builder, x: Any, y: Any) -> Any:
    if b.dtype(x).is_float:
        return b.copysign(b.mod(b.abs(x), b.abs(y)), x)
    floored = b.mod(x, y)
    differs = b.bit_and(b.ne(floored, 0), b.bit_xor(b.lt(x, 0), b.lt(y, 0)))
    return b.where(differs, b.sub(floored, y), floored)


def _fmod_reference(x: Array, y: Array) -> Array:
    return np.fmod(x, y)


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _sigmoid(x: Array) -> Array:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _sigmoid_parts(b: Builder, x: Any) -> Any:
    small = b.exp(b.neg(b.abs(x)))
    whole = b.add(small, 1.0)
    return b.where(b.lt(x, 0.0), b.div(small, whole), b.div(1.0, whole))


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0.0)


_UNARY_COMPOSITES: dict[str, tuple[str, Kinds, Unary, UnaryParts, Tolerance, Range]] = {
    "sign": ("−1, 0 (never −0) or 1 by the sign of x.", SIGNED, _sign_reference, _sign, EXACT, (-4, 4)),
    "ceil": (
        "The smallest integer not below x.",
        FLOATS,
        np.ceil,
        lambda b, x: b.neg(b.floor(b.neg(x))),
        EXACT,
        (-4, 4),
    ),
    "trunc": (
        "x without its fraction.",
        FLOATS,
        np.trunc,
        lambda b, x: b.where(b.lt(x, 0.0), b.ceil(x), b.floor(x)),
        EXACT,
        (-4, 4),
    ),
    "reciprocal": ("1 / x.", FLOATS, lambda x: 1 / x, lambda b, x: b.div(1.0, x), ROUNDED, (0.5, 4)),
    "rsqrt": ("1 / √x.", FLOATS, lambda x: 1 / np.sqrt(x), lambda b, x: b.div(1.0, b.sqrt(x)), FUNCTION, (0.1, 4)),
    "square": ("x · x.", NUMERIC, np.square, lambda b, x: b.mul(x, x), ROUNDED, (-4, 4)),
    "tan": ("Tangent.", FLOATS, np.tan, lambda b, x: b.div(b.sin(x), b.cos(x)), FUNCTION, (-1.5, 1.5)),
    "asin": ("Arc sine.", FLOATS, np.arcsin, _asin, FUNCTION, (-1, 1)),
    "acos": ("Arc cosine.", FLOATS, np.arccos, _acos, FUNCTION, (-1, 1)),
    "sinh": ("Hyperbolic sine.", FLOATS, np.sinh, _sinh, FUNCTION, (-4, 4)),
    "cosh": (
        "Hyperbolic cosine.",
        FLOATS,
        np.cosh,
        lambda b, x: b.mul(0.5, b.add(b.exp(x), b.exp(b.neg(x)))),
        FUNCTION,
        (-4, 4),
    ),
    "asinh": ("Inverse hyperbolic sine.", FLOATS, np.arcsinh, _asinh, FUNCTION, (-4, 4)),
    "acosh": ("Inverse hyperbolic cosine.", FLOATS, np.arccosh, _acosh, FUNCTION, (1, 9)),
    "atanh": (
        "Inverse hyperbolic tangent.",
        FLOATS,
        np.arctanh,
        _atanh,
        FUNCTION,
        (-0.9, 0.9),
    ),
    "sigmoid": ("1 / (1 + e⁻ˣ).", FLOATS, _sigmoid, _sigmoid_parts, FUNCTION, (-6, 6)),
    "softplus": (
        "log(1 + eˣ), without overflow.",
        FLOATS,
        _softplus,
        lambda b, x: b.add(b.max(x, 0.0), b.log1p(b.exp(b.neg(b.abs(x))))),
        FUNCTION,
        (-6, 6),
    ),
    "silu": ("x · sigmoid(x).", FLOATS, _silu, lambda b, x: b.mul(x, b.sigmoid(x)), FUNCTION, (-6, 6)),
    "mish": (
        "x · tanh(softplus(x)).",
        FLOATS,
        lambda x: x * np.tanh(_softplus(x)),
        lambda b, x: b.mul(x, b.tanh(b.softplus(x))),
        FUNCTION,
        (-6, 6),
    ),
    "relu": (
        "max(x, 0).",
        NUMERIC,
        lambda x: _max(x, np.zeros((), x.dtype)),
        lambda b, x: b.max(x, 0),
        EXACT,
        (-4, 4),
    ),
    "gelu": (
        "x · Φ(x), by the error function.",
        FLOATS,
        lambda x: 0.5 * x * (1 + _erf_f64(x / math.sqrt(2))),
        lambda b, x: b.mul(b.mul(0.5, x), b.add(1.0, b.erf(b.mul(x, math.sqrt(0.5))))),
        FUNCTION,
        (-4, 4),
    ),
    "gelu_tanh": (
        "x · Φ(x), Φ approximated through tanh.",
        FLOATS,
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        lambda b, x: b.mul(
            b.mul(0.5, x),
            b.add(1.0, b.tanh(b.mul(math.sqrt(2 / math.pi), b.add(x, b.mul(0.044715, b.mul(x, b.mul(x, x))))))),
        ),
        FUNCTION,
        (-4, 4),
    ),
}

_BINARY_COMPOSITES: dict[str, tuple[str, Kinds, Binary, BinaryParts, Tolerance, Range]] = {
    "fmod": ("The remainder with the sign of x.", NUMERIC, _fmod_reference, _fmod, FUNCTION, (1, 9)),
    "prelu": (
        "x where x ≥ 0, else slope · x.",
        NUMERIC,
        lambda x, y: np.where(x < 0, x * y, x),
        lambda b, x, y: b.where(b.lt(x, 0), b.mul(x, y), x),
        ROUNDED,
        (-4, 4),
    ),
}

_COMPARISON_COMPOSITES: dict[str, tuple[str, Kinds, Binary, BinaryParts]] = {
    "ne": ("x ≠ y.", COMPARABLE, np.not_equal, lambda b, x, y: b.bit_not(b.eq(x, y))),
    "gt": ("x > y.", NUMERIC, np.greater, lambda b, x, y: b.lt(y, x)),
    "le": ("x ≤ y.", NUMERIC, np.less_equal, lambda b, x, y: b.bit_or(b.lt(x, y), b.eq(x, y))),
    "ge": ("x ≥ y.", NUMERIC, np.greater_equal, lambda b, x, y: b.bit_or(b.lt(y, x), b.eq(x, y))),
}

_TESTS: dict[str, tuple[str, Unary, UnaryParts]] = {
    "is_nan": ("True where x is NaN.", np.isnan, lambda b, x: b.ne(x, x)),
    "is_inf": ("True where x is +∞ or −∞.", np.isinf, lambda b, x: b.eq(b.abs(x), math.inf)),
}


def _define_composites() -> None:
    for name, (doc, kinds, function, parts, tolerance, (low, high)) in _UNARY_COMPOSITES.items():
        op(
            "T -> T",
            name=name,
            T=(*kinds, *COMPLEX) if name in ON_COMPLEX else kinds,
            shape=same,
            parts=of_any_kind(name, parts) if name in ON_COMPLEX else parts,
            compute=NATIVE if tolerance is EXACT else WIDE,
            tolerance=tolerance,
            samples=make.elementwise(1, low, high),
        )(_documented(function, doc, 1))
    for name, (doc, kinds, function, parts, tolerance, (low, high)) in _BINARY_COMPOSITES.items():
        op(
            "T, T -> T",
            name=name,
            T=kinds,
            shape=broadcasting,
            parts=parts,
            compute=NATIVE if tolerance is EXACT else WIDE,
            tolerance=tolerance,
            samples=make.elementwise(2, low, high),
        )(_documented(function, doc, 2))
    for name, (doc, kinds, function, parts) in _COMPARISON_COMPOSITES.items():
        op("T, T -> bool", name=name, T=kinds, shape=broadcasting, parts=parts, samples=make.elementwise(2))(
            _documented(function, doc, 2)
        )
    for name, (doc, function, parts) in _TESTS.items():
        op("T -> bool", name=name, T=FLOATS, shape=same, parts=parts, samples=make.elementwise(1))(
            _documented(function, doc, 1)
        )


_define_composites()


def _clip_shape(x: Fact, low: Fact | None = None, high: Fact | None = None) -> list[Shape]:
    need_to_broadcast("the lower bound", low and low.shape, x.shape)
    need_to_broadcast("the upper bound", high and high.shape, x.shape)
    return [x.shape]


def _clip_parts(b: Builder, x: Any, low: Any = None, high: Any = None) -> Any:
    above = x if low is None else b.max(x, low)
    return above if high is None else b.min(above, high)


@op(
    "T, T?, T? -> T",
    T=NUMERIC,
    shape=_clip_shape,
    parts=_clip_parts,
    samples=make.listed(
        lambda rng, dtype: [
            (make.draw(rng, dtype, (3, 4)), np.asarray(1, dtype.numpy), np.asarray(2, dtype.numpy), {}),
            (make.draw(rng, dtype, (5,)), None, np.asarray(2, dtype.numpy), {}),
            (make.draw(rng, dtype, (5,)), np.asarray(1, dtype.numpy), None, {}),
        ]
    ),
)
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """x kept within bounds that broadcast to it, either of which may be absent; the upper one wins."""
    above = x if low is None else _max(x, low)
    return above if high is None else _min(above, high)


def _scaled_parts(b: Builder, x: Any, *, alpha: float, gamma: float) -> Any:
    return b.mul(gamma, b.where(b.lt(x, 0.0), b.mul(alpha, b.expm1(x)), x))


@op(
    "T -> T",
    T=FLOATS,
    shape=same,
    parts=_scaled_parts,
    compute=WIDE,
    tolerance=FUNCTION,
    samples=make.elementwise(1),
)
def elu(x: Array, *, alpha: float = 1.0, gamma: float = 1.0) -> Array:
    """γ · x where x ≥ 0, else γ · α · (eˣ − 1); with SELU's constants this is SELU."""
    return gamma * np.where(x < 0, alpha * np.expm1(x), x)


def _leaky_relu_parts(b: Builder, x: Any, *, slope: float) -> Any:
    return b.where(b.lt(x, 0.0), b.mul(slope, x), x)


@op(
    "T -> T",
    T=FLOATS,
    shape=same,
    compute=WIDE,
    tolerance=ROUNDED,
    parts=_leaky_relu_parts,
    samples=make.elementwise(1),
)
def leaky_relu(x: Array, *, slope: float = 0.01) -> Array:
    """x where x ≥ 0, else slope · x."""
    return np.where(x < 0, slope * x, x)
