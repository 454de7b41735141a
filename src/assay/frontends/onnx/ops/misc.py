"""ONNX ops that draw random numbers, find unique elements, or write into sequences."""

from __future__ import annotations

import numpy as np

from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ops.shapes import axis_of

# --- random numbers


def _seed(b: Builder, n: Source) -> Value:
    """The seed that the node gives, by its bits, else a new one for every run."""
    given = n.float("seed", None)
    if given is None:
        return b.fresh_seed()
    return b.constant(int(np.float32(given).view(np.uint32)), dtypes.i64)


def _dtype(b: Builder, n: Source, like: Value) -> DType:
    return n.dtype("dtype") if n.has("dtype") else b.dtype(like)


def _uniform(b: Builder, n: Source, shape: Value, dtype: DType) -> Value:
    low, high = n.float("low"), n.float("high")
    drawn = b.random_uniform(shape, _seed(b, n), dtype=dtypes.f64)
    return b.cast(b.add(b.mul(drawn, high - low), low), dtype=dtype)


def _normal(b: Builder, n: Source, shape: Value, dtype: DType) -> Value:
    drawn = b.random_normal(shape, _seed(b, n), dtype=dtypes.f64)
    return b.cast(b.add(b.mul(drawn, n.float("scale")), n.float("mean")), dtype=dtype)


@onnx_op("RandomUniform")
def random_uniform(b: Builder, n: Source) -> Results:
    return _uniform(b, n, b.constant(n.ints("shape"), dtypes.i64), n.dtype("dtype"))


@onnx_op("RandomUniformLike")
def random_uniform_like(b: Builder, n: Source, x: Value) -> Results:
    return _uniform(b, n, b.shape_of(x), _dtype(b, n, x))


@onnx_op("RandomNormal")
def random_normal(b: Builder, n: Source) -> Results:
    return _normal(b, n, b.constant(n.ints("shape"), dtypes.i64), n.dtype("dtype"))


@onnx_op("RandomNormalLike")
def random_normal_like(b: Builder, n: Source, x: Value) -> Results:
    return _normal(b, n, b.shape_of(x), _dtype(b, n, x))


@onnx_op("Bernoulli")
def bernoulli(b: Builder, n: Source, chance: Value) -> Results:
    drawn = b.random_uniform(b.shape_of(chance), _seed(b, n), dtype=dtypes.f64)
    return b.cast(b.lt(drawn, b.cast(chance, dtype=dtypes.f64)), dtype=_dtype(b, n, chance))


@onnx_op("Multinomial")
def multinomial(b: Builder, n: Source, scores: Value) -> Results:
    """Scores are logarithms of chances; a draw is the class that a random point on the line of chances falls into."""
    wide = b.cast(scores, dtype=dtypes.f64)
    chances = b.exp(b.sub(wide, b.reduce_max(wide, axes=(1,), keepdims=True)))
    ends = b.cum_sum(chances, axis=1)
    shape = b.vector(b.size(scores, 0), n.int("sample_size"))
    points = b.mul(b.random_uniform(shape, _seed(b, n), dtype=dtypes.f64), b.slice(ends, [-1], [2**62], [1], axes=(1,)))
    passed = b.le(b.unsqueeze(ends, axes=(1,)), b.unsqueeze(points, axes=(2,)))
    return b.cast(b.reduce_sum(b.cast(passed, dtype=dtypes.i64), axes=(2,)), dtype=n.dtype("dtype"))


# --- unique elements


@onnx_op("Unique")
def unique(b: Builder, n: Source, x: Value) -> Results:
    axis = n.int("axis", None)
    keys = b.string_rank(x) if b.dtype(x) is dtypes.string else x
    first, inverse, counts = b.emit("unique", keys, axis=axis, ordered=n.flag("sorted"))
    chosen = b.gather(b.reshape(x, [-1]), first, axis=0) if axis is None else b.gather(x, first, axis=axis)
    return chosen, first, inverse, counts


# --- sequences in tensors


@onnx_op("ReverseSequence")
def reverse_sequence(b: Builder, n: Source, x: Value, lengths: Value) -> Results:
    if {n.int("time_axis"), n.int("batch_axis")} != {0, 1}:
        raise ValueError("of time_axis and batch_axis one is not 0 and the other 1")
    swapped = (1, 0, *range(2, b.rank(x)))
    by_batch = x if n.int("time_axis") == 1 else b.transpose(x, perm=swapped)
    line = b.iota(b.reshape(b.vector(b.size(by_batch, 1)), []))
    ends = b.unsqueeze(lengths, axes=(1,))
    places = b.where(b.lt(line, ends), b.sub(b.sub(ends, 1), line), line)
    turned = b.gather_nd(by_batch, b.unsqueeze(places, axes=(2,)), batch_dims=1)
    return turned if n.int("time_axis") == 1 else b.transpose(turned, perm=swapped)


@onnx_op("TensorScatter")
def tensor_scatter(b: Builder, n: Source, cache: Value, update: Value, starts: Value | None = None) -> Results:
    rank = b.rank(cache)
    axis = axis_of(n.int("axis"), rank)
    order = (0, axis, *(i for i in range(1, rank) if i != axis))
    past, new = (b.transpose(value, perm=order) for value in (cache, update))
    batch, count, room = (b.reshape(b.vector(size), []) for size in (b.size(new, 0), b.size(new, 1), b.size(past, 1)))
    line = b.unsqueeze(b.iota(count), axes=(0,))
    places = b.add(line, 0 if starts is None else b.unsqueeze(starts, axes=(1,)))
    if n.str("mode") == "circular":
        places = b.mod(places, room)
    shape = b.vector(batch, count)
    coordinates = (b.unsqueeze(b.iota(batch), axes=(1,)), places)
    full = b.concat(*(b.unsqueeze(b.expand(part, shape), axes=(2,)) for part in coordinates), axis=2)
    return b.transpose(b.scatter_nd(past, full, new), perm=tuple(order.index(i) for i in range(rank)))
