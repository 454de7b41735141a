"""`com.microsoft` attention: projections, caches and masks around `sdpa`."""

from __future__ import annotations

from typing import NamedTuple

from assay.frontends.onnx.ops.attention import (
    Frontier,
    combined,
    extended,
    join_heads,
    shared_heads,
    split_heads,
    visible,
)
from assay.frontends.onnx.ops.common import as_i64, scalar
from assay.frontends.onnx.ops.microsoft import microsoft_op
from assay.frontends.onnx.ops.microsoft_quantized import matmul_integer_to_float
from assay.frontends.onnx.registry import Builder, Results, Source
from assay.ir.graph import Value
from assay.ops.definitions.attention import attention_parts, cast_to
from assay.ops.registry import FactMissing, as_results


class Heads(NamedTuple):
    """Queries, keys and values as (batch, heads, length, size)."""

    q: Value
    k: Value
    v: Value


def _scale(n: Source) -> float | None:
    return n.float("scale", 0.0) or None


def _lacks(n: Source, *features: str) -> None:
    """ValueError if the node asks for one of these, given as names of integer attributes."""
    asked = [name for name in features if n.int(name, 0)]
    if asked:
        raise ValueError(f"'{asked[0]}' is not supported")


def _padding(b: Builder, n: Source, mask: Value | None, q: Value, k: Value) -> Value | None:
    """A mask of ones and zeros, or the ends (and starts) of the valid keys, as what is added to the scores."""
    if mask is None:
        return None
    rank, dtype = b.rank(mask), b.dtype(q)
    if rank == 1:
        valid = _within_ends(b, as_i64(b, mask), q, k)
    elif rank in (2, 3):
        valid = b.unsqueeze(b.gt(mask, 0), axes=(1, 2) if rank == 2 else (1,))
    else:
        raise ValueError(f"an attention mask of rank {rank} is not supported")
    filled = n.float("mask_filter_value", -10000.0)
    return b.where(valid, b.constant(0.0, dtype), b.constant(filled, dtype))


def _within_ends(b: Builder, ends: Value, q: Value, k: Value) -> Value:
    batch, given = b.dims(q)[0], b.dims(ends)[0]
    if not isinstance(batch, int) or not isinstance(given, int):
        raise FactMissing("the batch size")
    columns = b.iota(scalar(b, b.vector(b.size(k, 2))))
    before = b.lt(columns, b.reshape(b.slice(ends, [0], [batch], [1], axes=(0,)), (-1, 1, 1, 1)))
    if given == batch:
        return before
    if given != 2 * batch:
        raise ValueError(f"a mask of {given} positions does not fit a batch of {batch}")
    starts = b.reshape(b.slice(ends, [batch], [given], [1], axes=(0,)), (-1, 1, 1, 1))
    return b.bit_and(before, b.le(starts, columns))


def _attend(b: Builder, n: Source, heads: Heads, offset: Value | None, mask: Value | None, bias: Value | None) -> Value:
    """The attention of `heads`, whose queries come behind `offset` keys; a mask and a bias are added to the scores."""
    added = _padding(b, n, mask, heads.q, heads.k)
    if bias is not None:
        added = bias if added is None else b.add(added, bias)
    if not n.flag("unidirectional", 0):
        return b.sdpa(*heads, added, scale=_scale(n))
    if offset is None:
        return b.sdpa(*heads, added, scale=_scale(n), causal=True)
    frontier = Frontier(offset=offset, right=0)
    seen = combined(b, added, visible(b, heads.q, heads.k, frontier), b.dtype(heads.q))
    return b.sdpa(*heads, seen, scale=_scale(n))


def _count(b: Builder, past: Value | None) -> Value | None:
    """How many keys a cache holds."""
    return None if past is None else scalar(b, b.vector(b.size(past, 2)))


