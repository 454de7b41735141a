"""aten poolings whose windows follow from the size of the result, evenly or at random, and the gradients of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.frontends.torch.ops.common import Number, tensor, with_elements
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.ops.pooling import batched, over_windows
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.definitions.reduction import lowest_of
from assay.ops.parts import scalar_size, volume


def _edges(b: Builder, old: Value, new: Value) -> tuple[Value, Value]:
    """Where the windows of an axis begin and end; neighbours may share an element."""
    index = b.iota(new)
    starts = b.div(b.mul(index, old), new)
    ends = b.div(b.sub(b.add(b.mul(b.add(index, 1), old), new), 1), new)
    return starts, ends


class _Taps(NamedTuple):
    """The elements (new, taps) of each window along an axis, and which of them are in it."""

    places: Value
    held: Value
    counts: Value


def _taps(b: Builder, x: Value, axis: int, new: Any) -> _Taps:
    old, size = scalar_size(b, x, axis), tensor(b, new, dtypes.i64)
    starts, ends = (b.unsqueeze(edge, axes=(1,)) for edge in _edges(b, old, size))
    counts = b.sub(ends, starts)
    places = b.add(starts, b.iota(b.reduce_max(counts)))
    return _Taps(b.min(places, b.sub(old, 1)), b.lt(places, ends), counts)


def _shaped(b: Builder, x: Value, before: int, after: int) -> Value:
    """x with axes of size one around its own."""
    rank = b.rank(x)
    return b.unsqueeze(x, axes=(*range(before), *range(before + rank, before + rank + after)))


# --- means


_VOLUME = 3


@aten("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_average(b: Builder, n: Call, x: Value, output: Sequence[Number]) -> Results:
    """Images may be without channels, volumes not."""
    first = b.rank(x) - len(output)
    axes = tuple(range(first, b.rank(x)))
    with_elements(b, x, range(1 if len(output) == _VOLUME else first, b.rank(x)))
    if all(not isinstance(size, Value) and size == 1 for size in output):
        return b.reduce_mean(x, axes=axes, keepdims=True)
    whole = _whole_windows(b, x, first, output)
    if whole is not None:
        pads, dilations = (0,) * (2 * len(whole)), (1,) * len(whole)

        def pooled(image: Value) -> list[Value]:
            return [b.average_pool(image, kernel=whole, strides=whole, pads=pads, dilations=dilations)]

        return batched(b, len(output), pooled, x)[0]
    result = widened(b, x)
    for axis, size in zip(axes, output, strict=True):
        taps, tail = _taps(b, x, axis, size), b.rank(x) - axis - 1
        held = b.where(_shaped(b, taps.held, 0, tail), b.gather(result, taps.places, axis=axis), 0.0)
        counts = _shaped(b, b.cast(b.squeeze(taps.counts, axes=(1,)), dtype=b.dtype(result)), 0, tail)
        result = b.div(b.reduce_sum(held, axes=(axis + 1,)), counts)
    return tensor(b, result, n.dtype)


def _whole_windows(b: Builder, x: Value, first: int, output: Sequence[Number]) -> tuple[int, ...] | None:
    """The sizes of the windows where all are alike and do not overlap; None where that is not so or not known."""
    pairs = list(zip(b.dims(x)[first:], output, strict=True))
    if all(isinstance(old, int) and isinstance(new, int) and new and old and not old % new for old, new in pairs):
        return tuple(int(old) // int(new) for old, new in pairs)  # pyright: ignore[reportArgumentType]
    return None


@aten("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_average_backward(b: Builder, n: Call, grad: Value, x: Value) -> Results:
    count = 2 if "2d" in n.node.op else 3
    result = widened(b, grad)
    for axis in range(b.rank(x) - count, b.rank(x)):
        old = scalar_size(b, x, axis)
        window = _edges(b, old, scalar_size(b, grad, axis))
        sizes = b.dims(x)[axis], b.dims(grad)[axis]
        most = sizes[1] if isinstance(sizes[1], int) and not isinstance(sizes[0], int) else None
        result = over_windows(b, result, axis, window, old, window, most)
    return tensor(b, result, n.dtype)


# --- the largest element


@aten("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max(b: Builder, n: Call, x: Value, output: Sequence[Number]) -> Results:
    rank = len(output)

    def pooled(image: Value) -> tuple[Value, Value]:
        content, places, held = image, b.constant(0, dtypes.i64), b.constant(True)
        for i, size in enumerate(output):
            taps = _taps(b, image, 2 + i, size)
            content = b.gather(content, taps.places, axis=2 + 2 * i)
            line = scalar_size(b, image, 2 + i)
            around = (2 * i, 2 * (rank - i - 1))
            places = b.add(b.mul(places, line), _shaped(b, taps.places, *around))
            held = b.bit_and(held, _shaped(b, taps.held, *around))
        order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
        content = b.where(held, content, lowest_of(b.dtype(image).numpy))
        shape = b.vector(*(b.size(places, axis) for axis in range(0, 2 * rank, 2)), -1)
        flat = b.reshape(b.transpose(places, perm=order), shape)
        lead = b.vector(b.size(image, 0), b.size(image, 1), shape)
        return _largest(b, b.reshape(b.transpose(content, perm=(0, 1, *(2 + axis for axis in order))), lead), flat)

    return batched(b, rank, pooled, x)


def _largest(b: Builder, content: Value, places: Value) -> tuple[Value, Value]:
    """The largest element along the last axis, and the place that it comes from: of equal ones the first, but of
    NaN the last."""
    order = b.iota(scalar_size(b, content, b.rank(content) - 1))
    last = b.reduce_max(b.where(b.is_nan(content), order, -1), axes=(-1,), keepdims=True)
    chosen = b.where(b.lt(last, 0), b.arg_max(content, axis=-1, keepdims=True), last)
    both = content, b.expand(places, b.shape_of(content))
    largest, found = (b.squeeze(b.gather_elements(part, chosen, axis=-1), axes=(-1,)) for part in both)
    return largest, found


# --- windows at random places


@aten("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max(
    b: Builder, n: Call, x: Value, kernel: Sequence[int], output: Sequence[int], samples: Value
) -> Results:
    rank = len(kernel)
    columns = tuple(reversed(range(rank))) if rank == 2 else tuple(range(rank))

    def pooled(image: Value, drawn: Value) -> tuple[Value, Value]:
        lead = b.vector(b.size(image, 0), b.size(image, 1))
        places = b.constant(0, dtypes.i64)
        for i in range(rank):
            line = scalar_size(b, image, 2 + i)
            starts = _random_starts(b, b.gather(drawn, columns[i], axis=2), line, kernel[i], output[i])
            window = b.add(b.unsqueeze(starts, axes=(3,)), b.iota(b.constant(kernel[i], dtypes.i64)))
            spread = b.reshape(window, b.vector(lead, *_apart(rank, i, output[i], kernel[i])))
            places = b.add(b.mul(places, line), spread)
        flat = b.reshape(places, b.vector(lead, *output, math.prod(kernel)))
        plane = b.reshape(image, b.vector(lead, volume(b, image, *range(2, 2 + rank))))
        content = b.gather_nd(plane, b.unsqueeze(flat, axes=(-1,)), batch_dims=2)
        return _largest(b, content, flat)

    if b.rank(x) == rank + 1 and b.rank(samples) == 3:
        samples = b.squeeze(samples, axes=(0,))
    return batched(b, rank, pooled, x, samples)


def _apart(rank: int, index: int, new: int, taps: int) -> list[int]:
    """The shape that puts windows of axis `index` where (out…, kernel…) has them."""
    shape = [1] * (2 * rank)
    shape[index], shape[rank + index] = new, taps
    return shape


def _random_starts(b: Builder, sample: Value, old: Value, kernel: int, new: int) -> Value:
    """Where the windows of an axis begin, (N, C, new): at even distances from a start drawn at random, rounded down,
    the last one at the end."""
    room, kind = b.sub(old, kernel), b.dtype(sample)
    end = b.unsqueeze(b.expand(room, b.shape_of(sample)), axes=(2,))
    if new == 1:
        return end
    step = b.div(b.cast(room, dtype=kind), float(new - 1))
    first = b.unsqueeze(sample, axes=(2,))
    index = b.cast(b.iota(b.constant(new - 1, dtypes.i64)), dtype=kind)
    offset = b.cast(b.mul(first, step), dtype=dtypes.i64)
    inner = b.sub(b.cast(b.mul(b.add(index, first), step), dtype=dtypes.i64), offset)
    return b.concat(inner, end, axis=2)
