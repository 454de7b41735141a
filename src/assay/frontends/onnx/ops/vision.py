"""ONNX ops on images: resampling, regions of interest, boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.frontends.onnx.ops.common import as_i64, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dims import eq
from assay.ir.graph import Value
from assay.ops.registry import FactMissing
from assay.ops.shapes import axes_of

_ROUNDINGS = {"round_prefer_floor": "half_down", "round_prefer_ceil": "half_up", "floor": "floor", "ceil": "ceil"}


@onnx_op("Resize", since=11)
def resize(
    b: Builder,
    n: Source,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
) -> Results:
    axes = axes_of(n.ints("axes", None), b.rank(x))
    transform = n.str("coordinate_transformation_mode")
    crop = transform == "tf_crop_and_resize"
    count = len(axes)
    window = b.array(roi, "roi").tolist() if crop and roi is not None else [0.0] * count + [1.0] * count
    factors, targets = _extents(b, n, x, axes, scales, sizes)
    whole = [_is_unchanged(b, x, axes[i], factors[i] if factors else None, targets[i]) for i in range(count)]
    kept = [i for i in range(count) if not whole[i] or (window[i], window[i + count]) != (0, 1)]
    if not kept:
        return x
    return b.resize(
        x,
        b.vector(*(targets[i] for i in kept)),
        axes=tuple(axes[i] for i in kept),
        mode=n.str("mode"),
        transform="crop" if crop else transform,
        rounding=_ROUNDINGS.get(n.str("nearest_mode"), n.str("nearest_mode")),
        cubic_a=n.float("cubic_coeff_a"),
        antialias=n.flag("antialias", 0),
        exclude_outside=n.flag("exclude_outside"),
        extrapolation=n.float("extrapolation_value"),
        scales=tuple(factors[i] for i in kept) if factors else None,
        roi=tuple(window[i + end] for end in (0, count) for i in kept) if crop else None,
    )


@onnx_op("Resize", since=10)
@onnx_op("Upsample")
def upsample(b: Builder, n: Source, x: Value, scales: Value | None = None) -> Results:
    """Before version 11 growing axes round down and shrinking ones round up."""
    factors = n.floats("scales") if scales is None else tuple(b.array(scales, "scales").tolist())
    for rounding, shrinks in (("floor", False), ("ceil", True)):
        axes = tuple(i for i, factor in enumerate(factors) if factor != 1 and (factor < 1) is shrinks)
        if axes:
            x = b.resize(
                x,
                b.vector(*(_scaled(b, x, i, factors[i]) for i in axes)),
                axes=axes,
                mode="nearest" if n.str("mode") == "nearest" else "linear",
                transform="asymmetric",
                rounding=rounding,
                scales=tuple(factors[i] for i in axes),
            )
    return x


def _extents(
    b: Builder, n: Source, x: Value, axes: Sequence[int], scales: Value | None, sizes: Value | None
) -> tuple[list[float] | None, list[int | Value]]:
    """The scales of the axes, None if the sizes tell them, and the new sizes."""
    if scales is not None and b.shape(scales) != (0,):
        factors: list[float] = b.array(scales, "scales").tolist()
        return factors, [_scaled(b, x, axis, factor) for axis, factor in zip(axes, factors, strict=True)]
    if sizes is None:
        raise ValueError("neither scales nor sizes are given")
    policy = n.str("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return None, list(b.emit("split", sizes, sizes=(1,) * len(axes), axis=0))
    old = np.array([_number(b, x, axis) for axis in axes])
    ratios = np.array(b.ints(sizes, "sizes")) / old
    factor = float(ratios.min() if policy == "not_larger" else ratios.max())
    return [factor] * len(axes), [int(size) for size in np.floor(factor * old + 0.5)]


def _scaled(b: Builder, x: Value, axis: int, factor: float) -> int | Value:
    """⌊size · factor⌋, the product rounded to f32 as the standard's shape inference does."""
    size = b.size(x, axis)
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(factor)))
    if factor.is_integer():
        return b.mul(size, int(factor))
    if (1 / factor).is_integer() and np.frexp(factor)[0] == 0.5:
        return b.div(size, int(1 / factor))
    raise FactMissing("the size of an axis that is scaled")


