"""aten's resampling of whole axes and padding with what is at the edge, and their gradients.

Each axis is a linear map of its own. In a gradient what every element got is added to those that it was made of, axis
by axis; a product with a matrix, mostly zeros, would make NaN of infinities elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from assay.frontends.torch.ops.common import Number, sizes, tensor
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.ops.scatter import written_along
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Value
from assay.ops.definitions.resize import RESIZE_KERNELS, TRANSFORMS, ResizeAxis, taps_of
from assay.ops.parts import scalar_size

_PLAIN: Mapping[str, Any] = {
    "rounding": "floor",
    "cubic_a": -0.75,
    "antialias": False,
    "exclude_outside": False,
}
_SMOOTH: Mapping[str, Any] = {"rounding": "floor", "cubic_a": -0.5, "antialias": True, "exclude_outside": True}

_WEIGHTED: Mapping[str, Mapping[str, Any]] = {
    "upsample_linear1d": {"mode": "linear", **_PLAIN},
    "upsample_bilinear2d": {"mode": "linear", **_PLAIN},
    "upsample_trilinear3d": {"mode": "linear", **_PLAIN},
    "upsample_bicubic2d": {"mode": "cubic", **_PLAIN},
    "_upsample_bilinear2d_aa": {"mode": "linear", **_SMOOTH},
    "_upsample_bicubic2d_aa": {"mode": "cubic", **_SMOOTH},
}
_NEAREST: Mapping[str, Mapping[str, Any]] = {
    "upsample_nearest": {"mode": "nearest", "transform": "asymmetric", **_PLAIN},
    "_upsample_nearest_exact": {"mode": "nearest", "transform": "half_pixel", **_PLAIN, "rounding": "half_up"},
}
"""What the core op `resize` calls them."""


def _ratios(old: Sequence[Any], new: Sequence[Any], scales: Sequence[float | None]) -> tuple[float, ...] | None:
    """How much each axis grows where a scale is given; None where all follow from the sizes."""
    if not any(scales):
        return None
    return tuple(s if s else n / max(o, 1) for o, n, s in zip(old, new, scales, strict=True))


def _static_sizes(b: Builder, values: Sequence[Number]) -> tuple[int, ...]:
    return b.ints(sizes(b, values), "sizes")


# --- weighted means


def _enter_weighted(name: str, fixed: Mapping[str, Any]) -> None:
    @aten(f"aten.{name}.default")
    def resample(  # pyright: ignore[reportUnusedFunction]
        b: Builder, n: Call, x: Value, output: Sequence[Number], align: bool, *scales: Any, **named: Any
    ) -> Results:
        if not b.dtype(x).is_float:
            raise TypeError(f"torch interpolates {b.dtype(x)} in a way of its own")
        old = [scalar_size(b, x, axis) for axis in range(2, b.rank(x))]
        how = _how(b, old, output, align, (*scales, *named.values()), fixed)
        changed = [at for at, pair in enumerate(zip(old, output, strict=True)) if not _copied(b, *pair, fixed)]
        how["scales"] = tuple(how["scales"][at] for at in changed) if how["scales"] else None
        new = sizes(b, [output[at] for at in changed])
        return b.resize(x, new, axes=tuple(2 + at for at in changed), **how, **fixed)

    @aten(f"aten.{name}_backward.default")
    def backward(  # pyright: ignore[reportUnusedFunction]
        b: Builder,
        n: Call,
        grad: Value,
        output: Sequence[Number],
        shape: Sequence[Number],
        align: bool,
        *scales: Any,
        **named: Any,
    ) -> Results:
        how = _how(b, shape[2:], output, align, (*scales, *named.values()), fixed)
        pairs = list(zip(_static_sizes(b, shape[2:]), _static_sizes(b, output), strict=True))
        result = widened(b, grad)
        for i, (old, new) in enumerate(pairs):
            if _copied(b, old, new, fixed):
                continue
            line = ResizeAxis(old, new, _growth(old, new, how["scales"], i))
            result = _given_back(b, result, 2 + i, _shares(line, {**fixed, **how}), old)
        return tensor(b, result, n.dtype)


def _how(
    b: Builder,
    old: Sequence[Number],
    new: Sequence[Number],
    align: bool,
    scales: Sequence[Any],
    fixed: Mapping[str, Any],
) -> dict[str, Any]:
    """The attributes `transform` and `scales`. With antialiasing, aligned corners only change the scale."""
    if align and fixed["antialias"]:
        pairs = list(zip(_static_sizes(b, old), _static_sizes(b, new), strict=True))
        if any(o < 2 or s < 2 for o, s in pairs):
            raise ValueError("the corners of a single element cannot be aligned")
        return {"transform": "half_pixel", "scales": tuple((s - 1) / (o - 1) for o, s in pairs)}
    if align:
        return {"transform": "align_corners", "scales": None}
    partial = any(scales) and not all(scales)
    if partial:
        ratios = _ratios(_static_sizes(b, old), _static_sizes(b, new), scales)
    else:
        ratios = tuple(scales) if any(scales) else None
    return {"transform": "half_pixel_if_resized" if ratios and _copies(fixed) else "half_pixel", "scales": ratios}


def _copies(fixed: Mapping[str, Any]) -> bool:
    """Whether an axis that keeps its size is copied, whatever scale is given."""
    return fixed["mode"] == "linear" and not fixed["antialias"]


def _copied(b: Builder, old: Number, new: Number, fixed: Mapping[str, Any]) -> bool:
    """Whether an axis is known to be copied."""
    before, after = (b.fact(tensor(b, size, dtypes.i64)).value for size in (old, new))
    return _copies(fixed) and before is not None and after is not None and before.item() == after.item()


def _growth(old: int, new: int, ratios: Sequence[float] | None, index: int) -> float:
    return new / max(old, 1) if ratios is None else ratios[index]


for _name, _fixed in _WEIGHTED.items():
    _enter_weighted(_name, _fixed)


class _Shares(NamedTuple):
    """What the new elements `of` are made of: the old ones at `places`, by `weights`; each a vector."""

    of: Array
    places: Array
    weights: Array


def _shares(line: ResizeAxis, attrs: Mapping[str, Any]) -> _Shares:
    """How one axis is resampled, with those weights of zero that torch has: they make NaN of an infinite gradient."""
    taps = taps_of(line, attrs)
    places, weights = taps.positions, np.ones(taps.positions.shape) if taps.weights is None else taps.weights
    of = np.arange(len(places))[:, None]
    if attrs["antialias"]:
        matrix = np.zeros((line.new, line.size))
        np.add.at(matrix, (of, places), weights)
        new, old = np.nonzero(_smoothed(line, RESIZE_KERNELS[attrs["mode"]][0]))
        return _Shares(new, old, matrix[new, old])
    if attrs["mode"] == "linear":
        before = TRANSFORMS[attrs["transform"]](np.arange(len(places), dtype=np.float64), line) < 0
        places[before], weights[before] = (0, min(1, line.size - 1)), (1, 0)
    return _Shares(np.broadcast_to(of, places.shape).reshape(-1), places.reshape(-1), weights.reshape(-1))


def _smoothed(line: ResizeAxis, reach: int) -> Array:
    """(new, old): the elements that torch looks at with antialiasing, in its arithmetic, which decides at the ends."""
    step = np.float32(1 / line.scale)
    centre, span = step * (np.arange(line.new, dtype=np.float32) + np.float32(0.5)), reach * max(step, np.float32(1))
    first, end = (((centre + side * span).astype(np.float64) + 0.5).astype(np.int64)[:, None] for side in (-1, 1))
    at = np.arange(line.size)
    return (at >= first) & (at < end)


def _given_back(b: Builder, grad: Value, axis: int, shares: _Shares, size: int) -> Value:
    """The gradient of what an axis of `size` elements was before it was resampled."""
    weights = b.constant(shares.weights.reshape(-1, *[1] * (b.rank(grad) - 1 - axis)), b.dtype(grad))
    shared = b.mul(b.gather(grad, b.constant(shares.of), axis=axis), weights)
    return _added(b, shared, axis, b.constant(shares.places), b.constant(size))


def _added(b: Builder, grad: Value, axis: int, places: Value, size: Value) -> Value:
    """`size` sums along an axis, of the slices that these places give to each."""
    shape = [b.reshape(size, [1]) if i == axis else b.size(grad, i) for i in range(b.rank(grad))]
    empty = b.expand(b.constant(0, b.dtype(grad)), b.vector(*shape))
    return written_along(b, empty, axis, places, grad, "add")


# --- the nearest element


def _places(b: Builder, old: Value, new: Value, scale: float | None, shift: float, dtype: DType) -> Value:
    """The old elements that the new ones copy, in the arithmetic of torch, which decides between neighbours."""
    step = b.div(b.cast(old, dtype=dtype), b.cast(new, dtype=dtype)) if not scale else b.constant(1.0 / scale, dtype)
    at = b.mul(b.add(b.cast(b.iota(new), dtype=dtype), shift), step)
    return b.min(b.cast(b.floor(at), dtype=dtypes.i64), b.sub(old, 1))


def _enter_nearest(family: str, rank: int, attrs: Mapping[str, Any]) -> None:
    shift = 0.5 if "exact" in family else 0.0

    @aten(f"aten.{family}{rank}d.default")
    def nearest(  # pyright: ignore[reportUnusedFunction]
        b: Builder, n: Call, x: Value, output: Sequence[Number], *scales: Any, **named: Any
    ) -> Results:
        factors = [*scales, *named.values()] or [None] * rank
        work = dtypes.f64 if b.dtype(x) is dtypes.f64 else dtypes.f32
        old = [scalar_size(b, x, 2 + i) for i in range(rank)]
        new = [tensor(b, size, dtypes.i64) for size in output]
        places = [_places(b, o, s, f, shift, work) for o, s, f in zip(old, new, factors, strict=True)]
        whole = _as_resize(b, x, old, new, factors, places, attrs)
        if whole is not None:
            return whole
        for axis, line in enumerate(places, start=2):
            x = b.gather(x, line, axis=axis)
        return x

    @aten(f"aten.{family}{rank}d_backward.default")
    def backward(  # pyright: ignore[reportUnusedFunction]
        b: Builder, n: Call, grad: Value, output: Sequence[Number], shape: Sequence[Number], *scales: Any, **named: Any
    ) -> Results:
        factors = [*scales, *named.values()] or [None] * rank
        result = widened(b, grad)
        for axis, (old, new, factor) in enumerate(zip(shape[2:], output, factors, strict=True), start=2):
            size, count = (tensor(b, value, dtypes.i64) for value in (old, new))
            places = _places(b, size, count, factor, shift, b.dtype(result))
            result = _added(b, result, axis, places, size)
        return tensor(b, result, n.dtype)


def _as_resize(
    b: Builder,
    x: Value,
    old: Sequence[Value],
    new: Sequence[Value],
    factors: Sequence[float | None],
    places: Sequence[Value],
    attrs: Mapping[str, Any],
) -> Value | None:
    """The core op, where all sizes are known and it copies from the same places."""
    sides = [[b.fact(value).concrete for value in side] for side in (old, new, places)]
    if any(value is None for side in sides for value in side):
        return None
    before, after, found = ([np.asarray(value) for value in side] for side in sides)
    ratios = _ratios([int(o) for o in before], [int(s) for s in after], factors)
    for i, expected in enumerate(found):
        line = ResizeAxis(int(before[i]), int(after[i]), _growth(int(before[i]), int(after[i]), ratios, i))
        if not np.array_equal(taps_of(line, attrs).positions[:, 0], expected):
            return None
    return b.resize(x, sizes(b, new), axes=tuple(range(2, b.rank(x))), scales=ratios, **attrs)


for _family, _attrs in _NEAREST.items():
    for _rank in (1, 2, 3):
        _enter_nearest(_family, _rank, _attrs)


# --- padding


@aten(*(f"aten.replication_pad{rank}d_backward.default" for rank in (1, 2, 3)))
def replication_pad_backward(b: Builder, n: Call, grad: Value, x: Value, padding: Sequence[Number]) -> Results:
    result, rank = widened(b, grad), b.rank(x)
    for i, before in enumerate(padding[::2]):
        axis = rank - 1 - i
        size = scalar_size(b, x, axis)
        shifted = b.sub(b.iota(scalar_size(b, grad, axis)), tensor(b, before, dtypes.i64))
        places = b.min(b.max(shifted, 0), b.sub(size, 1))
        result = _added(b, result, axis, places, size)
    return tensor(b, result, n.dtype)
