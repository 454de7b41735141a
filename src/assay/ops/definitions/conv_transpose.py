"""Convolutions and windows that are spread over an image instead of read from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.ir.dims import le
from assay.ir.dtypes import COMPLEX, FLOATS, NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.linear import merged
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need, need_multiple, unknown

if TYPE_CHECKING:
    from assay.ops.builder import Builder


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
    if not len(pads) == 2 * len(dilations) == 2 * len(output_padding) == 2 * rank or groups < 1:
        raise ValueError(f"a {rank}-D convolution got pads {list(pads)}, dilations {list(dilations)}, {groups} groups")
    if x.shape is None or w.shape is None:
        return [unknown(rank + 2)]
    if len(x.shape) != rank + 2 or len(w.shape) != rank + 2:
        raise ValueError(f"a {rank}-D convolution got shapes {list(x.shape)} and {list(w.shape)}")
    if differ(x.shape[1], w.shape[0]):
        raise ValueError(f"{x.shape[1]} channels do not fit weights for {w.shape[0]}")
    need_multiple("the axis of channels", x.shape[1], groups)
    need("the bias", bias and bias.shape, (w.shape[1] * groups,))
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
    need_multiple("the axis of rows", x.shape[1], math.prod(block))
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