def _is_unchanged(b: Builder, x: Value, axis: int, factor: float | None, target: int | Value) -> bool:
    """True where an axis surely stays as it is."""
    if factor is not None:
        return factor == 1
    dims = (target,) if isinstance(target, int) else b.fact(target).dims
    return dims is not None and eq(b.dims(x)[axis], dims[0]) is True


def _number(b: Builder, x: Value, axis: int) -> int:
    size = b.size(x, axis)
    if not isinstance(size, int):
        raise FactMissing("the size of an axis whose aspect ratio is kept")
    return size


_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@onnx_op("GridSample")
def grid_sample(b: Builder, n: Source, x: Value, grid: Value) -> Results:
    mode = n.str("mode")
    return b.grid_sample(
        x,
        grid,
        mode=_GRID_MODES.get(mode, mode),
        padding=n.str("padding_mode"),
        align_corners=n.flag("align_corners"),
    )


@onnx_op("AffineGrid")
def affine_grid(b: Builder, n: Source, theta: Value, size: Value) -> Results:
    """The places of all pixels, (…, x, y, z, 1), times the matrices."""
    count = b.shape(size)
    if count is None or not isinstance(count[0], int):
        raise FactMissing("the length of 'size'")
    rank = count[0] - 2
    dtype = b.dtype(theta)
    sizes = [scalar(b, b.gather(size, 2 + axis, axis=0)) for axis in range(rank)]
    shape = b.vector(*sizes)
    lines: list[Value] = []
    for axis in reversed(range(rank)):
        line = _spread_line(b, sizes[axis], n.flag("align_corners"))
        spread = b.reshape(line, [-1 if i == axis else 1 for i in range(rank)])
        lines.append(b.expand(spread, shape))
    lines.append(b.expand(b.constant(1.0, dtypes.f64), shape))
    places = b.concat(*(b.reshape(line, [-1, 1]) for line in lines), axis=1)
    moved = b.matmul(b.cast(places, dtype=dtype), b.transpose(theta, perm=(0, 2, 1)))
    return b.reshape(moved, b.vector(b.size(theta, 0), *sizes, rank))


def _spread_line(b: Builder, count: Value, align_corners: bool) -> Value:
    """`count` places from −1 to 1: from end to end, or in the middle of as many equal parts."""
    steps, whole = b.cast(b.iota(count), dtype=dtypes.f64), b.cast(count, dtype=dtypes.f64)
    if align_corners:
        gaps = b.max(b.sub(whole, 1.0), 1.0)
        return b.sub(b.div(b.mul(steps, 2.0), gaps), 1.0)
    return b.sub(b.div(b.add(b.mul(steps, 2.0), 1.0), whole), 1.0)


@onnx_op("RoiAlign")
def roi_align(b: Builder, n: Source, x: Value, rois: Value, images: Value) -> Results:
    return b.roi_align(
        x,
        rois,
        as_i64(b, images),
        height=n.int("output_height"),
        width=n.int("output_width"),
        sampling=n.int("sampling_ratio"),
        scale=n.float("spatial_scale"),
        aligned=n.str("coordinate_transformation_mode", "output_half_pixel") == "half_pixel",
        mode=n.str("mode"),
    )


@onnx_op("NonMaxSuppression")
def non_max_suppression(
    b: Builder,
    n: Source,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    overlap: Value | None = None,
    least: Value | None = None,
) -> Results:
    return b.non_max_suppression(
        boxes,
        scores,
        b.constant(0, dtypes.i64) if most is None else scalar(b, most),
        b.constant(0.0, b.dtype(boxes)) if overlap is None else scalar(b, overlap),
        None if least is None else scalar(b, least),
        centered=n.flag("center_point_box"),
    )


@onnx_op("ImageDecoder")
def image_decoder(b: Builder, n: Source, data: Value) -> Results:
    return b.decode_image(data, pixels=n.str("pixel_format"))
