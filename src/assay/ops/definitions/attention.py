"""Attention and rotary position embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import eq, mod
from assay.ir.dtypes import FLOATS, Array, DType, boolean
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ, falls_short
from assay.ops.definitions.normalization import rounded_to, softmax_array
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, draw
from assay.ops.shapes import need_to_broadcast

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _attention_shape(q: Fact, k: Fact, v: Fact, mask: Fact | None = None, **attrs: Any) -> list[Shape]:
    if q.shape is None or k.shape is None or v.shape is None:
        return [None]
    if not len(q.shape) == len(k.shape) == len(v.shape) >= 3:
        raise ValueError(f"queries, keys and values have ranks {len(q.shape)}, {len(k.shape)} and {len(v.shape)}")
    if differ(q.shape[-1], k.shape[-1]) or differ(k.shape[-2], v.shape[-2]) or differ(k.shape[-3], v.shape[-3]):
        raise ValueError(f"shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)} do not fit an attention")
    for name, shape in (("keys", k.shape), ("values", v.shape)):
        need_to_broadcast(f"the batch of the {name}", shape[:-3], q.shape[:-3])
    heads, groups = q.shape[-3], k.shape[-3]
    if falls_short(groups, 1) or (eq(heads, groups) is not True and differ(mod(heads, groups), 0)):
        raise ValueError(f"{heads} query heads cannot share {groups} key heads")
    need_to_broadcast("the mask", mask and mask.shape, (*q.shape[:-1], k.shape[-2]))
    return [(*q.shape[:-1], v.shape[-1])]


class Scores(NamedTuple):
    """What an attention computes on its way, each of shape (…, heads, queries, keys)."""

    raw: Any
    capped: Any
    biased: Any
    weights: Any


# --- the decomposition


def attention_parts(
    b: Builder,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    precision: DType | None = None,
    softmax_precision: DType | None = None,
    accumulate: DType | None = None,
) -> tuple[Any, Scores]:
    """The result of `sdpa` and all of its scores, in simpler ops."""
    dtype = b.dtype(q)
    wide = precision or (dtypes.f32 if dtype.bits < 32 else dtype)
    query, key, value = (cast_to(b, x, wide) for x in (q, k, v))
    if eq(b.dims(q)[-3], b.dims(k)[-3]) is not True:
        heads, groups = (b.reshape(b.vector(b.size(x, -3)), []) for x in (q, k))
        shared = b.div(b.mul(b.iota(heads), groups), heads)
        key, value = (b.gather(x, shared, axis=b.rank(x) - 3) for x in (key, value))
    factor = _factor_parts(b, q, scale, wide)
    rank = b.rank(k)
    turned = b.transpose(key, perm=(*range(rank - 2), rank - 1, rank - 2))
    raw = capped = b.matmul(b.mul(query, factor), b.mul(turned, factor))
    if softcap:
        capped = b.mul(b.tanh(b.div(raw, softcap)), softcap)
    bias = _bias_parts(b, raw, mask, causal)
    biased = capped if bias is None else b.add(capped, bias)
    weights = b.softmax(
        cast_to(b, biased, softmax_precision or wide),
        axis=-1,
        precision=softmax_precision or precision,
        accumulate=accumulate,
    )
    if bias is not None:
        nothing = b.eq(b.reduce_max(bias, axes=(-1,), keepdims=True), -np.inf)
        weights = b.where(nothing, 0.0, weights)
    weights = cast_to(b, weights, wide)
    return cast_to(b, b.matmul(weights, value), dtype), Scores(raw, capped, biased, weights)


def cast_to(b: Builder, x: Any, dtype: DType) -> Any:
    """x as `dtype`."""
    return x if b.dtype(x) is dtype else b.cast(x, dtype=dtype)


def _factor_parts(b: Builder, q: Any, scale: float | None, dtype: DType) -> Any:
    """What both queries and keys are multiplied with."""
    size = b.dims(q)[-1]
    given = _scale(size, scale) if isinstance(size, int) else scale
    if given is not None:
        return b.constant(math.sqrt(given), dtype)
    roots = b.sqrt(b.sqrt(b.cast(b.size(q, -1), dtype=dtypes.f64)))
    return b.cast(b.div(1.0, b.reshape(roots, [])), dtype=dtype)


def _bias_parts(b: Builder, scores: Any, mask: Any, causal: bool) -> Any:
    dtype = b.dtype(scores)
    nothing, blocked = b.constant(0.0, dtype), b.constant(-np.inf, dtype)
    bias = None
    if mask is not None:
        bias = b.where(mask, nothing, blocked) if b.dtype(mask) is boolean else cast_to(b, mask, dtype)
    if causal:
        rows, columns = (b.iota(b.reshape(b.vector(b.size(scores, axis)), [])) for axis in (-2, -1))
        future = b.where(b.lt(b.unsqueeze(rows, axes=(1,)), columns), blocked, nothing)
        bias = future if bias is None else b.add(bias, future)
    return bias


def _sdpa_parts(b: Builder, q: Any, k: Any, v: Any, mask: Any = None, **attrs: Any) -> Any:
    return attention_parts(b, q, k, v, mask, **attrs)[0]


# --- the reference


def _scale(size: int, scale: float | None) -> float:
    return 1.0 / math.sqrt(max(size, 1)) if scale is None else scale


def _bias(mask: Array | None, causal: bool, shape: tuple[int, ...]) -> Array | None:
    future = np.where(np.tri(shape[-2], shape[-1], dtype=bool), 0.0, -np.inf) if causal else None
    if mask is None:
        return future
    bias = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask
    return bias if future is None else bias + future


def _sdpa_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    def qkv(heads: int, groups: int, rows: int, columns: int, size: int, out: int) -> tuple[Array, Array, Array]:
        return (
            draw(rng, dtype, (2, heads, rows, size), -1, 1),
            draw(rng, dtype, (2, groups, columns, size), -1, 1),
            draw(rng, dtype, (2, groups, columns, out), -1, 1),
        )

    yield Sample(qkv(3, 3, 4, 5, 8, 6))
    yield Sample(qkv(4, 2, 3, 3, 4, 4), {"causal": True, "scale": 0.3})
    masked = draw(rng, boolean, (3, 5))
    masked[1] = False
    yield Sample((*qkv(2, 2, 3, 5, 4, 3), masked), {"softcap": 2.0})
    yield Sample((*qkv(2, 1, 3, 4, 4, 3), draw(rng, dtype, (2, 1, 3, 4))), {"causal": True})
    yield Sample(qkv(2, 2, 3, 0, 4, 3))
    yield Sample(tuple(x[0] for x in qkv(2, 2, 3, 4, 4, 3)), {"precision": dtype, "accumulate": dtype})
    yield Sample(qkv(2, 2, 3, 4, 4, 3), {"precision": dtype, "softmax_precision": dtypes.f32})


@op(
    "T, T, T, M? -> T",
    T=FLOATS,
    M=(boolean, *FLOATS),
    shape=_attention_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_sdpa_parts,
    samples=_sdpa_samples,
)
def sdpa(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    precision: DType | None = None,
    softmax_precision: DType | None = None,
    accumulate: DType | None = None,
) -> Array:
    """softmax(softcap · tanh(q kᵀ · scale / softcap) + mask) v over (…, heads, length, size). `scale` is 1/√size unless
    given; key heads are shared by groups of query heads; a mask is added, or if bool says where to attend; `causal`
    leaves out keys behind the query's own index; queries that attend to nothing give zeros. Intermediates are kept in
    f64, or with `precision` rounded to it, those of the softmax to `softmax_precision` if given and its partial sums to
    `accumulate`."""
    shared = q.shape[-3] // max(k.shape[-3], 1)
    if shared != 1:
        k, v = np.repeat(k, shared, axis=-3), np.repeat(v, shared, axis=-3)
    rounded = partial(rounded_to, dtype=precision)
    factor = rounded(np.asarray(math.sqrt(_scale(q.shape[-1], scale))))
    scores = rounded(np.matmul(rounded(q * factor), rounded(k * factor).swapaxes(-1, -2)))
    if softcap:
        scores = rounded(rounded(np.tanh(rounded(scores / softcap))) * softcap)
    bias = _bias(mask, causal, scores.shape)
    if bias is not None:
        scores = rounded(scores + rounded(bias))
    weights = softmax_array(rounded_to(scores, softmax_precision), -1, softmax_precision or precision, accumulate)
    if bias is not None:
        nothing = bias.max(axis=-1, keepdims=True, initial=-np.inf) == -np.inf
        weights = np.where(nothing, 0.0, weights)
    return np.matmul(rounded(weights), v)


# --- rotary embeddings


def _rotary_shape(x: Fact, cos: Fact, sin: Fact, *, interleaved: bool) -> list[Shape]:
    if x.shape is None or cos.shape is None or sin.shape is None:
        return [x.shape]
    if not x.shape or not cos.shape or falls_short(x.shape[-1] - 2 * cos.shape[-1], 0):
        raise ValueError(f"angles of shape {list(cos.shape)} do not fit pairs in a tensor of shape {list(x.shape)}")
    for name, shape in (("cosines", cos.shape), ("sines", sin.shape)):
        need_to_broadcast(name, shape, (*x.shape[:-1], cos.shape[-1]))
    return [x.shape]


def _rotary_parts(b: Builder, x: Any, cos: Any, sin: Any, *, interleaved: bool) -> Any:
    rank, half = b.rank(x), b.vector(b.size(cos, -1))
    both, last = b.mul(half, 2), (rank - 1,)
    spans = [([0], both, [2]), ([1], both, [2])] if interleaved else [([0], half, [1]), (half, both, [1])]
    x1, x2 = (b.slice(x, *span, axes=last) for span in spans)
    real = b.sub(b.mul(x1, cos), b.mul(x2, sin))
    imaginary = b.add(b.mul(x1, sin), b.mul(x2, cos))
    rest = b.slice(x, both, [2**62], [1], axes=last)
    if not interleaved:
        return b.concat(real, imaginary, rest, axis=rank - 1)
    pairs = b.concat(*(b.unsqueeze(part, axes=(rank,)) for part in (real, imaginary)), axis=rank)
    done = b.reshape(pairs, b.vector(*(b.size(x, axis) for axis in range(rank - 1)), both))
    return b.concat(done, rest, axis=rank - 1)


def _rotary_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for interleaved in (False, True):
        for shape, table in [((2, 3, 4, 6), (2, 1, 4, 3)), ((2, 4, 3, 8), (4, 1, 2)), ((4, 6), (4, 3))]:
            angles = rng.uniform(-3, 3, size=table)
            cos, sin = np.cos(angles).astype(dtype.numpy), np.sin(angles).astype(dtype.numpy)
            yield Sample((draw(rng, dtype, shape), cos, sin), {"interleaved": interleaved})


@op(
    "T, T, T -> T",
    T=FLOATS,
    shape=_rotary_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    parts=_rotary_parts,
    samples=_rotary_samples,
)
def rotary_embedding(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """x with pairs of its last axis turned by angles given as cosines and sines, which broadcast against x and have one
    element for each pair. A pair is (i, i + their number), or with `interleaved` two neighbours; what is beyond the
    pairs stays as it is."""
    half = cos.shape[-1]
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    x1, x2 = x[..., pairs[0]], x[..., pairs[1]]
    result = x.copy()
    result[..., pairs[0]] = x1 * cos - x2 * sin
    result[..., pairs[1]] = x1 * sin + x2 * cos
    return result
