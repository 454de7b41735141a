"""Whisper: an encoder of sound and a decoder of text, in OpenAI's layout and in Hugging Face's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import (
    BATCH,
    SOURCES,
    Decoding,
    attend,
    attend_to_source,
    cached_attention,
    split_heads,
    start_decoding,
)
from assay.frontends.checkpoint.recipes.family import HUGGING_FACE, TORCH, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import (
    ACTIVATIONS,
    activation,
    added,
    embedding,
    layer_norm,
    linear,
    mlp,
    vocabulary_scores,
)
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.ir.graph import Graph, Value

_EPSILON = 1e-5


@dataclass(frozen=True)
class WhisperConfiguration:
    """A model of the family. `frames` are those of the encoder: half as many as the spectrogram has."""

    vocabulary: int
    mels: int
    width: int
    encoder_layers: int
    encoder_heads: int
    encoder_inner_width: int
    decoder_layers: int
    decoder_heads: int
    decoder_inner_width: int
    frames: int
    positions: int
    activation: str = "gelu"


def _of_hugging_face(fields: Fields, tensors: Tensors) -> WhisperConfiguration:
    if fields.flag("scale_embedding", False):
        fields.refuse("scale_embedding", "no recipe scales embeddings of this family")
    found = WhisperConfiguration(
        vocabulary=fields.size("vocab_size"),
        mels=fields.size("num_mel_bins"),
        width=fields.size("d_model"),
        encoder_layers=fields.layers("encoder_layers"),
        encoder_heads=fields.size("encoder_attention_heads"),
        encoder_inner_width=fields.size("encoder_ffn_dim"),
        decoder_layers=fields.layers("decoder_layers"),
        decoder_heads=fields.size("decoder_attention_heads"),
        decoder_inner_width=fields.size("decoder_ffn_dim"),
        frames=fields.size("max_source_positions"),
        positions=fields.size("max_target_positions"),
        activation=fields.word("activation_function", ACTIVATIONS, "gelu"),
    )
    fields.divides("encoder_attention_heads", "d_model", found.encoder_heads, found.width)
    fields.divides("decoder_attention_heads", "d_model", found.decoder_heads, found.width)
    return found


def _of_openai(fields: Fields, tensors: Tensors) -> WhisperConfiguration:
    width = fields.size("dims.n_audio_state")
    heads, text_heads = fields.size("dims.n_audio_head"), fields.size("dims.n_text_head")
    fields.divides("dims.n_audio_head", "dims.n_audio_state", heads, width)
    fields.divides("dims.n_text_head", "dims.n_text_state", text_heads, fields.size("dims.n_text_state"))
    return WhisperConfiguration(
        vocabulary=fields.size("dims.n_vocab"),
        mels=fields.size("dims.n_mels"),
        width=width,
        encoder_layers=fields.layers("dims.n_audio_layer"),
        encoder_heads=heads,
        encoder_inner_width=4 * width,
        decoder_layers=fields.layers("dims.n_text_layer"),
        decoder_heads=text_heads,
        decoder_inner_width=4 * width,
        frames=fields.size("dims.n_audio_ctx"),
        positions=fields.size("dims.n_text_ctx"),
    )


def _build(tensors: Tensors, c: WhisperConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    return {"encoder": _encoder(tensors, c, options), "decoder": _decoder(tensors, c, options)}


def _cross(index: int) -> tuple[str, str]:
    """What the encoder gives for a layer of the decoder."""
    return f"layers.{index}.cross_key", f"layers.{index}.cross_value"


# --- the encoder


def _encoder(tensors: Tensors, c: WhisperConfiguration, options: GraphOptions) -> Graph:
    """From a spectrogram to the keys and values that the layers of the decoder attend to."""
    root = Network.empty(tensors, options, "whisper")
    features = root.input("features", options.dtype, BATCH, c.mels, 2 * c.frames)
    m = root.at("model.encoder")
    x = _convolution(m.at("conv2"), c, _convolution(m.at("conv1"), c, features, 1), 2)
    with m.op("positions") as b:
        turned = b.transpose(x, perm=(0, 2, 1))
        x = b.add(turned, m.weight("embed_positions.weight", c.frames, c.width))
    for index in range(c.encoder_layers):
        x = _encoder_layer(m.at("layers", index), c, x)
    x = m.named(layer_norm(m.at("layer_norm"), x, _EPSILON))
    outputs: dict[str, Value] = {}
    for index in range(c.decoder_layers):
        at = root.at("model.decoder.layers", index, "encoder_attn")
        key = linear(at.at("k_proj"), x, c.width)
        value = linear(at.at("v_proj"), x, c.width, bias=True)
        pairs = zip(_cross(index), (key, value), strict=True)
        outputs |= {name: split_heads(at, part, c.decoder_heads) for name, part in pairs}
    return root.finish("encoder", outputs)


def _convolution(m: Network, c: WhisperConfiguration, x: Value, stride: int) -> Value:
    with m.op("conv") as b:
        weight, bias = m.weight("weight", c.width, m.size(x, 1), 3), m.weight("bias", c.width)
        found = b.conv(x, weight, bias, strides=(stride,), pads=(1, 1), dilations=(1,))
    return m.named(activation(m, "gelu", found))


def _encoder_layer(m: Network, c: WhisperConfiguration, x: Value) -> Value:
    at, normal = m.at("self_attn"), layer_norm(m.at("self_attn_layer_norm"), x, _EPSILON)
    x = added(m, x, _output(at, attend(at, *_projections(at, normal, c.encoder_heads))))
    normal = layer_norm(m.at("final_layer_norm"), x, _EPSILON)
    return m.named(added(m, x, mlp(m, normal, c.encoder_inner_width, c.activation, ("fc1", "fc2"))))


# --- the decoder


def _decoder(tensors: Tensors, c: WhisperConfiguration, options: GraphOptions) -> Graph:
    root = Network.empty(tensors, options, "whisper")
    width = c.width // c.decoder_heads
    decoding = start_decoding(root, c.decoder_layers, c.decoder_heads, width)
    heard = [
        tuple(root.input(name, options.dtype, SOURCES, c.decoder_heads, c.frames, width) for name in _cross(index))
        for index in range(c.decoder_layers)
    ]
    m = root.at("model.decoder")
    tokens = embedding(m.at("embed_tokens"), decoding.tokens, c.vocabulary, c.width)
    x = added(m, tokens, embedding(m.at("embed_positions"), decoding.positions, c.positions, c.width))
    for index, (key, value) in enumerate(heard):
        x = _decoder_layer(m.at("layers", index), c, decoding, index, x, key, value)
    x = layer_norm(m.at("layer_norm"), x, _EPSILON)
    return decoding.finish(vocabulary_scores(root, m.at("embed_tokens"), x, c.vocabulary))


def _decoder_layer(
    m: Network, c: WhisperConfiguration, decoding: Decoding, index: int, x: Value, key: Value, value: Value
) -> Value:
    at, normal = m.at("self_attn"), layer_norm(m.at("self_attn_layer_norm"), x, _EPSILON)
    x = added(m, x, _output(at, cached_attention(at, decoding, index, *_projections(at, normal, c.decoder_heads))))
    at, normal = m.at("encoder_attn"), layer_norm(m.at("encoder_attn_layer_norm"), x, _EPSILON)
    query = split_heads(at, linear(at.at("q_proj"), normal, c.width, bias=True), c.decoder_heads)
    x = added(m, x, _output(at, attend_to_source(at, query, key, value)))
    normal = layer_norm(m.at("final_layer_norm"), x, _EPSILON)
    return m.named(added(m, x, mlp(m, normal, c.decoder_inner_width, c.activation, ("fc1", "fc2"))))


# --- both


def _projections(m: Network, x: Value, heads: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values; keys have no bias."""
    width = m.size(x)
    query, value = (linear(m.at(name), x, width, bias=True) for name in ("q_proj", "v_proj"))
    key = linear(m.at("k_proj"), x, width)
    return split_heads(m, query, heads), split_heads(m, key, heads), split_heads(m, value, heads)


