"""Qwen 2 and 3: as Llama, with biases of queries, keys and values (2) or norms of query and key heads (3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding, cached_attention, split_heads, start_decoding
from assay.frontends.checkpoint.recipes.decoder import (
    GGUF_NAMES,
    SPARE,
    DecoderConfiguration,
    Windows,
    decode,
    read_decoder,
    read_gguf_decoder,
    read_windows,
)
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import ACTIVATIONS, added, gated_mlp, linear, rms_norm
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.frontends.checkpoint.recipes.rotary import Rotary, Turns, read_gguf_rotary, read_rotary, turns_of
from assay.ir.graph import Graph, Value


@dataclass(frozen=True)
class QwenConfiguration(DecoderConfiguration):
    """A model of the family. `input_bias` is that of queries, keys and values; `head_norms` says that query and key
    heads are normalized."""

    activation: str
    rotary: Rotary
    windows: Windows
    input_bias: bool
    output_bias: bool
    head_norms: bool


def _of_hugging_face(fields: Fields, sizes: DecoderConfiguration, third: bool) -> QwenConfiguration:
    window = fields.optional_size("sliding_window") if fields.flag("use_sliding_window", False) else None
    first = fields.count("max_window_layers", 28)
    bias = fields.flag("attention_bias", False) if third else False
    return QwenConfiguration(
        **vars(sizes),
        activation=fields.word("hidden_act", ACTIVATIONS, "silu"),
        rotary=read_rotary(fields, sizes.head_width),
        windows=read_windows(fields, sizes.layers, window, lambda index: index >= first),
        input_bias=bias or not third,
        output_bias=bias,
        head_norms=third,
    )


def _second(fields: Fields, tensors: Tensors) -> QwenConfiguration:
    return _of_hugging_face(fields, read_decoder(fields), False)


def _third(fields: Fields, tensors: Tensors) -> QwenConfiguration:
    return _of_hugging_face(fields, read_decoder(fields, head_width=128), True)


def _of_gguf(fields: Fields, tensors: Tensors) -> QwenConfiguration:
    sizes = read_gguf_decoder(fields, tensors)
    return QwenConfiguration(
        **vars(sizes),
        activation="silu",
        rotary=read_gguf_rotary(fields, sizes.head_width, interleaved=False),
        windows=(None,) * sizes.layers,
        input_bias=tensors.has("model.layers.0.self_attn.q_proj.bias"),
        output_bias=False,
        head_norms=tensors.has("model.layers.0.self_attn.q_norm.weight"),
    )


def _build(tensors: Tensors, c: QwenConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    decoding = start_decoding(Network.empty(tensors, options, "qwen"), c.layers, c.key_heads, c.head_width)
    turns = turns_of(decoding, c.rotary)

    def layer(m: Network, index: int, x: Value) -> Value:
        normal = rms_norm(m.at("input_layernorm"), x, c.epsilon)
        x = added(m, x, _attention(m.at("self_attn"), c, decoding, turns, index, normal))
        normal = rms_norm(m.at("post_attention_layernorm"), x, c.epsilon)
        return m.named(added(m, x, gated_mlp(m.at("mlp"), normal, c.inner_width, c.activation)))

    return {"decoder": decode(decoding, c, layer)}


def _attention(m: Network, c: QwenConfiguration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    def heads(name: str, count: int) -> Value:
        return split_heads(m, linear(m.at(name), x, count * c.head_width, bias=c.input_bias), count)

    def turned(name: str, norm: str, count: int) -> Value:
        found = heads(name, count)
        return turns.of(m, rms_norm(m.at(norm), found, c.epsilon) if c.head_norms else found)

    query, key = turned("q_proj", "q_norm", c.heads), turned("k_proj", "k_norm", c.key_heads)
    value = heads("v_proj", c.key_heads)
    found = cached_attention(m, decoding, index, query, key, value, window=c.windows[index])
    return m.named(linear(m.at("o_proj"), found, c.width, bias=c.output_bias))


QWEN = Family(
    "qwen",
    (
        FileLayout(HUGGING_FACE, _second, ("qwen2",), ignored=SPARE),
        FileLayout(HUGGING_FACE, _third, ("qwen3",), ignored=SPARE),
        FileLayout(GGUF, _of_gguf, ("qwen2", "qwen3"), naming=renamed(GGUF_NAMES)),
    ),
    _build,
)
