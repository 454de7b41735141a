"""ONNX attention and rotary embeddings."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from assay.frontends.onnx.ops.common import as_i64, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dtypes import DType, boolean
from assay.ir.graph import Value
from assay.ops.definitions.attention import attention_parts, cast_to


def split_heads(b: Builder, x: Value, heads: int) -> Value:
    """(batch, length, heads · size) → (batch, heads, length, size)."""
    return b.transpose(parted_heads(b, x, heads), perm=(0, 2, 1, 3))


def parted_heads(b: Builder, x: Value, heads: int) -> Value:
    """(batch, length, heads · size) → (batch, length, heads, size), of an empty batch too."""
    whole = b.size(x, 2)
    each = whole // heads if isinstance(whole, int) else b.div(whole, heads)
    return b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), heads, each))


def join_heads(b: Builder, x: Value) -> Value:
    """(batch, heads, length, size) → (batch, length, heads · size)."""
    together = b.transpose(x, perm=(0, 2, 1, 3))
    width = product(b, b.size(x, 1), b.size(x, 3))
    return b.reshape(together, b.vector(b.size(x, 0), b.size(x, 2), width))


def product(b: Builder, x: int | Value, y: int | Value) -> int | Value:
    """The product of two sizes."""
    return x * y if isinstance(x, int) and isinstance(y, int) else b.mul(b.vector(x), b.vector(y))


def extended(b: Builder, past: Value | None, new: Value) -> Value:
    """Keys or values with those of earlier steps before them."""
    return new if past is None else b.concat(past, new, axis=2)


class Frontier(NamedTuple):
    """Which keys a query may see by position: `offset` keys precede the first query (a number, or one for each batch
    row); `left` and `right` bound the distance (None: no bound); only `lengths` keys of each batch row are valid."""

    offset: int | Value = 0
    left: int | None = None
    right: int | None = None
    lengths: Value | None = None


def visible(b: Builder, q: Value, k: Value, frontier: Frontier) -> Value | None:
    """A bool mask (queries, keys), or with a batch axis (batch, 1, queries, keys); None if all is visible."""
    count = scalar(b, b.vector(b.size(k, 2)))
    columns = b.iota(count)
    allowed: list[Value] = []
    if frontier.left is not None or frontier.right is not None:
        rows = b.unsqueeze(b.iota(scalar(b, b.vector(b.size(q, 2)))), axes=(1,))
        place = b.add(rows, _by_batch(b, frontier.offset))
        if frontier.right is not None:
            allowed.append(b.le(columns, b.add(place, frontier.right)))
        if frontier.left is not None:
            allowed.append(b.le(b.sub(place, frontier.left), columns))
    if frontier.lengths is not None:
        allowed.append(b.lt(columns, _by_batch(b, frontier.lengths)))
    return reduce(lambda x, y: b.bit_and(x, y), allowed) if allowed else None


def _by_batch(b: Builder, counts: int | Value) -> Value:
    if isinstance(counts, int):
        return b.constant(counts, dtypes.i64)
    return counts if b.rank(counts) == 0 else b.reshape(counts, (-1, 1, 1, 1))


def combined(b: Builder, mask: Value | None, allowed: Value | None, dtype: DType) -> Value | None:
    """One mask out of one that the model gives and one by position."""
    if mask is None or allowed is None:
        return allowed if mask is None else mask
    if b.dtype(mask) is boolean:
        return b.bit_and(mask, allowed)
    blocked = b.where(allowed, b.constant(0.0, dtype), b.constant(-np.inf, dtype))
    return b.add(cast_to(b, mask, dtype), blocked)


def _prepared_mask(b: Builder, mask: Value | None, k: Value, dtype: DType) -> Value | None:
    """The model's mask, bool or in the dtype of the scores, as long as there are keys."""
    if mask is None:
        return None
    own = mask if b.dtype(mask) is boolean else cast_to(b, mask, dtype)
    total, given = b.size(k, 2), b.size(mask, -1)
    if total == given:
        return own
    rank = b.rank(mask)
    missing = b.sub(b.vector(total), b.vector(given))
    fill = False if b.dtype(own) is boolean else -np.inf
    return b.pad(own, b.vector(*(0,) * (2 * rank - 1), missing), fill)


