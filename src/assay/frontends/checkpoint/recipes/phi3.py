"""Phi-3: as Llama, with joined projections and factors of the rotary frequencies that change for long texts."""

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
from assay.frontends.checkpoint.recipes.layers import ACTIVATIONS, activation, added, linear, rms_norm
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.frontends.checkpoint.recipes.rotary import (
    LongScaling,
    Rotary,
    Turns,
    read_gguf_rotary,
    read_rotary,
    turns_of,
)
from assay.ir.graph import Graph, Value


@dataclass(frozen=True)
class Phi3Configuration(DecoderConfiguration):
    """A model of the family. `window` is how far back a token sees, None for all the way."""

    activation: str
    rotary: Rotary
    window: int | None = None


def _of_hugging_face(fields: Fields, tensors: Tensors) -> Phi3Configuration:
    sizes = read_decoder(fields, epsilon=1e-5)
    return Phi3Configuration(
        **vars(sizes),
        activation=fields.word("hidden_act", ACTIVATIONS, "silu"),
        rotary=read_rotary(fields, sizes.head_width, renamed={"su": "longrope", "yarn": "longrope"}),
        window=fields.optional_size("sliding_window"),
    )


_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")


def _of_gguf(fields: Fields, tensors: Tensors) -> Phi3Configuration:
    sizes = read_gguf_decoder(fields, tensors)
    rotary = read_gguf_rotary(fields, sizes.head_width, interleaved=False)
    if tensors.has(_FACTORS[0]):
        short, long = (tensors.numbers(name, rotary.width // 2) for name in _FACTORS)
        original = fields.size("rope.scaling.original_context_length", sizes.positions)
        attention = fields.positive("rope.scaling.attn_factor", 1.0)
        rotary = replace(rotary, scaling=LongScaling(short, long, original, attention))
    window = fields.count("attention.sliding_window", 0)
    return Phi3Configuration(**vars(sizes), activation="silu", rotary=rotary, window=window or None)


def _build(tensors: Tensors, c: Phi3Configuration, options: GraphOptions) -> Mapping[str, Graph]:
    decoding = start_decoding(Network.empty(tensors, options, "phi3"), c.layers, c.key_heads, c.head_width)
    turns = turns_of(decoding, c.rotary)

    def layer(m: Network, index: int, x: Value) -> Value:
        normal = rms_norm(m.at("input_layernorm"), x, c.epsilon)
        x = added(m, x, _attention(m.at("self_attn"), c, decoding, turns, index, normal))
        return m.named(added(m, x, _mlp(m.at("mlp"), c, rms_norm(m.at("post_attention_layernorm"), x, c.epsilon))))

    return {"decoder": decode(decoding, c, layer)}


def _attention(m: Network, c: Phi3Configuration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    counts = (c.heads, c.key_heads, c.key_heads)
    joined = linear(m.at("qkv_proj"), x, sum(counts) * c.head_width)
    with m.op("split") as b:
        parts = b.emit("split", joined, sizes=tuple(count * c.head_width for count in counts), axis=2)
    query, key, value = (split_heads(m, part, count) for part, count in zip(parts, counts, strict=True))
    query, key = turns.of(m, query), turns.of(m, key)
    return m.named(
        linear(m.at("o_proj"), cached_attention(m, decoding, index, query, key, value, window=c.window), c.width)
    )


def _mlp(m: Network, c: Phi3Configuration, x: Value) -> Value:
    joined = linear(m.at("gate_up_proj"), x, 2 * c.inner_width)
    with m.op("split") as b:
        gate, up = b.emit("split", joined, sizes=(c.inner_width,) * 2, axis=2)
    grown = activation(m, c.activation, gate)
    with m.op("gate") as b:
        gated = b.mul(grown, up)
    return m.named(linear(m.at("down_proj"), gated, c.width))


PHI3 = Family(
    "phi3",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("phi3",), ignored=SPARE),
        FileLayout(GGUF, _of_gguf, ("phi3",), naming=renamed(GGUF_NAMES)),
    ),
    _build,
)
