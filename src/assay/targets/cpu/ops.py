"""The ops that this target owns: matrices laid out as panels, which its kernels read fastest, packed once for weights.

A panel is `width` neighbouring columns, row after row. To pack a matrix is an op like any other, so that a graph with
packed weights is still an ordinary graph: hoisting computes the panels once, and the oracle can run it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import UNKNOWN, Dim, ceildiv
from assay.ir.dtypes import FLOATS, NUMERIC, Array, DType, i8, i32, u8
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.blocks import define_matmul_blocks
from assay.ops.definitions.linear import conv, conv_shape, merged
from assay.ops.registry import OPS, Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need, need_multiple

if TYPE_CHECKING:
    from assay.ops.builder import Builder

CPU_OPS = OPS.owned_by("cpu")

# --- packing


def _packed_shape(w: Fact, *, width: int) -> list[Shape]:
    if width < 1 or (w.shape is not None and len(w.shape) < 2):
        raise ValueError("panels need matrices and a width of one or more")
    return [None if w.shape is None else (*w.shape[:-2], ceildiv(w.shape[-1], width), w.shape[-2], width)]


def _packed_parts(b: Builder, w: Any, *, width: int) -> Any:
    rank = b.rank(w)
    padded = b.pad(w, (*[0] * (2 * rank - 1), width - 1), b.cast(0, dtype=b.dtype(w)))
    split = b.window(padded, axis=rank - 1, size=width, stride=width)
    return b.transpose(split, perm=(*range(rank - 2), rank - 1, rank - 2, rank))


def _packed_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (3, 7)), {"width": 4}
    yield draw(rng, dtype, (2, 5, 8)), {"width": 4}
    yield draw(rng, dtype, (5, 19)), {"width": 16}


@op("T -> T", into=CPU_OPS, T=NUMERIC, shape=_packed_shape, parts=_packed_parts, samples=listed(_packed_samples))
def pack_panels(w: Array, *, width: int) -> Array:
    """Matrices (…, K, N) as panels (…, ⌈N / width⌉, K, width), zeros beyond the last column."""
    missing = -w.shape[-1] % width
    padded = np.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, missing)])
    split = padded.reshape(*w.shape[:-1], padded.shape[-1] // width, width)
    return np.ascontiguousarray(np.moveaxis(split, -3, -2))


def _unpacked(panels: Array, columns: int) -> Array:
    matrices = np.moveaxis(panels, -3, -2)
    return matrices.reshape(*matrices.shape[:-2], panels.shape[-3] * panels.shape[-1])[..., :columns]


def _unpacked_parts(b: Builder, panels: Any, columns: int) -> Any:
    """The matrices that `panels` were made of."""
    rank = b.rank(panels)
    split = b.transpose(panels, perm=(*range(rank - 3), rank - 2, rank - 3, rank - 1))
    *lead, count, width = (b.size(split, axis) for axis in range(rank))
    joined = b.reshape(split, b.vector(*lead, merged(b, (count, width))))
    return b.slice(joined, [0], [columns], [1], axes=(rank - 2,))


# --- products


def _need_columns(panels: Fact, columns: int) -> None:
    """ValueError where panels surely are more or fewer than hold these columns."""
    if panels.shape is None:
        return
    if falls_short(panels.shape[-1], 1) or differ(panels.shape[-3], ceildiv(columns, panels.shape[-1])):
        raise ValueError(f"panels of shape {list(panels.shape)} do not hold {columns} columns")


def _product_shape(x: Fact, panels: Fact, *, columns: int, each: int = 1) -> list[Shape]:
    if panels.shape is not None and len(panels.shape) != 3:
        raise ValueError("the panels of one matrix have three axes")
    _need_columns(panels, each * columns)
    if x.shape is None:
        return [None]
    if not x.shape:
        raise ValueError("a matrix product needs operands of rank one or more")
    if panels.shape is not None and differ(x.shape[-1], panels.shape[-2]):
        raise ValueError(f"{x.shape[-1]} columns do not fit panels of {panels.shape[-2]} rows")
    return [(*x.shape[:-1], columns)]


def _product_parts(b: Builder, x: Any, panels: Any, *, columns: int) -> Any:
    return b.matmul(x, _unpacked_parts(b, panels, columns))


def _product_samples(rng: Rng, dtype: DType) -> Any:
    for shape in ((3, 5), (2, 3, 5), (5,)):
        for width in (4, 16):
            panels = pack_panels.reference(draw(rng, dtype, (5, 7)), width=width)
            yield draw(rng, dtype, shape), panels, {"columns": 7}


@op(
    "T, T -> T",
    into=CPU_OPS,
    T=FLOATS,
    shape=_product_shape,
    parts=_product_parts,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(_product_samples),
)
def matmul_panels(x: Array, panels: Array, *, columns: int) -> Array:
    """`matmul` of x with the matrix of `columns` columns that `panels` (⌈columns / width⌉, K, width) hold."""
    return np.matmul(x, _unpacked(panels, columns))


def _bytes_parts(b: Builder, x: Any, panels: Any, *, columns: int) -> Any:
    return b.matmul(x, b.cast(_unpacked_parts(b, panels, columns), dtype=b.dtype(x)))


def _bytes_samples(rng: Rng, dtype: DType) -> Any:
    for shape, width in (((3, 5), 16), ((2, 3, 5), 4), ((5,), 16)):
        panels = pack_panels.reference(draw(rng, i8, (5, 7), -127, 127), width=width)
        yield draw(rng, dtype, shape), panels, {"columns": 7}


@op(
    "T, Q -> T",
    into=CPU_OPS,
    T=FLOATS,
    Q=(i8,),
    shape=_product_shape,
    parts=_bytes_parts,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(_bytes_samples),
)
def matmul_bytes(x: Array, panels: Array, *, columns: int) -> Array:
    """`matmul` of x with the matrix of 8-bit integers that `panels` hold: a weight in a quarter of the memory."""
    return np.matmul(x, _unpacked(panels, columns).astype(x.dtype))


matmul_blocks = define_matmul_blocks(CPU_OPS, ((3,), 5), ((), 17), ((2, 5), 2))


QUAD = 4
"""Numbers along K that lie side by side in panels of quads."""


def quads_of(w: Array, width: int) -> Array:
    """A matrix (K, N) as the matrix (⌈K / 4⌉, 4 N) of its columns' quads, zeros behind the last row, as panels."""
    padded = np.pad(w, [(0, -w.shape[0] % QUAD), (0, 0)])
    split = padded.reshape(-1, QUAD, w.shape[1]).transpose(0, 2, 1)
    return pack_panels.reference(split.reshape(split.shape[0], -1), width=width)


