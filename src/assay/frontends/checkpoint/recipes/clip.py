"""CLIP: an encoder of text and one of images into the same space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import BATCH, STEP, attend, split_heads
from assay.frontends.checkpoint.recipes.family import HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.images import patches, with_first
from assay.frontends.checkpoint.recipes.layers import ACTIVATIONS, added, embedding, layer_norm, linear, mlp
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors
from assay.ir import dtypes
from assay.ir.graph import Graph, Value
from assay.ops.parts import scalar_size

_FIRST_END = 2
"""The end token of the first configurations, which was wrong: it is the token of the highest number."""


@dataclass(frozen=True)
class ClipSide:
    """Layers of one of the two encoders."""

    width: int
    inner_width: int
    layers: int
    heads: int
    epsilon: float
    activation: str


@dataclass(frozen=True)
class ClipConfiguration:
    """A model of the family. `end` is the token that stands for the whole text, None for the highest there is."""

    text: ClipSide
    vision: ClipSide
    vocabulary: int
    positions: int
    end: int | None
    image: int
    patch: int
    channels: int
    projected: int


def _of_hugging_face(fields: Fields, tensors: Tensors) -> ClipConfiguration:
    text, vision = fields.table("text_config"), fields.table("vision_config")
    if text is None or vision is None:
        fields.refuse("text_config" if text is None else "vision_config", "both encoders are to be described")
    end = text.count("eos_token_id", 49407)
    return ClipConfiguration(
        text=_side(text, 512, 2048, 8),
        vision=_side(vision, 768, 3072, 12),
        vocabulary=text.size("vocab_size", 49408),
        positions=text.size("max_position_embeddings", 77),
        end=None if end == _FIRST_END else end,
        image=vision.size("image_size", 224),
        patch=vision.size("patch_size", 32),
        channels=vision.size("num_channels", 3),
        projected=fields.size("projection_dim", 512),
    )


def _side(fields: Fields, width: int, inner_width: int, heads: int) -> ClipSide:
    """Files leave out what is as in the first model."""
    width, heads = fields.size("hidden_size", width), fields.size("num_attention_heads", heads)
    fields.divides("num_attention_heads", "hidden_size", heads, width)
    return ClipSide(
        width=width,
        inner_width=fields.size("intermediate_size", inner_width),
        layers=fields.layers("num_hidden_layers", 12),
        heads=heads,
        epsilon=fields.positive("layer_norm_eps", 1e-5),
        activation=fields.word("hidden_act", ACTIVATIONS, "quick_gelu"),
    )


def _build(tensors: Tensors, c: ClipConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    return {"text": _text(tensors, c, options), "image": _image(tensors, c, options)}


def _text(tensors: Tensors, c: ClipConfiguration, options: GraphOptions) -> Graph:
    """From tokens to `embedding`; tokens see those before them, so that what follows the end does not matter."""
    root = Network.empty(tensors, options, "clip")
    tokens = root.input("tokens", dtypes.i64, BATCH, STEP)
    m = root.at("text_model")
    with m.op("positions") as b:
        positions = b.iota(scalar_size(b, tokens, 1))
    words = embedding(m.at("embeddings.token_embedding"), tokens, c.vocabulary, c.text.width)
    places = embedding(m.at("embeddings.position_embedding"), positions, c.positions, c.text.width)
    x = _layers(m, c.text, added(m, words, places), causal=True)
    x = layer_norm(m.at("final_layer_norm"), x, c.text.epsilon)
    with m.op("end") as b:
        marked = tokens if c.end is None else b.cast(b.eq(tokens, c.end), dtype=dtypes.i64)
        end = b.unsqueeze(b.arg_max(marked, axis=1), axes=(1,))
        pooled = m.named(b.gather_nd(x, end, batch_dims=1))
    return root.finish("text", {"embedding": linear(root.at("text_projection"), pooled, c.projected), "hidden": x})


def _image(tensors: Tensors, c: ClipConfiguration, options: GraphOptions) -> Graph:
    """From an image to `embedding`."""
    root = Network.empty(tensors, options, "clip")
    image = root.input("image", options.dtype, BATCH, c.channels, c.image, c.image)
    m, width = root.at("vision_model"), c.vision.width
    at = m.at("embeddings")
    parts = patches(at.at("patch_embedding"), image, c.patch, width, bias=False)
    with at.op("class") as b:
        first = b.reshape(at.weight("class_embedding", width), [1, 1, width])
    x = with_first(at, first, parts)
    with at.op("positions") as b:
        x = b.add(x, at.weight("position_embedding.weight", (c.image // c.patch) ** 2 + 1, width))
    x = _layers(m, c.vision, layer_norm(m.at("pre_layrnorm"), x, c.vision.epsilon), causal=False)
    with m.op("first") as b:
        first = b.gather(x, b.constant(0, dtypes.i64), axis=1)
    pooled = m.named(layer_norm(m.at("post_layernorm"), first, c.vision.epsilon))
    return root.finish("image", {"embedding": linear(root.at("visual_projection"), pooled, c.projected), "hidden": x})


def _layers(m: Network, c: ClipSide, x: Value, *, causal: bool) -> Value:
    for index in range(c.layers):
        x = _layer(m.at("encoder.layers", index), c, x, causal=causal)
    return x


def _layer(m: Network, c: ClipSide, x: Value, *, causal: bool) -> Value:
    at, normal = m.at("self_attn"), layer_norm(m.at("layer_norm1"), x, c.epsilon)
    query, key, value = (
        split_heads(at, linear(at.at(name), normal, c.width, bias=True), c.heads)
        for name in ("q_proj", "k_proj", "v_proj")
    )
    found = attend(at, query, key, value, causal=causal)
    x = added(m, x, linear(at.at("out_proj"), found, c.width, bias=True))
    normal = layer_norm(m.at("layer_norm2"), x, c.epsilon)
    return m.named(added(m, x, mlp(m.at("mlp"), normal, c.inner_width, c.activation, ("fc1", "fc2"))))


_SPARE = (r".*position_ids", r"logit_scale")
"""Numbers of positions that older versions of Hugging Face's library saved, and the scale of scores between both."""

CLIP = Family("clip", (FileLayout(HUGGING_FACE, _of_hugging_face, ("clip",), ignored=_SPARE),), _build)
