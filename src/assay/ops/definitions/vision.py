"""Sampling of images at given places, and decoding of image files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import FLOATS, NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.needs import explained
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.resize import cubic_weight
from assay.ops.parts import check_among, converted, scalar_size, volume, working
from assay.ops.registry import Sample, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import unknown

if TYPE_CHECKING:
    from assay.ops.builder import Builder

# --- grid_sample

_CUBIC_A = -0.75
_PADDINGS = ("zeros", "border", "reflection")
_STEPS: Mapping[str, Array] = {"nearest": np.arange(1), "linear": np.arange(2), "cubic": np.arange(-1, 3)}
"""The elements that a mode reads, counted from the one at or below the place."""


def _reflect(x: Array, size: int, align_corners: bool) -> Array:
    """x mirrored at the ends of an axis until it lies on it."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    return low + span - np.abs(np.mod(x - low, 2 * span) - span) if span > 0 else np.zeros_like(x)


def _axis_taps(places: Array, size: int, mode: str, padding: str, align_corners: bool) -> tuple[Array, Array, Array]:
    """For normalised places on one axis, the elements to read, their weights and whether they are elements of the axis
    at all, all (…, taps)."""
    x = (places + 1) / 2 * (size - 1) if align_corners else ((places + 1) * size - 1) / 2
    x = np.rint(x).astype(np.float64) if mode == "nearest" else x
    if padding == "border":
        x = np.clip(x, -2, size + 1)  # further out, where infinity lies, there is nothing but border
    moves = mode == "linear" and padding != "zeros"  # the place itself, not what it reads
    if moves:
        x = np.clip(_reflect(x, size, align_corners) if padding == "reflection" else x, 0, size - 1)
    taps = np.floor(x)[..., None] + _STEPS[mode]
    distance = np.abs(taps - x[..., None])
    weights = cubic_weight(distance, _CUBIC_A) if mode == "cubic" else 1 - distance
    held = (taps >= 0) & (taps < size) if padding == "zeros" else ~((taps < 0) | (taps >= size)) | (not moves)
    positions = _reflect(taps, size, align_corners) if padding == "reflection" and not moves else taps
    return np.clip(positions.astype(np.int64), 0, size - 1), np.where(held, weights, 0.0), held