@onnx_op("Attention", since=23)
def attention(
    b: Builder,
    n: Source,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
) -> Results:
    packed, dtype = b.rank(q) == 3, b.dtype(q)
    if packed:
        groups = n.int("kv_num_heads")
        q, k, v = split_heads(b, q, n.int("q_num_heads")), split_heads(b, k, groups), split_heads(b, v, groups)
    keys, values = extended(b, past_key, k), extended(b, past_value, v)
    left, right = n.int("left_window_size", -1), n.int("right_window_size", -1)
    causal, windowed = n.flag("is_causal"), left >= 0 or right >= 0
    by_flag = causal and not windowed and past_key is None and lengths is None
    frontier = Frontier(
        offset=_offset(b, q, past_key, lengths),
        left=left if left >= 0 else None,
        right=0 if causal and not by_flag else right if right >= 0 else None,
        lengths=lengths,
    )
    own = _prepared_mask(b, mask, keys, dtype)
    softmax_dtype = n.dtype("softmax_precision") if n.int("softmax_precision", None) else dtype
    attrs: dict[str, Any] = {
        "scale": n.float("scale", None),
        "causal": by_flag,
        "softcap": n.float("softcap"),
        "precision": dtype if dtype.bits < 32 else None,
        "softmax_precision": None if softmax_dtype is dtype else softmax_dtype,
        "accumulate": softmax_dtype if softmax_dtype is dtypes.bf16 else None,
    }
    given = (q, keys, cast_to(b, values, dtype), combined(b, own, visible(b, q, keys, frontier), dtype))
    if n.results < 4:
        result = b.sdpa(*given, **attrs)
        return (join_heads(b, result) if packed else result), keys, values
    mode = n.int("qk_matmul_output_mode")
    if not 0 <= mode <= 3:
        raise ValueError(f"there is no qk_matmul_output_mode {mode}")
    result, scores = attention_parts(b, *given, **attrs)
    stage = scores[mode]
    return (join_heads(b, result) if packed else result), keys, values, cast_to(b, stage, dtype)


def _offset(b: Builder, q: Value, past_key: Value | None, lengths: Value | None) -> int | Value:
    """How many keys precede the first query."""
    if past_key is not None:
        size = b.size(past_key, 2)
        return size if isinstance(size, int) else scalar(b, size)
    return 0 if lengths is None else b.sub(lengths, scalar(b, b.vector(b.size(q, 2))))


@onnx_op("FlexAttention", domain="ai.onnx.preview")
def flex_attention(b: Builder, n: Source, q: Value, k: Value, v: Value) -> Results:
    dtype = b.dtype(q)
    wide = n.dtype("softmax_precision") if n.int("softmax_precision", None) else dtypes.f32
    if dtype is dtypes.f64:
        wide = dtype
    scale = n.float("scale", None)
    if dtype is wide and not n.has("score_mod") and not n.has("prob_mod"):
        return b.sdpa(q, k, v, scale=scale)
    scores = cast_to(b, attention_parts(b, q, k, v, scale=scale, precision=dtype)[1].raw, wide)
    if n.has("score_mod"):
        (scores,) = n.lowering.inline(n.body("score_mod"), [scores])
    weights = b.softmax(scores, axis=-1)
    if n.has("prob_mod"):
        (weights,) = n.lowering.inline(n.body("prob_mod"), [weights])
    return cast_to(b, b.matmul(weights, shared_heads(b, q, cast_to(b, v, wide))), dtype)


def shared_heads(b: Builder, q: Value, x: Value) -> Value:
    """Keys or values (batch, groups, …), each head repeated for the query heads that share it."""
    heads, groups = (scalar(b, b.vector(b.size(value, 1))) for value in (q, x))
    return b.gather(x, b.div(b.mul(b.iota(heads), groups), heads), axis=1)


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(
    b: Builder, n: Source, x: Value, cos: Value, sin: Value, positions: Value | None = None
) -> Results:
    if positions is not None:
        cos, sin = (b.gather(table, as_i64(b, positions), axis=0) for table in (cos, sin))
    interleaved = n.flag("interleaved")
    if b.rank(x) == 4:
        return b.rotary_embedding(x, b.unsqueeze(cos, axes=(1,)), b.unsqueeze(sin, axes=(1,)), interleaved=interleaved)
    parted = parted_heads(b, x, n.int("num_heads"))
    turned = b.rotary_embedding(
        parted, b.unsqueeze(cos, axes=(2,)), b.unsqueeze(sin, axes=(2,)), interleaved=interleaved
    )
    return b.reshape(turned, b.shape_of(x))
