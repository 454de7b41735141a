"""Softmax and the normalizations. Statistics are those of the population (divided by the count)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, along, draw, listed
from assay.ops.shapes import along_axis, axis_of, broadcast

if TYPE_CHECKING:
    from assay.ops.builder import Builder

# --- softmax


def _softmax_parts(b: Builder, x: Any, *, axis: int, precision: DType | None, accumulate: DType | None) -> Any:
    grown = b.exp(b.sub(x, b.reduce_max(x, axes=(axis,), keepdims=True)))
    return b.div(grown, b.reduce_sum(grown, axes=(axis,), keepdims=True, accumulate=accumulate))


def _softmax_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    yield from along()(rng, dtype)
    yield Sample((draw(rng, dtype, (2, 6)),), {"axis": 1, "precision": dtype})
    yield Sample((draw(rng, dtype, (6, 2)),), {"axis": 0, "precision": dtype, "accumulate": dtype})


@op(
    "T -> T",
    T=FLOATS,
    shape=along_axis,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    parts=_softmax_parts,
    samples=_softmax_samples,
)
def softmax(x: Array, *, axis: int, precision: DType | None = None, accumulate: DType | None = None) -> Array:
    """eˣ over its sum along `axis`, without overflow. With `precision` every step is rounded to that dtype; with
    `accumulate` so is every partial sum."""
    return softmax_array(x, axis, precision, accumulate)


def softmax_array(x: Array, axis: int, precision: DType | None = None, accumulate: DType | None = None) -> Array:
    """The reference of `softmax`."""
    grown = rounded_to(np.exp(rounded_to(x - x.max(axis=axis, keepdims=True, initial=-np.inf), precision)), precision)
    if accumulate is None or accumulate is dtypes.f64 or not x.shape[axis]:
        total = grown.sum(axis=axis, keepdims=True)
    else:
        total = np.add.accumulate(grown.astype(accumulate.numpy), axis=axis).take([-1], axis=axis)
    return rounded_to(grown / rounded_to(total, precision), precision)


def rounded_to(x: Array, dtype: DType | None) -> Array:
    """An f64 array with its elements rounded to `dtype` (None: as they are)."""
    return x if dtype is None or dtype is dtypes.f64 else x.astype(dtype.numpy).astype(np.float64)


def _log_softmax_parts(b: Builder, x: Any, *, axis: int) -> Any:
    shifted = b.sub(x, b.reduce_max(x, axes=(axis,), keepdims=True))
    return b.sub(shifted, b.log(b.reduce_sum(b.exp(shifted), axes=(axis,), keepdims=True)))


@op(
    "T -> T",
    T=FLOATS,
    shape=along_axis,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    parts=_log_softmax_parts,
    samples=along(),
)
def log_softmax(x: Array, *, axis: int) -> Array:
    """The logarithm of `softmax`, accurate where that is tiny."""
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


# --- what the normalizations share


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    centred /= np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + epsilon)
    return centred


def _standardized_parts(b: Builder, x: Any, axes: Sequence[int], epsilon: float) -> Any:
    centred = b.sub(x, b.reduce_mean(x, axes=axes, keepdims=True))
    variance = b.reduce_mean(b.square(centred), axes=axes, keepdims=True)
    return b.div(centred, b.sqrt(b.add(variance, epsilon)))


def _affine(x: Array, scale: Array | None, bias: Array | None) -> Array:
    scaled = x if scale is None else x * scale
    return scaled if bias is None else scaled + bias


def _affine_parts(b: Builder, x: Any, scale: Any, bias: Any) -> Any:
    scaled = x if scale is None else b.mul(x, scale)
    return scaled if bias is None else b.add(scaled, bias)


def _per_channel(parameter: Array, rank: int) -> Array:
    """A vector over the channels, which are axis 1 of a tensor of this rank."""
    return parameter.reshape(-1, *(1,) * (rank - 2))


def _by_channel(x: Array, scale: Array | None, bias: Array | None) -> Array:
    scaled = x if scale is None else x * _per_channel(scale, x.ndim)
    return scaled if bias is None else scaled + _per_channel(bias, x.ndim)


def _per_channel_parts(b: Builder, parameter: Any, rank: int) -> Any:
    return None if parameter is None else b.reshape(parameter, (-1, *(1,) * (rank - 2)))


def _trailing_shape(x: Fact, *parameters: Fact | None, axis: int, epsilon: float) -> list[Shape]:
    """The shape of x, to which the parameters must broadcast."""
    if x.shape is None:
        return [None]
    axis_of(axis, len(x.shape))
    for parameter in parameters:
        joined = None if parameter is None else broadcast([x.shape, parameter.shape])
        if joined is not None and (len(joined) > len(x.shape) or any(map(differ, joined, x.shape))):
            raise ValueError(f"parameters of a normalization do not broadcast to the shape {list(x.shape)}")
    return [x.shape]


def _channel_shape(x: Fact, *parameters: Fact | None, epsilon: float, groups: int = 1) -> list[Shape]:
    """The shape of x, whose axis 1 the parameters have too."""
    if x.shape is None:
        return [None]
    channels = x.shape[1] if len(x.shape) > 1 else 1
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise ValueError(f"{channels} channels do not divide into {groups} groups")
    for parameter in parameters:
        if parameter is None or parameter.shape is None:
            continue
        if len(parameter.shape) != 1 or differ(parameter.shape[0], channels):
            raise ValueError(f"a parameter of shape {list(parameter.shape)} does not fit {channels} channels")
    return [x.shape]


# --- normalizations over trailing axes


def _trailing(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(range(axis_of(axis, rank), rank))


def _layer_norm_parts(b: Builder, x: Any, scale: Any = None, bias: Any = None, *, axis: int, epsilon: float) -> Any:
    return _affine_parts(b, _standardized_parts(b, x, _trailing(axis, b.rank(x)), epsilon), scale, bias)


def _layer_norm_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (3, 4)), draw(rng, dtype, (4,)), draw(rng, dtype, (4,)), {"axis": -1, "epsilon": 1e-2}
    yield draw(rng, dtype, (2, 3, 4)), draw(rng, dtype, (3, 4)), None, {"axis": 1, "epsilon": 1e-2}
    yield draw(rng, dtype, (2, 3, 4)), None, draw(rng, dtype, (4,)), {"axis": 0, "epsilon": 1e-2}
    yield draw(rng, dtype, (0, 4)), draw(rng, dtype, ()), None, {"axis": 1, "epsilon": 1e-2}


@op(
    "T, T?, T? -> T",
    T=FLOATS,
    shape=_trailing_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_layer_norm_parts,
    samples=listed(_layer_norm_samples),
)
def layer_norm(
    x: Array, scale: Array | None = None, bias: Array | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Array:
    """(x − mean) / √(variance + ε) · scale + bias, with the statistics over `axis` and all axes after it."""
    return _affine(_standardized(x, _trailing(axis, x.ndim), epsilon), scale, bias)


def _rms_norm_parts(b: Builder, x: Any, scale: Any = None, *, axis: int, epsilon: float) -> Any:
    power = b.reduce_mean(b.square(x), axes=_trailing(axis, b.rank(x)), keepdims=True)
    return _affine_parts(b, b.div(x, b.sqrt(b.add(power, epsilon))), scale, None)


def _rms_norm_samples(rng: Rng, dtype: DType) -> Any:
    for x, scale, _, attrs in _layer_norm_samples(rng, dtype):
        yield x, scale, attrs


@op(
    "T, T? -> T",
    T=FLOATS,
    shape=_trailing_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_rms_norm_parts,
    samples=listed(_rms_norm_samples),
)
def rms_norm(x: Array, scale: Array | None = None, *, axis: int = -1, epsilon: float = 1e-5) -> Array:
    """x / √(mean of x² + ε) · scale, with the mean over `axis` and all axes after it."""
    power = np.square(x).mean(axis=_trailing(axis, x.ndim), keepdims=True)
    return _affine(x / np.sqrt(power + epsilon), scale, None)


# --- normalizations of channels


def _group_norm_parts(b: Builder, x: Any, scale: Any = None, bias: Any = None, *, epsilon: float, groups: int) -> Any:
    rank = b.rank(x)
    sizes = b.vector(*(b.size(x, i) for i in range(rank)))
    count = b.div(b.reduce_prod(b.slice(sizes, [1], [rank], [1], axes=(0,))), groups)
    grouped = b.reshape(x, b.vector(b.size(x, 0), groups, count))
    normal = b.reshape(_standardized_parts(b, grouped, (2,), epsilon), sizes)
    return _affine_parts(b, normal, _per_channel_parts(b, scale, rank), _per_channel_parts(b, bias, rank))


def _group_norm_samples(rng: Rng, dtype: DType) -> Any:
    scale, bias = draw(rng, dtype, (4,)), draw(rng, dtype, (4,))
    yield draw(rng, dtype, (2, 4, 3, 2)), scale, bias, {"groups": 2, "epsilon": 1e-2}
    yield draw(rng, dtype, (1, 4, 5)), scale, None, {"groups": 4, "epsilon": 1e-2}
    yield draw(rng, dtype, (3, 4)), None, bias, {"groups": 1, "epsilon": 1e-2}


@op(
    "T, T?, T? -> T",
    T=FLOATS,
    shape=_channel_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_group_norm_parts,
    samples=listed(_group_norm_samples),
)
def group_norm(
    x: Array, scale: Array | None = None, bias: Array | None = None, *, epsilon: float = 1e-5, groups: int
) -> Array:
    """x (N, C, …) standardized over each of `groups` groups of channels, then · scale + bias by channel."""
    grouped = x.reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    normal = _standardized(grouped, (2,), epsilon).reshape(x.shape)
    return _by_channel(normal, scale, bias)


def _instance_norm_parts(b: Builder, x: Any, scale: Any = None, bias: Any = None, *, epsilon: float) -> Any:
    rank = b.rank(x)
    normal = _standardized_parts(b, x, tuple(range(2, rank)), epsilon)
    return _affine_parts(b, normal, _per_channel_parts(b, scale, rank), _per_channel_parts(b, bias, rank))


def _instance_norm_samples(rng: Rng, dtype: DType) -> Any:
    for x, scale, bias, _ in _group_norm_samples(rng, dtype):
        yield x, scale, bias, {"epsilon": 1e-2}


@op(
    "T, T?, T? -> T",
    T=FLOATS,
    shape=_channel_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_instance_norm_parts,
    samples=listed(_instance_norm_samples),
)
def instance_norm(x: Array, scale: Array | None = None, bias: Array | None = None, *, epsilon: float = 1e-5) -> Array:
    """x (N, C, …) standardized over the axes from 2 on, then · scale + bias by channel."""
    normal = _standardized(x, tuple(range(2, x.ndim)), epsilon)
    return _by_channel(normal, scale, bias)


def _batch_norm_parts(
    b: Builder, x: Any, mean: Any, variance: Any, scale: Any = None, bias: Any = None, *, epsilon: float
) -> Any:
    rank = b.rank(x)
    deviation = b.sqrt(b.add(variance, epsilon))
    factor = b.reciprocal(deviation) if scale is None else b.div(scale, deviation)
    centred = b.sub(x, _per_channel_parts(b, mean, rank))
    return _affine_parts(b, centred, _per_channel_parts(b, factor, rank), _per_channel_parts(b, bias, rank))


def _batch_norm_samples(rng: Rng, dtype: DType) -> Any:
    for x, scale, bias, _ in _group_norm_samples(rng, dtype):
        yield x, draw(rng, dtype, (4,)), draw(rng, dtype, (4,), 1, 2), scale, bias, {"epsilon": 1e-2}


@op(
    "T, T, T, T?, T? -> T",
    T=FLOATS,
    shape=_channel_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_batch_norm_parts,
    samples=listed(_batch_norm_samples, 2),
)
def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    scale: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> Array:
    """(x − mean) / √(variance + ε) · scale + bias, with given statistics by channel (axis 1)."""
    factor = (1.0 if scale is None else scale) / np.sqrt(variance + epsilon)
    result = x - _per_channel(mean, x.ndim)
    result *= _per_channel(factor, x.ndim)
    if bias is not None:
        result += _per_channel(bias, x.ndim)
    return result


# --- local response


def _lrn_parts(b: Builder, x: Any, *, size: int, alpha: float, beta: float, bias: float) -> Any:
    pads = [0] * (2 * b.rank(x))
    pads[1], pads[b.rank(x) + 1] = (size - 1) // 2, size // 2
    windows = b.window(b.pad(b.square(x), pads, 0), axis=1, size=size)
    total = b.reduce_sum(windows, axes=(2,))
    return b.div(x, b.pow(b.add(b.mul(total, alpha / size), bias), beta))


def _lrn_shape(x: Fact, *, size: int, **attrs: Any) -> list[Shape]:
    if size < 1 or (x.shape is not None and len(x.shape) < 2):
        raise ValueError(f"a response over {size} channels got the shape {list(x.shape or ())}")
    return [x.shape]


def _lrn_samples(rng: Rng, dtype: DType) -> Any:
    for size, shape in [(3, (2, 5, 2, 2)), (4, (1, 3, 4)), (1, (2, 2))]:
        yield draw(rng, dtype, shape), {"size": size, "alpha": 0.5, "beta": 0.75, "bias": 1.0}


@op(
    "T -> T",
    T=FLOATS,
    shape=_lrn_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_lrn_parts,
    samples=listed(_lrn_samples),
)
def lrn(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    """x / (bias + α / size · Σ x²)^β, the sum over `size` neighbouring channels (if even, one more after x)."""
    squares = np.square(x)
    total = np.zeros_like(squares)
    for offset in range(-((size - 1) // 2), size // 2 + 1):
        low, high = max(-offset, 0), x.shape[1] - max(offset, 0)
        if low < high:
            total[:, low:high] += squares[:, low + offset : high + offset]
    total *= alpha / size
    total += bias
    return x / total**beta
