"""Gemma 1 to 3: scaled embeddings, norms around a weight of one, and from the second on windows and further norms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding, cached_attention, split_heads, start_decoding
from assay.frontends.checkpoint.recipes.decoder import (
    GGUF_NAMES,
    SPARE,
    DecoderConfiguration,
    Windows,
    decoder_scores,
    read_decoder,
    read_gguf_decoder,
    read_windows,
)
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import ACTIVATIONS, added, embedding, gated_mlp, linear, rms_norm
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.frontends.checkpoint.recipes.rotary import Rotary, Turns, read_gguf_rotary, read_rotary, turns_of
from assay.ir.graph import Graph, Value

_HEAD_WIDTH = 256
_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True)
class GemmaConfiguration(DecoderConfiguration):
    """A model of the family. Layers with a window turn heads by `near_rotary`. `scale` is that of attention; `caps`
    bound the scores of attention and the logits, zero for no bound; `outer_norms` are those of what layers add;
    `head_norms` those of query and key heads; `shifted_norms` says that the file has weights of norms less one."""

    activation: str
    rotary: Rotary
    near_rotary: Rotary
    windows: Windows
    scale: float
    caps: tuple[float, float] = (0.0, 0.0)
    attention_bias: bool = False
    outer_norms: bool = False
    head_norms: bool = False
    shifted_norms: bool = True


def _first(fields: Fields, tensors: Tensors) -> GemmaConfiguration:
    sizes = read_decoder(fields, head_width=_HEAD_WIDTH, tied=True)
    activation = fields.word("hidden_act", ACTIVATIONS, _TANH)
    rotary = read_rotary(fields, sizes.head_width)
    return GemmaConfiguration(
        **vars(sizes),
        activation=_TANH if activation == "gelu" else activation,  # so the first files call it
        rotary=rotary,
        near_rotary=rotary,
        windows=(None,) * sizes.layers,
        scale=sizes.head_width**-0.5,
        attention_bias=fields.flag("attention_bias", False),
    )


def _second(fields: Fields, tensors: Tensors) -> GemmaConfiguration:
    sizes = read_decoder(fields, head_width=_HEAD_WIDTH, tied=True)
    rotary = read_rotary(fields, sizes.head_width)
    return _later(fields, sizes, rotary, rotary, 2, _caps(fields, 50.0, 30.0), head_norms=False)


def _third(fields: Fields, tensors: Tensors) -> GemmaConfiguration:
    sizes = read_decoder(fields, head_width=_HEAD_WIDTH, tied=True)
    far = read_rotary(fields, sizes.head_width, theta=1e6, named="full_attention")
    near = _near_rotary(fields, sizes.head_width)
    pattern = fields.size("sliding_window_pattern", 6)
    return _later(fields, sizes, far, near, pattern, _caps(fields, None, None), head_norms=True)


def _caps(fields: Fields, attention: float | None, logits: float | None) -> tuple[float, float]:
    """The bounds, with what holds where nothing is said of them."""

    def cap(name: str, usual: float | None) -> float:
        unbounded = fields.is_null(name) or (usual is None and not fields.has(name))
        return 0.0 if unbounded else fields.positive(name, usual)

    return cap("attn_logit_softcapping", attention), cap("final_logit_softcapping", logits)


def _near_rotary(fields: Fields, head_width: int) -> Rotary:
    """In the form of earlier years, layers with windows have a base of their own and no scaling."""
    if fields.has("rope_parameters"):
        return read_rotary(fields, head_width, named="sliding_attention")
    return read_rotary(Fields({}, fields.where), head_width, theta=fields.positive("rope_local_base_freq", 1e4))


def _later(
    fields: Fields,
    sizes: DecoderConfiguration,
    rotary: Rotary,
    near: Rotary,
    pattern: int,
    caps: tuple[float, float],
    head_norms: bool,
) -> GemmaConfiguration:
    """The second and the third: of `pattern` layers, the last sees all the way."""
    if fields.flag("use_bidirectional_attention", False):
        fields.refuse("use_bidirectional_attention", "decoders do not look ahead")
    window = fields.size("sliding_window", 4096)
    return GemmaConfiguration(
        **vars(sizes),
        activation=fields.word("hidden_activation", ACTIVATIONS, _TANH),
        rotary=rotary,
        near_rotary=near,
        windows=read_windows(fields, sizes.layers, window, lambda index: bool((index + 1) % pattern)),
        scale=fields.positive("query_pre_attn_scalar", 256) ** -0.5,
        caps=caps,
        attention_bias=fields.flag("attention_bias", False),
        outer_norms=True,
        head_norms=head_norms,
    )


class _Generation(NamedTuple):
    """What GGUF files do not say. Of `period` layers the last sees all the way, the others as far as `window` if
    nothing else is said. In the model with `largest` layers, attention is scaled by the width of the model divided by
    its heads, and not by that of a head."""

    period: int
    window: int | None = None
    largest: int | None = None


_FIRST, _SECOND, _THIRD = _Generation(1), _Generation(2, 4096, 46), _Generation(6, None, 62)
_NEAR_THETA = 1e4


def _of_gguf(fields: Fields, tensors: Tensors, generation: _Generation) -> GemmaConfiguration:
    sizes = read_gguf_decoder(fields, tensors)
    rotary = near = read_gguf_rotary(fields, sizes.head_width, interleaved=False)
    if generation is _THIRD:
        near = Rotary(rotary.width, fields.positive("rope.freq_base_swa", _NEAR_THETA))
    window = fields.optional_size("attention.sliding_window") or generation.window
    scaled_by = sizes.width / sizes.heads if sizes.layers == generation.largest else sizes.head_width
    return GemmaConfiguration(
        **vars(sizes),
        activation=_TANH,
        rotary=rotary,
        near_rotary=near,
        windows=tuple(window if (index + 1) % generation.period else None for index in range(sizes.layers)),
        scale=scaled_by**-0.5,
        caps=(_cap(fields, "attn_logit_softcapping"), _cap(fields, "final_logit_softcapping")),
        outer_norms=generation is not _FIRST,
        head_norms=generation is _THIRD,
        shifted_norms=False,
    )


def _cap(fields: Fields, name: str) -> float:
    return fields.optional_positive(name) or 0.0


def _build(tensors: Tensors, c: GemmaConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "gemma")
    decoding = start_decoding(root, c.layers, c.key_heads, c.head_width)
    far = turns_of(decoding, c.rotary)
    near = far if c.rotary == c.near_rotary else turns_of(decoding, c.near_rotary)
    model = root.at("model")
    tokens = embedding(model.at("embed_tokens"), decoding.tokens, c.vocabulary, c.width)
    with model.op("scale") as b:
        x = b.mul(tokens, math.sqrt(c.width))
    for index, window in enumerate(c.windows):
        x = _layer(model.at("layers", index), c, decoding, far if window is None else near, index, x)
    scores = decoder_scores(root, c, _norm(model.at("norm"), c, x))
    return {"decoder": decoding.finish(_capped(root, scores, c.caps[1]))}


def _capped(m: Network, x: Value, cap: float) -> Value:
    if not cap:
        return x
    with m.op("softcap") as b:
        return b.mul(b.tanh(b.div(x, cap)), cap)


def _norm(m: Network, c: GemmaConfiguration, x: Value) -> Value:
    """In the first files the weight is what the scale has beyond one."""
    if not c.shifted_norms:
        return rms_norm(m, x, c.epsilon)
    with m.op("rms_norm") as b:
        return m.named(b.rms_norm(x, b.add(m.weight("weight", m.size(x)), 1.0), epsilon=c.epsilon))


def _layer(m: Network, c: GemmaConfiguration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    attended = _attention(m.at("self_attn"), c, decoding, turns, index, _norm(m.at("input_layernorm"), c, x))
    if c.outer_norms:
        attended = _norm(m.at("post_attention_layernorm"), c, attended)
    x = added(m, x, attended)
    inner = _norm(m.at("pre_feedforward_layernorm" if c.outer_norms else "post_attention_layernorm"), c, x)
    grown = gated_mlp(m.at("mlp"), inner, c.inner_width, c.activation)
    return m.named(added(m, x, _norm(m.at("post_feedforward_layernorm"), c, grown) if c.outer_norms else grown))


def _attention(m: Network, c: GemmaConfiguration, decoding: Decoding, turns: Turns, index: int, x: Value) -> Value:
    def heads(name: str, count: int) -> Value:
        return split_heads(m, linear(m.at(name), x, count * c.head_width, bias=c.attention_bias), count)

    def turned(name: str, norm: str, count: int) -> Value:
        found = heads(name, count)
        return turns.of(m, _norm(m.at(norm), c, found) if c.head_norms else found)

    query, key = turned("q_proj", "q_norm", c.heads), turned("k_proj", "k_norm", c.key_heads)
    value, window = heads("v_proj", c.key_heads), c.windows[index]
    found = cached_attention(m, decoding, index, query, key, value, window=window, scale=c.scale, softcap=c.caps[0])
    return m.named(linear(m.at("o_proj"), found, c.width, bias=c.attention_bias))


_LATER_NAMES: Mapping[str, str] = {
    **GGUF_NAMES,
    "model.layers.{}.post_attention_layernorm": "blk.{}.post_attention_norm",
    "model.layers.{}.pre_feedforward_layernorm": "blk.{}.ffn_norm",
    "model.layers.{}.post_feedforward_layernorm": "blk.{}.post_ffw_norm",
}
"""How GGUF files call the modules of the second and the third."""

GEMMA = Family(
    "gemma",
    (
        FileLayout(HUGGING_FACE, _first, ("gemma",), ignored=SPARE),
        FileLayout(HUGGING_FACE, _second, ("gemma2",), ignored=SPARE),
        FileLayout(HUGGING_FACE, _third, ("gemma3_text",), ignored=SPARE),
        FileLayout(GGUF, partial(_of_gguf, generation=_FIRST), ("gemma",), naming=renamed(GGUF_NAMES)),
        FileLayout(GGUF, partial(_of_gguf, generation=_SECOND), ("gemma2",), naming=renamed(_LATER_NAMES)),
        FileLayout(GGUF, partial(_of_gguf, generation=_THIRD), ("gemma3",), naming=renamed(_LATER_NAMES)),
    ),
    _build,
)
