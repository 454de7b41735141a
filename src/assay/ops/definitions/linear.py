"""Matrix products and convolutions."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import Dim, le
from assay.ir.dtypes import COMPLEX, FLOATS, NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.movement import sliding_windows
from assay.ops.registry import Compute, FactMissing, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import broadcast, need, need_multiple, unknown

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

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
    from concurrent.futures import ThreadPoolExecutor

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
    need_multiple("the axis of output channels", w.shape[0], groups)
    need("the bias", bias and bias.shape, w.shape[:1])
    spatial = [
        _conv_dim(x.shape[i + 2], w.shape[i + 2], strides[i], pads[i] + pads[i + rank], dilations[i])
        for i in range(rank)
    ]
    return [(x.shape[0], w.shape[0], *spatial)]


def _conv_dim(size: Dim, kernel: Dim, stride: int, padding: int, dilation: int) -> Dim:
    free = size + padding - ((kernel - 1) * dilation + 1)
    if falls_short(kernel, 1) or falls_short(free, 0):
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


def _det_shape(x: Fact) -> list[Shape]:
    if x.shape is None:
        return [None]
    if len(x.shape) < 2 or differ(x.shape[-1], x.shape[-2]):
        raise ValueError(f"a tensor of shape {list(x.shape)} holds no square matrices")
    return [x.shape[:-2]]


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
