"""aten's distances between rows, their gradients, and products of three tensors."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.dims import lt
from assay.ir.graph import Value
from assay.ops.parts import scalar_size

_FEW = 25
"""Up to so many rows, torch takes Euclidean distances from differences, else from matrix products."""


def _norm(b: Builder, x: Value, p: float) -> Value:
    """The p-norm along the last axis."""
    magnitudes = b.abs(x)
    if p == 0:
        return b.reduce_sum(b.cast(b.ne(x, 0.0), dtype=b.dtype(x)), axes=(-1,))
    if p == 1:
        return b.reduce_sum(magnitudes, axes=(-1,))
    if p == 2:
        return b.sqrt(b.reduce_sum(b.square(x), axes=(-1,)))
    if p == np.inf:
        return b.reduce_max(magnitudes, axes=(-1,))
    return b.pow(b.reduce_sum(b.pow(magnitudes, float(p)), axes=(-1,)), 1.0 / float(p))


def _slopes(b: Builder, x: Value, norms: Value, p: float) -> Value:
    """The derivatives of the p-norm; zero where it has none."""
    length = b.unsqueeze(norms, axes=(-1,))
    if p == 0:
        return b.mul(x, 0.0)
    if p == 1:
        return b.sign(x)
    if p == np.inf:
        return b.where(b.eq(b.abs(x), length), b.sign(x), 0.0)
    ratio = b.div(x, length) if p == 2 else b.mul(b.sign(x), b.pow(b.div(b.abs(x), length), float(p) - 1.0))
    return b.where(b.bit_or(b.eq(length, 0.0), b.eq(x, 0.0)), 0.0, ratio)


def _differences(b: Builder, x: Value, y: Value) -> Value:
    """Each row of x less each row of y."""
    return b.sub(b.unsqueeze(x, axes=(b.rank(x) - 1,)), b.unsqueeze(y, axes=(b.rank(y) - 2,)))


@aten("aten._cdist_forward.default")
def cdist(b: Builder, n: Call, x: Value, y: Value, p: float, mode: int | None = None) -> Results:
    if p == 2 and _many(b, x, y, mode):
        return by_products(b, n, x, y)
    return _norm(b, _differences(b, x, y), p)


def _many(b: Builder, x: Value, y: Value, mode: int | None) -> bool:
    """Whether torch takes products. Of symbolic sizes it asks that while it traces, and then calls another op."""
    if mode in (1, 2):
        return mode == 1
    return any(lt(_FEW, size) is True for size in (b.dims(x)[-2], b.dims(y)[-2]))


@aten("aten._euclidean_dist.default")
def by_products(b: Builder, n: Call, x: Value, y: Value) -> Results:
    """|x|² − 2xy + |y|² in f64: of near rows these terms cancel, and their rounding is all that is left."""
    rows, others = tensor(b, x, dtypes.f64), tensor(b, y, dtypes.f64)
    rank = b.rank(others)
    turned = b.transpose(others, perm=(*range(rank - 2), rank - 1, rank - 2))
    own = b.reduce_sum(b.square(rows), axes=(-1,), keepdims=True)
    other = b.reduce_sum(b.square(turned), axes=(-2,), keepdims=True)
    squares = b.add(b.sub(own, b.mul(b.matmul(rows, turned), 2.0)), other)
    return tensor(b, b.sqrt(b.max(squares, 0.0)), n.dtype)


@aten("aten._cdist_backward.default")
def cdist_backward(b: Builder, n: Call, grad: Value, x: Value, y: Value, p: float, found: Value) -> Results:
    if 0 in (*b.dims(x), *b.dims(y)):
        return b.expand(b.constant(0, n.dtype), b.shape_of(x))
    slopes = _slopes(b, _differences(b, x, y), found, p)
    return b.reduce_sum(b.mul(slopes, b.unsqueeze(grad, axes=(-1,))), axes=(-2,))


def _pairs(b: Builder, x: Value) -> tuple[Value, Value]:
    """The rows of all pairs i < j."""
    rows = b.iota(scalar_size(b, x, 0))
    found = b.nonzero(b.lt(b.unsqueeze(rows, axes=(1,)), rows))
    return b.gather(found, 0, axis=0), b.gather(found, 1, axis=0)


@aten("aten._pdist_forward.default")
def pdist(b: Builder, n: Call, x: Value, p: float = 2.0) -> Results:
    left, right = _pairs(b, x)
    return _norm(b, b.sub(b.gather(x, left, axis=0), b.gather(x, right, axis=0)), p)


@aten("aten._pdist_backward.default")
def pdist_backward(b: Builder, n: Call, grad: Value, x: Value, p: float, found: Value) -> Results:
    left, right = _pairs(b, x)
    slopes = _slopes(b, b.sub(b.gather(x, left, axis=0), b.gather(x, right, axis=0)), found, p)
    pulls = b.mul(slopes, b.unsqueeze(grad, axes=(-1,)))
    summed = b.expand(b.constant(0, b.dtype(x)), b.shape_of(x))
    for places, updates in ((left, pulls), (right, b.neg(pulls))):
        summed = b.scatter_nd(summed, b.unsqueeze(places, axes=(1,)), updates, reduction="add")
    return summed


@aten("aten._trilinear.default")
def trilinear(
    b: Builder,
    n: Call,
    x: Value,
    y: Value,
    z: Value,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Results:
    rank = b.rank(x) + len(expand_x)
    labels = ascii_lowercase[:rank]

    def without(axes: Sequence[int]) -> str:
        gone = {axis % rank for axis in axes}
        return "".join(label for axis, label in enumerate(labels) if axis not in gone)

    terms = ",".join(without(axes) for axes in (expand_x, expand_y, expand_z))
    wide = [widened(b, value) for value in (x, y, z)]
    return tensor(b, b.einsum(*wide, equation=f"{terms}->{without(summed)}"), n.dtype)