def _grid_shape(x: Fact, grid: Fact, *, mode: str, padding: str, align_corners: bool) -> list[Shape]:
    check_among("mode", mode, _STEPS)
    check_among("padding", padding, _PADDINGS)
    if x.shape is None or grid.shape is None:
        known = x.shape or grid.shape
        return [unknown(None if known is None else len(known))]
    rank = len(x.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2 or differ(grid.shape[-1], rank) or differ(x.shape[0], grid.shape[0]):
        raise ValueError(f"a grid of shape {list(grid.shape)} does not fit an image of shape {list(x.shape)}")
    if any(falls_short(size, 1) for size in x.shape[2:]):
        raise ValueError(f"an image of shape {list(x.shape)} has no elements to sample")
    return [(*x.shape[:2], *grid.shape[1:-1])]


def _reflect_parts(b: Builder, x: Any, size: Any, align_corners: bool) -> Any:
    low, span = (0.0, b.sub(size, 1)) if align_corners else (-0.5, size)
    folded = b.abs(b.sub(b.mod(b.sub(x, low), b.mul(span, 2)), span))
    return b.where(b.lt(0, span), b.add(b.sub(span, folded), low), 0)


def _axis_taps_parts(b: Builder, places: Any, size: Any, work: DType, mode: str, padding: str, align: bool) -> Any:
    shifted, count = b.add(places, 1), b.cast(size, dtype=b.dtype(places))
    x = b.mul(b.div(shifted, 2), b.sub(count, 1)) if align else b.div(b.sub(b.mul(shifted, count), 1), 2)
    x, count = converted(b, b.round(x) if mode == "nearest" else x, work), b.cast(size, dtype=work)
    if padding == "border":
        x = b.clip(x, -2, b.add(count, 1))
    moves = mode == "linear" and padding != "zeros"
    if moves:
        x = b.clip(_reflect_parts(b, x, count, align) if padding == "reflection" else x, 0, b.sub(count, 1))
    x = b.unsqueeze(x, axes=(-1,))
    taps = b.add(b.floor(x), _STEPS[mode])
    distance = b.abs(b.sub(taps, x))
    weights = _cubic_parts(b, distance) if mode == "cubic" else b.sub(1, distance)
    held = b.bit_and(b.lt(-1, taps), b.lt(taps, count))
    if padding != "zeros":
        held = b.bit_or(held, b.is_nan(taps)) if moves else b.constant(True)
    positions = _reflect_parts(b, taps, count, align) if padding == "reflection" and not moves else taps
    places = b.clip(b.cast(positions, dtype=dtypes.i64), 0, b.sub(size, 1))
    return places, b.where(held, weights, 0), b.expand(held, b.shape_of(taps))


def _cubic_parts(b: Builder, d: Any) -> Any:
    a = _CUBIC_A
    near = b.add(b.mul(b.mul(b.sub(b.mul(d, a + 2), a + 3), d), d), 1)
    far = b.sub(b.mul(b.add(b.mul(b.sub(b.mul(d, a), 5 * a), d), 8 * a), d), 4 * a)
    return b.where(b.le(d, 1), near, b.where(b.lt(d, 2), far, 0))


def _grid_parts(b: Builder, x: Any, grid: Any, *, mode: str, padding: str, align_corners: bool) -> Any:
    rank, work = b.rank(x) - 2, working(b.dtype(x))
    batch, channels = b.size(x, 0), b.size(x, 1)
    count = volume(b, grid, *range(1, 1 + rank))
    places = converted(b, b.reshape(grid, b.vector(batch, count, rank)), dtypes.f32 if mode == "nearest" else work)
    index, weight, held = b.constant(0, dtypes.i64), b.constant(1, work), b.constant(True)
    for axis in range(rank):
        line = b.gather(places, rank - 1 - axis, axis=2)
        size = scalar_size(b, x, 2 + axis)
        if not isinstance(b.size(x, 2 + axis), int):
            b.require(b.lt(0, size), message="an image has no elements to sample")
        positions, weights, inside = _axis_taps_parts(b, line, size, work, mode, padding, align_corners)
        spread = tuple(range(2, 2 + axis)) + tuple(range(3 + axis, 2 + rank))
        index = b.add(b.mul(index, size), b.unsqueeze(positions, axes=spread))
        weight = b.mul(weight, b.unsqueeze(weights, axes=spread))
        held = b.bit_and(held, b.unsqueeze(inside, axes=spread))
    flat = b.vector(batch, count, len(_STEPS[mode]) ** rank, 1)
    pixels = b.reshape(x, b.vector(batch, channels, volume(b, x, *range(2, 2 + rank))))
    found = b.gather_nd(b.transpose(pixels, perm=(0, 2, 1)), b.reshape(index, flat), batch_dims=1)
    weight = b.reshape(weight, flat)
    if mode == "nearest":
        found = b.where(b.lt(0, weight), found, 0)
    else:
        found = b.mul(b.where(b.reshape(held, flat), converted(b, found, work), 0), weight)
    result = b.transpose(converted(b, b.reduce_sum(found, axes=(2,)), b.dtype(x)), perm=(0, 2, 1))
    return b.reshape(result, b.vector(batch, channels, *(b.size(grid, 1 + axis) for axis in range(rank))))


def _grid_samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    for mode in _STEPS:
        for padding in _PADDINGS:
            for align in (False, True):
                attrs = {"mode": mode, "padding": padding, "align_corners": align}
                yield draw(rng, dtype, (2, 3, 4, 5)), draw(rng, dtypes.f32, (2, 3, 2, 2), -2, 2), attrs
    yield draw(rng, dtype, (1, 2, 3, 2, 4)), draw(rng, dtypes.f64, (1, 2, 2, 3, 3), -1, 1), {"mode": "linear"}
    yield draw(rng, dtype, (1, 1, 6)), draw(rng, dtypes.f16, (1, 4, 1), -1, 1), {"mode": "cubic"}
    yield draw(rng, dtype, (0, 2, 3, 2)), draw(rng, dtypes.f32, (0, 2, 2, 2), -1, 1), {"mode": "linear"}


@op(
    "T, G -> T",
    T=NUMERIC,
    G=FLOATS,
    shape=_grid_shape,
    tolerance=Tolerance.ACCUMULATED,
    parts=_grid_parts,
    samples=listed(_grid_samples),
)
def grid_sample(
    x: Array, grid: Array, *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Array:
    """x (N, C, D…) read at the places of grid (N, O…, axes). Coordinates come last axis first, from −1 to 1: the
    centres of the end elements with `align_corners`, else their outer edges. `mode` is nearest, linear or cubic; beyond
    the edges x continues as `padding` says: zeros, border or reflection. Integers truncate. `nearest` finds its places
    in f32, as the usual runtimes do, so that ties agree."""
    batch, channels, *spatial = x.shape
    count = math.prod(grid.shape[1:-1])
    places = grid.reshape(batch, count, len(spatial)).astype(np.float32 if mode == "nearest" else np.float64)
    lines = zip(np.moveaxis(places, -1, 0)[::-1], spatial, strict=True)
    taps = [_axis_taps(line, size, mode, padding, align_corners) for line, size in lines]
    pixels = x.reshape(batch, channels, math.prod(spatial))
    exact = pixels if mode == "nearest" else pixels.astype(np.float64)
    total = np.zeros((batch, channels, places.shape[1]), exact.dtype)
    for choice in np.ndindex(*(len(_STEPS[mode]),) * len(spatial)):
        index: Array = np.zeros(places.shape[:2], np.int64)
        weight: Array = np.ones(places.shape[:2])
        held: Array = np.ones(places.shape[:2], np.bool_)
        for (positions, weights, inside), size, tap in zip(taps, spatial, choice, strict=True):
            index = index * size + positions[..., tap]
            weight = weight * weights[..., tap]
            held = held & inside[..., tap]
        found = np.where(held[:, None], np.take_along_axis(exact, index[:, None], axis=2), 0)
        weight = weight[:, None]
        total = np.where(weight > 0, found, total) if mode == "nearest" else total + found * weight
    return total.astype(x.dtype).reshape(batch, channels, *grid.shape[1:-1])


# --- images in files

_PIXELS: Mapping[str, tuple[str, int]] = {"RGB": ("RGB", 1), "BGR": ("RGB", -1), "Grayscale": ("L", 1)}
"""Per pixel format, Pillow's name of the channels and the direction to read them in."""


def _image_shape(data: Fact, *, pixels: str) -> list[Shape]:
    return [(UNKNOWN, UNKNOWN, len(_PIXELS[pixels][0]))]


@op(
    "u8 -> u8",
    shape=_image_shape,
    host=True,
    samples=lambda rng, dtype: [
        Sample((np.frombuffer(b"P5 2 3 255 abcdef", np.uint8),), {"pixels": pixels}, (0,)) for pixels in _PIXELS
    ],
)
def decode_image(data: Array, *, pixels: str = "RGB") -> Array:
    """The image in the bytes of a file as (height, width, channels), RGB, BGR or Grayscale; of size zero if the bytes
    are no image that can be read."""
    with explained():
        from PIL import Image
    channels, direction = _PIXELS[pixels]
    try:
        with Image.open(io.BytesIO(data.tobytes())) as image:
            decoded = np.asarray(image.convert(channels))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return np.zeros((0, 0, len(channels)), np.uint8)
    return decoded.reshape(*decoded.shape[:2], -1)[..., ::direction]
