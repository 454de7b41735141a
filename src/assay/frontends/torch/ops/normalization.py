"""aten's softmax and normalizations. Their statistics are nodes of their own, which go where nobody asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.frontends.torch.ops.common import Number, sizes, tensor, wide_dtype
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.ops.parts import scalar_size, volume


def widened(b: Builder, x: Value) -> Value:
    """x in the dtype that torch computes in."""
    return tensor(b, x, wide_dtype(b.dtype(x)))


def as_declared(b: Builder, n: Call, *results: Value) -> tuple[Value, ...]:
    """The results in the dtypes that torch says they have."""
    kinds = [kind for kind in n.types if isinstance(kind, TensorType)]
    return tuple(tensor(b, result, kind.dtype) for result, kind in zip(results, kinds, strict=True))


def _parameters(b: Builder, dtype: DType, *given: Value | None) -> list[Value | None]:
    return [None if parameter is None else tensor(b, parameter, dtype) for parameter in given]


# --- softmax


@aten("aten._softmax.default", "aten._log_softmax.default")
def softmax(b: Builder, n: Call, x: Value, dim: int, half_to_float: bool) -> Results:
    value = tensor(b, x, n.dtype)
    if b.rank(x) == 0:
        return b.squeeze(softmax_along(b, n, b.unsqueeze(value, axes=(0,)), 0), axes=(0,))
    return softmax_along(b, n, value, dim)


def softmax_along(b: Builder, n: Call, x: Value, axis: int) -> Value:
    """Softmax or its logarithm, by the node's name."""
    return b.log_softmax(x, axis=axis) if "_log_softmax" in n.node.op else b.softmax(x, axis=axis)


# --- over trailing axes


@aten("aten.native_layer_norm.default")
def layer_norm(
    b: Builder, n: Call, x: Value, shape: Sequence[Number], weight: Value | None, bias: Value | None, eps: float
) -> Results:
    first = b.rank(x) - len(shape)
    dtype = b.dtype(x) if all(b.dtype(p) is b.dtype(x) for p in (weight, bias) if p) else wide_dtype(b.dtype(x))
    normal = b.layer_norm(tensor(b, x, dtype), *_parameters(b, dtype, weight, bias), axis=first, epsilon=float(eps))
    mean, scale = _statistics(b, widened(b, x), tuple(range(first, b.rank(x))), eps)
    return as_declared(b, n, normal, mean, scale)


@aten("aten._fused_rms_norm.default")
def rms_norm(b: Builder, n: Call, x: Value, shape: Sequence[Number], weight: Value | None, eps: Any) -> Results:
    first = b.rank(x) - len(shape)
    wide = widened(b, x)
    epsilon = _smallest_step(b.dtype(wide)) if eps is None else float(eps)
    normal = b.rms_norm(wide, *_parameters(b, b.dtype(wide), weight), axis=first, epsilon=epsilon)
    axes = tuple(range(first, b.rank(x)))
    power = b.reduce_mean(b.square(wide), axes=axes, keepdims=True)
    return as_declared(b, n, normal, b.rsqrt(b.add(power, epsilon)))


def _smallest_step(dtype: DType) -> float:
    return 2.0**-52 if dtype is dtypes.f64 else 2.0**-23


def _statistics(b: Builder, x: Value, axes: tuple[int, ...], eps: float) -> tuple[Value, Value]:
    """The mean, and one over the deviation, with the reduced axes kept."""
    mean = b.reduce_mean(x, axes=axes, keepdims=True)
    variance = b.reduce_mean(b.square(b.sub(x, mean)), axes=axes, keepdims=True)
    return mean, b.rsqrt(b.add(variance, float(eps)))


# --- over channels


@aten("aten.native_group_norm.default")
def group_norm(
    b: Builder,
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: Number,
    channels: Number,
    places: Number,
    groups: int,
    eps: float,
) -> Results:
    dtype = b.dtype(x) if all(b.dtype(p) is b.dtype(x) for p in (weight, bias) if p) else wide_dtype(b.dtype(x))
    given = _parameters(b, dtype, weight, bias)
    normal = b.group_norm(tensor(b, x, dtype), *given, epsilon=float(eps), groups=groups)
    members = volume(b, x, *range(1, b.rank(x)))
    count = members // groups if isinstance(members, int) else b.div(members, groups)
    grouped = b.reshape(widened(b, x), sizes(b, [batch, groups, count]))
    mean, scale = (b.squeeze(part, axes=(2,)) for part in _statistics(b, grouped, (2,), eps))
    return as_declared(b, n, normal, mean, scale)


