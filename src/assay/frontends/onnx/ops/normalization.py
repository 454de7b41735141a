"""ONNX softmax, normalizations and dropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.frontends.onnx.ops.common import product_of_sizes, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dims import le
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ops.builder import check_size

# --- softmax


def _hardmax(b: Builder, x: Value, axis: int) -> Value:
    rank, size = b.rank(x), b.dims(x)[axis]
    some = x if le(1, size) is True else _with_lowest(b, x, axis)
    best = b.arg_max(some, axis=axis, keepdims=True)
    line = b.iota(scalar(b, b.vector(b.size(x, axis))))
    places = b.reshape(line, [-1 if i == axis % rank else 1 for i in range(rank)])
    return b.cast(b.eq(best, places), dtype=b.dtype(x))


def _with_lowest(b: Builder, x: Value, axis: int) -> Value:
    """x with one more element at the end of an axis, which is no larger than any."""
    rank = b.rank(x)
    pads = [int(i == rank + axis % rank) for i in range(2 * rank)]
    return b.pad(x, pads, b.constant(-np.inf, b.dtype(x)))


def _softmax(b: Builder, x: Value, axis: int) -> Value:
    """In narrow floats the standard's steps are those of the dtype; the sum of bf16 numbers is one too."""
    dtype = b.dtype(x)
    precision = dtype if dtype.bits < 32 else None
    return b.softmax(x, axis=axis, precision=precision, accumulate=dtype if dtype is dtypes.bf16 else None)


def _log_softmax(b: Builder, x: Value, axis: int) -> Value:
    return b.log_softmax(x, axis=axis)


