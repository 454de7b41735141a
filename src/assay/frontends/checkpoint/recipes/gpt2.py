"""GPT-2: a decoder with learned positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding, cached_attention, split_heads, start_decoding
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import (
    ACTIVATIONS,
    activation,
    added,
    embedding,
    layer_norm,
    linear,
    turned_linear,
    vocabulary_scores,
)
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.ir.graph import Graph, Value


@dataclass(frozen=True)
class Gpt2Configuration:
    """A model of the family. `base` is the module that holds the layers; `turned` says that weights of layers lie as
    (inputs, outputs); `tied` that the table of embeddings also gives the scores."""

    vocabulary: int
    width: int
    inner_width: int
    layers: int
    heads: int
    positions: int
    epsilon: float
    activation: str
    scaled: bool = True
    scaled_by_layer: bool = False
    tied: bool = True
    turned: bool = True
    base: str = "transformer"


def _of_hugging_face(fields: Fields, tensors: Tensors) -> Gpt2Configuration:
    width, heads = fields.size("n_embd"), fields.size("n_head")
    fields.divides("n_head", "n_embd", heads, width)
    return Gpt2Configuration(
        vocabulary=fields.size("vocab_size"),
        width=width,
        inner_width=fields.size("n_inner", 4 * width),
        layers=fields.layers("n_layer"),
        heads=heads,
        positions=fields.size("n_positions"),
        epsilon=fields.positive("layer_norm_epsilon", 1e-5),
        activation=fields.word("activation_function", ACTIVATIONS, "gelu_new"),
        scaled=fields.flag("scale_attn_weights", True),
        scaled_by_layer=fields.flag("scale_attn_by_inverse_layer_idx", False),
        tied=fields.flag("tie_word_embeddings", True),
        base="transformer" if tensors.starting_with("transformer.") else "",
    )


def _of_gguf(fields: Fields, tensors: Tensors) -> Gpt2Configuration:
    width, heads = fields.size("embedding_length"), fields.size("attention.head_count")
    fields.divides("attention.head_count", "embedding_length", heads, width)
    return Gpt2Configuration(
        vocabulary=tensors.matrix("transformer.wte.weight")[0],
        width=width,
        inner_width=fields.size("feed_forward_length"),
        layers=fields.layers("block_count"),
        heads=heads,
        positions=fields.size("context_length"),
        epsilon=fields.positive("attention.layer_norm_epsilon"),
        activation="gelu_new",
        tied=not tensors.has("lm_head.weight"),
        turned=False,
    )


def _build(tensors: Tensors, c: Gpt2Configuration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "gpt2")
    decoding = start_decoding(root, c.layers, c.heads, c.width // c.heads)
    base = root.at(c.base)
    tokens = embedding(base.at("wte"), decoding.tokens, c.vocabulary, c.width)
    x = added(base, tokens, embedding(base.at("wpe"), decoding.positions, c.positions, c.width))
    for index in range(c.layers):
        x = _layer(base.at("h", index), c, decoding, index, x)
    x = layer_norm(base.at("ln_f"), x, c.epsilon)
    head = base.at("wte") if c.tied else root.at("lm_head")
    return {"decoder": decoding.finish(vocabulary_scores(root, head, x, c.vocabulary))}


def _layer(m: Network, c: Gpt2Configuration, decoding: Decoding, index: int, x: Value) -> Value:
    x = added(m, x, _attention(m.at("attn"), c, decoding, index, layer_norm(m.at("ln_1"), x, c.epsilon)))
    return m.named(added(m, x, _mlp(m.at("mlp"), c, layer_norm(m.at("ln_2"), x, c.epsilon))))


def _attention(m: Network, c: Gpt2Configuration, decoding: Decoding, index: int, x: Value) -> Value:
    joined = _linear(m.at("c_attn"), c, x, 3 * c.width)
    with m.op("split") as b:
        parts = b.emit("split", joined, sizes=(c.width,) * 3, axis=2)
    query, key, value = (split_heads(m, part, c.heads) for part in parts)
    scale = (c.width // c.heads) ** -0.5 if c.scaled else 1.0
    scale = scale / (index + 1) if c.scaled_by_layer else scale
    return m.named(
        _linear(m.at("c_proj"), c, cached_attention(m, decoding, index, query, key, value, scale=scale), c.width)
    )


def _mlp(m: Network, c: Gpt2Configuration, x: Value) -> Value:
    grown = activation(m, c.activation, _linear(m.at("c_fc"), c, x, c.inner_width))
    return m.named(_linear(m.at("c_proj"), c, grown, c.width))


def _linear(m: Network, c: Gpt2Configuration, x: Value, outputs: int) -> Value:
    return turned_linear(m, x, outputs) if c.turned else linear(m, x, outputs, bias=True)


_GGUF_NAMES: Mapping[str, str] = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
    "transformer.h.{}.ln_1": "blk.{}.attn_norm",
    "transformer.h.{}.attn.c_attn": "blk.{}.attn_qkv",
    "transformer.h.{}.attn.c_proj": "blk.{}.attn_output",
    "transformer.h.{}.ln_2": "blk.{}.ffn_norm",
    "transformer.h.{}.mlp.c_fc": "blk.{}.ffn_up",
    "transformer.h.{}.mlp.c_proj": "blk.{}.ffn_down",
}

_BUFFERS = (r".*\.attn\.(masked_)?bias", r"lm_head\.weight")
"""Masks that older versions of Hugging Face's library saved, and the head where it is the table of embeddings."""

GPT2 = Family(
    "gpt2",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("gpt2",), ignored=_BUFFERS),
        FileLayout(GGUF, _of_gguf, ("gpt2",), naming=renamed(_GGUF_NAMES)),
    ),
    _build,
)