def _written(b: Builder, past: Value, new: Value, count: Value, total: Value) -> Value:
    """A cache (batch, heads, keys, size) of at least `total` keys: `new` is written behind the first `count` of `past`
    (one number, or one for each row of the batch as (batch, 1)); the rest as it was, zeros where there was nothing."""
    room, length = (scalar(b, b.vector(b.size(x, 2))) for x in (past, new))
    line = b.iota(b.max(room, total))
    place = b.sub(line, count)
    inside = b.bit_and(b.le(0, place), b.lt(place, length))
    kept = b.where(b.lt(line, room), line, b.add(room, length))
    source = b.where(inside, b.add(place, room), kept)
    joined = b.pad(b.concat(past, new, axis=2), (0, 0, 0, 0, 0, 0, 1, 0), 0.0)
    if b.rank(source) == 1:
        return b.gather(joined, source, axis=2)
    rows = b.gather_nd(b.transpose(joined, perm=(0, 2, 1, 3)), b.unsqueeze(source, axes=(2,)), batch_dims=1)
    return b.transpose(rows, perm=(0, 2, 1, 3))


# --- Attention


def _self_attention(
    b: Builder, n: Source, projected: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> Results:
    """Attention over the joined projections (batch, length, q + k + v); `past` holds keys and values stacked."""
    _lacks(n, "do_rotary", "past_present_share_buffer")
    count, width = n.int("num_heads"), b.dims(projected)[-1]
    if not isinstance(width, int):
        raise FactMissing("the hidden size")
    sizes = n.ints("qkv_hidden_sizes", None) or (width // 3,) * 3
    q, k, v = (split_heads(b, x, count) for x in b.emit("split", projected, sizes=tuple(sizes), axis=-1))
    pasts = (None, None) if past is None else (b.gather(past, 0, axis=0), b.gather(past, 1, axis=0))
    keys, values = extended(b, pasts[0], k), extended(b, pasts[1], v)
    result = join_heads(b, _attend(b, n, Heads(q, keys, values), _count(b, pasts[0]), mask, bias))
    if n.results < 2:
        return result
    return result, b.concat(b.unsqueeze(keys, axes=(0,)), b.unsqueeze(values, axes=(0,)), axis=0)


@microsoft_op("Attention")
def attention(
    b: Builder,
    n: Source,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    added: Value | None = None,
    past_length: Value | None = None,
) -> Results:
    product = b.matmul(x, weights)
    return _self_attention(b, n, product if bias is None else b.add(product, bias), mask, past, added)


@microsoft_op("QAttention")
def qattention(
    b: Builder,
    n: Source,
    x: Value,
    weights: Value,
    bias: Value,
    x_scale: Value,
    weight_scale: Value,
    mask: Value | None = None,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    past: Value | None = None,
) -> Results:
    projected = matmul_integer_to_float(b, n, x, weights, x_scale, weight_scale, x_zero, weight_zero, bias)
    return _self_attention(b, n, as_results(projected)[0], mask, past, None)


# --- MultiHeadAttention


def _biased(b: Builder, bias: Value | None, sizes: tuple[int, ...], index: int, x: Value) -> Value:
    if bias is None:
        return x
    return b.add(x, b.emit("split", bias, sizes=sizes, axis=0)[index])


def _unpack(b: Builder, x: Value, index: int) -> Value:
    """One of the tensors packed as (batch, length, heads, parts, size)."""
    return b.transpose(b.gather(x, index, axis=3), perm=(0, 2, 1, 3))


def _multi_head(
    b: Builder, n: Source, query: Value, key: Value | None, value: Value | None, bias: Value | None
) -> Heads:
    """The heads in every form that the op takes them."""
    count = n.int("num_heads")
    if b.rank(query) == 5:
        return Heads(*(_unpack(b, query, i) for i in range(3)))
    width = b.dims(query)[-1]
    total = 3 * width if bias is None else b.dims(bias)[0]
    if not isinstance(width, int) or not isinstance(total, int):
        raise FactMissing("the hidden size")
    sizes = (width, width, total - 2 * width)
    q = split_heads(b, _biased(b, bias, sizes, 0, query), count)
    if key is None:
        raise ValueError("the keys are missing")
    if b.rank(key) == 5:
        return Heads(q, _unpack(b, key, 0), _unpack(b, key, 1))
    if value is None:
        raise ValueError("the values are missing")
    if b.rank(key) == 4:
        return Heads(q, key, value)
    k, v = (_biased(b, bias, sizes, i, x) for i, x in ((1, key), (2, value)))
    return Heads(q, split_heads(b, k, count), split_heads(b, v, count))


@microsoft_op("MultiHeadAttention")
def multi_head_attention(
    b: Builder,
    n: Source,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    mask: Value | None = None,
    added: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_length: Value | None = None,
    beams: Value | None = None,
) -> Results:
    if beams is not None:
        raise ValueError("the cache of a beam search is not supported")
    q, k, v = _multi_head(b, n, query, key, value, bias)
    if past_length is None or past_key is None or past_value is None:
        offset = _count(b, past_key)
        keys, values = present = extended(b, past_key, k), extended(b, past_value, v)
    else:
        offset = scalar(b, as_i64(b, past_length))
        total = b.add(offset, scalar(b, b.vector(b.size(k, 2))))
        present = tuple(_written(b, x, new, offset, total) for x, new in ((past_key, k), (past_value, v)))
        keys, values = (b.slice(x, [0], b.vector(total), [1], axes=(2,)) for x in present)
    result = join_heads(b, _attend(b, n, Heads(q, keys, values), offset, mask, added))
    if n.results < 4:
        return result, *present
    return result, *present, attention_parts(b, q, keys, values, scale=_scale(n))[1].raw


@microsoft_op("DecoderMaskedMultiHeadAttention")
def decoder_masked_attention(
    b: Builder,
    n: Source,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    mask: Value | None = None,
    added: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_length: Value | None = None,
    beam_width: Value | None = None,
    beams: Value | None = None,
    bias: Value | None = None,
) -> Results:
    _lacks(n, "output_qk")
    return multi_head_attention(b, n, query, key, value, bias, mask, added, past_key, past_value, past_length, beams)


# --- GroupQueryAttention


class _Step(NamedTuple):
    """Where a step of decoding stands: for each row of the batch the keys before it and with it, as (batch, 1)."""

    past: Value
    total: Value
    is_prompt: Value


def _step(b: Builder, q: Value, lengths: Value, total_length: Value) -> _Step:
    length = scalar(b, b.vector(b.size(q, 2)))
    total = b.add(b.reshape(as_i64(b, lengths), (-1, 1)), 1)
    is_prompt = b.eq(scalar(b, as_i64(b, total_length)), length)
    return _Step(b.where(is_prompt, 0, b.sub(total, length)), total, is_prompt)


def _places(b: Builder, q: Value, step: _Step, positions: Value | None) -> Value:
    """The positions (batch, length) of the new tokens."""
    line = b.iota(scalar(b, b.vector(b.size(q, 2))))
    if positions is None:
        return b.add(step.past, line)
    own = as_i64(b, positions)
    first = b.slice(b.reshape(own, [-1]), [0], [1], [1], axes=(0,))
    return b.where(step.is_prompt, b.add(first, line), own)


def _allowed(b: Builder, n: Source, q: Value, k: Value, step: _Step) -> Value:
    """Which keys each query sees, (batch, 1, queries, keys)."""
    rows, columns = (b.iota(scalar(b, b.vector(b.size(x, 2)))) for x in (q, k))
    total = b.reshape(step.total, (-1, 1, 1, 1))
    end = total
    if n.flag("causal", 1):
        own = b.add(b.reshape(step.past, (-1, 1, 1, 1)), b.add(b.unsqueeze(rows, axes=(1,)), 1))
        end = b.min(own, total)
    allowed, window = b.lt(columns, end), n.int("local_window_size", -1)
    return allowed if window < 0 else b.bit_and(allowed, b.le(b.sub(end, window), columns))


def _with_sink(b: Builder, n: Source, heads: Heads, mask: Value, sink: Value | None) -> Value:
    """Attention whose softmax has one more term in each head's denominator."""
    q, _, v = heads
    softcap = n.float("softcap", 0.0)
    scores = attention_parts(b, *heads, mask, scale=_scale(n), softcap=softcap)[1].biased
    wide = b.dtype(scores)
    term = b.constant(0.0, wide) if sink is None else b.reshape(cast_to(b, sink, wide), (-1, 1, 1))
    shape = b.vector(*(b.size(scores, axis) for axis in range(3)), 1)
    weights = b.softmax(b.concat(scores, b.expand(term, shape), axis=3), axis=3)
    kept = cast_to(b, b.slice(weights, [0], [-1], [1], axes=(3,)), b.dtype(q))
    return b.matmul(kept, shared_heads(b, q, v))


def _group_heads(b: Builder, n: Source, query: Value, key: Value | None, value: Value | None) -> Heads:
    count, groups = n.int("num_heads"), n.int("kv_num_heads")
    if key is not None and value is not None:
        return Heads(split_heads(b, query, count), split_heads(b, key, groups), split_heads(b, value, groups))
    together = split_heads(b, query, count + 2 * groups)
    return Heads(*b.emit("split", together, sizes=(count, groups, groups), axis=1))


@microsoft_op("GroupQueryAttention")
def group_query_attention(
    b: Builder,
    n: Source,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    lengths: Value,
    total_length: Value,
    cos: Value | None = None,
    sin: Value | None = None,
    positions: Value | None = None,
    added: Value | None = None,
    sink: Value | None = None,
    k_scale: Value | None = None,
    v_scale: Value | None = None,
    q_norm: Value | None = None,
    k_norm: Value | None = None,
) -> Results:
    _lacks(n, "kv_cache_bit_width", "sliding_window_cache", "qk_output")
    q, k, v = _group_heads(b, n, query, key, value)
    if q_norm is not None and k_norm is not None:
        epsilon = n.float("qk_norm_epsilon", 1e-6)
        q, k = (b.rms_norm(x, weight, axis=-1, epsilon=epsilon) for x, weight in ((q, q_norm), (k, k_norm)))
    step = _step(b, q, lengths, total_length)
    if n.flag("do_rotary", 0) and cos is not None and sin is not None:
        places = _places(b, q, step, positions)
        turns = [b.unsqueeze(b.gather(table, places, axis=0), axes=(1,)) for table in (cos, sin)]
        q, k = (b.rotary_embedding(x, *turns, interleaved=n.flag("rotary_interleaved", 0)) for x in (q, k))
    keys, values = k, v
    if past_key is not None and past_value is not None:
        total = scalar(b, as_i64(b, total_length))
        keys, values = (_written(b, x, new, step.past, total) for x, new in ((past_key, k), (past_value, v)))
    bias = None if added is None else _as_long(b, added, keys)
    mask = combined(b, bias, _allowed(b, n, q, keys, step), b.dtype(q))
    if sink is not None or n.int("smooth_softmax", 0) == 1:
        assert mask is not None
        result = _with_sink(b, n, Heads(q, keys, values), mask, sink)
    else:
        result = b.sdpa(q, keys, values, mask, scale=_scale(n), softcap=n.float("softcap", 0.0))
    return join_heads(b, result), keys, values


def _as_long(b: Builder, added: Value, keys: Value) -> Value:
    """What is added to the scores, with zeros for keys behind its end."""
    missing = b.sub(b.vector(b.size(keys, 2)), b.vector(b.size(added, 3)))
    return b.pad(added, b.vector(0, 0, 0, 0, 0, 0, 0, missing), 0.0)


# --- rotary embeddings


@microsoft_op("RotaryEmbedding")
def rotary_embedding(b: Builder, n: Source, x: Value, positions: Value, cos: Value, sin: Value) -> Results:
    _lacks(n, "is_packed_batching")
    lengthwise = 2 if b.rank(x) == 4 else 1
    places = as_i64(b, positions)
    if b.rank(places) < 2:
        places = b.unsqueeze(b.add(places, b.iota(scalar(b, b.vector(b.size(x, lengthwise))))), axes=(0,))
    turns = [b.gather(table, places, axis=0) for table in (cos, sin)]
    interleaved = n.flag("interleaved", 0)
    if b.rank(x) == 4:
        return b.rotary_embedding(x, *(b.unsqueeze(turn, axes=(1,)) for turn in turns), interleaved=interleaved)
    heads = n.int("num_heads", 0) or -1
    size: int | Value = -1
    if heads < 0:
        half = b.size(cos, 1)
        size = 2 * half if isinstance(half, int) else b.mul(half, 2)
    parted = b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), heads, size))
    turned = b.rotary_embedding(parted, *(b.unsqueeze(turn, axes=(2,)) for turn in turns), interleaved=interleaved)
    return b.reshape(turned, b.shape_of(x))
