"""ONNX ops on signals."""

from __future__ import annotations

import math

from assay.frontends.onnx.ops.common import as_i64, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.graph import Value


@onnx_op("DFT")
def dft_along_attribute(b: Builder, n: Source, x: Value, length: Value | None = None) -> Results:
    return _dft(b, n, x, length, n.int("axis"))


@onnx_op("DFT", since=20)
def dft(b: Builder, n: Source, x: Value, length: Value | None = None, axis: Value | None = None) -> Results:
    return _dft(b, n, x, length, -2 if axis is None else b.ints(axis, "axis")[0])


def _dft(b: Builder, n: Source, x: Value, length: Value | None, axis: int) -> Value:
    inverse, onesided = n.flag("inverse"), n.flag("onesided")
    if length is not None:
        count = as_i64(b, scalar(b, length))
    else:
        size = scalar(b, b.vector(b.size(x, axis)))
        count = b.mul(b.sub(size, 1), 2) if inverse and onesided else size
    return b.dft(x, count, axis=axis, inverse=inverse, onesided=onesided, precision=_precision(b, x))


def _precision(b: Builder, x: Value) -> dtypes.DType:
    """The standard's own results are those of a transform in single precision."""
    return dtypes.f64 if b.dtype(x) is dtypes.f64 else dtypes.f32


@onnx_op("STFT")
def stft(
    b: Builder, n: Source, x: Value, step: Value, window: Value | None = None, length: Value | None = None
) -> Results:
    if length is not None:
        count = b.ints(length, "frame_length")[0]
    else:
        count = b.static_shape(window)[0] if window is not None else b.static_shape(x)[1]
    frames = b.window(x, axis=1, size=count, stride=b.ints(step, "frame_step")[0])
    if window is not None:
        frames = b.mul(frames, b.unsqueeze(window, axes=(1,)))
    return b.dft(frames, b.constant(count, dtypes.i64), axis=2, onesided=n.flag("onesided"), precision=_precision(b, x))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(
    b: Builder, n: Source, bands: Value, length: Value, rate: Value, lowest: Value, highest: Value
) -> Results:
    """Triangles whose corners are evenly spaced on the mel scale, each in whole bins of the spectrum."""
    count, whole = as_i64(b, scalar(b, bands)), as_i64(b, scalar(b, length))
    low, high = (_mel(b, b.cast(scalar(b, edge), dtype=dtypes.f64)) for edge in (lowest, highest))
    corners = b.add(count, 2)
    spacing = b.div(b.sub(high, low), b.cast(corners, dtype=dtypes.f64))
    mels = b.add(low, b.mul(b.cast(b.iota(corners), dtype=dtypes.f64), spacing))
    hertz = b.mul(b.expm1(b.mul(mels, math.log(10) / 2595)), 700.0)
    scaled = b.mul(hertz, b.cast(b.add(whole, 1), dtype=dtypes.f64))
    bins = b.floor(b.div(scaled, b.cast(scalar(b, rate), dtype=dtypes.f64)))
    left, peak, right = (b.gather(bins, b.add(b.iota(count), shift), axis=0) for shift in range(3))
    row = b.cast(b.unsqueeze(b.iota(b.add(b.div(whole, 2), 1)), axes=(1,)), dtype=dtypes.f64)
    rising, falling = b.div(b.sub(row, left), b.sub(peak, left)), b.div(b.sub(right, row), b.sub(right, peak))
    slopes = b.max(b.where(b.lt(row, peak), rising, falling), 0.0)
    return b.cast(b.where(b.eq(row, peak), 1.0, slopes), dtype=n.dtype("output_datatype"))


def _mel(b: Builder, hertz: Value) -> Value:
    return b.mul(b.log1p(b.div(hertz, 700.0)), 2595 / math.log(10))
