"""aten attention ops that arrive whole, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.frontends.torch.ops.common import Number, tensor
from assay.frontends.torch.ops.normalization import as_declared, widened
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.dims import eq
from assay.ir.graph import Value
from assay.ops.parts import scalar_size


@aten("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    b: Builder,
    n: Call,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: Any = None,
) -> Results:
    if dropout:
        raise ValueError("attention with dropout draws from torch's generator")
    mask = attn_mask
    if mask is not None and b.dtype(mask) is not dtypes.boolean:
        mask = tensor(b, mask, b.dtype(query))
    factor = None if scale is None else _static_scale(scale)
    result = b.sdpa(query, key, value, mask, scale=factor, causal=causal)
    scores = _scores(b, widened(b, query), widened(b, _for_each_head(b, query, key)), mask, causal, scale)
    return as_declared(b, n, result, b.log_sum_exp(scores, axes=(-1,)))


def _for_each_head(b: Builder, query: Value, key: Value) -> Value:
    """The keys of every query head, of which groups may share one."""
    if eq(b.dims(query)[-3], b.dims(key)[-3]) is True:
        return key
    heads, groups = (scalar_size(b, x, -3) for x in (query, key))
    return b.gather(key, b.div(b.mul(b.iota(heads), groups), heads), axis=b.rank(key) - 3)


def _static_scale(scale: Number) -> float:
    if isinstance(scale, Value):
        raise TypeError("the scale of an attention is symbolic")
    return float(scale)


def _scores(b: Builder, query: Value, key: Value, mask: Value | None, causal: bool, scale: Any) -> Value:
    """What the softmax of an attention is taken of."""
    scores = b.mul(b.matmul(query, _turned(b, key)), _factor(b, query, scale))
    blocked = b.constant(-np.inf, b.dtype(scores))
    if mask is not None and b.dtype(mask) is dtypes.boolean:
        scores = b.where(mask, scores, blocked)
    elif mask is not None:
        scores = b.add(scores, tensor(b, mask, b.dtype(scores)))
    if causal:
        rows, columns = (b.iota(scalar_size(b, x, -2)) for x in (query, key))
        scores = b.where(b.lt(b.unsqueeze(rows, axes=(1,)), columns), blocked, scores)
    return scores


def _turned(b: Builder, x: Value) -> Value:
    rank = b.rank(x)
    return b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _factor(b: Builder, query: Value, scale: Any) -> Value:
    dtype = b.dtype(query)
    return b.rsqrt(scalar_size(b, query, -1, dtype)) if scale is None else tensor(b, scale, dtype)


@aten("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    b: Builder,
    n: Call,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    result: Value,
    log_sum: Value,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: Any = None,
) -> Results:
    """From the inputs alone, in f64: differences cancel, and exponentials magnify what large scores were rounded by."""
    if dropout:
        raise ValueError("attention with dropout draws from torch's generator")
    grad, q, k, v = (tensor(b, x, dtypes.f64) for x in (grad, query, key, value))
    scores = _scores(b, q, k, attn_mask, causal, scale)
    weights = b.where(b.eq(scores, -np.inf), 0.0, b.softmax(scores, axis=-1))
    wanted = b.matmul(grad, _turned(b, v))
    inner = b.mul(weights, b.sub(wanted, b.reduce_sum(b.mul(weights, wanted), axes=(-1,), keepdims=True)))
    scaled = b.mul(inner, _factor(b, q, scale))
    return as_declared(b, n, b.matmul(scaled, k), b.matmul(_turned(b, scaled), q), b.matmul(_turned(b, weights), grad))
