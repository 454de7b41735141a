"""ViT: an encoder of images in patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import BATCH, attend, split_heads
from assay.frontends.checkpoint.recipes.family import HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.images import patches, with_first
from assay.frontends.checkpoint.recipes.layers import ACTIVATIONS, activation, added, layer_norm, linear
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors
from assay.ir import dtypes
from assay.ir.graph import Graph, Value


@dataclass(frozen=True)
class VitConfiguration:
    """A model of the family. `image` and `patch` are the edges of squares; `base` is the module that holds the layers;
    `labels` is the number of classes, zero without a head for them."""

    width: int
    inner_width: int
    layers: int
    heads: int
    image: int
    patch: int
    channels: int
    epsilon: float
    activation: str
    input_bias: bool = True
    pooled: bool = False
    labels: int = 0
    base: str = ""


def _of_hugging_face(fields: Fields, tensors: Tensors) -> VitConfiguration:
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    fields.divides("num_attention_heads", "hidden_size", heads, width)
    base = "vit" if tensors.starting_with("vit.") else ""
    pooler = f"{base}.pooler.dense.weight".lstrip(".")
    return VitConfiguration(
        width=width,
        inner_width=fields.size("intermediate_size"),
        layers=fields.layers("num_hidden_layers"),
        heads=heads,
        image=fields.size("image_size", 224),
        patch=fields.size("patch_size", 16),
        channels=fields.size("num_channels", 3),
        epsilon=fields.positive("layer_norm_eps", 1e-12),
        activation=fields.word("hidden_act", ACTIVATIONS, "gelu"),
        input_bias=fields.flag("qkv_bias", True),
        pooled=tensors.has(pooler),
        labels=tensors.matrix("classifier.weight")[0] if tensors.has("classifier.weight") else 0,
        base=base,
    )


def _build(tensors: Tensors, c: VitConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "vit")
    image = root.input("image", options.dtype, BATCH, c.channels, c.image, c.image)
    base = root.at(c.base)
    m = base.at("embeddings")
    parts = patches(m.at("patch_embeddings.projection"), image, c.patch, c.width, bias=True)
    x = with_first(m, m.weight("cls_token", 1, 1, c.width), parts)
    with m.op("positions") as b:
        x = b.add(x, m.weight("position_embeddings", 1, (c.image // c.patch) ** 2 + 1, c.width))
    for index in range(c.layers):
        x = _layer(base.at("encoder.layer", index), c, x)
    x = layer_norm(base.at("layernorm"), x, c.epsilon)
    outputs = {"hidden": x}
    with root.op("first") as b:
        first = b.gather(x, b.constant(0, dtypes.i64), axis=1)
    if c.pooled:
        at = base.at("pooler")
        outputs["pooled"] = at.named(activation(at, "tanh", linear(at.at("dense"), first, c.width, bias=True)))
    if c.labels:
        outputs["logits"] = linear(root.at("classifier"), first, c.labels, bias=True)
    return {"encoder": root.finish("encoder", outputs)}


def _layer(m: Network, c: VitConfiguration, x: Value) -> Value:
    normal, inner = layer_norm(m.at("layernorm_before"), x, c.epsilon), m.at("attention.attention")
    heads = (
        split_heads(inner, linear(inner.at(name), normal, c.width, bias=c.input_bias), c.heads)
        for name in ("query", "key", "value")
    )
    x = added(m, x, linear(m.at("attention.output.dense"), attend(inner, *heads), c.width, bias=True))
    normal = layer_norm(m.at("layernorm_after"), x, c.epsilon)
    grown = activation(m, c.activation, linear(m.at("intermediate.dense"), normal, c.inner_width, bias=True))
    return m.named(added(m, x, linear(m.at("output.dense"), grown, c.width, bias=True)))


VIT = Family("vit", (FileLayout(HUGGING_FACE, _of_hugging_face, ("vit",), ignored=(r".*mask_token",)),), _build)
