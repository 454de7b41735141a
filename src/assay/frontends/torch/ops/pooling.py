"""aten poolings over windows of one size, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from assay.frontends.torch.ops.common import sizes, tensor
from assay.frontends.torch.ops.convolution import per_axis
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.parts import scalar_size, volume


def batched(b: Builder, rank: int, apply: Callable[..., Sequence[Value]], *inputs: Value) -> tuple[Value, ...]:
    """`apply` to inputs (N, C, …) of `rank` spatial axes; where they come without N, it is put in and taken out."""
    if b.rank(inputs[0]) == rank + 2:
        return tuple(apply(*inputs))
    return tuple(b.squeeze(part, axes=(0,)) for part in apply(*(b.unsqueeze(x, axes=(0,)) for x in inputs)))


def _windows(rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> dict[str, Any]:
    pads = per_axis(padding, rank)
    return {
        "kernel": per_axis(kernel, rank),
        "strides": per_axis(stride or kernel, rank),
        "pads": (*pads, *pads),
        "dilations": per_axis(dilation, rank),
        "ceil": ceil,
    }


# --- the largest element


def _enter_max(rank: int) -> None:
    @aten(f"aten.max_pool{rank}d_with_indices.default")
    def max_pool(  # pyright: ignore[reportUnusedFunction]
        b: Builder,
        n: Call,
        x: Value,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil: bool = False,
    ) -> Results:
        attrs = _windows(rank, kernel, stride, padding, dilation, ceil)

        def pooled(image: Value) -> tuple[Value, Value]:
            largest, positions = b.max_pool(image, **attrs), b.emit("max_pool_positions", image, **attrs)[1]
            return largest, _somewhere(b, image, positions, attrs) if max(attrs["dilations"]) > 1 else positions

        return batched(b, rank, pooled, x)

    @aten(f"aten.max_pool{rank}d_with_indices_backward.default")
    def backward(  # pyright: ignore[reportUnusedFunction]
        b: Builder, n: Call, grad: Value, x: Value, *windows: Any, indices: Value | None = None
    ) -> Results:
        positions = windows[-1] if indices is None else indices
        attrs = _windows(rank, *windows[:5])
        if max(attrs["dilations"]) > 1:
            positions = b.where(_reaches(b, rank, x, positions, attrs), positions, -1)
        return at_positions(b, rank, grad, x, positions)


for _rank in (2, 3):
    _enter_max(_rank)


def _first_places(b: Builder, rank: int, positions: Value, attrs: dict[str, Any]) -> list[tuple[Value, Value]]:
    """Along each axis, for each window: its first place that is not before the tensor, and its last place."""
    found: list[tuple[Value, Value]] = []
    for i in range(rank):
        step, pad, dilation = attrs["strides"][i], attrs["pads"][i], attrs["dilations"][i]
        axis = b.rank(positions) - rank + i
        starts = b.sub(b.mul(b.iota(scalar_size(b, positions, axis)), step), pad)
        missing = b.div(b.add(b.max(b.neg(starts), 0), dilation - 1), dilation)
        lines = (b.add(starts, b.mul(missing, dilation)), b.add(starts, (attrs["kernel"][i] - 1) * dilation))
        first, last = (b.reshape(line, [-1 if other == i else 1 for other in range(rank)]) for line in lines)
        found.append((first, last))
    return found


def _somewhere(b: Builder, x: Value, positions: Value, attrs: dict[str, Any]) -> Value:
    """The positions, where there are none (all of a window lies in the padding) as eager has them: the first place of
    the window that is not before the tensor, though it lies behind it."""
    rank = len(attrs["kernel"])
    place: Value = b.constant(0, dtypes.i64)
    for i, (first, _) in enumerate(_first_places(b, rank, positions, attrs)):
        place = b.add(b.mul(place, scalar_size(b, x, 2 + i)), first)
    return b.where(b.lt(positions, 0), place, positions)


def _reaches(b: Builder, rank: int, x: Value, positions: Value, attrs: dict[str, Any]) -> Value:
    """Which windows hold an element of x: those that have a place in it along every axis."""
    held: Value = b.constant(True)
    for i, (first, last) in enumerate(_first_places(b, rank, positions, attrs)):
        inside = b.bit_and(b.lt(first, scalar_size(b, x, b.rank(x) - rank + i)), b.le(first, last))
        held = b.bit_and(held, inside)
    return held


@aten("aten.adaptive_max_pool2d_backward.default", "aten.fractional_max_pool2d_backward.default")
def max_backward_2d(b: Builder, n: Call, grad: Value, x: Value, *sizes_and_indices: Any) -> Results:
    return at_positions(b, 2, grad, x, sizes_and_indices[-1])


@aten("aten.adaptive_max_pool3d_backward.default", "aten.fractional_max_pool3d_backward.default")
def max_backward_3d(b: Builder, n: Call, grad: Value, x: Value, *sizes_and_indices: Any) -> Results:
    return at_positions(b, 3, grad, x, sizes_and_indices[-1])


def at_positions(b: Builder, rank: int, grad: Value, x: Value, positions: Value) -> Value:
    """Gradients added up where the largest elements of windows over x lay; zero elsewhere.

    A position outside of x is that of a window that lies in the padding: its gradient goes nowhere.
    """
    if b.rank(x) == rank + 1:
        grad, positions = (b.unsqueeze(part, axes=(0,)) for part in (grad, positions))
    spatial = range(b.rank(x) - rank, b.rank(x))
    batch, channels = (b.size(grad, axis) for axis in (0, 1))
    wide = widened(b, grad)
    count = volume(b, grad, *range(2, 2 + rank))
    updates, places = (b.reshape(part, b.vector(batch, channels, count)) for part in (wide, positions))
    extent = volume(b, x, *spatial)
    inside = b.bit_and(b.le(0, places), b.lt(places, extent))
    updates, places = b.where(inside, updates, 0), b.where(inside, places, 0)
    empty = b.expand(b.constant(0, b.dtype(wide)), b.vector(batch, channels, extent))
    summed = b.scatter_elements(empty, places, updates, axis=2, reduction="add")
    return tensor(b, b.reshape(summed, b.shape_of(x)), b.dtype(grad))


# --- the mean


def _enter_average(rank: int) -> None:
    @aten(f"aten.avg_pool{rank}d.default")
    def average_pool(  # pyright: ignore[reportUnusedFunction]
        b: Builder,
        n: Call,
        x: Value,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil: bool = False,
        include_pad: bool = True,
        divisor: int | None = None,
    ) -> Results:
        attrs = _windows(rank, kernel, stride, padding, (1,), ceil)
        work = b.dtype(x) if b.dtype(x).is_float else dtypes.f64

        def pooled(image: Value) -> tuple[Value]:
            if divisor is None:
                return (b.average_pool(image, include_pad=include_pad, **attrs),)
            return (b.mul(_sums(b, image, attrs), 1.0 / divisor),)

        return tensor(b, batched(b, rank, pooled, tensor(b, x, work))[0], n.dtype)

    @aten(f"aten.avg_pool{rank}d_backward.default")
    def backward(  # pyright: ignore[reportUnusedFunction]
        b: Builder,
        n: Call,
        grad: Value,
        x: Value,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil: bool,
        include_pad: bool,
        divisor: int | None,
    ) -> Results:
        first, result = b.rank(x) - rank, widened(b, grad)
        for i in range(rank):
            size, step, pad = (per_axis(given, rank)[i] for given in (kernel, stride or kernel, padding))
            extent = scalar_size(b, x, first + i)
            starts = b.sub(b.mul(b.iota(scalar_size(b, grad, first + i)), step), pad)
            ends = b.min(b.add(starts, size), b.add(extent, pad))
            inner = b.max(starts, 0), b.min(ends, extent)
            counted = (starts, ends) if include_pad else inner
            most = -(-size // step)
            result = over_windows(b, result, first + i, inner, extent, None if divisor else counted, most)
        return tensor(b, result if divisor is None else b.mul(result, 1.0 / divisor), n.dtype)


for _rank in (2, 3):
    _enter_average(_rank)


def _sums(b: Builder, x: Value, attrs: dict[str, Any]) -> Value:
    """The sum of each window: windows that hold only what is there or padding have means over equally many."""
    rank = len(attrs["kernel"])
    expected = b.average_pool(x, include_pad=True, **attrs)
    reach = [stride - 1 if attrs["ceil"] else 0 for stride in attrs["strides"]]
    before, after = attrs["pads"][:rank], attrs["pads"][rank:]
    padded = b.pad(x, (0, 0, *before, 0, 0, *(p + r for p, r in zip(after, reach, strict=True))), 0)
    inner: dict[str, Any] = {**attrs, "pads": (0,) * (2 * rank), "ceil": False}
    means = b.average_pool(padded, include_pad=True, **inner)
    axes = tuple(range(2, 2 + rank))
    ends = sizes(b, [b.size(expected, axis) for axis in axes])
    return b.mul(b.slice(means, [0] * rank, ends, [1] * rank, axes=axes), float(math.prod(attrs["kernel"])))


def over_windows(
    b: Builder,
    grad: Value,
    axis: int,
    window: tuple[Value, Value],
    extent: Value,
    counted: tuple[Value, Value] | None,
    most: int | Value | None = None,
) -> Value:
    """The gradient of a mean over windows (from, to), in ascending order, of one axis of `extent` elements.

    It is that of each window in all of its elements, divided by the length of `counted`. No element is in more than
    `most` windows. Those that it is in are read for it: products with zeros would make NaN of infinities elsewhere.
    """
    places, windows = b.iota(extent), scalar_size(b, grad, axis)
    first, end = (_counted(b, b.le(b.unsqueeze(bound, axes=(1,)), places)) for bound in (window[1], window[0]))
    which = b.add(b.unsqueeze(first, axes=(1,)), b.iota(b.reduce_max(b.sub(end, first)) if most is None else most))
    which = b.where(b.lt(which, b.unsqueeze(end, axes=(1,))), which, windows)
    share = grad
    if counted is not None:
        lengths = b.cast(b.sub(counted[1], counted[0]), dtype=b.dtype(grad))
        share = b.div(grad, b.unsqueeze(lengths, axes=tuple(range(1, b.rank(grad) - axis))))
    pads = [0] * (2 * b.rank(grad))
    pads[b.rank(grad) + axis] = 1
    return b.reduce_sum(b.gather(b.pad(share, pads, 0), which, axis=axis), axes=(axis + 1,))


def _counted(b: Builder, held: Value) -> Value:
    """How many along the first axis hold."""
    return b.reduce_sum(b.cast(held, dtype=dtypes.i64), axes=(0,))
