"""Llama, Mistral and SmolLM: decoders with rotary positions, grouped heads and gated layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding, cached_attention, split_heads, start_decoding
from assay.frontends.checkpoint.recipes.decoder import (
    GGUF_NAMES,
    SPARE,
    DecoderConfiguration,
    decode,
    read_decoder,
    read_gguf_decoder,
)
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import ACTIVATIONS, added, gated_mlp, linear, rms_norm
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.frontends.checkpoint.recipes.rotary import Rotary, Turns, read_gguf_rotary, read_rotary, turns_of
from assay.ir.graph import Graph, Value

_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True)
class LlamaConfiguration(DecoderConfiguration):
    """A model of the family. `window` is how far back a token sees, None for all the way; `own_factors` says that the
    file holds factors of the rotary frequencies."""

    activation: str
    rotary: Rotary
    window: int | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    own_factors: bool = False


def _of_hugging_face(fields: Fields, tensors: Tensors) -> LlamaConfiguration:
    sizes = read_decoder(fields)
    return LlamaConfiguration(
        **vars(sizes),
        activation=fields.word("hidden_act", ACTIVATIONS, "silu"),
        rotary=read_rotary(fields, sizes.head_width),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )


def _of_mistral(fields: Fields, tensors: Tensors) -> LlamaConfiguration:
    window = None if fields.is_null("sliding_window") else fields.size("sliding_window", 4096)
    return replace(_of_hugging_face(fields, tensors), window=window)


def _of_gguf(fields: Fields, tensors: Tensors) -> LlamaConfiguration:
    """In these files the rows of queries and keys are ordered such that neighbours turn together."""
    sizes = read_gguf_decoder(fields, tensors)
    return LlamaConfiguration(
        **vars(sizes),
        activation="silu",
        rotary=read_gguf_rotary(fields, sizes.head_width, interleaved=True),
        attention_bias=tensors.has("model.layers.0.self_attn.q_proj.bias"),
        own_factors=tensors.has(_FACTORS),
    )


def _build(tensors: Tensors, c: LlamaConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "llama")
    decoding = start_decoding(root, c.layers, c.key_heads, c.head_width)
    turns = turns_of(decoding, c.rotary, root.weight(_FACTORS, c.rotary.width // 2) if c.own_factors else None)

    def layer(m: Network, index: int, x: Value) -> Value:
        attended = _attention(
            m.at("self_attn"), c, decoding, turns, index, rms_norm(m.at("input_layernorm"), x, c.epsilon)
        )
        x = added(m, x, attended)
        normal = rms_norm(m.at("post_attention_layernorm"), x, c.epsilon)
        return m.named(added(m, x, gated_mlp(m.at("mlp"), normal, c.inner_width, c.activation, bias=c.mlp_bias)))

    return {"decoder": decode(decoding, c, layer)}


def _attention(m: Network, c: LlamaConfiguration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    def heads(name: str, count: int) -> Value:
        return split_heads(m, linear(m.at(name), x, count * c.head_width, bias=c.attention_bias), count)

    query, key = turns.of(m, heads("q_proj", c.heads)), turns.of(m, heads("k_proj", c.key_heads))
    found = cached_attention(m, decoding, index, query, key, heads("v_proj", c.key_heads), window=c.window)
    return m.named(linear(m.at("o_proj"), found, c.width, bias=c.attention_bias))


LLAMA = Family(
    "llama",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("llama",), ignored=SPARE),
        FileLayout(HUGGING_FACE, _of_mistral, ("mistral",), ignored=SPARE),
        FileLayout(GGUF, _of_gguf, ("llama",), naming=renamed(GGUF_NAMES)),
    ),
    _build,
)
