"""Resampling of whole axes: each axis is a linear map from old elements to new ones, so axes go one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, lt
from assay.ir.dtypes import NUMERIC, TENSORS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.builder import check_size
from assay.ops.parts import check_among, converted, working
from assay.ops.registry import Compute, FactMissing, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import axes_of, need

if TYPE_CHECKING:
    from assay.ops.builder import Builder


@dataclass(frozen=True)
class ResizeAxis:
    """One axis to resample: `size` elements become `new` ones; `start` and `end` bound the part that is looked at, as
    fractions of the axis."""

    size: int
    new: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def extent(self) -> float:
        """The new length before it was made whole."""
        return self.scale * self.size


def _half_pixel(at: Array, line: ResizeAxis) -> Array:
    return (at + 0.5) / line.scale - 0.5


def _half_pixel_symmetric(at: Array, line: ResizeAxis) -> Array:
    return line.size / 2 * (1 - line.new / line.extent) + _half_pixel(at, line)


def _pytorch_half_pixel(at: Array, line: ResizeAxis) -> Array:
    return _half_pixel(at, line) if line.new > 1 else np.zeros_like(at)


def _half_pixel_if_resized(at: Array, line: ResizeAxis) -> Array:
    return at if line.new == line.size else _half_pixel(at, line)


def _align_corners(at: Array, line: ResizeAxis) -> Array:
    return np.zeros_like(at) if line.new == 1 else at * (line.size - 1) / (line.extent - 1)


def _asymmetric(at: Array, line: ResizeAxis) -> Array:
    return at / line.scale


def _crop(at: Array, line: ResizeAxis) -> Array:
    span = (line.end - line.start) * (line.size - 1)
    steps = np.full_like(at, span / 2) if line.new == 1 else at * span / (line.extent - 1)
    return line.start * (line.size - 1) + steps


TRANSFORMS: Mapping[str, Callable[[Array, ResizeAxis], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_if_resized": _half_pixel_if_resized,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "crop": _crop,
}
"""Where the new elements `at` lie among the old ones."""


def _round_half_down(x: Array) -> Array:
    return np.ceil(x - 0.5)


def _round_half_up(x: Array) -> Array:
    return np.floor(x + 0.5)


ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "half_down": _round_half_down,
    "half_up": _round_half_up,
}


def _hat(distance: Array, a: float) -> Array:
    return np.maximum(1 - np.abs(distance), 0)


def cubic_weight(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel with the slope parameter `a`."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


RESIZE_KERNELS: Mapping[str, tuple[int, Callable[[Array, float], Array]]] = {
    "linear": (1, _hat),
    "cubic": (2, cubic_weight),
}
"""Per mode, how many old elements the kernel reaches to either side, and its weights."""


class Taps(NamedTuple):
    """For each new element the old ones that it is made of, (new, taps), with their weights.

    Without weights an element is copied. `outside` marks the new elements that lie outside of the axis.
    """

    positions: Array
    weights: Array | None
    outside: Array | None


def taps_of(line: ResizeAxis, attrs: Mapping[str, Any]) -> Taps:
    """How one axis is resampled."""
    if line.new == 0:
        return Taps(np.zeros((0, 1), np.int64), None, None)
    places = TRANSFORMS[attrs["transform"]](np.arange(line.new, dtype=np.float64), line)
    outside = (places < 0) | (places > line.size - 1) if attrs["transform"] == "crop" else None
    last = line.size - 1
    if attrs["mode"] == "nearest":
        rounded = ROUNDINGS[attrs["rounding"]](_settled(places)).astype(np.int64)
        return Taps(np.clip(rounded, 0, last)[:, None], None, outside)
    reach, kernel = RESIZE_KERNELS[attrs["mode"]]
    shrink = min(line.scale, 1.0) if attrs["antialias"] else 1.0
    first = int(np.floor(-reach / shrink)) + 1
    positions = np.floor(places).astype(np.int64)[:, None] + np.arange(first, 2 - first)
    weights = kernel((positions - places[:, None]) * shrink, attrs["cubic_a"])
    if attrs["exclude_outside"]:
        weights = np.where((positions < 0) | (positions > last), 0.0, weights)
    if attrs["exclude_outside"] or attrs["antialias"]:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Taps(np.clip(positions, 0, last), weights, outside)


def _settled(places: Array) -> Array:
    """Places that lie within the rounding of f32, in which scales come, of a half element taken to be there."""
    halves = np.rint(2 * places) / 2
    return np.where(np.abs(places - halves) <= np.maximum(np.abs(places), 1) * 2.0**-22, halves, places)


def lines_of(old: Sequence[int], new: Sequence[int], attrs: Mapping[str, Any]) -> list[ResizeAxis]:
    """The lines of the resampled axes."""
    count = len(old)
    scales = attrs["scales"] or [n / max(o, 1) for o, n in zip(old, new, strict=True)]
    roi = attrs["roi"] or (0.0,) * count + (1.0,) * count
    return [ResizeAxis(old[i], new[i], scales[i], roi[i], roi[i + count]) for i in range(count)]


def _resize_shape(x: Fact, sizes: Fact, *, axes: Sequence[int], mode: str, **attrs: Any) -> list[Shape]:
    check_among("mode", mode, ("nearest", *RESIZE_KERNELS))
    check_among("transform", attrs["transform"], TRANSFORMS)
    check_among("rounding", attrs["rounding"], ROUNDINGS)
    if isinstance(x.type, TensorType) and mode != "nearest" and x.type.dtype not in NUMERIC:
        raise ValueError(f"{mode} interpolation is not defined for {x.type.dtype}")
    if x.shape is None:
        return [None]
    need("the vector of sizes", sizes.shape, (len(axes),))
    new = (UNKNOWN,) * len(axes) if sizes.dims is None else sizes.dims
    if any(lt(size, 0) is True for size in new):
        raise ValueError(f"{len(axes)} axes are resized to {list(new)}")
    shape = list(x.shape)
    for axis, size in zip(axes_of(axes, len(shape)), new, strict=True):
        if shape[axis] == 0 and lt(0, size) is True:
            raise ValueError(f"an empty axis is resized to {size} elements")
        shape[axis] = size
    return [tuple(shape)]


def _size_of(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise FactMissing("the size of an axis that is resized")
    return dim


def _resize_parts(b: Builder, x: Any, sizes: Any, *, axes: Sequence[int], extrapolation: float, **attrs: Any) -> Any:
    rank, dtype = b.rank(x), b.dtype(x)
    places = axes_of(axes, rank)
    new = b.ints(sizes, "sizes")
    check_size(new, dtype, b.limits)
    lines = lines_of([_size_of(b.dims(x)[axis]) for axis in places], new, attrs)
    work = dtype if attrs["mode"] == "nearest" else working(dtype)
    result = converted(b, x, work)
    for axis, line in zip(places, lines, strict=True):
        taps = taps_of(line, attrs)
        tail = (1,) * (rank - axis - 1)
        if taps.weights is None:
            result = b.gather(result, taps.positions[:, 0], axis=axis)
        else:
            weights = taps.weights.reshape(*taps.weights.shape, *tail)
            result = b.reduce_sum(b.mul(b.gather(result, taps.positions, axis=axis), weights), axes=(axis + 1,))
        if taps.outside is not None and taps.outside.any():
            fill = b.constant(extrapolation, b.dtype(result))
            result = b.where(taps.outside.reshape(-1, *tail), fill, result)
    if dtype.is_integer and work is not dtype:
        result = b.clip(b.round(result), *map(float, dtype.limits))
    return converted(b, result, dtype)


def _resize_samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    x = draw(rng, dtype, (2, 3, 5))
    for transform in TRANSFORMS:
        roi = (0.25, -0.3125, 0.875, 1.25) if transform == "crop" else None
        for mode in ("nearest", "linear", "cubic") if dtype in NUMERIC else ("nearest",):
            yield x, np.array([4, 7]), {"axes": (1, -1), "mode": mode, "transform": transform, "roi": roi}
    for rounding in ROUNDINGS:
        yield x, np.array([3]), {"axes": (2,), "mode": "nearest", "rounding": rounding, "scales": (0.7,)}
    yield x, np.array([0]), {"axes": (0,), "mode": "nearest"}
    for mode in ("linear", "cubic") if dtype in NUMERIC else ():
        yield x, np.array([2, 3]), {"axes": (1, 2), "mode": mode, "antialias": True}
        yield x, np.array([4, 3]), {"axes": (1, 2), "mode": mode, "exclude_outside": True, "cubic_a": -0.5}


@op(
    "T, i64 -> T",
    T=TENSORS,
    ranks={"sizes": 1},
    shape=_resize_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_resize_parts,
    samples=listed(_resize_samples, 1),
)
def resize(
    x: Array,
    sizes: Array,
    *,
    axes: Sequence[int],
    mode: str,
    transform: str = "half_pixel",
    rounding: str = "half_down",
    cubic_a: float = -0.75,
    antialias: bool = False,
    exclude_outside: bool = False,
    extrapolation: float = 0.0,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
) -> Array:
    """x resampled to `sizes` along `axes`; `mode` is nearest, linear or cubic. `transform` says where a new element
    lies among the old ones, by `scales` where they are given, else by the ratio of the sizes; `rounding` which one is
    the nearest. `antialias` widens the kernel when axes shrink. Beyond the ends the end elements count, or none with
    `exclude_outside`. With the transform `crop` only the part `roi` (starts, then ends, as fractions) is looked at, and
    what lies outside of x is `extrapolation`. Integers are rounded to even and saturate."""
    attrs = {"mode": mode, "transform": transform, "rounding": rounding, "cubic_a": cubic_a, "antialias": antialias}
    attrs |= {"exclude_outside": exclude_outside, "scales": scales, "roi": roi}
    places = axes_of(axes, x.ndim)
    result = x
    for axis, line in zip(places, lines_of([x.shape[a] for a in places], [int(n) for n in sizes], attrs), strict=True):
        taps = taps_of(line, attrs)
        tail = (1,) * (x.ndim - axis - 1)
        result = _apply(result, axis, taps, tail)
        if taps.outside is not None:
            result = np.where(taps.outside.reshape(-1, *tail), np.asarray(extrapolation, result.dtype), result)
    if x.dtype.kind in "iu" and mode != "nearest":
        return np.clip(np.rint(result), *dtypes.of(x).limits).astype(x.dtype)
    return result


def _apply(x: Array, axis: int, taps: Taps, tail: tuple[int, ...]) -> Array:
    if taps.weights is None:
        return np.take(x, taps.positions[:, 0], axis=axis)
    pairs = zip(taps.positions.T, taps.weights.T, strict=True)
    terms = (np.take(x, positions, axis=axis) * weights.reshape(-1, *tail) for positions, weights in pairs)
    total = next(terms)
    for term in terms:
        total = total + term
    return total
