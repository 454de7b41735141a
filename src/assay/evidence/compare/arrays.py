"""How far one result is from another: the one comparison that every verdict rests on.

It is strict: dtype and shape must match, a NaN equals only a NaN, an infinity only the same infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ops.registry import Tolerance, widen


@dataclass(frozen=True, slots=True)
class Closeness:
    """The distance of a result from the expected one; errors are over the elements that are finite in both.

    `difference` says what makes the two incomparable (dtype, shape, kind), `nan` and `inf` count elements where
    only one is NaN or which are not the same infinity, `beyond` counts finite ones farther off than was allowed.
    """

    difference: str = ""
    count: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    nan: int = 0
    inf: int = 0
    beyond: int = 0

    @property
    def ok(self) -> bool:
        """True where the results agree within what was allowed."""
        return not (self.difference or self.nan or self.inf or self.beyond)

    def __str__(self) -> str:
        if self.difference:
            return self.difference
        parts = [f"max abs {self.max_abs:.3g}, rel {self.max_rel:.3g}, {self.max_ulp:.3g} ulp"]
        counts = {"beyond what is allowed": self.beyond, "NaN in one": self.nan, "Inf in one": self.inf}
        parts.extend(f"{number} of {self.count} {what}" for what, number in counts.items() if number)
        return "; ".join(parts)


SAME = Closeness()


def closeness(
    actual: Any, expected: Any, *, relative: float = 0.0, absolute: float | Array = 0.0, where: Array | None = None
) -> Closeness:
    """Compare two results. An element may be off by `absolute + relative · |expected|`; only those in `where` count.

    Lists and tuples are compared item by item, anything that is no array by `==`.
    """
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        return _arrays(cast(Array, actual), cast(Array, expected), relative, absolute, where)
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        first, second = cast("Sequence[Any]", actual), cast("Sequence[Any]", expected)
        if len(first) != len(second):
            return Closeness(f"{len(first)} items instead of {len(second)}")
        pairs = zip(first, second, strict=True)
        return merged([closeness(a, b, relative=relative, absolute=absolute) for a, b in pairs])
    if isinstance(actual, np.ndarray) or isinstance(expected, np.ndarray) or actual != expected:
        return Closeness(f"{_kind(actual)} instead of {_kind(expected)}")
    return SAME


def merged(parts: Sequence[Closeness]) -> Closeness:
    """The distances of several results as one."""
    return Closeness(
        next((part.difference for part in parts if part.difference), ""),
        sum(part.count for part in parts),
        max((part.max_abs for part in parts), default=0.0),
        max((part.max_rel for part in parts), default=0.0),
        max((part.max_ulp for part in parts), default=0.0),
        sum(part.nan for part in parts),
        sum(part.inf for part in parts),
        sum(part.beyond for part in parts),
    )


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number of a float or complex dtype; 0 for all others."""
    if dtype.is_float:
        return float(cast(Any, ml_dtypes.finfo(dtype.numpy)).eps)
    return float(np.finfo(dtype.numpy).eps) if dtype.kind == "complex" else 0.0


def displacement(rounded: Array, exact: Array) -> Array:
    """How far rounding moved each element: 0 where it is the same, infinite where it is another integer or string, or a
    number in one alone."""
    if dtypes.of(exact).kind not in ("float", "complex"):
        return np.where(np.asarray(rounded == exact), 0.0, np.inf)
    first, second = widen(rounded), widen(exact)
    with np.errstate(all="ignore"):
        distance = np.abs(first - second)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    return np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))


def bounds(tolerance: Tolerance, dtype: DType, *, terms: float = 1.0, scale: float = 1.0) -> tuple[float, float]:
    """(relative, absolute): how far a correct kernel may be off in a result of `dtype`.

    `terms` is how many numbers go into one element and `scale` how large they are: both matter for accumulations only.
    """
    relative, absolute = tolerance.value
    if tolerance is Tolerance.ACCUMULATED:
        relative, absolute = relative * math.sqrt(max(terms, 1.0)), absolute * max(scale, 1.0)
    unit = epsilon(dtype)
    return relative * unit, absolute * unit


def _arrays(actual: Array, expected: Array, relative: float, absolute: float | Array, where: Array | None) -> Closeness:
    first, second = dtypes.of(actual), dtypes.of(expected)
    if first is not second:
        return Closeness(f"dtype {first} instead of {second}")
    if actual.shape != expected.shape:
        return Closeness(f"shape {list(actual.shape)} instead of {list(expected.shape)}")
    counted = np.ones(expected.shape, bool) if where is None else where
    if first.kind in ("string", "bool"):
        unequal = (actual != expected) & counted
        return Closeness(count=int(np.count_nonzero(counted)), beyond=int(np.count_nonzero(unequal)))
    if first.is_integer:
        return _integers(actual, expected, relative, absolute, counted)
    if first.kind == "complex":
        a, b = _parts(actual), _parts(expected)
        size = np.broadcast_to(np.abs(expected.astype(np.complex128)), b.shape)
        return _floats(a, b, size, relative, absolute, np.broadcast_to(counted, b.shape))
    return _floats(actual, expected, np.abs(expected.astype(np.float64)), relative, absolute, counted)


