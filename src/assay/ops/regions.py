"""Regions of images: pooling over them and choosing among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, eq
from assay.ir.dtypes import FLOATS, Array, DType, boolean
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.registry import Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.vision import as_coordinates, converted, coordinates_parts, scalar_size, working

# --- roi_align


def _roi_shape(x: Fact, rois: Fact, images: Fact, *, height: int, width: int, **attrs: Any) -> list[Shape]:
    if x.shape is not None and len(x.shape) != 4:
        raise ValueError(f"regions are pooled out of a tensor of shape {list(x.shape)}, which has no rows and columns")
    counts = [fact.shape[0] for fact in (rois, images) if fact.shape]
    return [(counts[0] if counts else UNKNOWN, UNKNOWN if x.shape is None else x.shape[1], height, width)]


@dataclass(frozen=True)
class _Axis:
    """One axis of every region, as core values: where it is looked at, (R, bins, grid), kept within the image; which of
    these places lie on the image; which count, (R, 1, grid), and how many do, (R, 1, 1); the image's size."""

    places: Any
    exists: Any
    counted: Any
    count: Any
    size: Any


def _roi_axis(b: Any, x: Any, corners: Any, axis: int, *, bins: int, sampling: int, aligned: bool) -> _Axis:
    start, end = (b.reshape(b.gather(corners, column, axis=1), (-1, 1, 1)) for column in (1 - axis, 3 - axis))
    extent = b.sub(end, start)
    step = b.div(extent if aligned else b.max(extent, 1), bins)
    if sampling > 0:
        count = b.expand(b.constant(sampling, dtypes.i64), b.shape_of(step))
    else:
        count = b.max(b.cast(b.ceil(step), dtype=dtypes.i64), 0)
    line, kind = b.iota(b.max(b.reduce_max(count), 0)), b.dtype(step)
    within = b.div(b.mul(b.add(b.cast(line, dtype=kind), 0.5), step), b.cast(count, dtype=kind))
    places = b.add(b.add(start, b.mul(np.arange(bins)[:, None], step)), within)
    size = scalar_size(b, x, 2 + axis, dtypes.i64)
    y, limit = converted(b, places, working(b.dtype(x))), b.cast(size, dtype=working(b.dtype(x)))
    exists = b.bit_and(b.le(-1, y), b.le(y, limit))
    return _Axis(b.clip(y, 0, b.sub(limit, 1)), exists, b.lt(line, count), count, size)


def _average_parts(b: Any, x: Any, images: Any, axes: list[_Axis]) -> Any:
    """Bilinear sampling and the mean are linear and separable: one matrix an axis and region does both."""
    rows, columns = (_pooling_matrix(b, axis) for axis in axes)
    picked = b.matmul(b.unsqueeze(rows, axes=(1,)), b.gather(x, images, axis=0))
    total = b.matmul(picked, b.transpose(b.unsqueeze(columns, axes=(1,)), perm=(0, 1, 3, 2)))
    count = b.max(b.mul(axes[0].count, axes[1].count), 1)
    return b.div(total, b.cast(b.unsqueeze(count, axes=(1,)), dtype=b.dtype(x)))


def _pooling_matrix(b: Any, axis: _Axis) -> Any:
    """How much of each pixel each bin takes in: (R, bins, size)."""
    pixels = b.cast(b.iota(axis.size), dtype=b.dtype(axis.places))
    near = b.max(b.sub(1, b.abs(b.sub(b.unsqueeze(axis.places, axes=(3,)), pixels))), 0)
    used = b.unsqueeze(b.bit_and(axis.exists, axis.counted), axes=(3,))
    return b.reduce_sum(b.where(used, near, 0), axes=(2,))


def _maximum_parts(b: Any, x: Any, images: Any, axes: list[_Axis]) -> Any:
    """The largest weighted corner of all places, corners of no weight included; 0 where no place counts."""
    channels = b.size(x, 1)
    rows, columns = _corners(b, axes[0], axes[1].size), _corners(b, axes[1], 1)
    index, weights, counted = (
        b.emit(join, b.unsqueeze(row, axes=(2,)), b.unsqueeze(column, axes=(1,)))[0]
        for join, row, column in zip(("add", "mul", "bit_and"), rows, columns, strict=True)
    )
    image = b.expand(b.reshape(images, (-1, 1, 1)), b.shape_of(index))
    places = b.concat(b.unsqueeze(image, axes=(3,)), b.unsqueeze(index, axes=(3,)), axis=3)
    pixels = b.reshape(x, b.vector(b.size(x, 0), channels, volume(b, x, 2, 3)))
    found = b.gather_nd(b.transpose(pixels, perm=(0, 2, 1)), places)
    masked = b.where(b.unsqueeze(counted, axes=(3,)), b.mul(found, b.unsqueeze(weights, axes=(3,))), -np.inf)
    split = [size for axis in axes for size in (b.size(axis.places, 1), _doubled(b, b.size(axis.places, 2)))]
    largest = b.reduce_max(b.reshape(masked, b.vector(b.size(index, 0), *split, channels)), axes=(2, 4))
    empty = b.unsqueeze(b.eq(b.mul(axes[0].count, axes[1].count), 0), axes=(1,))
    return b.where(empty, 0, b.transpose(largest, perm=(0, 3, 1, 2)))


