"""Matrix products and convolutions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.ir.dims import Dim, le
from assay.ir.dtypes import COMPLEX, FLOATS, NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.movement import sliding_windows
from assay.ops.registry import Compute, FactMissing, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import broadcast, unknown

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _matmul_shape(x: Fact, y: Fact) -> list[Shape]:
    if x.shape is None or y.shape is None:
        return [None]
    if not x.shape or not y.shape:
        raise ValueError("a matrix product needs operands of rank one or more")
    left = x.shape if len(x.shape) > 1 else (1, *x.shape)
    right = y.shape if len(y.shape) > 1 else (*y.shape, 1)
    if differ(left[-1], right[-2]):
        raise ValueError(f"shapes {list(x.shape)} and {list(y.shape)} do not fit a matrix product")
    batch = broadcast([left[:-2], right[:-2]])
    assert batch is not None
    rows = left[-2:-1] if len(x.shape) > 1 else ()
    columns = right[-1:] if len(y.shape) > 1 else ()
    return [(*batch, *rows, *columns)]


def exact_matmul(x: Array, y: Array) -> Array:
    """A matrix product; integer ones go through f64 where every partial sum is exact there."""
    if x.dtype.kind not in "iu" or not x.size or not y.size:
        return _product(x, y)
    largest = float(np.abs(x.astype(np.float64)).max()) * float(np.abs(y.astype(np.float64)).max())
    if largest * x.shape[-1] >= 2**53:
        return np.matmul(x, y)
    return _product(x.astype(np.float64), y.astype(np.float64)).astype(np.int64).astype(x.dtype)


_LARGE_PRODUCT = 1 << 21
"""Products of fewer multiplications are not worth handing out."""
_BLOCK = 128
"""Columns (or rows) that one worker takes at a time: fixed, so that the result does not depend on the workers."""


def _product(x: Array, y: Array) -> Array:
    """x @ y; a large one in blocks of columns, or of rows where there are more of them, side by side."""
    if x.ndim < 2 or y.ndim < 2 or x.shape[-2] * x.shape[-1] * y.shape[-1] < _LARGE_PRODUCT:
        return np.matmul(x, y)
    by_rows = x.shape[-2] > y.shape[-1]
    starts = range(0, x.shape[-2] if by_rows else y.shape[-1], _BLOCK)
    result = np.empty((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]), x.dtype)

    def part(start: int) -> None:
        block = slice(start, start + _BLOCK)
        if by_rows:
            np.matmul(x[..., block, :], y, out=result[..., block, :])
        else:
            np.matmul(x, y[..., block], out=result[..., block])

    list(_workers().map(part, starts))
    return result


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="assay-product")


@op(
    "T, T -> T",
    T=(*NUMERIC, *COMPLEX),
    shape=_matmul_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (3, 4)), draw(rng, dtype, (4, 2)), {}),
            (draw(rng, dtype, (2, 1, 3, 4)), draw(rng, dtype, (5, 4, 2)), {}),
            (draw(rng, dtype, (4,)), draw(rng, dtype, (4, 2)), {}),
            (draw(rng, dtype, (3, 4)), draw(rng, dtype, (4,)), {}),
            (draw(rng, dtype, (3, 0)), draw(rng, dtype, (0, 2)), {}),
        ]
    ),
)
def matmul(x: Array, y: Array) -> Array:
    """NumPy's matrix product: batch axes broadcast, vectors are rows or columns. Sums are kept in f64
    (integers: wrap-around) and rounded once."""
    return exact_matmul(x, y)


def conv_shape(
    x: Fact,
    w: Fact,
    bias: Fact | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> list[Shape]:
    """The shape rule of `conv`."""
    rank = len(strides)
    if len(pads) != 2 * rank or len(dilations) != rank or groups < 1 or any(n < 1 for n in (*strides, *dilations)):
        raise ValueError(f"a {rank}-D convolution got pads {list(pads)}, dilations {list(dilations)}, {groups} groups")
    if x.shape is None or w.shape is None:
        return [unknown(rank + 2)]
    if len(x.shape) != rank + 2 or len(w.shape) != rank + 2:
        raise ValueError(f"a {rank}-D convolution got shapes {list(x.shape)} and {list(w.shape)}")
    if differ(x.shape[1], w.shape[1] * groups):
        raise ValueError(f"{x.shape[1]} channels do not fit weights of {w.shape[1]} × {groups} groups")
    if isinstance(w.shape[0], int) and w.shape[0] % groups:
        raise ValueError(f"{w.shape[0]} output channels do not divide into {groups} groups")
    spatial = [
        _conv_dim(x.shape[i + 2], w.shape[i + 2], strides[i], pads[i] + pads[i + rank], dilations[i])
        for i in range(rank)
    ]
    return [(x.shape[0], w.shape[0], *spatial)]


def _conv_dim(size: Dim, kernel: Dim, stride: int, padding: int, dilation: int) -> Dim:
    free = size + padding - ((kernel - 1) * dilation + 1)
    if falls_short(free, 0):
        raise ValueError(f"a kernel of {kernel} does not fit into an axis of size {size}")
    return free // stride + 1


def window_view(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """All windows over the trailing axes, as a view: (…, out…, kernel…)."""
    axes = tuple(range(x.ndim - len(kernel), x.ndim))
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    views = sliding_windows(x, spans, axes)
    lead = (slice(None),) * (x.ndim - len(kernel))
    return views[(*lead, *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))]


def pad_spatial(x: Array, pads: Sequence[int], value: float = 0.0) -> Array:
    """x padded on its trailing axes; `pads` as in `conv`."""
    rank = len(pads) // 2
    if not any(pads):
        return x
    widths = [(0, 0)] * (x.ndim - rank) + list(zip(pads[:rank], pads[rank:], strict=True))
    return np.pad(x, widths, constant_values=value)


def merged(b: Builder, sizes: Sequence[Any]) -> Any:
    """The product of sizes that are numbers or values of one element."""
    if all(isinstance(size, int) for size in sizes):
        return math.prod(sizes)
    return b.reduce_prod(b.vector(*sizes), keepdims=True)


def _need_room(sizes: Sequence[Dim], kernel: Sequence[int], pads: Sequence[int], dilations: Sequence[int]) -> None:
    """FactMissing unless the kernel surely fits: of an axis that is too short, `window` would make no windows."""
    for i, size in enumerate(sizes):
        if not le((kernel[i] - 1) * dilations[i] + 1, size + pads[i] + pads[i + len(kernel)]):
            raise FactMissing("the size of an axis that the kernel may not fit into")


def _conv_parts(
    b: Builder,
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Any:
    rank = len(strides)
    kernel = b.static_shape(w)[2:]
    channels = b.static_shape(w)[1]
    _need_room(b.dims(x)[2:], kernel, pads, dilations)
    windows = b.pad(x, (0, 0, *pads[:rank], 0, 0, *pads[rank:]), 0)
    for i in range(rank):
        windows = b.window(windows, axis=2 + 2 * i, size=kernel[i], stride=strides[i], dilation=dilations[i])
    out_sizes = [b.size(windows, 2 + 2 * i) for i in range(rank)]
    batch = b.size(x, 0)
    # (N, C, o1, k1, o2, k2 …) → (N, G, C/G · k…, o…)
    order = (0, 1, *range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2))
    depth = channels * math.prod(kernel)
    columns = b.reshape(b.transpose(windows, perm=order), b.vector(batch, groups, depth, merged(b, out_sizes)))
    weights = b.reshape(w, (groups, b.static_shape(w)[0] // groups, depth))
    product = b.reshape(b.matmul(weights, columns), b.vector(batch, b.static_shape(w)[0], *out_sizes))
    return product if bias is None else b.add(product, b.reshape(bias, (-1, *(1,) * rank)))


def _conv_samples(rng: Rng, dtype: DType) -> Any:
    def attrs(strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Any:
        return {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}

    x, w = draw(rng, dtype, (2, 3, 6, 5), -2, 2), draw(rng, dtype, (4, 3, 3, 2), -2, 2)
    yield x, w, draw(rng, dtype, (4,)), attrs((1, 1), (1, 0, 1, 1), (1, 1), 1)
    yield x, w, None, attrs((2, 1), (0, 0, 0, 0), (1, 2), 1)
    yield draw(rng, dtype, (1, 4, 7), -2, 2), draw(rng, dtype, (4, 1, 3), -2, 2), None, attrs((2,), (1, 1), (1,), 4)
    paired = draw(rng, dtype, (1, 6, 5, 4), -2, 2), draw(rng, dtype, (4, 3, 2, 1), -2, 2)
    yield *paired, None, attrs((2, 2), (0,) * 4, (3, 1), 2)
    deep = draw(rng, dtype, (1, 2, 3, 3, 3), -2, 2), draw(rng, dtype, (2, 2, 2, 2, 2), -2, 2)
    yield *deep, None, attrs((1,) * 3, (0,) * 6, (1,) * 3, 1)
    yield draw(rng, dtype, (0, 2, 4)), draw(rng, dtype, (6, 1, 3), -2, 2), None, attrs((1,), (1, 1), (1,), 2)


@op(
    "T, T, T? -> T",
    T=NUMERIC,
    shape=conv_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_conv_parts,
    samples=listed(_conv_samples),
)
def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
) -> Array:
    """Convolution of x (N, C, …) with weights (M, C / groups, …) in any number of spatial axes, zero-padded by
    `pads` (a count before each spatial axis, then one after each). Sums are kept in f64 and rounded once."""
    padded = pad_spatial(x, pads)
    result = _by_columns(padded, w, strides, dilations, groups)
    return result if bias is None else result + bias.reshape(-1, *(1,) * len(strides))


COLUMNS = 1 << 22
"""How many numbers the windows of a convolution may take at a time."""


def _by_columns(x: Array, w: Array, strides: Sequence[int], dilations: Sequence[int], groups: int) -> Array:
    """A matrix product with the content of the windows as columns, some rows of the result at a time."""
    n, rank, kernel, depth = x.shape[0], len(strides), w.shape[2:], math.prod(w.shape[1:])
    views = window_view(x, kernel, strides, dilations)
    moved = views.transpose(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    out = views.shape[2 : 2 + rank]
    weights = w.reshape(groups, w.shape[0] // groups, depth)
    step = max(COLUMNS // max(n * groups * depth * math.prod(out[1:]), 1), 1)

    def rows(start: int, count: int) -> Array:
        block = moved[(slice(None),) * (2 + rank) + (slice(start, start + count),)]
        columns = block.reshape(n, groups, depth, count * math.prod(out[1:]))
        return exact_matmul(weights, columns).reshape(n, w.shape[0], count, *out[1:])

    if step >= out[0]:
        return rows(0, out[0])
    return np.concatenate([rows(start, min(step, out[0] - start)) for start in range(0, out[0], step)], axis=2)


def _transposed_shape(
    x: Fact,
    w: Fact,
    bias: Fact | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> list[Shape]:
    rank = len(strides)
    if x.shape is None or w.shape is None:
        return [unknown(rank + 2)]
    if differ(x.shape[1], w.shape[0]):
        raise ValueError(f"{x.shape[1]} channels do not fit weights for {w.shape[0]}")
    spatial = [
        (x.shape[i + 2] - 1) * strides[i]
        + (w.shape[i + 2] - 1) * dilations[i]
        + 1
        + output_padding[i]
        - pads[i]
        - pads[i + rank]
        for i in range(rank)
    ]
    if any(falls_short(size, 0) for size in spatial):
        raise ValueError(f"a transposed convolution leaves an image of {spatial}")
    return [(x.shape[0], w.shape[1] * groups, *spatial)]


def _dilate(b: Builder, x: Any, axis: int, step: int) -> Any:
    """x with step − 1 zeros between neighbours along `axis`."""
    if step == 1:
        return x
    rank = b.rank(x)
    spread = b.unsqueeze(x, axes=(axis + 1,))
    pads = [0] * (2 * (rank + 1))
    pads[rank + 1 + axis + 1] = step - 1
    filled = b.pad(spread, pads, 0)
    sizes = [b.size(x, i) for i in range(rank)]
    sizes[axis] = merged(b, (sizes[axis], step))
    return b.slice(b.reshape(filled, b.vector(*sizes)), [0], [-(step - 1)], [1], axes=(axis,))


def _transposed_parts(
    b: Builder,
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if 0 in b.dims(x)[2:]:
        spatial = _transposed_sizes(b, x, w, strides, pads, dilations, output_padding)
        return _of_no_pixels(b, x, w, bias, spatial, groups)
    if any(stride > 1 for stride in strides) and all(d == 1 for d in dilations) and min(pads) >= 0:
        return _by_phases(b, x, w, bias, strides=strides, pads=pads, output_padding=output_padding, groups=groups)
    rank = len(strides)
    shape = b.static_shape(w)
    spread = x
    for i in range(rank):
        spread = _dilate(b, spread, 2 + i, strides[i])
    grouped = b.reshape(w, (groups, shape[0] // groups, *shape[1:]))
    swapped = b.transpose(grouped, perm=(0, 2, 1, *range(3, 3 + rank)))
    joined = b.reshape(swapped, (groups * shape[1], shape[0] // groups, *shape[2:]))
    turned = b.flip(joined, axes=tuple(range(2, 2 + rank)))
    reach = [(shape[2 + i] - 1) * dilations[i] for i in range(rank)]
    before = [reach[i] - pads[i] for i in range(rank)]
    after = [reach[i] - pads[i + rank] + output_padding[i] for i in range(rank)]
    room = [size + before[i] + after[i] - reach[i] for i, size in enumerate(b.dims(spread)[2:])]
    more = 0 if all(le(1, size) is True for size in room) else 1  # where nothing may be left, one window fits
    padded = b.pad(spread, (0, 0, *before, 0, 0, *(last + more for last in after)), 0)
    ones, none = (1,) * rank, (0,) * (2 * rank)
    result = b.conv(padded, turned, bias, strides=ones, pads=none, dilations=dilations, groups=groups)
    if any(stride > 1 and le(1, size) is not True for stride, size in zip(strides, b.dims(x)[2:], strict=True)):
        wanted = _transposed_sizes(b, x, w, strides, pads, dilations, output_padding)  # less where there are no pixels
        missing = (b.sub(size, b.vector(b.size(result, 2 + i))) for i, size in enumerate(wanted))
        return b.pad(result, b.vector(*(0,) * (rank + 4), *missing), 0)
    return _without_ends(b, result, (0,) * rank, (1,) * rank) if more else result


def _transposed_sizes(
    b: Builder,
    x: Any,
    w: Any,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
) -> list[Any]:
    """The spatial sizes of a transposed convolution, each as a vector of one."""
    rank = len(strides)
    steps, taps = ([b.sub(b.vector(b.size(each, 2 + i)), 1) for i in range(rank)] for each in (x, w))
    around = [1 + output_padding[i] - pads[i] - pads[i + rank] for i in range(rank)]
    return [b.add(b.add(b.mul(steps[i], strides[i]), b.mul(taps[i], dilations[i])), around[i]) for i in range(rank)]


def _of_no_pixels(b: Builder, x: Any, w: Any, bias: Any, spatial: Sequence[Any], groups: int) -> Any:
    """What is left where nothing is spread out: zeros, and the bias."""
    channels = b.mul(b.vector(b.size(w, 1)), groups)
    blank = b.expand(b.constant(0, b.dtype(x)), b.vector(b.size(x, 0), channels, *spatial))
    return blank if bias is None else b.add(blank, b.reshape(bias, (-1, *(1,) * len(spatial))))


def _by_phases(
    b: Builder,
    x: Any,
    w: Any,
    bias: Any,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Output pixels that are a stride apart see the same few kernel positions: one convolution gives all of them,
    with an output channel for each place within a stride, and these are then moved to their places."""
    rank = len(strides)
    channels, out, *kernel = b.static_shape(w)
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    missing = [n * s - k for n, s, k in zip(taps, strides, kernel, strict=True)]
    cropped = [missing[i] - output_padding[i] + pads[i + rank] for i in range(rank)]
    may_be_empty = [le(1, size) is not True for size in b.dims(x)[2:]]
    least = [int(empty and n == 1) for empty, n in zip(may_be_empty, taps, strict=True)]  # a kernel must fit somewhere
    more = [max(-(crop // s), low) for crop, s, low in zip(cropped, strides, least, strict=True)]
    padded = b.pad(w, (*[0] * (2 + rank), 0, 0, *missing), 0)
    apart = (n for i in range(rank) for n in (taps[i], strides[i]))
    split = b.reshape(padded, (groups, channels // groups, out, *apart))
    reach = [n - 1 + extra for n, extra in zip(taps, more, strict=True)]
    kinds = [_phases(k, s) for k, s in zip(kernel, strides, strict=True)]
    listed_phases = _joined_phases(b, lambda chosen: _some_phases(b, x, split, chosen, reach), kinds)
    batch, sizes = b.size(x, 0), [b.size(listed_phases, 3 + rank + i) for i in range(rank)]
    places = (axis for i in range(rank) for axis in (3 + rank + i, 2 + i))
    mixed = b.transpose(listed_phases, perm=(0, 1, 2 + rank, *places))
    spatial = (merged(b, (sizes[i], strides[i])) for i in range(rank))
    whole = b.reshape(mixed, b.vector(batch, groups * out, *spatial))
    cut = [crop + s * extra for crop, s, extra in zip(cropped, strides, more, strict=True)]
    result = _without_ends(b, whole, pads[:rank], cut)
    return result if bias is None else b.add(result, b.reshape(bias, (-1, *(1,) * rank)))


class _Phases(NamedTuple):
    """Places within a stride that see equally many kernel positions: from `first` on, before `last`."""

    first: int
    last: int
    taps: int


def _phases(kernel: int, stride: int) -> list[_Phases]:
    """All places within a stride. A kernel that no whole number of strides fits is not filled up with zeros: an
    infinity times zero would be seen where the kernel does not reach."""
    taps = -(-kernel // stride)
    reached = kernel - (taps - 1) * stride
    return [each for each in (_Phases(0, reached, taps), _Phases(reached, stride, taps - 1)) if each.first < each.last]


def _some_phases(b: Builder, x: Any, split: Any, chosen: Sequence[_Phases], reach: Sequence[int]) -> Any:
    """The pixels of some phases: (N, groups, phases…, out, sizes…). `split` are the weights (groups, channels, out,
    taps and phases of each axis …), `reach` is how far the image is padded behind."""
    rank = len(chosen)
    groups, channels, out = b.static_shape(split)[:3]
    widths = [each.last - each.first for each in chosen]
    grown = [b.add(b.vector(b.size(x, 2 + i)), reach[i]) for i in range(rank)]
    shape = b.vector(b.size(x, 0), groups, *widths, out, *grown)
    if any(each.taps == 0 for each in chosen):
        return b.expand(b.constant(0, b.dtype(x)), shape)
    starts = [n for each in chosen for n in (0, each.first)]
    ends = [n for each in chosen for n in (each.taps, each.last)]
    part = b.slice(split, starts, ends, [1] * (2 * rank), axes=tuple(range(3, 3 + 2 * rank)))
    turned = b.transpose(part, perm=(0, *range(4, 4 + 2 * rank, 2), 2, 1, *range(3, 3 + 2 * rank, 2)))
    joined = b.reshape(turned, (groups * math.prod(widths) * out, channels, *(each.taps for each in chosen)))
    weights = b.flip(joined, axes=tuple(range(2, 2 + rank)))
    around = (*(each.taps - 1 for each in chosen), *reach)
    ones = (1,) * rank
    return b.reshape(b.conv(x, weights, None, strides=ones, pads=around, dilations=ones, groups=groups), shape)


def _joined_phases(
    b: Builder,
    made: Callable[[Sequence[_Phases]], Any],
    kinds: Sequence[Sequence[_Phases]],
    chosen: tuple[_Phases, ...] = (),
) -> Any:
    """What `made` gives for every choice of one kind an axis, put together along the axes of the phases."""
    axis = len(chosen)
    if axis == len(kinds):
        return made(chosen)
    parts = [_joined_phases(b, made, kinds, (*chosen, each)) for each in kinds[axis]]
    return parts[0] if len(parts) == 1 else b.concat(*parts, axis=2 + axis)


def _without_ends(b: Builder, x: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    """An image without its margins; an error if it may be smaller than those, and is."""
    rank = len(before)
    if all(le(first + last, size) is True for first, last, size in zip(before, after, b.dims(x)[2:], strict=True)):
        ends = [-last or _END for last in after]
        return b.slice(x, list(before), ends, [1] * rank, axes=tuple(range(2, 2 + rank)))
    return b.pad(x, (0, 0, *(-first for first in before), 0, 0, *(-last for last in after)), 0)


_END = 2**62
"""Beyond the end of any axis."""


def _transposed_samples(rng: Rng, dtype: DType) -> Any:
    x, w = draw(rng, dtype, (2, 3, 4, 3), -2, 2), draw(rng, dtype, (3, 2, 3, 2), -2, 2)
    common = {"dilations": (1, 1), "groups": 1}
    yield x, w, None, {"strides": (2, 3), "pads": (1, 0, 0, 1), "output_padding": (1, 0), **common}
    yield x, w, draw(rng, dtype, (2,)), {"strides": (1, 1), "pads": (0,) * 4, "output_padding": (0, 0), **common}
    yield x, w, draw(rng, dtype, (2,)), {"strides": (3, 2), "pads": (0, 1, 0, 0), "output_padding": (2, 1), **common}
    paired = {"strides": (3,), "pads": (0, 0), "dilations": (1,), "output_padding": (0,), "groups": 2}
    yield draw(rng, dtype, (1, 4, 5), -2, 2), draw(rng, dtype, (4, 3, 4), -2, 2), None, paired
    grouped = {"strides": (2,), "pads": (1, 1), "dilations": (2,), "output_padding": (0,), "groups": 2}
    yield draw(rng, dtype, (1, 4, 5), -2, 2), draw(rng, dtype, (4, 3, 3), -2, 2), None, grouped


@op(
    "T, T, T? -> T",
    T=FLOATS,
    shape=_transposed_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_transposed_parts,
    samples=listed(_transposed_samples),
)
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
    groups: int = 1,
) -> Array:
    """Transposed convolution (the gradient of `conv` for its input): x (N, C, …), weights (C, M / groups, …)."""
    rank = len(strides)
    n, c = x.shape[:2]
    grouped = x.reshape(n, groups, c // groups, math.prod(x.shape[2:]))
    weights = w.reshape(groups, c // groups, math.prod(w.shape[1:]))
    taps = np.matmul(weights.transpose(0, 2, 1), grouped).reshape(n, groups * w.shape[1], *w.shape[2:], *x.shape[2:])
    spans = [(x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(rank)]
    full = overlap_add(taps, [spans[i] + output_padding[i] for i in range(rank)], strides, dilations)
    result = full[(..., *(slice(pads[i], full.shape[2 + i] - pads[i + rank]) for i in range(rank)))]
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)


def overlap_add(taps: Array, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Windows (N, C, kernel…, count…) summed where they lie on axes of these sizes: (N, C, sizes…)."""
    rank = len(sizes)
    kernel, counts = taps.shape[2 : 2 + rank], taps.shape[2 + rank :]
    result = np.zeros((*taps.shape[:2], *sizes), taps.dtype)
    for place in np.ndindex(*kernel):
        starts = [k * step for k, step in zip(place, dilations, strict=True)]
        spread = (slice(a, a + n * s - s + 1 if n else a, s) for a, n, s in zip(starts, counts, strides, strict=True))
        result[(..., *spread)] += taps[(slice(None), slice(None), *place)]
    return result


def _col2im_shape(
    x: Fact,
    *,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> list[Shape]:
    if x.shape is None:
        return [unknown(len(image) + 2)]
    if len(x.shape) != 3:
        raise ValueError(f"columns have three axes, not the shape {list(x.shape)}")
    count = math.prod(_block_counts(image, block, strides, pads, dilations))
    if differ(x.shape[2], count):
        raise ValueError(f"an image of {list(image)} has {count} blocks, not {x.shape[2]}")
    if isinstance(x.shape[1], int) and x.shape[1] % math.prod(block):
        raise ValueError(f"{x.shape[1]} rows do not divide into blocks of {list(block)}")
    return [(x.shape[0], x.shape[1] // math.prod(block), *image)]


def _block_counts(
    image: Sequence[int], block: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """How many blocks lie along each axis of a padded image."""
    rank = len(image)
    free = [image[i] + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1 for i in range(rank)]
    if any(n < 0 for n in free) or any(n < 1 for n in (*block, *strides)):
        raise ValueError(f"blocks of {list(block)} do not fit into an image of {list(image)}")
    return [n // stride + 1 for n, stride in zip(free, strides, strict=True)]


def _col2im_parts(
    b: Builder,
    x: Any,
    *,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Any:
    rank = len(image)
    padded = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = _block_counts(image, block, strides, pads, dilations)
    steps = np.indices((*block, *counts)).reshape(2, rank, -1)
    places = [steps[0, i] * dilations[i] + steps[1, i] * strides[i] for i in range(rank)]
    flat = np.asarray(np.ravel_multi_index(places, padded))
    batch, rows = b.size(x, 0), b.size(x, 1)
    channels = rows // math.prod(block) if isinstance(rows, int) else b.div(rows, math.prod(block))
    updates = b.transpose(b.reshape(x, b.vector(batch, channels, flat.size)), perm=(2, 0, 1))
    empty = b.expand(b.constant(0, b.dtype(x)), b.vector(math.prod(padded), batch, channels))
    summed = b.transpose(b.scatter_nd(empty, flat[:, None], updates, reduction="add"), perm=(1, 2, 0))
    full = b.reshape(summed, b.vector(batch, channels, *padded))
    return b.pad(full, (0, 0, *(-n for n in pads[:rank]), 0, 0, *(-n for n in pads[rank:])), 0)


def _col2im_samples(rng: Rng, dtype: DType) -> Any:
    plain = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
    yield draw(rng, dtype, (2, 6, 12)), {"image": (4, 5), "block": (1, 3), **plain}
    strided = {**plain, "strides": (2, 2), "pads": (0, 1, 1, 0)}
    yield draw(rng, dtype, (1, 4, 9)), {"image": (5, 5), "block": (2, 2), **strided}
    yield draw(rng, dtype, (1, 8, 6)), {"image": (4, 4), "block": (2, 2), **plain, "dilations": (2, 1)}
    line = {"image": (5,), "block": (2,), "strides": (1,), "pads": (0, 0), "dilations": (1,)}
    yield draw(rng, dtype, (1, 2, 4)), line


@op(
    "T -> T",
    T=(*NUMERIC, *COMPLEX),
    shape=_col2im_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_col2im_parts,
    samples=listed(_col2im_samples),
)
def col2im(
    x: Array,
    *,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """Blocks as columns (N, C · block…, count), summed where they lie in a padded image: (N, C, image…)."""
    rank = len(image)
    padded = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = _block_counts(image, block, strides, pads, dilations)
    blocks = x.reshape(x.shape[0], x.shape[1] // math.prod(block), *block, *counts)
    full = overlap_add(blocks, padded, strides, dilations)
    return full[(..., *(slice(pads[i], pads[i] + image[i]) for i in range(rank)))]


def _det_shape(x: Fact) -> list[Shape]:
    return [None if x.shape is None else x.shape[:-2]]


@op(
    "T -> T",
    T=FLOATS,
    shape=_det_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(lambda rng, dtype: [(draw(rng, dtype, (3, 3)), {}), (draw(rng, dtype, (2, 4, 4)), {})]),
)
def det(x: Array) -> Array:
    """The determinant of the last two axes."""
    return np.linalg.det(x)
