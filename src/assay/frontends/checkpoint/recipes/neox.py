"""GPT-NeoX and Pythia: partly rotary heads, and attention beside the layers that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding, cached_attention, split_heads, start_decoding
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import (
    ACTIVATIONS,
    added,
    embedding,
    layer_norm,
    linear,
    mlp,
    vocabulary_scores,
)
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.frontends.checkpoint.recipes.rotary import Rotary, Turns, read_gguf_rotary, read_rotary, turns_of
from assay.ir.graph import Graph, Value


@dataclass(frozen=True)
class NeoxConfiguration:
    """A model of the family. `parallel` says that attention and the layers beside it read the same input; `by_head`
    that query, key and value of each head lie together, and not all queries, then all keys, then all values."""

    vocabulary: int
    width: int
    inner_width: int
    layers: int
    heads: int
    positions: int
    epsilon: float
    activation: str
    rotary: Rotary
    parallel: bool
    attention_bias: bool
    tied: bool
    by_head: bool = True


def _of_hugging_face(fields: Fields, tensors: Tensors) -> NeoxConfiguration:
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    fields.divides("num_attention_heads", "hidden_size", heads, width)
    part, theta = fields.positive("rotary_pct", 0.25), fields.positive("rotary_emb_base", 1e4)
    return NeoxConfiguration(
        vocabulary=fields.size("vocab_size"),
        width=width,
        inner_width=fields.size("intermediate_size"),
        layers=fields.layers("num_hidden_layers"),
        heads=heads,
        positions=fields.size("max_position_embeddings", 2048),
        epsilon=fields.positive("layer_norm_eps", 1e-5),
        activation=fields.word("hidden_act", ACTIVATIONS, "gelu"),
        rotary=read_rotary(fields, width // heads, theta=theta, part=part),
        parallel=fields.flag("use_parallel_residual", True),
        attention_bias=fields.flag("attention_bias", True),
        tied=fields.flag("tie_word_embeddings", False),
    )


def _of_gguf(fields: Fields, tensors: Tensors) -> NeoxConfiguration:
    width, heads = fields.size("embedding_length"), fields.size("attention.head_count")
    fields.divides("attention.head_count", "embedding_length", heads, width)
    return NeoxConfiguration(
        vocabulary=tensors.matrix("gpt_neox.embed_in.weight")[0],
        width=width,
        inner_width=fields.size("feed_forward_length"),
        layers=fields.layers("block_count"),
        heads=heads,
        positions=fields.size("context_length", 2048),
        epsilon=fields.positive("attention.layer_norm_epsilon"),
        activation="gelu",
        rotary=read_gguf_rotary(fields, width // heads, interleaved=False),
        parallel=fields.flag("use_parallel_residual", True),
        attention_bias=tensors.has("gpt_neox.layers.0.attention.dense.bias"),
        tied=not tensors.has("embed_out.weight"),
        by_head=False,
    )


def _build(tensors: Tensors, c: NeoxConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "neox")
    decoding = start_decoding(root, c.layers, c.heads, c.width // c.heads)
    turns = turns_of(decoding, c.rotary)
    base = root.at("gpt_neox")
    x = embedding(base.at("embed_in"), decoding.tokens, c.vocabulary, c.width)
    for index in range(c.layers):
        x = _layer(base.at("layers", index), c, decoding, turns, index, x)
    x = layer_norm(base.at("final_layer_norm"), x, c.epsilon)
    head = base.at("embed_in") if c.tied else root.at("embed_out")
    return {"decoder": decoding.finish(vocabulary_scores(root, head, x, c.vocabulary))}


def _layer(m: Network, c: NeoxConfiguration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    normal = layer_norm(m.at("input_layernorm"), x, c.epsilon)
    attended = added(m, _attention(m.at("attention"), c, decoding, turns, index, normal), x)
    beside = layer_norm(m.at("post_attention_layernorm"), x if c.parallel else attended, c.epsilon)
    grown = mlp(m.at("mlp"), beside, c.inner_width, c.activation, ("dense_h_to_4h", "dense_4h_to_h"))
    return m.named(added(m, grown, attended))


def _attention(m: Network, c: NeoxConfiguration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    joined = linear(m.at("query_key_value"), x, 3 * c.width, bias=c.attention_bias)
    query, key, value = _of_each_head(m, c, joined) if c.by_head else _of_all_heads(m, c, joined)
    found = cached_attention(m, decoding, index, turns.of(m, query), turns.of(m, key), value)
    return m.named(linear(m.at("dense"), found, c.width, bias=c.attention_bias))


def _of_each_head(m: Network, c: NeoxConfiguration, joined: Value) -> tuple[Value, ...]:
    width = c.width // c.heads
    with m.op("split_heads") as b:
        split = b.reshape(joined, b.vector(b.size(joined, 0), b.size(joined, 1), c.heads, 3 * width))
        return b.emit("split", b.transpose(split, perm=(0, 2, 1, 3)), sizes=(width,) * 3, axis=3)


def _of_all_heads(m: Network, c: NeoxConfiguration, joined: Value) -> tuple[Value, ...]:
    with m.op("split") as b:
        parts = b.emit("split", joined, sizes=(c.width,) * 3, axis=2)
    return tuple(split_heads(m, part, c.heads) for part in parts)


_GGUF_NAMES: Mapping[str, str] = {
    "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm",
    "embed_out": "output",
    "gpt_neox.layers.{}.input_layernorm": "blk.{}.attn_norm",
    "gpt_neox.layers.{}.attention.query_key_value": "blk.{}.attn_qkv",
    "gpt_neox.layers.{}.attention.dense": "blk.{}.attn_output",
    "gpt_neox.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm",
    "gpt_neox.layers.{}.mlp.dense_h_to_4h": "blk.{}.ffn_up",
    "gpt_neox.layers.{}.mlp.dense_4h_to_h": "blk.{}.ffn_down",
}

_SPARE = (r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)", r"embed_out\.weight")
"""Tables that older versions of Hugging Face's library saved, and a head that the embeddings stand in for."""

NEOX = Family(
    "neox",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("gpt_neox",), ignored=_SPARE),
        FileLayout(GGUF, _of_gguf, ("gptneox",), naming=renamed(_GGUF_NAMES)),
    ),
    _build,
)