def _corners(b: Any, axis: _Axis, stride: Any) -> tuple[Any, Any, Any]:
    """The pixels before and after every place, times `stride`, their weights and whether they count: (R, bins · grid · 2)."""
    kind = b.dtype(axis.places)
    low = b.floor(axis.places)
    high = b.min(b.add(low, 1), b.cast(b.sub(axis.size, 1), dtype=kind))
    share = b.sub(axis.places, low)
    shape = b.vector(b.size(low, 0), _doubled(b, volume(b, low, 1, 2)))

    def paired(before: Any, after: Any) -> Any:
        pair = b.concat(b.unsqueeze(before, axes=(3,)), b.unsqueeze(after, axes=(3,)), axis=3)
        return b.reshape(pair, shape)

    weights = (b.where(axis.exists, weight, 0) for weight in (b.sub(1, share), share))
    counted = b.expand(axis.counted, b.shape_of(low))
    return b.mul(b.cast(paired(low, high), dtype=dtypes.i64), stride), paired(*weights), paired(counted, counted)


def _doubled(b: Any, count: Any) -> Any:
    return 2 * count if isinstance(count, int) else b.mul(count, 2)


def _roi_parts(
    b: Any,
    x: Any,
    rois: Any,
    images: Any,
    *,
    height: int,
    width: int,
    sampling: int,
    scale: float,
    aligned: bool,
    mode: str,
) -> Any:
    corners = b.mul(coordinates_parts(b, rois), scale)
    corners = b.sub(corners, 0.5) if aligned else corners
    wide = converted(b, x, working(b.dtype(x)))
    axes = [
        _roi_axis(b, wide, corners, axis, bins=bins, sampling=sampling, aligned=aligned)
        for axis, bins in enumerate((height, width))
    ]
    pool = _average_parts if mode == "avg" else _maximum_parts
    return converted(b, pool(b, wide, images, axes), b.dtype(x))


def _roi_samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    rois = np.array([[0, 0, 4, 3], [1.5, 0.5, 3, 3.25], [-3, -2, 1, 9], [2, 2, 2, 2]], dtype.numpy)
    images = np.array([0, 1, 1, 0])
    for mode in ("avg", "max"):
        for aligned in (False, True):
            for sampling in (0, 2):
                attrs = {"height": 2, "width": 3, "sampling": sampling, "aligned": aligned, "mode": mode}
                yield draw(rng, dtype, (2, 3, 5, 4)), rois, images, attrs
        none = (np.zeros((0, 4), dtype.numpy), np.zeros(0, np.int64))
        yield draw(rng, dtype, (1, 2, 3, 3)), *none, {"height": 1, "width": 2, "mode": mode, "scale": 0.5}


@op(
    "T, T, i64 -> T",
    T=FLOATS,
    shape=_roi_shape,
    tolerance=Tolerance.ACCUMULATED,
    parts=_roi_parts,
    samples=listed(_roi_samples, 2),
)
def roi_align(
    x: Array,
    rois: Array,
    images: Array,
    *,
    height: int,
    width: int,
    sampling: int = 0,
    scale: float = 1.0,
    aligned: bool = True,
    mode: str = "avg",
) -> Array:
    """Regions (x₁, y₁, x₂, y₂) · scale of the named images of x (N, C, H, W), each pooled into height × width bins. A bin is
    looked at in `sampling`² places (0: as many as it has pixels) by bilinear interpolation; `mode` avg takes their
    mean, max the largest weighted pixel. `aligned` puts pixel centres at halves, else regions are 1 × 1 at least."""
    corners = as_coordinates(rois) * scale
    corners = corners - 0.5 if aligned else corners
    starts, extents = corners[:, 1::-1], corners[:, 3:1:-1] - corners[:, 1::-1]
    steps = (extents if aligned else np.maximum(extents, 1)) / np.array([height, width], corners.dtype)
    counts = np.full(steps.shape, sampling) if sampling > 0 else np.maximum(np.ceil(steps), 0).astype(np.int64)
    result = np.zeros((len(rois), x.shape[1], height, width))
    pool = _pooled_average if mode == "avg" else _pooled_maximum
    for region in range(len(rois) if x.size else 0):
        axes = [
            _Look.at(starts[region, i], steps[region, i], int(counts[region, i]), bins, x.shape[2 + i])
            for i, bins in enumerate((height, width))
        ]
        if counts[region].all():
            result[region] = pool(x[images[region]].astype(np.float64), *axes)
    return result.astype(x.dtype)


