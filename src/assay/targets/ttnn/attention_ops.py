"""What attention is surrounded by, as the library has calls for it: heads split and joined, rotations, a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir.dtypes import FLOATS, Array, DType, f32
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.targets.ttnn.ops import TTNN_OPS

# --- heads


def _joined_shape(x: Fact) -> list[Shape]:
    if x.shape is None:
        return [None]
    count, heads, length, width = x.shape
    return [(count, length, heads * width)]


def _joined_parts(b: Any, x: Any) -> Any:
    count, _, length, _ = (b.size(x, axis) for axis in range(4))
    return b.reshape(b.transpose(x, perm=(0, 2, 1, 3)), b.vector(count, length, -1))


def _joined_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (2, 3, 5, 32)), {}
    yield draw(rng, dtype, (1, 12, 1, 64)), {}


@op("T -> T", into=TTNN_OPS, T=FLOATS, shape=_joined_shape, parts=_joined_parts, samples=listed(_joined_samples))
def concat_heads(x: Array) -> Array:
    """Heads (N, H, L, D) side by side: (N, L, H · D)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _apart_shape(x: Fact, *, heads: int) -> list[Shape]:
    if x.shape is None:
        return [None] * 3
    count, length, width = x.shape
    return [(count, heads, length, width // (3 * heads))] * 3


def _apart_parts(b: Any, x: Any, *, heads: int) -> Any:
    count, length = b.size(x, 0), b.size(x, 1)
    apart = b.reshape(x, b.vector(count, length, 3, heads, -1))
    turned = b.transpose(apart, perm=(2, 0, 3, 1, 4))
    places = (b.constant(np.array(at)) for at in range(3))
    return tuple(b.gather(turned, place, axis=0) for place in places)


def _apart_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (2, 5, 3 * 2 * 32)), {"heads": 2}
    yield draw(rng, dtype, (1, 1, 3 * 3 * 64)), {"heads": 3}


@op("T -> T, T, T", into=TTNN_OPS, T=FLOATS, shape=_apart_shape, parts=_apart_parts, samples=listed(_apart_samples))
def split_heads(x: Array, *, heads: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values that lie side by side (N, L, 3 · H · D), each as heads (N, H, L, D)."""
    apart = x.reshape(x.shape[0], x.shape[1], 3, heads, -1).transpose(2, 0, 3, 1, 4)
    return apart[0], apart[1], apart[2]


# --- rotations


def _same_shape(x: Fact, cos: Fact, sin: Fact) -> list[Shape]:
    return [x.shape]


def _rotary_parts(b: Any, x: Any, cos: Any, sin: Any) -> Any:
    half, last = b.static_shape(x)[-1] // 2, (b.rank(x) - 1,)
    low = b.slice(x, [0], [half], [1], axes=last)
    high = b.slice(x, [half], [2 * half], [1], axes=last)
    turned = b.concat(b.neg(high), low, axis=b.rank(x) - 1)
    return b.add(b.mul(x, cos), b.mul(turned, sin))


def _rotary_samples(rng: Rng, dtype: DType) -> Any:
    for shape in ((2, 3, 5, 64), (1, 2, 1, 32), (1, 4, 33, 128)):
        tables = (draw(rng, dtype, (1, 1, *shape[2:]), -1, 1) for _ in range(2))
        yield draw(rng, dtype, shape), *tables, {}


@op(
    "T, T, T -> T",
    into=TTNN_OPS,
    T=FLOATS,
    shape=_same_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    parts=_rotary_parts,
    samples=listed(_rotary_samples),
)
def rotary(x: Array, cos: Array, sin: Array) -> Array:
    """Heads (N, H, L, D) whose two halves are turned by the angles of their places: x · cos + (−high, low) · sin, with
    tables (1, 1, L, D). Rounded once."""
    half = x.shape[-1] // 2
    return x * cos + np.concatenate([-x[..., half:], x[..., :half]], axis=-1) * sin


def _angles_shape(places: Fact, *, frequencies: Sequence[float]) -> list[Shape]:
    return [None if places.shape is None else (*places.shape[:-1], 2 * len(frequencies))] * 2


def _angles_parts(b: Any, places: Any, *, frequencies: Sequence[float]) -> Any:
    angles = b.mul(b.cast(places, dtype=f32), b.constant(np.array(frequencies, np.float32)))
    both = b.concat(angles, angles, axis=b.rank(places) - 1)
    return b.cos(both), b.sin(both)


def _angles_samples(rng: Rng, dtype: DType) -> Any:
    yield rng.integers(0, 40, (1, 7, 1)), {"frequencies": tuple(rng.uniform(0, 1, 16).astype(np.float32).tolist())}
    yield np.array([[[9]]]), {"frequencies": (0.5,)}


@op(
    "i64 -> f32, f32",
    into=TTNN_OPS,
    shape=_angles_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    parts=_angles_parts,
    samples=listed(_angles_samples),
)
def rotations(places: Array, *, frequencies: Sequence[float]) -> tuple[Array, Array]:
    """The cosines and sines of places (…, 1) times frequencies, each twice side by side. Angles are not rounded: beyond
    256, no bfloat16 tells one place from the next."""
    angles = places * np.array(frequencies)
    both = np.concatenate([angles, angles], axis=-1)
    return np.cos(both), np.sin(both)


# --- the cache


def _cache_shape(cache: Fact, rows: Fact, place: Fact) -> list[Shape]:
    if cache.shape is not None and rows.shape is not None:
        fit = zip((1, *cache.shape[:2], cache.shape[3]), rows.shape, strict=True)
        if any(differ(one, other) for one, other in fit):
            raise ValueError(f"rows {list(rows.shape)} do not fit a cache {list(cache.shape)}")
    return [cache.shape]


def _cache_parts(b: Any, cache: Any, rows: Any, place: Any) -> Any:
    turned = b.transpose(cache, perm=(2, 0, 1, 3))
    return b.transpose(b.scatter_nd(turned, b.reshape(place, [1, 1]), rows), perm=(1, 2, 0, 3))


def _cache_samples(rng: Rng, dtype: DType) -> Any:
    for shape, place in (((2, 3, 64, 32), 5), ((1, 12, 96, 64), 95)):
        rows = draw(rng, dtype, (1, *shape[:2], shape[3]))
        yield draw(rng, dtype, shape), rows, np.array([place]), {}


@op(
    "T, T, i64 -> T",
    into=TTNN_OPS,
    T=FLOATS,
    shape=_cache_shape,
    parts=_cache_parts,
    samples=listed(_cache_samples),
)
def update_cache(cache: Array, rows: Array, place: Array) -> Array:
    """A cache (N, H, L, D) in which the rows (1, N, H, D) are written at one place of L."""
    result = cache.copy()
    result[:, :, int(place.reshape(-1)[0])] = rows[0]
    return result
