"""T5: an encoder and a decoder of text, with biases of attention by distance in the place of positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import (
    BATCH,
    SOURCES,
    Decoding,
    attend,
    attend_to_source,
    split_heads,
    start_decoding,
)
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import (
    ACTIVATIONS,
    activation,
    added,
    embedding,
    linear,
    rms_norm,
    vocabulary_scores,
)
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Value
from assay.ops.parts import scalar_size

SOURCE = symbol("source", 1)
"""Tokens of the text that the encoder reads."""
_BIAS = "SelfAttention.relative_attention_bias.weight"


@dataclass(frozen=True)
class T5Configuration:
    """A model of the family. `buckets` are the biases by distance, the last one from `farthest` on; `scaled` says that
    what the scores are made of is divided by √width, `tied` that they are made by the table of embeddings."""

    vocabulary: int
    width: int
    inner_width: int
    head_width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    buckets: int
    farthest: int
    epsilon: float
    activation: str
    gated: bool
    scaled: bool
    tied: bool


_PROJECTIONS: Mapping[str, tuple[str, bool]] = {
    **{name: (name, False) for name in ACTIVATIONS},
    **{f"gated-{name}": (name, True) for name in ACTIVATIONS},
    "gated-gelu": ("gelu_new", True),
}
"""What `feed_forward_proj` may say: a function, and whether it gates."""


def _of_hugging_face(fields: Fields, tensors: Tensors) -> T5Configuration:
    layers = fields.layers("num_layers")
    function, gated = _PROJECTIONS[fields.word("feed_forward_proj", _PROJECTIONS, "relu")]
    buckets, farthest = (
        fields.size("relative_attention_num_buckets", 32),
        fields.size("relative_attention_max_distance", 128),
    )
    if buckets < 4 or buckets % 4 or not buckets < farthest <= _FARTHEST:
        fields.refuse("relative_attention_num_buckets", f"so many do not reach as far as {farthest}")
    return T5Configuration(
        vocabulary=fields.size("vocab_size"),
        width=fields.size("d_model"),
        inner_width=fields.size("d_ff"),
        head_width=fields.size("d_kv"),
        heads=fields.size("num_heads"),
        encoder_layers=layers,
        decoder_layers=fields.layers("num_decoder_layers") if fields.has("num_decoder_layers") else layers,
        buckets=buckets,
        farthest=farthest,
        epsilon=fields.positive("layer_norm_epsilon", 1e-6),
        activation=function,
        gated=gated,
        scaled=fields.flag("scale_decoder_outputs", fields.flag("tie_word_embeddings", True)),
        tied=not tensors.has("lm_head.weight"),
    )


def _of_gguf(fields: Fields, tensors: Tensors) -> T5Configuration:
    """These files do not say how far buckets reach: all models have the same. A gate goes with the smooth function."""
    layers, heads = fields.layers("block_count"), fields.size("attention.head_count")
    buckets = fields.size("attention.relative_buckets_count")
    if buckets < 4 or buckets % 4 or not buckets < _USUAL_FARTHEST:
        fields.refuse("attention.relative_buckets_count", f"so many do not reach as far as {_USUAL_FARTHEST}")
    gated, tied = tensors.has("encoder.block.0.layer.1.DenseReluDense.wi_0.weight"), not tensors.has("lm_head.weight")
    vocabulary, width = tensors.matrix("shared.weight")
    return T5Configuration(
        vocabulary=vocabulary,
        width=width,
        inner_width=fields.size("feed_forward_length"),
        head_width=fields.size("attention.key_length", max(width // heads, 1)),
        heads=heads,
        encoder_layers=layers,
        decoder_layers=fields.layers("decoder_block_count", layers),
        buckets=buckets,
        farthest=_USUAL_FARTHEST,
        epsilon=fields.positive("attention.layer_norm_rms_epsilon"),
        activation="gelu_new" if gated else "relu",
        gated=gated,
        scaled=tied,
        tied=tied,
    )


_FARTHEST, _USUAL_FARTHEST = 1 << 20, 128


def _build(tensors: Tensors, c: T5Configuration, options: GraphOptions) -> Mapping[str, Graph]:
    return {"encoder": _encoder(tensors, c, options), "decoder": _decoder(tensors, c, options)}


def _cross(index: int) -> tuple[str, str]:
    """What the encoder gives for a layer of the decoder."""
    return f"layers.{index}.cross_key", f"layers.{index}.cross_value"


# --- the encoder


def _encoder(tensors: Tensors, c: T5Configuration, options: GraphOptions) -> Graph:
    """From tokens to the keys and values that the layers of the decoder attend to."""
    root = Network.empty(tensors, options, "t5")
    tokens, mask = (root.input(name, dtypes.i64, BATCH, SOURCE) for name in ("tokens", "mask"))
    x = embedding(root.at("shared"), tokens, c.vocabulary, c.width)
    m = root.at("encoder")
    with root.op("positions") as b:
        places = b.iota(scalar_size(b, tokens, 1))
        distances = b.sub(places, b.unsqueeze(places, axes=(1,)))
    bias = _by_distance(m.at("block.0.layer.0"), c, distances, ahead=True)
    with root.op("mask") as b:
        visible = b.unsqueeze(b.bit_not(b.eq(mask, 0)), axes=(1, 2))
        bias = b.where(visible, bias, -np.inf)
    for index in range(c.encoder_layers):
        at = m.at("block", index)
        own = at.at("layer.0")
        inner, normal = own.at("SelfAttention"), _norm(own, c, x)
        query, key, value = (_heads(inner, c, name, normal) for name in "qkv")
        x = added(own, x, _output(inner, c, attend(inner, query, key, value, bias, scale=1.0)))
        x = at.named(_dense(at.at("layer.1"), c, x))
    x = rms_norm(m.at("final_layer_norm"), x, c.epsilon)
    outputs: dict[str, Value] = {}
    for index in range(c.decoder_layers):
        at = root.at("decoder.block", index, "layer.1.EncDecAttention")
        outputs |= {name: _heads(at, c, kind, x) for name, kind in zip(_cross(index), "kv", strict=True)}
    return root.finish("encoder", {**outputs, "cross_mask": mask})


# --- the decoder


def _decoder(tensors: Tensors, c: T5Configuration, options: GraphOptions) -> Graph:
    root = Network.empty(tensors, options, "t5")
    decoding = start_decoding(root, c.decoder_layers, c.heads, c.head_width)
    dims = (SOURCES, c.heads, SOURCE, c.head_width)
    read = [
        tuple(root.input(name, options.dtype, *dims) for name in _cross(index)) for index in range(c.decoder_layers)
    ]
    mask = root.input("cross_mask", dtypes.i64, SOURCES, SOURCE)
    x = embedding(root.at("shared"), decoding.tokens, c.vocabulary, c.width)
    m = root.at("decoder")
    with root.op("positions") as b:
        distances = b.sub(b.iota(decoding.total), b.unsqueeze(decoding.positions, axes=(1,)))
    bias = _by_distance(m.at("block.0.layer.0"), c, distances, ahead=False)
    with root.op("mask") as b:
        bias = b.where(decoding.visible(), bias, -np.inf)
        visible = b.unsqueeze(b.bit_not(b.eq(mask, 0)), axes=(1, 2))
    for index, (key, value) in enumerate(read):
        x = _decoder_layer(m.at("block", index), c, decoding, index, x, bias, (key, value, visible))
    x = rms_norm(m.at("final_layer_norm"), x, c.epsilon)
    if c.scaled:
        with m.op("scale") as b:
            x = b.mul(x, c.width**-0.5)
    head = root.at("shared") if c.tied else root.at("lm_head")
    return decoding.finish(vocabulary_scores(root, head, x, c.vocabulary))


def _decoder_layer(
    m: Network,
    c: T5Configuration,
    decoding: Decoding,
    index: int,
    x: Value,
    bias: Value,
    read: tuple[Value, Value, Value],
) -> Value:
    own, cross = m.at("layer.0"), m.at("layer.1")
    at, normal = own.at("SelfAttention"), _norm(own, c, x)
    keys = decoding.extended(f"layers.{index}.key", _heads(at, c, "k", normal))
    values = decoding.extended(f"layers.{index}.value", _heads(at, c, "v", normal))
    x = added(own, x, _output(at, c, attend(at, _heads(at, c, "q", normal), keys, values, bias, scale=1.0)))
    at = cross.at("EncDecAttention")
    query = _heads(at, c, "q", _norm(cross, c, x))
    x = added(cross, x, _output(at, c, attend_to_source(at, query, *read, scale=1.0)))
    return m.named(_dense(m.at("layer.2"), c, x))


# --- both


def _norm(m: Network, c: T5Configuration, x: Value) -> Value:
    return rms_norm(m.at("layer_norm"), x, c.epsilon)


def _heads(m: Network, c: T5Configuration, name: str, x: Value) -> Value:
    return split_heads(m, linear(m.at(name), x, c.heads * c.head_width), c.heads)


def _output(m: Network, c: T5Configuration, x: Value) -> Value:
    return m.named(linear(m.at("o"), x, c.width))


def _dense(m: Network, c: T5Configuration, x: Value) -> Value:
    at, normal = m.at("DenseReluDense"), _norm(m, c, x)
    grown = activation(at, c.activation, linear(at.at("wi_0" if c.gated else "wi"), normal, c.inner_width))
    if c.gated:
        up = linear(at.at("wi_1"), normal, c.inner_width)
        with at.op("gate") as b:
            grown = b.mul(grown, up)
    return added(m, x, at.named(linear(at.at("wo"), grown, c.width)))


def _by_distance(m: Network, c: T5Configuration, distances: Value, *, ahead: bool) -> Value:
    """The biases (heads, queries, keys) of distances from queries to keys."""
    with m.op("distance") as b:
        rows = b.gather(m.weight(_BIAS, c.buckets, c.heads), b.constant(_buckets(c, ahead)), axis=0)
        near = b.max(b.min(distances, c.farthest), -c.farthest)
        return b.transpose(b.gather(rows, b.add(near, c.farthest), axis=0), perm=(2, 0, 1))


def _buckets(c: T5Configuration, ahead: bool) -> Array:
    """The bucket of each distance from −farthest to farthest: half of them for single distances, the others for ever
    longer ranges. Distances ahead have buckets of their own, or share the first."""
    distances = np.arange(-c.farthest, c.farthest + 1)
    count = c.buckets // 2 if ahead else c.buckets
    far = np.abs(distances) if ahead else np.maximum(-distances, 0)
    single = count // 2
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(single)) / np.float32(
        math.log(c.farthest / single)
    )
    ranged = np.minimum(single + (ratio * np.float32(count - single)).astype(np.int64), count - 1)
    return np.where(far < single, far, ranged) + np.where(ahead & (distances > 0), count, 0)


_SPARE = (
    r"(encoder|decoder)\.embed_tokens\.weight",
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)
"""The table of embeddings a second time, and a bias that the first models had and did not use."""

_SELF = "layer.0.SelfAttention"
_CROSS = "layer.1.EncDecAttention"


def _gguf_names() -> dict[str, str]:
    names = {"shared": "token_embd", "lm_head": "output"}
    for side, short, dense in (("encoder", "enc", "layer.1"), ("decoder", "dec", "layer.2")):
        ours, theirs = f"{side}.block.{{}}", f"{short}.blk.{{}}"
        names |= {
            f"{side}.final_layer_norm": f"{short}.output_norm",
            f"{ours}.layer.0.layer_norm": f"{theirs}.attn_norm",
            f"{ours}.{_SELF}.relative_attention_bias": f"{theirs}.attn_rel_b",
            f"{ours}.{dense}.layer_norm": f"{theirs}.ffn_norm",
            f"{ours}.{dense}.DenseReluDense.wi": f"{theirs}.ffn_up",
            f"{ours}.{dense}.DenseReluDense.wi_0": f"{theirs}.ffn_gate",
            f"{ours}.{dense}.DenseReluDense.wi_1": f"{theirs}.ffn_up",
            f"{ours}.{dense}.DenseReluDense.wo": f"{theirs}.ffn_down",
            **{f"{ours}.{_SELF}.{name}": f"{theirs}.attn_{name}" for name in "qkvo"},
        }
    across = {f"decoder.block.{{}}.{_CROSS}.{name}": f"dec.blk.{{}}.cross_attn_{name}" for name in "qkvo"}
    return {**names, **across, "decoder.block.{}.layer.1.layer_norm": "dec.blk.{}.cross_attn_norm"}


_GGUF_SPARE = (r"dec\.blk\.0\.cross_attn_rel_b\.weight",)

T5 = Family(
    "t5",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("t5",), ignored=_SPARE),
        FileLayout(GGUF, _of_gguf, ("t5",), naming=renamed(_gguf_names()), ignored=_GGUF_SPARE),
    ),
    _build,
)
