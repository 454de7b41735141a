"""Fourier transforms. Complex numbers are pairs (real, imaginary) in the last axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, lt
from assay.ir.dtypes import FLOATS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import falls_short
from assay.ops.parts import converted, scalar_size
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import axis_of

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _dft_shape(x: Fact, length: Fact, *, axis: int, inverse: bool, onesided: bool, **attrs: Any) -> list[Shape]:
    if x.shape is None:
        return [None]
    rank = len(x.shape)
    if axis_of(axis, rank) == rank - 1:
        raise ValueError("the last axis holds the parts of complex numbers and cannot be transformed")
    if falls_short(x.shape[-1], 1) or falls_short(2 - x.shape[-1], 0):
        raise ValueError(f"the last axis holds {x.shape[-1]} numbers, not one or two")
    count: Dim = UNKNOWN if length.value is None else length.value.reshape(-1).tolist()[0]
    if lt(count, 1) is True:
        raise ValueError(f"a transform of length {count}")
    kept = count // 2 + 1 if onesided and not inverse else count
    shape = [kept if i == axis_of(axis, rank) else d for i, d in enumerate(x.shape)]
    return [(*shape[:-1], 1 if onesided and inverse else 2)]


def _dft_parts(
    b: Builder, x: Any, length: Any, *, axis: int, inverse: bool, onesided: bool, precision: DType | None
) -> Any:
    """Real signals and one-sided spectra take one matrix product, complex signals of known length one a factor."""
    rank, dtype, work = b.rank(x), b.dtype(x), precision or dtypes.f64
    along = axis_of(axis, rank)
    order = (*(i for i in range(rank) if i not in (along, rank - 1)), along, rank - 1)
    signal = b.transpose(converted(b, x, work), perm=order)
    half = b.add(b.div(length, 2), 1)
    taken, made = (half if onesided and inverse else length), (half if onesided and not inverse else length)
    signal = _fitted(b, signal, taken)
    count = b.fact(length).concrete
    if count is not None and b.dims(signal)[-1] != 1 and not onesided:
        result = _staged(b, signal, int(count), inverse)
    else:
        cosines, sines = _rotation(b, taken, made, length, inverse, work)
        weights = _bin_weights(b, taken, length, work) if onesided and inverse else b.constant(1, work)
        result = _turned(b, signal, b.mul(cosines, weights), b.mul(sines, weights), 1 if onesided and inverse else 2)
    if inverse:
        result = b.div(result, b.cast(length, dtype=work))
    return converted(b, b.transpose(result, perm=tuple(order.index(i) for i in range(rank))), dtype)


def _fitted(b: Builder, x: Any, count: Any) -> Any:
    """x cut or filled with zeros to `count` elements in its last axis but one, and to pairs if it may hold some."""
    rank, parts = b.rank(x), b.size(x, -1)
    missing = b.sub(count, scalar_size(b, x, rank - 2))
    absent = 0 if isinstance(parts, int) else b.sub(2, parts)
    return b.pad(x, b.vector(*(0,) * (2 * rank - 2), missing, absent), 0)


def _rotation(b: Builder, rows: Any, columns: Any, length: Any, inverse: bool, work: DType) -> tuple[Any, Any]:
    """The cosines and sines of the angles ±2π · row · column / length, those of quarters of a turn exactly."""
    steps = b.mod(b.mul(b.unsqueeze(b.iota(rows), axes=(1,)), b.iota(columns)), length)
    turn = b.div(2 * math.pi if inverse else -2 * math.pi, b.cast(length, dtype=dtypes.f64))
    angles = b.mul(b.cast(steps, dtype=dtypes.f64), turn)
    are_quarters = b.eq(b.mod(b.mul(steps, 4), length), 0)
    exact = (b.where(are_quarters, b.round(each), each) for each in (b.cos(angles), b.sin(angles)))
    cosines, sines = (converted(b, each, work) for each in exact)
    return cosines, sines


def _bin_weights(b: Builder, count: Any, length: Any, work: DType) -> Any:
    """How many bins of the whole spectrum each of a one-sided one stands for."""
    line = b.unsqueeze(b.iota(count), axes=(1,))
    return b.where(b.eq(b.mod(b.mul(line, 2), length), 0), b.constant(1, work), b.constant(2, work))


def _turned(b: Builder, x: Any, cosines: Any, sines: Any, kept: int = 2) -> Any:
    """Σ x[…, n, :] · (cosines + i · sines)[n, k] as one product; with `kept` = 1 the real part alone."""
    rows = [b.unsqueeze(cosines, axes=(1, 3)), b.unsqueeze(sines, axes=(1, 3))]
    blocks = [b.concat(*rows[:kept], axis=3)]
    if b.dims(x)[-1] != 1:
        blocks.append(b.concat(*[b.neg(rows[1]), rows[0]][:kept], axis=3))
    taken, made = (scalar_size(b, cosines, axis) for axis in (0, 1))
    matrix = b.reshape(b.concat(*blocks, axis=1), b.vector(b.mul(taken, len(blocks)), b.mul(made, kept)))
    outer = [b.size(x, axis) for axis in range(b.rank(x) - 2)]
    product = b.matmul(b.reshape(x, b.vector(*outer, b.mul(taken, len(blocks)))), matrix)
    return b.reshape(product, b.vector(*outer, made, kept))


def _staged(b: Builder, x: Any, count: int, inverse: bool) -> Any:
    """The transform of complex x (…, count, 2) by Cooley and Tukey: short ones over elements `rest` apart, their bins
    turned, then long ones over bins of the same number."""
    first = next((p for p in range(2, math.isqrt(count) + 1) if count % p == 0), count)
    if first == count:
        size = b.constant(count, dtypes.i64)
        return _turned(b, x, *_rotation(b, size, size, size, inverse, b.dtype(x)))
    rest = count // first
    outer = [b.size(x, axis) for axis in range(b.rank(x) - 2)]
    rank = len(outer)
    swap = (*range(rank), rank + 1, rank, rank + 2)
    groups = b.transpose(b.reshape(x, b.vector(*outer, first, rest, 2)), perm=swap)
    bins = _staged(b, groups, first, inverse)
    whole, short, long = (b.constant(n, dtypes.i64) for n in (count, first, rest))
    cosines, sines = _rotation(b, long, short, whole, inverse, b.dtype(x))
    real, imaginary = (b.gather(bins, i, axis=-1) for i in (0, 1))
    turned = (
        b.sub(b.mul(real, cosines), b.mul(imaginary, sines)),
        b.add(b.mul(real, sines), b.mul(imaginary, cosines)),
    )
    pairs = b.concat(*(b.unsqueeze(part, axes=(rank + 2,)) for part in turned), axis=rank + 2)
    results = _staged(b, b.transpose(pairs, perm=swap), rest, inverse)
    return b.reshape(b.transpose(results, perm=swap), b.vector(*outer, count, 2))


def _dft_samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    kinds = ((1, False, False), (1, False, True), (2, False, False), (2, True, False), (2, True, True))
    for parts, inverse, onesided in kinds:
        for size, length, axis in ((6, 6, 1), (5, 8, -2), (7, 5, 1), (1, 1, 1)):
            attrs = {"axis": axis, "inverse": inverse, "onesided": onesided}
            yield draw(rng, dtype, (2, size, parts)), np.array(length), attrs
            if dtype is not dtypes.f64:
                yield draw(rng, dtype, (2, size, parts)), np.array(length), {**attrs, "precision": dtypes.f32}
    yield draw(rng, dtype, (12, 3, 2)), np.array(12), {"axis": 0}


@op(
    "T, i64 -> T",
    T=FLOATS,
    ranks={"length": 0},
    shape=_dft_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_dft_parts,
    samples=listed(_dft_samples, 1),
)
def dft(
    x: Array,
    length: Array,
    *,
    axis: int,
    inverse: bool = False,
    onesided: bool = False,
    precision: DType | None = None,
) -> Array:
    """The discrete Fourier transform of `length` elements along `axis`, x being cut or filled with zeros to them. The
    last axis holds real (and imaginary) parts. `onesided`: a forward transform gives the first length // 2 + 1 bins; an
    inverse one takes such bins and gives real numbers. The inverse divides by the length. `precision` is the dtype
    that a fast transform rounds to at every step; None: only the result is rounded."""
    count = int(length)
    along = axis_of(axis, x.ndim)
    signal = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if precision is dtypes.f32:
        signal = signal.astype(np.complex64 if signal.dtype.kind == "c" else np.float32)
    if inverse and onesided:
        return np.fft.irfft(signal, count, along)[..., None]
    result = (np.fft.ifft if inverse else np.fft.fft)(signal, count, along)
    if onesided:
        result = np.take(result, np.arange(count // 2 + 1), along)
    return np.stack([result.real, result.imag], axis=-1)
