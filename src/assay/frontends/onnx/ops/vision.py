"""ONNX ops on images: resampling, regions of interest, boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dims import eq
from assay.ir.graph import Value
from assay.ops.builder import FactMissing

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
    rank = b.rank(x)
    axes = [axis % rank for axis in n.ints("axes", None) or range(rank)]
    transform = n.str("coordinate_transformation_mode")
    crop = transform == "tf_crop_and_resize"
    count = len(axes)
    window = b.array(roi, "roi").tolist() if crop and roi is not None else [0.0] * count + [1.0] * count
    factors, targets = _extents(b, n, x, axes, scales, sizes)
    whole = [_is_unchanged(b, x, axes[i], factors and factors[i], targets[i]) for i in range(count)]
    kept = [i for i in range(count) if not whole[i] or (window[i], window[i + count]) != (0, 1)]
    if not kept:
        return x
    return b.resize(
        x,
        b.vector(*(targets[i] for i in kept)),
        axes=tuple(axes[i] for i in kept),
        mode=n.str("mode"),
        transform="crop" if crop else transform,
        rounding=_ROUNDINGS[n.str("nearest_mode")],
        cubic_a=n.float("cubic_coeff_a"),
        antialias=n.flag("antialias", 0),
        exclude_outside=n.flag("exclude_outside"),
        extrapolation=n.float("extrapolation_value"),
        scales=factors and tuple(factors[i] for i in kept),
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
        return None, [b.slice(sizes, [i], [i + 1], [1], axes=(0,)) for i in range(len(axes))]
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
