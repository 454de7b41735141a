"""aten's sampling of images at the places of a grid, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.parts import scalar_size, volume

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
"""By the number that aten has for them."""
_STEPS = {"nearest": np.arange(1.0), "linear": np.arange(2.0), "cubic": np.arange(-1.0, 3.0)}
"""The elements that a mode reads, counted from the one at or below the place."""
_CUBIC_A = -0.75


@aten("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sample(b: Builder, n: Call, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Results:
    way, edge = _MODES[mode], _PADDINGS[padding]
    if way == "nearest" and edge == "reflection":
        grid, edge = _mirrored(b, grid), "border"
    return b.grid_sample(x, grid, mode=way, padding=edge, align_corners=align)


def _mirrored(b: Builder, grid: Value) -> Value:
    """Coordinates mirrored until they lie on the image: torch does so before it looks for the nearest element."""
    folded = b.sub(1.0, b.abs(b.sub(b.mod(b.add(grid, 1.0), 4.0), 2.0)))
    return b.where(b.le(b.abs(grid), 1.0), grid, folded)


class _Line(NamedTuple):
    """One axis of the image: the elements that each place reads, (N, count, taps), their weights, the derivatives
    of these for the coordinate in the grid, and whether they are elements of the axis at all."""

    size: Value
    places: Value
    weights: Value
    slopes: Value
    held: Value


@aten("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sample_backward(
    b: Builder,
    n: Call,
    grad: Value,
    x: Value,
    grid: Value,
    mode: int,
    padding: int,
    align: bool,
    output_mask: Sequence[bool],
) -> Results:
    rank, wide = b.rank(x) - 2, widened(b, grad)
    batch, channels, count = b.size(x, 0), b.size(x, 1), volume(b, grid, *range(1, 1 + rank))
    flat = b.reshape(widened(b, grid), b.vector(batch, count, rank))
    lines = [
        _line(b, b.gather(flat, rank - 1 - i, axis=2), scalar_size(b, x, 2 + i), mode, padding, align)
        for i in range(rank)
    ]
    index = _joined(b, b.constant(0, dtypes.i64), [(line.places, line.size) for line in lines])
    rows = b.transpose(b.reshape(wide, b.vector(batch, channels, count)), perm=(0, 2, 1))
    taps = len(_STEPS[_MODES[mode]]) ** rank
    places = b.reshape(index, b.vector(batch, count, taps))
    results: list[Value] = []
    if output_mask[0]:
        weights = b.reshape(_product(b, [line.weights for line in lines]), b.vector(batch, count, taps, 1))
        results.append(tensor(b, _for_image(b, x, places, b.mul(b.unsqueeze(rows, axes=(2,)), weights)), b.dtype(x)))
    if output_mask[1] and _MODES[mode] == "nearest":
        results.append(b.expand(b.constant(0, b.dtype(grid)), b.shape_of(grid)))
    elif output_mask[1]:
        found = _for_grid(b, widened(b, x), places, rows, lines)
        results.append(tensor(b, b.reshape(found, b.shape_of(grid)), b.dtype(grid)))
    return tuple(results)


def _for_image(b: Builder, x: Value, places: Value, updates: Value) -> Value:
    """Updates (N, count, taps, C) added up at places (N, count, taps) of the flat image."""
    rank = b.rank(x) - 2
    batch, channels, plane = b.size(x, 0), b.size(x, 1), volume(b, x, *range(2, 2 + rank))
    images = b.expand(b.reshape(b.iota(scalar_size(b, x, 0)), [-1, 1, 1]), b.shape_of(places))
    positions = b.concat(*(b.unsqueeze(part, axes=(3,)) for part in (images, places)), axis=3)
    empty = b.expand(b.constant(0, b.dtype(updates)), b.vector(batch, plane, channels))
    summed = b.scatter_nd(empty, positions, updates, reduction="add")
    return b.reshape(b.transpose(summed, perm=(0, 2, 1)), b.shape_of(x))


def _for_grid(b: Builder, x: Value, places: Value, rows: Value, lines: Sequence[_Line]) -> Value:
    """The gradient (N, count, axes) of the grid, whose coordinates come last axis first."""
    rank = len(lines)
    pixels = b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), volume(b, x, *range(2, 2 + rank))))
    found = b.gather_nd(b.transpose(pixels, perm=(0, 2, 1)), b.unsqueeze(places, axes=(3,)), batch_dims=1)
    held = b.constant(True)
    for i, line in enumerate(lines):
        held = b.bit_and(held, _apart(b, line.held, i, rank))
    found = b.where(b.unsqueeze(b.reshape(held, b.shape_of(places)), axes=(3,)), found, 0.0)
    pulls = b.reduce_sum(b.mul(found, b.unsqueeze(rows, axes=(2,))), axes=(3,))
    columns: list[Value] = []
    for axis in reversed(range(rank)):
        factors = [line.slopes if i == axis else line.weights for i, line in enumerate(lines)]
        weights = b.reshape(_product(b, factors), b.shape_of(places))
        columns.append(b.reduce_sum(b.mul(pulls, weights), axes=(2,), keepdims=True))
    return b.concat(*columns, axis=2)


def _joined(b: Builder, index: Value, parts: Sequence[tuple[Value, Value]]) -> Value:
    """Places on the axes as places in the flat image, for all combinations of taps."""
    for i, (places, size) in enumerate(parts):
        index = b.add(b.mul(index, size), _apart(b, places, i, len(parts)))
    return index


def _product(b: Builder, factors: Sequence[Value]) -> Value:
    result = b.constant(1, b.dtype(factors[0]))
    for i, factor in enumerate(factors):
        result = b.mul(result, _apart(b, factor, i, len(factors)))
    return result


def _apart(b: Builder, taps: Value, index: int, rank: int) -> Value:
    """(N, count, taps) with the taps in an axis of their own among `rank`."""
    return b.unsqueeze(taps, axes=tuple(2 + i for i in range(rank) if i != index))


def _line(b: Builder, coordinate: Value, size: Value, mode: int, padding: int, align: bool) -> _Line:
    dtype = b.dtype(coordinate)
    extent = b.cast(size, dtype=dtype)
    span = b.sub(extent, 1.0) if align else extent
    stretch = b.mul(span, 0.5)
    at = b.mul(b.add(coordinate, 1.0), stretch)
    at = at if align else b.sub(at, 0.5)
    slope = b.expand(stretch, b.shape_of(at))
    kind, edge = _MODES[mode], _PADDINGS[padding]
    if kind != "cubic" and edge != "zeros":
        at, slope = _kept_within(b, at, slope, extent, edge, align)
    below = b.unsqueeze(b.round(at) if kind == "nearest" else b.floor(at), axes=(2,))
    taps = b.add(below, b.constant(_STEPS[kind], dtype))
    weights, changes = _weights(b, b.sub(taps, b.unsqueeze(at, axes=(2,))), kind)
    inside = b.bit_and(b.le(0.0, taps), b.lt(taps, extent))
    if kind == "cubic" and edge == "reflection":
        taps = _reflected(b, taps, extent, align)[0]
    held = inside if kind != "cubic" or edge == "zeros" else b.expand(b.constant(True), b.shape_of(inside))
    weights, changes = (b.where(held, part, 0.0) for part in (weights, changes))
    places = b.cast(b.min(b.max(taps, 0.0), b.sub(extent, 1.0)), dtype=dtypes.i64)
    return _Line(size, places, weights, b.mul(changes, b.unsqueeze(slope, axes=(2,))), held)


def _kept_within(b: Builder, at: Value, slope: Value, extent: Value, edge: str, align: bool) -> tuple[Value, Value]:
    """Places brought onto the axis, and the slopes that this leaves."""
    if edge == "reflection":
        at, sign = _reflected(b, at, extent, align)
        slope = b.mul(slope, sign)
    last = b.sub(extent, 1.0)
    outside = b.bit_or(b.le(at, 0.0), b.le(last, at))
    return b.min(b.max(at, 0.0), last), b.where(outside, 0.0, slope)


def _reflected(b: Builder, at: Value, extent: Value, align: bool) -> tuple[Value, Value]:
    """Places mirrored at the ends of the axis until they lie on it, and the signs of the slopes."""
    low, span = (0.0, b.sub(extent, 1.0)) if align else (-0.5, extent)
    twice = b.mul(span, 2.0)
    turned = b.mod(b.sub(at, low), b.max(twice, 1.0))
    back = b.lt(span, turned)
    placed = b.add(b.where(back, b.sub(twice, turned), turned), low)
    single = b.eq(span, 0.0)
    signs = b.where(back, b.constant(-1.0, b.dtype(at)), b.constant(1.0, b.dtype(at)))
    return b.where(single, 0.0, placed), b.where(single, 0.0, signs)


def _weights(b: Builder, offset: Value, kind: str) -> tuple[Value, Value]:
    """What a tap at an offset from the place counts, and how that changes with the place."""
    if kind == "nearest":
        zero = b.mul(offset, 0.0)
        return b.add(zero, 1.0), zero
    distance, sign = b.abs(offset), _sides(b, offset)
    if kind == "linear":
        return b.sub(1.0, distance), sign
    near, near_slope = _polynomial(b, distance, (_CUBIC_A + 2, -(_CUBIC_A + 3), 0.0, 1.0))
    far, far_slope = _polynomial(b, distance, (_CUBIC_A, -5 * _CUBIC_A, 8 * _CUBIC_A, -4 * _CUBIC_A))
    close = b.le(distance, 1.0)
    return b.where(close, near, far), b.mul(b.neg(sign), b.where(close, near_slope, far_slope))


def _sides(b: Builder, offset: Value) -> Value:
    """1 for taps behind the place, −1 for those at or before it: how their weights change in a linear mode."""
    one = b.constant(1.0, b.dtype(offset))
    return b.where(b.lt(0.0, offset), one, b.neg(one))


def _polynomial(b: Builder, x: Value, factors: Sequence[float]) -> tuple[Value, Value]:
    """A cubic polynomial and its derivative."""
    value: Any = b.constant(0.0, b.dtype(x))
    slope: Any = value
    for factor in factors:
        slope = b.add(b.mul(slope, x), value)
        value = b.add(b.mul(value, x), factor)
    return value, slope