def _quads_shape(x: Fact, panels: Fact, *, columns: int) -> list[Shape]:
    if panels.shape:
        need_multiple("the width of the panels", panels.shape[-1], QUAD)
    quads = x if not x.shape else Fact(TensorType(u8, (*x.shape[:-1], ceildiv(x.shape[-1], QUAD))))
    return _product_shape(quads, panels, columns=columns, each=QUAD)


def _quads_parts(b: Builder, x: Any, panels: Any, *, columns: int) -> Any:
    quads = _unpacked_parts(b, panels, QUAD * columns)
    split = b.reshape(quads, b.vector(b.size(quads, 0), columns, QUAD))
    rows = b.reshape(b.transpose(split, perm=(0, 2, 1)), [-1, columns])
    matrix = b.slice(rows, [0], b.vector(b.size(x, -1)), [1], axes=(0,))
    return b.matmul(b.cast(x, dtype=i32), b.cast(matrix, dtype=i32))


def _quads_samples(rng: Rng, dtype: DType) -> Any:
    for shape, columns in (((3, 5), 7), ((2, 3, 8), 17), ((5,), 1)):
        panels = quads_of(draw(rng, i8, (shape[-1], columns), -128, 127), 64)
        yield draw(rng, dtype, shape, 0, 255), panels, {"columns": columns}


@op(
    "X, Q -> i32",
    into=CPU_OPS,
    X=(u8,),
    Q=(i8,),
    shape=_quads_shape,
    parts=_quads_parts,
    samples=listed(_quads_samples),
)
def matmul_quads(x: Array, panels: Array, *, columns: int) -> Array:
    """The exact product of bytes x and the matrix of `columns` columns whose quads `panels` hold, in 32 bits."""
    quads = _unpacked(panels, QUAD * columns)
    matrix = quads.reshape(-1, columns, QUAD).transpose(0, 2, 1).reshape(-1, columns)[: x.shape[-1]]
    return np.matmul(x.astype(np.int32), matrix.astype(np.int32))


