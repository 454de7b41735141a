"""Regions of images: pooling over them and choosing among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import FLOATS, Array, DType, boolean
from assay.ir.facts import SMALL, Fact
from assay.ir.graph import Graph
from assay.ir.types import Shape, TensorType, Type
from assay.ops.conditions import differ
from assay.ops.definitions.reduction import sort_order
from assay.ops.parts import check_among, converted, scalar_size, sized, volume, working
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need

if TYPE_CHECKING:
    from assay.ops.builder import Builder

# --- roi_align


def _roi_shape(x: Fact, rois: Fact, images: Fact, *, height: int, width: int, mode: str, **attrs: Any) -> list[Shape]:
    check_among("mode", mode, ("avg", "max"))
    counts = [fact.shape[0] for fact in (rois, images) if fact.shape]
    need("the matrix of regions", rois.shape, (UNKNOWN, 4))
    need("the vector of images", images.shape, tuple(counts[:1]) or (UNKNOWN,))
    return [(counts[0] if counts else UNKNOWN, UNKNOWN if x.shape is None else x.shape[1], height, width)]


class _Axis(NamedTuple):
    """One axis of every region, as core values: where it is looked at, (R, bins, grid), kept within the image; which of
    these places lie on the image; which count, (R, 1, grid), and how many do, (R, 1, 1); the image's size."""

    places: Any
    exists: Any
    counted: Any
    count: Any
    size: Any


def _roi_axis(b: Builder, x: Any, corners: Any, axis: int, *, bins: int, sampling: int, aligned: bool) -> _Axis:
    start, end = (b.reshape(b.gather(corners, column, axis=1), (-1, 1, 1)) for column in (1 - axis, 3 - axis))
    extent, kind = b.sub(end, start), b.dtype(x)
    step = b.div(extent if aligned else b.max(extent, 1), bins)
    if sampling > 0:
        count = b.expand(b.constant(sampling, dtypes.i64), b.shape_of(step))
    else:
        count = b.max(b.cast(b.ceil(converted(b, step, dtypes.f32)), dtype=dtypes.i64), 0)
    line = b.iota(b.max(b.reduce_max(count), 0))
    within = b.div(b.mul(b.add(b.cast(line, dtype=kind), 0.5), step), b.cast(b.max(count, 1), dtype=kind))
    places = b.add(b.add(start, b.mul(np.arange(bins)[:, None], step)), within)
    size = scalar_size(b, x, 2 + axis)
    limit = b.cast(size, dtype=kind)
    exists = b.bit_and(b.le(-1, places), b.le(places, limit))
    return _Axis(b.clip(places, 0, b.sub(limit, 1)), exists, b.lt(line, count), count, size)


def _average_parts(b: Builder, x: Any, images: Any, axes: list[_Axis]) -> Any:
    """Bilinear sampling and the mean are linear and separable: one matrix an axis and region does both."""
    rows, columns = (_pooling_matrix(b, axis) for axis in axes)
    picked = b.matmul(b.unsqueeze(rows, axes=(1,)), b.gather(x, images, axis=0))
    total = b.matmul(picked, b.transpose(b.unsqueeze(columns, axes=(1,)), perm=(0, 1, 3, 2)))
    count = b.max(b.mul(axes[0].count, axes[1].count), 1)
    return b.div(total, b.cast(b.unsqueeze(count, axes=(1,)), dtype=b.dtype(x)))


def _pooling_matrix(b: Builder, axis: _Axis) -> Any:
    """How much of each pixel each bin takes in: (R, bins, size)."""
    pixels = b.cast(b.iota(axis.size), dtype=b.dtype(axis.places))
    near = b.max(b.sub(1, b.abs(b.sub(b.unsqueeze(axis.places, axes=(3,)), pixels))), 0)
    used = b.unsqueeze(b.bit_and(axis.exists, axis.counted), axes=(3,))
    return b.reduce_sum(b.where(used, near, 0), axes=(2,))


def _maximum_parts(b: Builder, x: Any, images: Any, axes: list[_Axis]) -> Any:
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


def _corners(b: Builder, axis: _Axis, stride: Any) -> tuple[Any, Any, Any]:
    """The pixels around every place times `stride`, their weights, whether they count: (R, bins · grid · 2)."""
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


def _doubled(b: Builder, count: Any) -> Any:
    return 2 * count if isinstance(count, int) else b.mul(count, 2)