class _Trained(NamedTuple):
    """Batch normalization by the batch's own statistics."""

    normal: Value
    mean: Value
    variance: Value
    scale: Value


def _by_channel(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, mean: Any, var: Any, eps: float
) -> Value:
    wide = widened(b, x)
    dtype = b.dtype(wide)
    given = _parameters(b, dtype, weight, bias)
    normal = b.batch_norm(wide, tensor(b, mean, dtype), tensor(b, var, dtype), *given, epsilon=float(eps))
    return tensor(b, normal, b.dtype(x))


def _trained(b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float) -> _Trained:
    wide = widened(b, x)
    axes = tuple(axis for axis in range(b.rank(x)) if axis != 1)
    kept = b.reduce_mean(wide, axes=axes, keepdims=True)
    variance = b.reduce_mean(b.square(b.sub(wide, kept)), axes=axes)
    mean = b.squeeze(kept, axes=axes)
    normal = _by_channel(b, x, weight, bias, mean, variance, eps)
    return _Trained(normal, mean, variance, b.rsqrt(b.add(variance, float(eps))))


def _moved_on(b: Builder, x: Value, running: Value, fresh: Value, momentum: float, unbiased: bool) -> Value:
    """A running statistic after one more batch, in its own dtype; an unbiased one is that of a sample."""
    wide = b.dtype(fresh)
    if unbiased:
        count = b.cast(_count(b, x), dtype=wide)
        fresh = b.mul(fresh, b.div(count, b.sub(count, 1.0)))
    old, step = tensor(b, running, wide), float(momentum)
    return tensor(b, b.add(b.mul(fresh, step), b.mul(old, 1.0 - step)), b.dtype(running))


def _count(b: Builder, x: Value) -> Value:
    """How many elements a channel has, as a scalar."""
    parts = [scalar_size(b, x, axis) for axis in range(b.rank(x)) if axis != 1]
    return b.reduce_prod(b.vector(*parts))


def _nothing(b: Builder, n: Call, index: int) -> Value:
    """Result number `index`, which torch leaves empty."""
    kind = n.types[index]
    assert isinstance(kind, TensorType)
    return b.expand(b.constant(0, kind.dtype), [0])


@aten("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    b: Builder,
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> Results:
    return _by_channel(b, x, weight, bias, mean, variance, eps), _nothing(b, n, 1), _nothing(b, n, 2)


@aten("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_stats(
    b: Builder, n: Call, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> Results:
    done = _trained(b, x, weight, bias, eps)
    return as_declared(b, n, done.normal, done.mean, done.scale)


@aten("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    b: Builder,
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    if not training:
        normal = _by_channel(b, x, weight, bias, mean, variance, eps)
        return as_declared(b, n, normal, _nothing(b, n, 1), _nothing(b, n, 2), mean, variance)
    done = _trained(b, x, weight, bias, eps)
    moved = (
        _moved_on(b, x, mean, done.mean, momentum, unbiased=False),
        _moved_on(b, x, variance, done.variance, momentum, unbiased=True),
    )
    return as_declared(b, n, done.normal, done.mean, done.scale, *moved)


@aten("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    b: Builder,
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> Results:
    done = _trained(b, x, weight, bias, eps)
    moved = (
        _moved_on(b, x, mean, done.mean, momentum, unbiased=False),
        _moved_on(b, x, variance, done.variance, momentum, unbiased=True),
    )
    return as_declared(b, n, done.normal, done.mean, done.scale, _nothing(b, n, 3), *moved)


@aten("aten._batch_norm_no_update.default")
def batch_norm_no_update(
    b: Builder,
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    momentum: float,
    eps: float,
) -> Results:
    if mean is None or variance is None:
        done = _trained(b, x, weight, bias, eps)
        return as_declared(b, n, done.normal, done.mean, done.scale, _nothing(b, n, 3))
    normal = _by_channel(b, x, weight, bias, mean, variance, eps)
    return normal, *(_nothing(b, n, index) for index in (1, 2, 3))
