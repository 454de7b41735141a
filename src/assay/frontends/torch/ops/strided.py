"""aten ops that look at a tensor in another way: through strides, diagonals, windows, or another dtype's bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from assay.frontends.torch.ops.common import Number, sizes, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ops.parts import scalar_size
from assay.ops.shapes import axis_of

# --- strides: positions in the memory of a dense tensor


def _memory(b: Builder, n: Call, x: Value) -> tuple[Value, tuple[int, ...]]:
    """The elements of x in the order of its memory, and the axes from the outermost to the innermost."""
    orders = n.orders
    order = orders[0] if orders and orders[0] is not None else tuple(range(b.rank(x)))
    return b.reshape(b.transpose(x, perm=order), [-1]), order


def _places(b: Builder, shape: Sequence[Number], strides: Sequence[Number], offset: Any) -> Value:
    """Where each element of a strided view lies in memory."""
    rank = len(shape)
    place = tensor(b, 0 if offset is None else offset, dtypes.i64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        line = b.mul(b.iota(tensor(b, size, dtypes.i64)), tensor(b, stride, dtypes.i64))
        place = b.add(place, b.reshape(line, [-1 if i == axis else 1 for i in range(rank)]))
    return place


@aten("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    b: Builder, n: Call, x: Value, shape: Sequence[Number], strides: Sequence[Number], offset: Any = None
) -> Results:
    return b.gather(_memory(b, n, x)[0], _places(b, shape, strides, offset), axis=0)


@aten("aten.as_strided_scatter.default")
def as_strided_scatter(
    b: Builder, n: Call, x: Value, source: Value, shape: Sequence[Number], strides: Sequence[Number], offset: Any = None
) -> Results:
    memory, order = _memory(b, n, x)
    places = b.unsqueeze(_places(b, shape, strides, offset), axes=(len(shape),))
    written = b.scatter_nd(memory, places, tensor(b, source, n.dtype))
    inner = b.reshape(written, b.shape_of(b.transpose(x, perm=order)))
    return b.transpose(inner, perm=tuple(sorted(range(len(order)), key=lambda i: order[i])))


@aten("aten.resize.default")
def resize(b: Builder, n: Call, x: Value, shape: Sequence[Number], **layout: Any) -> Results:
    target = sizes(b, shape)
    count = b.reshape(b.reduce_prod(target), [1])
    memory = _memory(b, n, x)[0]
    missing = b.max(b.sub(count, b.shape_of(memory)), 0)
    full = b.pad(memory, b.concat(b.constant([0]), missing, axis=0), b.constant(0, n.dtype))
    return b.reshape(b.slice(full, [0], count, [1], axes=(0,)), target)


@aten("aten.sym_stride.int")
def sym_stride(b: Builder, n: Call, x: Value, dim: int) -> Results:
    _, order = _memory(b, n, x)
    inner = order[order.index(axis_of(dim, b.rank(x))) + 1 :]
    return reduce(lambda total, axis: b.mul(total, scalar_size(b, x, axis)), inner, b.constant(1, dtypes.i64))


# --- diagonals


def _diagonal(b: Builder, x: Value, offset: int, first: int, second: int) -> tuple[Value, tuple[int, ...], Value]:
    """x with the two axes joined at the end, the order of axes that leads there, and where the diagonal lies in it."""
    rank = b.rank(x)
    row, column = axis_of(first, rank), axis_of(second, rank)
    perm = (*(i for i in range(rank) if i not in (row, column)), row, column)
    rows, columns = scalar_size(b, x, row), scalar_size(b, x, column)
    down, right = max(-offset, 0), max(offset, 0)
    count = b.max(b.min(b.sub(rows, down), b.sub(columns, right)), 0)
    step = b.add(columns, 1)
    places = b.add(b.mul(b.iota(count), step), b.add(b.mul(columns, down), right))
    kept = [b.size(x, i) for i in perm[:-2]]
    joined = b.reshape(b.transpose(x, perm=perm), b.vector(*kept, b.reshape(b.mul(rows, columns), [1])))
    return joined, perm, places


@aten("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(b: Builder, n: Call, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Results:
    joined, _, places = _diagonal(b, x, offset, first, second)
    return b.gather(joined, places, axis=-1)


@aten("aten.diagonal_scatter.default")
def diagonal_scatter(
    b: Builder, n: Call, x: Value, source: Value, offset: int = 0, first: int = 0, second: int = 1
) -> Results:
    joined, perm, places = _diagonal(b, x, offset, first, second)
    rank = b.rank(joined)
    front = (rank - 1, *range(rank - 1))
    updates = b.transpose(tensor(b, source, n.dtype), perm=front)
    written = b.scatter_nd(b.transpose(joined, perm=front), b.unsqueeze(places, axes=(1,)), updates)
    apart = b.reshape(b.transpose(written, perm=(*range(1, rank), 0)), b.shape_of(b.transpose(x, perm=perm)))
    return b.transpose(apart, perm=tuple(sorted(range(len(perm)), key=lambda i: perm[i])))


# --- windows


@aten("aten.unfold.default", "aten.unfold_copy.default")
def unfold(b: Builder, n: Call, x: Value, dim: int, size: Number, step: Number) -> Results:
    value = b.reshape(x, [1]) if b.rank(x) == 0 else x
    axis = axis_of(dim, b.rank(value))
    length, width, by = scalar_size(b, value, axis), tensor(b, size, dtypes.i64), tensor(b, step, dtypes.i64)
    count = b.add(b.div(b.sub(length, width), by), 1)
    starts = b.unsqueeze(b.mul(b.iota(count), by), axes=(1,))
    windows = b.gather(value, b.add(starts, b.iota(width)), axis=axis)
    order = (*(i for i in range(b.rank(windows)) if i != axis + 1), axis + 1)
    turned = b.transpose(windows, perm=order)
    return turned if b.rank(x) else b.reshape(turned, sizes(b, [size]))


# --- bits

_WORDS = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}


@aten("aten.view.dtype", "aten.view_copy.dtype", "aten.prims.view_of_dtype.default")
def view_dtype(b: Builder, n: Call, x: Value, dtype: Any) -> Results:
    given = b.dtype(x)
    if given.bits == n.dtype.bits:
        return x if given is n.dtype else _read(b, _read(b, x, _WORDS[given.bits]), n.dtype)
    words = _read(b, x, _WORDS[given.bits])
    joined = _narrower(b, words, n.dtype.bits) if given.bits > n.dtype.bits else _wider(b, words, n.dtype.bits)
    return _read(b, joined, n.dtype)


def _read(b: Builder, x: Value, dtype: DType) -> Value:
    """The bits of x as another dtype of its width; a byte is true unless it is zero."""
    if b.dtype(x) is dtypes.boolean or dtype is dtypes.boolean:
        return b.cast(x, dtype=dtype)
    return x if b.dtype(x) is dtype else b.bitcast(x, dtype=dtype)


def _narrower(b: Builder, words: Value, bits: int) -> Value:
    """Words cut into parts along the last axis, the lowest bits first."""
    width = b.dtype(words).bits
    parts = [
        b.unsqueeze(b.cast(b.shift_right(words, shift), dtype=_WORDS[bits]), axes=(b.rank(words),))
        for shift in range(0, width, bits)
    ]
    rows = [b.size(words, i) for i in range(b.rank(words) - 1)]
    return b.reshape(b.concat(*parts, axis=b.rank(words)), b.vector(*rows, -1))


def _wider(b: Builder, words: Value, bits: int) -> Value:
    """Words of the last axis put together, the lowest bits first."""
    width = b.dtype(words).bits
    rows = [b.size(words, i) for i in range(b.rank(words) - 1)]
    wide = b.cast(b.reshape(words, b.vector(*rows, -1, bits // width)), dtype=_WORDS[bits])
    shifts = b.constant(np.arange(0, bits, width), _WORDS[bits])
    return b.reduce_sum(b.shift_left(wide, shifts), axes=(b.rank(wide) - 1,))