# --- convolutions


def _depth_of(panels: Fact, taps: int, groups: int, channels: int) -> Dim:
    """How many channels of x a group of weights in panels reads; ValueError where surely others are in there."""
    shape = panels.shape
    if shape is None:
        return UNKNOWN
    deep = len(shape) == 4
    if not deep and (len(shape) != 3 or channels != groups):
        raise ValueError(f"panels of shape {list(shape)} are no weights of {channels} channels in {groups} groups")
    each = shape[-2] // taps if deep else 1
    need("the tensor of panels", shape, (*[groups] * deep, UNKNOWN, each * taps, UNKNOWN))
    _need_columns(panels, channels // groups if deep else channels)
    return each


def _conv_panels_shape(
    x: Fact, panels: Fact, *, kernel: Sequence[int], groups: int, channels: int, **attrs: Any
) -> list[Shape]:
    each = _depth_of(panels, math.prod(kernel), groups, channels)
    assert isinstance(panels.type, TensorType)
    return conv_shape(x, Fact(TensorType(panels.type.dtype, (channels, each, *kernel))), groups=groups, **attrs)


def _weights(panels: Array, kernel: Sequence[int], groups: int, channels: int) -> Array:
    """The weights of `conv` that `panels` were made of."""
    if panels.ndim == 3:
        return _unpacked(panels, channels).T.reshape(channels, 1, *kernel)
    matrices = _unpacked(panels, channels // groups).reshape(groups, *kernel, -1, channels // groups)
    order = (0, len(kernel) + 2, len(kernel) + 1, *range(1, len(kernel) + 1))
    return matrices.transpose(order).reshape(channels, -1, *kernel)


def _conv_panels_parts(
    b: Builder, x: Any, panels: Any, *, kernel: Sequence[int], groups: int, channels: int, **attrs: Any
) -> Any:
    rank, deep = len(kernel), b.rank(panels) == 4
    matrices = _unpacked_parts(b, panels, channels // groups if deep else channels)
    split = b.reshape(matrices, (groups, *kernel, -1, channels // groups) if deep else (*kernel, 1, channels))
    order = (rank + 1, rank, *range(rank))
    turned = b.transpose(split, perm=(0, *(axis + 1 for axis in order)) if deep else order)
    weights = b.reshape(turned, (channels, -1, *kernel)) if deep else turned
    return b.conv(x, weights, None, groups=groups, **attrs)


def packed_weights(w: Array, groups: int, width: int) -> Array:
    """The panels of the weights of a convolution, as `conv_panels` takes them."""
    channels, each, *kernel = w.shape
    rank = len(kernel)
    if each == 1 and channels == groups:
        return pack_panels.reference(w.reshape(channels, -1).T, width=width)
    split = w.reshape(groups, channels // groups, each, *kernel)
    turned = split.transpose(0, *range(3, 3 + rank), 2, 1)
    return pack_panels.reference(turned.reshape(groups, -1, channels // groups), width=width)


def _conv_panels_samples(rng: Rng, dtype: DType) -> Any:
    for sample in conv.samples(rng, dtype):
        x, w, _ = sample.inputs
        for width in (4, 16):
            panels = packed_weights(w, sample.attrs["groups"], width)
            yield x, panels, {**sample.attrs, "kernel": w.shape[2:], "channels": w.shape[0]}


@op(
    "T, T -> T",
    into=CPU_OPS,
    T=FLOATS,
    shape=_conv_panels_shape,
    parts=_conv_panels_parts,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(_conv_panels_samples),
)
def conv_panels(
    x: Array,
    panels: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    channels: int,
) -> Array:
    """`conv` of x with the weights for `channels` output channels that `panels` hold: of each group, the matrix
    (kernel positions · channels, output channels) as panels, so (groups, …, …, width). Where every channel is a
    group by itself, (…, kernel positions, width): the panels of the matrix (kernel positions, channels)."""
    weights = _weights(panels, kernel, groups, channels)
    return conv.reference(x, weights, strides=strides, pads=pads, dilations=dilations, groups=groups)