_ALONG = {"Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}


def _enter(name: str) -> None:
    rule = _ALONG[name]

    @onnx_op(name, since=13)
    def along(b: Builder, n: Source, x: Value) -> Results:  # pyright: ignore[reportUnusedFunction]
        return rule(b, x, n.int("axis"))

    @onnx_op(name)
    def coerced(b: Builder, n: Source, x: Value) -> Results:  # pyright: ignore[reportUnusedFunction]
        rank = b.rank(x)
        axis = n.int("axis")
        axis = axis + rank if axis < 0 else axis
        if axis == rank - 1:
            return rule(b, x, axis)
        rows, columns = product_of_sizes(b, x, range(axis)), product_of_sizes(b, x, range(axis, rank))
        return b.reshape(rule(b, b.reshape(x, b.vector(rows, columns)), 1), b.shape_of(x))


for _name in _ALONG:
    _enter(_name)

# --- normalizations


@onnx_op("LayerNormalization")
def layer_normalization(b: Builder, n: Source, x: Value, scale: Value, bias: Value | None = None) -> Results:
    axis, epsilon = n.int("axis"), n.float("epsilon")
    result = b.layer_norm(x, scale, bias, axis=axis, epsilon=epsilon)
    if n.results < 2:
        return result
    rank = b.rank(x)
    axes = tuple(range(axis % rank, rank))
    wide = _as(b, x, n.dtype("stash_type"))
    mean, variance = _statistics(b, wide, axes, keepdims=True)
    return result, mean, b.rsqrt(b.add(variance, epsilon))


def _statistics(b: Builder, x: Value, axes: tuple[int, ...], keepdims: bool) -> tuple[Value, Value]:
    """The mean and the population variance over some axes."""
    mean = b.reduce_mean(x, axes=axes, keepdims=True)
    variance = b.reduce_mean(b.square(b.sub(x, mean)), axes=axes, keepdims=keepdims)
    return mean if keepdims else b.squeeze(mean, axes=axes), variance


@onnx_op("RMSNormalization")
def rms_normalization(b: Builder, n: Source, x: Value, scale: Value) -> Results:
    axis, epsilon = n.int("axis"), n.float("epsilon")
    if b.dtype(x) is b.dtype(scale):
        return b.rms_norm(x, scale, axis=axis, epsilon=epsilon)
    normal = b.rms_norm(x, axis=axis, epsilon=epsilon)
    return b.mul(b.cast(normal, dtype=b.dtype(scale)), scale)


@onnx_op("GroupNormalization", since=21)
def group_normalization(b: Builder, n: Source, x: Value, scale: Value, bias: Value) -> Results:
    return b.group_norm(x, scale, bias, groups=n.int("num_groups"), epsilon=n.float("epsilon"))


@onnx_op("GroupNormalization", since=18)
def group_normalization_by_group(b: Builder, n: Source, x: Value, scale: Value, bias: Value) -> Results:
    groups, channels = n.int("num_groups"), b.size(x, 1)
    if groups < 1:
        raise ValueError(f"num_groups is {groups}")
    each = channels // groups if isinstance(channels, int) else b.div(channels, groups)
    spread = b.vector(groups, each)
    parameters = (b.reshape(b.expand(b.unsqueeze(v, axes=(1,)), spread), [-1]) for v in (scale, bias))
    return b.group_norm(x, *parameters, groups=groups, epsilon=n.float("epsilon"))


@onnx_op("InstanceNormalization")
def instance_normalization(b: Builder, n: Source, x: Value, scale: Value, bias: Value) -> Results:
    return b.instance_norm(x, scale, bias, epsilon=n.float("epsilon"))


def _as(b: Builder, x: Value, kind: DType) -> Value:
    return x if b.dtype(x) is kind else b.cast(x, dtype=kind)


def _common_float(*kinds: DType) -> DType:
    """The narrowest float that holds the values of all these."""
    if len(set(kinds)) == 1:
        return kinds[0]
    widest = max(kinds, key=lambda kind: kind.bits)
    return widest if widest.bits > 16 else dtypes.f32


@onnx_op("BatchNormalization")
def batch_normalization(
    b: Builder, n: Source, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Results:
    """Versions before 14 train where the node names more results than one."""
    training = n.flag("training_mode") if n.version >= 14 else n.results > 1
    kind = _common_float(*(b.dtype(v) for v in (x, scale, bias, mean, variance)))
    wide, *affine = (_as(b, v, kind) for v in (x, scale, bias))
    given = [_as(b, v, kind) for v in (mean, variance)]
    by_channel = n.flag("spatial", 1)
    if not training:
        return _as(b, _normalized(b, wide, given, affine, n.float("epsilon"), by_channel), b.dtype(x))
    axes = tuple(axis for axis in range(b.rank(x)) if axis != 1) if by_channel else (0,)
    current = _statistics(b, wide, axes, keepdims=False)
    result = _as(b, _normalized(b, wide, current, affine, n.float("epsilon"), by_channel), b.dtype(x))
    keep = n.float("momentum")
    moved = [b.add(b.mul(old, keep), b.mul(new, 1 - keep)) for old, new in zip(given, current, strict=True)]
    saved = [*moved, *(() if n.version >= 14 else current)]
    return result, *(_as(b, v, b.dtype(mean)) for v in saved)


def _normalized(
    b: Builder, x: Value, statistics: Sequence[Value], affine: Sequence[Value], epsilon: float, by_channel: bool
) -> Value:
    mean, variance = statistics
    if by_channel:
        return b.batch_norm(x, mean, variance, *affine, epsilon=epsilon)
    scale, bias = affine
    return b.add(b.mul(b.div(b.sub(x, mean), b.sqrt(b.add(variance, epsilon))), scale), bias)


@onnx_op("LpNormalization")
def lp_normalization(b: Builder, n: Source, x: Value) -> Results:
    axes, p = (n.int("axis"),), n.int("p")
    if p not in (1, 2):
        raise ValueError(f"p is {p}, it must be 1 or 2")
    powers = b.reduce_sum(b.abs(x) if p == 1 else b.square(x), axes=axes, keepdims=True)
    size = powers if p == 1 else b.sqrt(powers)
    return b.where(b.eq(size, 0.0), 0.0, b.div(x, size))


@onnx_op("LRN")
def lrn(b: Builder, n: Source, x: Value) -> Results:
    return b.lrn(x, size=n.int("size"), alpha=n.float("alpha"), beta=n.float("beta"), bias=n.float("bias"))


# --- dropout


def _everything(b: Builder, x: Value, kind: DType) -> Value:
    """The mask that keeps all of x."""
    return b.expand(b.constant(1, kind), b.shape_of(x))


@onnx_op("Dropout")
def dropout_old(b: Builder, n: Source, x: Value) -> Results:
    if n.flag("is_test", 1):
        return x, _everything(b, x, b.dtype(x) if n.version < 10 else dtypes.boolean)
    result, mask = _dropped(b, n, x, n.float("ratio"))
    return result, _as(b, mask, b.dtype(x))


@onnx_op("Dropout", since=12)
def dropout(b: Builder, n: Source, x: Value, ratio: Value | None = None, training_mode: Value | None = None) -> Results:
    training = training_mode is not None and bool(b.array(training_mode, "training_mode"))
    rate = 0.5 if ratio is None or not training else float(b.array(ratio, "ratio"))
    if not training or rate == 0.0:
        return x, _everything(b, x, dtypes.boolean)
    return _dropped(b, n, x, rate)


def _dropped(b: Builder, n: Source, x: Value, rate: float) -> tuple[Value, Value]:
    """x scaled where a random number reaches `rate`, zero elsewhere, and where that is. With a seed, the numbers are
    those of the standard's own reference (NumPy's legacy stream), without one they are new in every run."""
    seed = n.int("seed", None)
    if seed is None:
        mask = b.le(rate, b.random_uniform(b.shape_of(x), b.fresh_seed(), dtype=dtypes.f64))
    else:
        shape = b.static_shape(x)
        check_size(shape, dtypes.f64, b.limits)
        stream = np.random.RandomState(seed & (2**32 - 1))
        mask = b.constant(stream.uniform(0.0, 1.0, shape) >= rate)
    return b.mul(b.mul(b.cast(mask, dtype=b.dtype(x)), x), 1 / (1 - rate)), mask