@dataclass(frozen=True)
class _Look:
    """One axis of one region: places (bins, count) kept within the image, which of them lie on it, the image's size."""

    places: Array
    exists: Array
    size: int

    @classmethod
    def at(cls, start: Any, step: Any, count: int, bins: int, size: int) -> _Look:
        line, kind = np.arange(count).astype(step.dtype), step.dtype
        places = start + np.arange(bins)[:, None].astype(kind) * step + (line + np.asarray(0.5, kind)) * step / kind.type(count)
        return cls(np.clip(places, 0, size - 1).astype(np.float64), (places >= -1) & (places <= size), size)


def _pooled_average(image: Array, rows: _Look, columns: _Look) -> Array:
    left, right = (
        (np.maximum(1 - np.abs(look.places[..., None] - np.arange(look.size)), 0) * look.exists[..., None]).mean(axis=1)
        for look in (rows, columns)
    )
    return left @ image @ right.T


def _pooled_maximum(image: Array, rows: _Look, columns: _Look) -> Array:
    (top, above), (left, before) = ((_pair(look), _pair_weights(look)) for look in (rows, columns))
    found = image[:, top.reshape(-1, 1), left.reshape(-1)] * (above.reshape(-1, 1) * before.reshape(-1))
    return found.reshape(-1, len(top), top[0].size, len(left), left[0].size).max(axis=(2, 4))


def _pair(look: _Look) -> Array:
    low = np.floor(look.places).astype(np.int64)
    return np.stack([low, np.minimum(low + 1, look.size - 1)], axis=-1)


def _pair_weights(look: _Look) -> Array:
    share = look.places - np.floor(look.places)
    return np.stack([1 - share, share], axis=-1) * look.exists[..., None]


# --- non_max_suppression


def _nms_shape(boxes: Fact, scores: Fact, *rest: Fact | None, **attrs: Any) -> list[Shape]:
    if boxes.shape is not None and scores.shape is not None:
        (batch, count, four), (same_batch, _, same_count) = boxes.shape, scores.shape
        if any(eq(*pair) is False for pair in ((batch, same_batch), (count, same_count), (four, 4))):
            raise ValueError(f"scores of shape {list(scores.shape)} do not fit boxes of shape {list(boxes.shape)}")
    return [(UNKNOWN, 3)]


def _nms_parts(
    b: Any, boxes: Any, scores: Any, limit: Any, overlap: Any, least: Any = None, *, centered: bool = False
) -> Any:
    batch, classes, count = (b.size(scores, axis) for axis in range(3))
    ranked, order = b.emit("sort", scores, axis=2, descending=True)
    alive = b.lt(least, ranked) if least is not None else b.expand(b.constant(True), b.shape_of(ranked))
    spread = b.reshape(order, b.vector(batch, volume(b, scores, 1, 2), 1))
    sorted_boxes = b.reshape(b.gather_nd(boxes, spread, batch_dims=1), b.vector(batch, classes, count, 4))
    low, high = _corner_parts(b, sorted_boxes, centered)

    body = b.child()
    iteration, go = body.input(TensorType(dtypes.i64, ())), body.input(TensorType(boolean, ()))
    left = body.input(b.fact(alive).type)
    best = body.arg_max(body.cast(left, dtype=dtypes.u8), axis=2, keepdims=True)
    found = body.reduce_max(left, axes=(2,), keepdims=True)
    column = body.unsqueeze(best, axes=(3,))
    pair = body.expand(column, body.vector(batch, classes, 1, 2))
    chosen = [body.gather_elements(corner, pair, axis=2) for corner in (low, high)]
    hidden = _overlaps(body, (low, high), (chosen[0], chosen[1]), overlap)
    line = body.iota(count if isinstance(count, int) else body.reshape(count, []))
    stays = body.bit_and(body.bit_not(hidden), body.ne(line, best))
    rest = body.bit_and(left, stays)
    picked = [body.squeeze(value, axes=(2,)) for value in (best, found)]
    region = body.finish("suppress", (iteration, go, left), (body.reduce_max(rest), rest, *picked))

    _, chosen_ranks, valid = b.emit("loop", b.max(limit, 0), b.reduce_max(alive), alive, regions=(region,))
    by_class = [b.transpose(value, perm=(1, 2, 0)) for value in (chosen_ranks, valid)]
    selected = b.transpose(b.nonzero(by_class[1]), perm=(1, 0))
    rank = b.unsqueeze(b.gather_nd(by_class[0], selected), axes=(1,))
    where = b.slice(selected, [0], [2], [1], axes=(1,))
    box = b.gather_nd(order, b.concat(where, rank, axis=1))
    return b.concat(where, b.unsqueeze(box, axes=(1,)), axis=1)
