"""Deformable convolution: a convolution whose kernel samples the input at shifted, fractional places."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import UNKNOWN, product
from assay.ir.dtypes import FLOATS, Array, DType, i64
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.definitions.linear import conv_shape
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need, need_multiple

if TYPE_CHECKING:
    from assay.ir.graph import Value
    from assay.ops.builder import Builder


def _deformed_shape(
    x: Fact,
    w: Fact,
    offset: Fact,
    bias: Fact | None = None,
    mask: Fact | None = None,
    *,
    offset_groups: int,
    **attrs: Any,
) -> list[Shape]:
    (shape,) = conv_shape(x, w, bias, **attrs)
    if shape is None or offset.shape is None:
        return [shape]
    channels, places = (UNKNOWN, UNKNOWN) if x.shape is None or w.shape is None else (x.shape[1], product(w.shape[2:]))
    need_multiple("the axis of channels", channels, offset_groups)
    each = places * offset_groups
    need("the offset", offset.shape, (shape[0], each * (len(shape) - 2), *shape[2:]))
    need("the mask", mask and mask.shape, (shape[0], each, *shape[2:]))
    return [shape]


def _grid(
    kernel: Sequence[int], out: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Array:
    """Where a plain convolution reads: (axes, places of the kernel, places of the result)."""
    places = np.indices(tuple(kernel)).reshape(len(kernel), -1, 1)
    starts = np.indices(tuple(out)).reshape(len(out), 1, -1)

    def column(values: Sequence[int]) -> Array:
        return np.array(values).reshape(-1, 1, 1)

    return starts * column(strides) + places * column(dilations) - column(pads[: len(kernel)])


def _deformed_parts(
    b: Builder,
    x: Any,
    w: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    offset_groups: int,
) -> Any:
    n, channels, *spatial = b.static_shape(x)
    features, depth, *kernel = b.static_shape(w)
    out = b.static_shape(offset)[2:]
    rank, taps, count, dtype = len(kernel), math.prod(kernel), math.prod(out), b.dtype(x)
    shifts = b.transpose(b.reshape(offset, (n, offset_groups, taps, rank, count)), perm=(3, 0, 1, 2, 4))
    base = _grid(kernel, out, strides, pads, dilations)[:, None, None].astype(np.float64)
    places = b.add(shifts, b.constant(base, dtype))
    floors = b.floor(places)
    fractions = [b.gather(b.sub(places, floors), i, axis=0) for i in range(rank)]
    lows = [b.cast(b.gather(floors, i, axis=0), dtype=i64) for i in range(rank)]
    pixels = b.transpose(
        b.reshape(x, (n, offset_groups, channels // offset_groups, math.prod(spatial))), perm=(0, 1, 3, 2)
    )
    parts: list[Value] = []
    for corner in itertools.product((0, 1), repeat=rank):
        weight = b.constant(1, dtype) if mask is None else b.reshape(mask, (n, offset_groups, taps, count))
        flat = b.constant(0, i64)
        for low, fraction, side, size in zip(lows, fractions, corner, spatial, strict=True):
            at = b.add(low, side)
            inside = b.bit_and(b.le(0, at), b.lt(at, size))
            weight = b.where(inside, b.mul(weight, fraction if side else b.sub(1, fraction)), 0)
            flat = b.add(b.mul(flat, size), b.clip(at, 0, size - 1))
        read = b.gather_nd(pixels, b.reshape(flat, (n, offset_groups, taps * count, 1)), batch_dims=2)
        parts.append(b.mul(read, b.reshape(weight, (n, offset_groups, taps * count, 1))))
    columns = b.transpose(functools.reduce(b.add, parts), perm=(0, 1, 3, 2))
    product = b.matmul(
        b.reshape(w, (groups, features // groups, depth * taps)), b.reshape(columns, (n, groups, depth * taps, count))
    )
    result = b.reshape(product, (n, features, *out))
    return result if bias is None else b.add(result, b.reshape(bias, (-1, *(1,) * rank)))


def _deformed_samples(rng: Rng, dtype: DType) -> Any:
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "groups": 1, "offset_groups": 1}
    x, w = draw(rng, dtype, (2, 2, 4, 3)), draw(rng, dtype, (3, 2, 2, 2))
    yield x, w, draw(rng, dtype, (2, 8, 3, 2)), None, None, attrs
    padded = {**attrs, "pads": (1, 0, 1, 1), "strides": (2, 1), "offset_groups": 2}
    yield x, w, draw(rng, dtype, (2, 16, 3, 3)), draw(rng, dtype, (3,)), draw(rng, dtype, (2, 8, 3, 3), 0, 1), padded
    line = {"strides": (1,), "pads": (1, 1), "dilations": (2,), "groups": 2, "offset_groups": 1}
    yield draw(rng, dtype, (1, 4, 6)), draw(rng, dtype, (2, 2, 3)), draw(rng, dtype, (1, 3, 4)), None, None, line


@op(
    "T, T, T, T?, T? -> T",
    T=FLOATS,
    shape=_deformed_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_deformed_parts,
    samples=listed(_deformed_samples),
)
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    offset_groups: int = 1,
) -> Array:
    """`conv` that reads each place of its kernel at an offset (N, offset groups · places · axes, out…), by linear
    interpolation with zeros around x, and times a mask (N, offset groups · places, out…)."""
    n, channels, spatial, kernel, out = x.shape[0], x.shape[1], x.shape[2:], w.shape[2:], offset.shape[2:]
    rank, taps, count = len(kernel), math.prod(kernel), math.prod(out)
    shifts = np.moveaxis(offset.reshape(n, offset_groups, taps, rank, count), 3, 0)
    places = shifts + _grid(kernel, out, strides, pads, dilations)[:, None, None]
    floors = np.floor(places)
    pixels = x.reshape(n, offset_groups, channels // offset_groups, math.prod(spatial))
    total = np.zeros((*pixels.shape[:3], taps * count), x.dtype)
    for corner in itertools.product((0, 1), repeat=rank):
        weight = np.ones(()) if mask is None else mask.reshape(n, offset_groups, taps, count)
        flat = np.zeros((), np.int64)
        for i, side in enumerate(corner):
            fraction = places[i] - floors[i]
            at = floors[i].astype(np.int64) + side
            weight = np.where((at >= 0) & (at < spatial[i]), weight * (fraction if side else 1 - fraction), 0)
            flat = flat * spatial[i] + np.clip(at, 0, spatial[i] - 1)
        read = np.take_along_axis(pixels, flat.reshape(n, offset_groups, 1, taps * count), axis=-1)
        total += read * weight.reshape(n, offset_groups, 1, taps * count)
    columns = total.reshape(n, groups, w.shape[1] * taps, count)
    result = np.matmul(w.reshape(groups, w.shape[0] // groups, w.shape[1] * taps), columns).reshape(n, w.shape[0], *out)
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)