def _parts(x: Array) -> Array:
    """The real and the imaginary part, one after the other."""
    plain: Any = x
    return np.stack([plain.real, plain.imag])


def _integers(actual: Array, expected: Array, relative: float, absolute: float | Array, counted: Array) -> Closeness:
    wide = np.uint64 if expected.dtype.kind == "u" and expected.dtype.itemsize == 8 else np.int64
    a, b = actual.astype(wide), expected.astype(wide)
    error = np.where(a > b, a - b, b - a).view(np.uint64).astype(np.float64)
    size = np.abs(b.astype(np.float64))
    return _summary(error, size, error, relative, absolute, counted)


def _floats(
    actual: Array, expected: Array, size: Array, relative: float, absolute: float | Array, counted: Array
) -> Closeness:
    with np.errstate(all="ignore"):
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        nan = (np.isnan(a) != np.isnan(b)) & counted
        inf = ~finite & ~np.isnan(a) & ~np.isnan(b) & (a != b) & counted
        error = np.where(finite, np.abs(a - b), 0.0)
        ulp = np.where(finite, ulp_distance(actual, expected), 0.0)
    found = _summary(error, np.where(np.isfinite(size), size, 0.0), ulp, relative, absolute, counted)
    return replace(found, nan=int(np.count_nonzero(nan)), inf=int(np.count_nonzero(inf)))


def _summary(
    error: Array, size: Array, ulp: Array, relative: float, absolute: float | Array, counted: Array
) -> Closeness:
    with np.errstate(all="ignore"):
        ratio = np.where(error == 0, 0.0, error / size)
        beyond = counted & ~(error <= absolute + relative * size)
    return Closeness(
        count=int(np.count_nonzero(counted)),
        max_abs=float(error.max(initial=0.0, where=counted)),
        max_rel=float(ratio.max(initial=0.0, where=counted)),
        max_ulp=float(ulp.max(initial=0.0, where=counted)),
        beyond=int(np.count_nonzero(beyond)),
    )


def ulp_distance(a: Array, b: Array) -> Array:
    """How many numbers of their float dtype lie between the elements of two arrays, as f64; NaN gives no meaning."""
    first, second = _rank(a), _rank(b)
    return np.where(first > second, first - second, second - first).view(np.uint64).astype(np.float64)


def _rank(x: Array) -> Array:
    """The elements numbered in order of their value, 0 being zero, as i64."""
    dtype = dtypes.of(x)
    if dtype.bits <= 8:
        known = _values(dtype)
        return np.searchsorted(known, x.astype(np.float64)).astype(np.int64)
    bits = np.ascontiguousarray(x).view(f"i{dtype.numpy.itemsize}").reshape(x.shape)
    magnitude = bits & np.iinfo(bits.dtype).max
    return np.where(bits < 0, -magnitude, magnitude).astype(np.int64)


@cache
def _values(dtype: DType) -> Array:
    """Every finite value of a tiny float dtype, in order."""
    every = np.arange(1 << dtype.bits).astype(np.uint8).view(dtype.numpy).astype(np.float64)
    return np.unique(every[np.isfinite(every)])


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        return f"a tensor {array.dtype}{list(array.shape)}"
    return repr(value)[:80]


@dataclass(frozen=True, slots=True)
class Signal:
    """How alike two tensors are as a whole: signal-to-noise ratio in dB, Pearson's correlation (None: undefined)."""

    snr: float | None
    pcc: float | None


def signal(actual: Any, expected: Any) -> Signal:
    """The likeness of two real tensors of one shape, over the elements that are finite in both; else undefined."""
    if not (isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray)):
        return Signal(None, None)
    first, second = cast(Array, actual), cast(Array, expected)
    real = all(dtypes.of(each).is_float or dtypes.of(each).is_integer for each in (first, second))
    if not real or first.shape != second.shape:
        return Signal(None, None)
    a, b = first.astype(np.float64).reshape(-1), second.astype(np.float64).reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    with np.errstate(all="ignore"):
        power, noise = float(np.dot(b, b)), float(np.dot(a - b, a - b))
        a, b = a - a.mean() if a.size else a, b - b.mean() if b.size else b
        spread = math.sqrt(float(np.dot(a, a)) * float(np.dot(b, b)))
        pcc = min(1.0, max(-1.0, float(np.dot(a, b)) / spread)) if spread > 0 else None
    if noise == 0:
        return Signal(math.inf if power > 0 else None, pcc)
    return Signal(10 * math.log10(power / noise) if power > 0 else -math.inf, pcc)