def _roi_parts(
    b: Builder,
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
    wide = converted(b, x, working(b.dtype(x)))
    corners = b.mul(converted(b, rois, b.dtype(wide)), scale)
    corners = b.sub(corners, 0.5) if aligned else corners
    axes = [
        _roi_axis(b, wide, corners, axis, bins=bins, sampling=sampling, aligned=aligned)
        for axis, bins in enumerate((height, width))
    ]
    pool = _average_parts if mode == "avg" else _maximum_parts
    return converted(b, pool(b, wide, sized(b, images, (rois, 0)), axes), b.dtype(x))


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
    ranks={"x": 4, "rois": 2, "images": 1},
    shape=_roi_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_roi_parts,
    samples=listed(_roi_samples, 1, 2),
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
    """Regions (x₁, y₁, x₂, y₂) · scale of the named images of x (N, C, H, W), each pooled into height × width bins. A
    bin is looked at in `sampling`² places (0: as many as it has pixels) by bilinear interpolation; `mode` avg takes
    their mean, max the largest weighted pixel. `aligned` puts pixel centres at
    halves; without it regions are 1 × 1 at least."""
    corners = rois * scale - (0.5 if aligned else 0.0)
    starts, extents = corners[:, 1::-1], corners[:, 3:1:-1] - corners[:, 1::-1]
    steps = (extents if aligned else np.maximum(extents, 1)) / [height, width]
    adaptive = np.maximum(np.ceil(steps.astype(np.float32)), 0).astype(np.int64)
    counts = np.full(steps.shape, sampling) if sampling > 0 else adaptive
    result = np.zeros((len(rois), x.shape[1], height, width))
    pool = _pooled_average if mode == "avg" else _pooled_maximum
    for region in range(len(rois) if x.size else 0):
        axes = [
            _Look.at(starts[region, i], steps[region, i], int(counts[region, i]), bins, x.shape[2 + i])
            for i, bins in enumerate((height, width))
        ]
        if counts[region].all():
            result[region] = pool(x[images[region]], *axes)
    return result


class _Look(NamedTuple):
    """One axis of one region: places (bins, count) kept within the image, which of them lie on it, the image's size."""

    places: Array
    exists: Array
    size: int

    @classmethod
    def at(cls, start: Any, step: Any, count: int, bins: int, size: int) -> _Look:
        places = start + np.arange(bins)[:, None] * step + (np.arange(count) + 0.5) * step / count
        return cls(np.clip(places, 0, size - 1), (places >= -1) & (places <= size), size)


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
        if any(differ(*pair) for pair in ((batch, same_batch), (count, same_count), (four, 4))):
            raise ValueError(f"scores of shape {list(scores.shape)} do not fit boxes of shape {list(boxes.shape)}")
    facts = (boxes, scores, *rest)
    if any(fact is not None and (fact.concrete is None or fact.concrete.size > SMALL) for fact in facts):
        return [(UNKNOWN, 3)]
    arrays = [None if fact is None else fact.concrete for fact in facts]
    return [non_max_suppression.reference(*arrays, **attrs).shape]


def _corner_parts(b: Builder, boxes: Any, centered: bool) -> tuple[Any, Any]:
    """The lower and the upper corner of boxes, (…, 2) each."""
    axis = b.rank(boxes) - 1
    first, second = b.emit("split", boxes, sizes=(2, 2), axis=axis)
    if centered:
        half = b.div(second, 2)
        return b.sub(first, half), b.add(first, half)
    return b.min(first, second), b.max(first, second)


def _overlap_parts(b: Builder, low: Any, high: Any, chosen: tuple[Any, Any], limit: Any) -> Any:
    """Which boxes overlap the chosen one by more than `limit`."""
    axis = (b.rank(low) - 1,)
    shared = b.reduce_prod(b.max(b.sub(b.min(high, chosen[1]), b.max(low, chosen[0])), 0), axes=axis)
    area, own = b.reduce_prod(b.sub(high, low), axes=axis), b.reduce_prod(b.sub(chosen[1], chosen[0]), axes=axis)
    union = b.sub(b.add(area, own), shared)
    positive = b.lt(0, b.min(b.min(shared, union), b.min(area, own)))
    return b.bit_and(positive, b.lt(limit, b.div(shared, union)))


def _nms_parts(
    b: Builder, boxes: Any, scores: Any, most: Any, overlap: Any, least: Any = None, *, centered: bool
) -> Any:
    ranked, order = b.emit("sort", scores, axis=2, descending=True)
    alive = b.expand(b.constant(True), b.shape_of(scores)) if least is None else b.lt(least, ranked)
    flat = b.reshape(order, b.vector(b.size(boxes, 0), volume(b, scores, 1, 2), 1))
    by_rank = b.gather_nd(boxes, flat, batch_dims=1)
    corners = _corner_parts(b, b.reshape(by_rank, b.vector(*(b.size(scores, axis) for axis in range(3)), 4)), centered)
    region = _choice_body(b, b.fact(alive).type, corners, overlap)
    _, ranks, valid = b.emit("loop", b.max(most, 0), b.reduce_max(alive), alive, regions=(region,))
    chosen = b.transpose(b.nonzero(b.transpose(valid, perm=(1, 2, 0))), perm=(1, 0))
    lists = b.slice(chosen, [0], [2], [1], axes=(1,))
    rank = b.unsqueeze(b.gather_nd(b.transpose(ranks, perm=(1, 2, 0)), chosen), axes=(1,))
    box = b.gather_nd(order, b.concat(lists, rank, axis=1))
    return b.concat(lists, b.unsqueeze(box, axes=(1,)), axis=1)


def _choice_body(b: Builder, kind: Type, corners: tuple[Any, Any], overlap: Any) -> Graph:
    """One step of all lists at once: take the best box that is alive, drop it and what overlaps it."""
    body = b.child()
    iteration, go = body.input(TensorType(dtypes.i64, ())), body.input(TensorType(boolean, ()))
    alive = body.input(kind)
    best = body.arg_max(body.cast(alive, dtype=dtypes.u8), axis=2, keepdims=True)
    lists = body.slice(body.shape_of(alive), [0], [2], [1], axes=(0,))
    place = body.expand(body.unsqueeze(best, axes=(3,)), body.vector(lists, 1, 2))
    low, high = (body.gather_elements(corner, place, axis=2) for corner in corners)
    line = body.iota(scalar_size(body, alive, 2))
    goes = body.bit_or(_overlap_parts(body, *corners, (low, high), overlap), body.eq(line, best))
    rest = body.bit_and(alive, body.bit_not(goes))
    valid = body.reduce_max(alive, axes=(2,))
    outputs = (body.reduce_max(rest), rest, body.squeeze(best, axes=(2,)), valid)
    return body.finish("choose", (iteration, go, alive), outputs)


def _nms_samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    for centered in (False, True):
        boxes, scores = draw(rng, dtype, (2, 9, 4), 0.5, 4), draw(rng, dtype, (2, 3, 9), 0, 1)
        for most, least in ((3, 0.4), (9, None), (0, None)):
            bounds = [None if value is None else np.array(value, dtype.numpy) for value in (0.3, least)]
            yield boxes, scores, np.array(most), *bounds, {"centered": centered}
    empty = draw(rng, dtype, (1, 0, 4)), draw(rng, dtype, (1, 2, 0))
    yield *empty, np.array(5), np.array(0.5, dtype.numpy), None, {"centered": False}


@op(
    "T, T, i64, T, T? -> i64",
    T=FLOATS,
    ranks={"boxes": 3, "scores": 3, "most": 0, "overlap": 0, "least": 0},
    shape=_nms_shape,
    parts=_nms_parts,
    samples=listed(_nms_samples, 2, 3, 4),
)
def non_max_suppression(
    boxes: Array, scores: Array, most: Array, overlap: Array, least: Array | None = None, *, centered: bool = False
) -> Array:
    """For each image and class, the best of its boxes that overlap no better one by more than `overlap` (intersection
    over union) and score above `least`, at most `most` of them: rows (image, class, box), best first, ties by position.
    Boxes (N, boxes, 4) hold opposite corners, or centre and extents if `centered`; scores are (N, classes, boxes)."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        low, high = first - second / 2, first + second / 2
    else:
        low, high = np.minimum(first, second), np.maximum(first, second)
    rows: list[tuple[int, int, int]] = []
    for image, kind in np.ndindex(*scores.shape[:2]):
        order = sort_order(scores[image, kind], 0, descending=True)
        if least is not None:
            order = order[scores[image, kind, order] > least]
        left = max(int(most), 0)
        while left > 0 and order.size:
            best, order = order[0], order[1:]
            rows.append((image, kind, int(best)))
            hidden = _overlaps(low[image], high[image], best, order, overlap)
            order, left = order[~hidden], left - 1
    return np.array(rows, np.int64).reshape(-1, 3)


def _overlaps(low: Array, high: Array, best: int, others: Array, limit: Array) -> Array:
    """Which of the other boxes overlap the best one by more than `limit`."""
    span = np.maximum(np.minimum(high[others], high[best]) - np.maximum(low[others], low[best]), 0)
    shared = span[:, 0] * span[:, 1]
    sides, own_sides = high[others] - low[others], high[best] - low[best]
    area, own = sides[:, 0] * sides[:, 1], own_sides[0] * own_sides[1]
    union = area + own - shared
    return (shared > 0) & (area > 0) & (own > 0) & (union > 0) & (shared / union > limit)