def _output(m: Network, x: Value) -> Value:
    return m.named(linear(m.at("out_proj"), x, m.size(x), bias=True))


def _blocks(side: str, attentions: Mapping[str, str]) -> dict[str, str]:
    """How OpenAI calls the modules of the layers on one side."""
    theirs, ours = f"{side}.blocks.{{}}", f"model.{side}.layers.{{}}"
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    return {
        **{f"{ours}.{own}.{a}": f"{theirs}.{other}.{b}" for own, other in attentions.items() for a, b in parts.items()},
        **{f"{ours}.{own}_layer_norm": f"{theirs}.{other}_ln" for own, other in attentions.items()},
        f"{ours}.fc1": f"{theirs}.mlp.0",
        f"{ours}.fc2": f"{theirs}.mlp.2",
        f"{ours}.final_layer_norm": f"{theirs}.mlp_ln",
    }


_OPENAI_NAMES: Mapping[str, str] = {
    "model.encoder.conv1": "encoder.conv1",
    "model.encoder.conv2": "encoder.conv2",
    "model.encoder.embed_positions.weight": "encoder.positional_embedding",
    "model.encoder.layer_norm": "encoder.ln_post",
    "model.decoder.embed_tokens": "decoder.token_embedding",
    "model.decoder.embed_positions.weight": "decoder.positional_embedding",
    "model.decoder.layer_norm": "decoder.ln",
    **_blocks("encoder", {"self_attn": "attn"}),
    **_blocks("decoder", {"self_attn": "attn", "encoder_attn": "cross_attn"}),
}

_STATE = "model_state_dict."
_SPARE = (r"proj_out\.weight",)
"""The head is the table of embeddings."""

WHISPER = Family(
    "whisper",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("whisper",), ignored=_SPARE),
        FileLayout(
            TORCH,
            _of_openai,
            mark=f"{_STATE}decoder.blocks.0.cross_attn.query.weight",
            naming=renamed(_OPENAI_NAMES, _STATE),
        ),
    ),
    _build,
)
