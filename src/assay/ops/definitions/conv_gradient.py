"""The gradient of a convolution for its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import FLOATS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.linear import exact_matmul, merged, pad_spatial
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need_multiple

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _gradient_shape(
    x: Fact,
    grad: Fact,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> list[Shape]:
    rank = len(kernel)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank or groups < 1:
        raise ValueError(f"a kernel of {list(kernel)} got strides {list(strides)}, pads {list(pads)}, {groups} groups")
    if x.shape is None or grad.shape is None:
        return [(UNKNOWN, UNKNOWN, *kernel)]
    if len(x.shape) != rank + 2 or len(grad.shape) != rank + 2 or differ(x.shape[0], grad.shape[0]):
        raise ValueError(f"shapes {list(x.shape)} and {list(grad.shape)} do not fit a {rank}-D convolution")
    for channels in (x.shape[1], grad.shape[1]):
        need_multiple("the axis of channels", channels, groups)
    for i in range(rank):
        reach = (grad.shape[i + 2] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1
        if falls_short(x.shape[i + 2] + (pads[i] + pads[i + rank]) - reach, 0):
            raise ValueError(f"{grad.shape[i + 2]} windows do not fit into an axis of size {x.shape[i + 2]}")
    return [(grad.shape[1], x.shape[1] // groups, *kernel)]


def _grouped(b: Builder, size: Any, groups: int) -> Any:
    return size // groups if isinstance(size, int) else b.div(size, groups)


def _gradient_parts(
    b: Builder,
    x: Any,
    grad: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Any:
    rank = len(kernel)
    made, taken = (_grouped(b, b.size(value, 1), groups) for value in (grad, x))
    windows = b.pad(x, (0, 0, *pads[:rank], 0, 0, *pads[rank:]), 0)
    out = [b.size(grad, axis) for axis in range(2, rank + 2)]
    for i in range(rank):
        windows = b.window(windows, axis=2 + 2 * i, size=kernel[i], stride=strides[i], dilation=dilations[i])
    axes = tuple(range(2, 2 + 2 * rank, 2))
    windows = b.slice(windows, [0] * rank, b.vector(*out), [1] * rank, axes=axes)
    # (N, G · C/G, o1, k1 …) → (G, N · o…, C/G · k…)
    count = merged(b, [b.size(grad, 0), *out])
    spread = b.reshape(windows, b.vector(b.size(x, 0), groups, taken, *_interleaved(out, kernel)))
    order = (1, 0, *(axis + 1 for axis in axes), 2, *(axis + 2 for axis in axes))
    columns = b.reshape(b.transpose(spread, perm=order), b.vector(groups, count, merged(b, [taken, *kernel])))
    split = b.reshape(grad, b.vector(b.size(grad, 0), groups, made, *out))
    rows = b.transpose(split, perm=(1, 2, 0, *range(3, 3 + rank)))
    product = b.matmul(b.reshape(rows, b.vector(groups, made, count)), columns)
    return b.reshape(product, b.vector(b.size(grad, 1), taken, *kernel))


def _interleaved(out: Sequence[Any], kernel: Sequence[int]) -> list[Any]:
    return [part for pair in zip(out, kernel, strict=True) for part in pair]


def _gradient_samples(rng: Rng, dtype: DType) -> Any:
    def attrs(kernel: Any, strides: Any, pads: Any, dilations: Any, groups: int) -> Any:
        return {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "groups": groups}

    def pair(x: tuple[int, ...], grad: tuple[int, ...]) -> tuple[Array, Array]:
        return draw(rng, dtype, x, -2, 2), draw(rng, dtype, grad, -2, 2)

    yield *pair((2, 3, 6, 5), (2, 4, 6, 5)), attrs((3, 2), (1, 1), (1, 0, 1, 1), (1, 1), 1)
    yield *pair((2, 4, 7, 6), (2, 6, 3, 1)), attrs((2, 3), (2, 2), (0,) * 4, (1, 2), 2)
    yield *pair((3, 2, 8), (3, 2, 2)), attrs((2,), (3,), (1, 0), (2,), 2)
    yield *pair((1, 2, 3, 4, 3), (1, 3, 2, 2, 1)), attrs((2, 2, 2), (1, 2, 2), (0,) * 6, (1,) * 3, 1)
    yield *pair((0, 2, 4), (0, 3, 3)), attrs((2,), (1,), (0, 0), (1,), 1)


@op(
    "T, T -> T",
    T=FLOATS,
    shape=_gradient_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_gradient_parts,
    samples=listed(_gradient_samples),
)
def conv_weight_gradient(
    x: Array,
    grad: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
) -> Array:
    """The gradient of `conv` for its weights (M, C / groups, kernel…): x is its input, `grad` (N, M, …) the gradient of
    its result, of whose windows x may hold more than `grad` does. Sums are kept in f64 and rounded once."""
    padded, rank, out = pad_spatial(x, pads), len(kernel), grad.shape[2:]
    n, made, taken = len(grad), grad.shape[1] // groups, x.shape[1] // groups
    rows = np.moveaxis(grad.reshape(n, groups, made, math.prod(out)), 0, 2)
    rows = rows.reshape(groups, made, n * math.prod(out))
    result = np.zeros((*kernel, groups, made, taken), x.dtype)
    for place in np.ndindex(*kernel):
        starts = [place[i] * dilations[i] for i in range(rank)]
        spread = (slice(a, a + max((out[i] - 1) * strides[i] + 1, 0), strides[i]) for i, a in enumerate(starts))
        seen = padded[(..., *spread)].reshape(n, groups, taken, math.prod(out))
        result[place] = exact_matmul(
            rows, np.moveaxis(seen, 0, 1).swapaxes(2, 3).reshape(groups, n * math.prod(out), taken)
        )
    return np.moveaxis(result, tuple(range(rank)), tuple(range(3, 3 + rank))).reshape(groups * made, taken, *kernel)
