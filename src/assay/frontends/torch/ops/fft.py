"""aten's Fourier transforms: one `dft` an axis, on pairs of real and imaginary parts."""

from __future__ import annotations

from collections.abc import Sequence

from assay.frontends.torch.ops.common import Number, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.parts import scalar_size
from assay.ops.shapes import axis_of

_PLAIN, _BY_ROOT, _BY_LENGTH = 0, 1, 2
"""torch's normalizations: none, and division by the root of the number of elements, or by that number."""


@aten("aten._fft_c2c.default")
def c2c(b: Builder, n: Call, x: Value, dims: Sequence[int], normalization: int, forward: bool) -> Results:
    if not dims:
        return x
    axes = [axis_of(dim, b.rank(x)) for dim in dims]
    count = _count(b, x, axes)
    pairs = _along(b, b.split_complex(x), axes, inverse=not forward)
    return b.join_complex(_scaled(b, pairs, count, normalization, divided=not forward))


@aten("aten._fft_r2c.default")
def r2c(b: Builder, n: Call, x: Value, dims: Sequence[int], normalization: int, onesided: bool) -> Results:
    axes = [axis_of(dim, b.rank(x)) for dim in dims]
    count = _count(b, x, axes)
    *outer, last = axes
    lone = b.unsqueeze(x, axes=(b.rank(x),))
    pairs = b.dft(lone, scalar_size(b, x, last), axis=last, onesided=onesided)
    return b.join_complex(_scaled(b, _along(b, pairs, outer), count, normalization, divided=False))


@aten("aten._fft_c2r.default")
def c2r(b: Builder, n: Call, x: Value, dims: Sequence[int], normalization: int, last_size: Number) -> Results:
    rank = b.rank(x)
    *outer, last = [axis_of(dim, rank) for dim in dims]
    length = tensor(b, last_size, dtypes.i64)
    pairs = _along(b, b.split_complex(x), outer, inverse=True)
    real = b.squeeze(b.dft(pairs, length, axis=last, inverse=True, onesided=True), axes=(rank,))
    return _scaled(b, real, b.mul(_count(b, x, outer), length), normalization, divided=True)


def _count(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    total = b.constant(1, dtypes.i64)
    for axis in axes:
        total = b.mul(total, scalar_size(b, x, axis))
    return total


def _along(b: Builder, pairs: Value, axes: Sequence[int], inverse: bool = False) -> Value:
    for axis in axes:
        pairs = b.dft(pairs, scalar_size(b, pairs, axis), axis=axis, inverse=inverse)
    return pairs


def _scaled(b: Builder, x: Value, count: Value, normalization: int, divided: bool) -> Value:
    """x normalized over `count` elements; an inverse transform has `divided` by their number already."""
    if normalization == (_BY_LENGTH if divided else _PLAIN):
        return x
    number = b.cast(count, dtype=b.dtype(x))
    factor = b.sqrt(number) if normalization == _BY_ROOT else number
    return b.mul(x, factor) if divided else b.div(x, factor)
