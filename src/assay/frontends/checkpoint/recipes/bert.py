"""BERT, RoBERTa and what is built like them (MiniLM, E5, BGE …): encoders of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import BATCH, STEP, attend, split_heads
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import (
    ACTIVATIONS,
    activation,
    added,
    embedding,
    layer_norm,
    linear,
)
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.ir import dtypes
from assay.ir.graph import Graph, Value
from assay.ops.parts import scalar_size

_PREFIXES = ("bert", "roberta")


@dataclass(frozen=True)
class BertConfiguration:
    """A model of the family. `first_position` is the row of the first token in the table of positions; `base` is the
    module that holds the layers; `labels` is the number of classes, zero without a head for them."""

    vocabulary: int
    width: int
    inner_width: int
    layers: int
    heads: int
    positions: int
    segments: int
    epsilon: float
    activation: str
    first_position: int = 0
    pooled: bool = False
    labels: int = 0
    base: str = ""


def _of_bert(fields: Fields, tensors: Tensors) -> BertConfiguration:
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    fields.divides("num_attention_heads", "hidden_size", heads, width)
    fields.word("position_embedding_type", ("absolute",), "absolute")
    base = next((prefix for prefix in _PREFIXES if tensors.starting_with(f"{prefix}.")), "")
    pooler = f"{base}.pooler.dense.weight".lstrip(".")
    labels = tensors.matrix("classifier.weight")[0] if tensors.has("classifier.weight") and tensors.has(pooler) else 0
    return BertConfiguration(
        vocabulary=fields.size("vocab_size"),
        width=width,
        inner_width=fields.size("intermediate_size"),
        layers=fields.layers("num_hidden_layers"),
        heads=heads,
        positions=fields.size("max_position_embeddings"),
        segments=fields.size("type_vocab_size", 2),
        epsilon=fields.positive("layer_norm_eps", 1e-12),
        activation=fields.word("hidden_act", ACTIVATIONS, "gelu"),
        pooled=tensors.has(pooler),
        labels=labels,
        base=base,
    )


def _of_roberta(fields: Fields, tensors: Tensors) -> BertConfiguration:
    """Rows of the table up to that of the padding token are not used."""
    return replace(_of_bert(fields, tensors), first_position=fields.count("pad_token_id", 1) + 1)


def _of_gguf(fields: Fields, tensors: Tensors) -> BertConfiguration:
    """These files have no head, and RoBERTa's table of positions without the rows that are not used."""
    width, heads = fields.size("embedding_length"), fields.size("attention.head_count")
    fields.divides("attention.head_count", "embedding_length", heads, width)
    return BertConfiguration(
        vocabulary=tensors.matrix("embeddings.word_embeddings.weight")[0],
        width=width,
        inner_width=fields.size("feed_forward_length"),
        layers=fields.layers("block_count"),
        heads=heads,
        positions=tensors.matrix("embeddings.position_embeddings.weight")[0],
        segments=tensors.matrix("embeddings.token_type_embeddings.weight")[0],
        epsilon=fields.positive("attention.layer_norm_epsilon"),
        activation="gelu",
    )


def _build(tensors: Tensors, c: BertConfiguration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "bert")
    tokens, mask, segments = (root.input(name, dtypes.i64, BATCH, STEP) for name in ("tokens", "mask", "segments"))
    base = root.at(c.base)
    x = _embeddings(base.at("embeddings"), c, tokens, segments)
    with root.op("mask") as b:
        visible = b.unsqueeze(b.bit_not(b.eq(mask, 0)), axes=(1, 2))
    for index in range(c.layers):
        x = _layer(base.at("encoder.layer", index), c, visible, x)
    outputs = {"hidden": x}
    if c.pooled:
        outputs["pooled"] = _pooled(base.at("pooler"), c, x)
    if c.labels:
        outputs["logits"] = linear(root.at("classifier"), outputs["pooled"], c.labels, bias=True)
    return {"encoder": root.finish("encoder", outputs)}


def _embeddings(m: Network, c: BertConfiguration, tokens: Value, segments: Value) -> Value:
    with m.op("positions") as b:
        positions = b.add(b.iota(scalar_size(b, tokens, 1)), c.first_position)
    words = embedding(m.at("word_embeddings"), tokens, c.vocabulary, c.width)
    kinds = embedding(m.at("token_type_embeddings"), segments, c.segments, c.width)
    places = embedding(m.at("position_embeddings"), positions, c.positions, c.width)
    return m.named(layer_norm(m.at("LayerNorm"), added(m, added(m, words, kinds), places), c.epsilon))


def _layer(m: Network, c: BertConfiguration, visible: Value, x: Value) -> Value:
    attended = _attention(m.at("attention"), c, visible, x)
    grown = activation(m, c.activation, linear(m.at("intermediate.dense"), attended, c.inner_width, bias=True))
    return m.named(_joined(m.at("output"), c, grown, attended))


def _attention(m: Network, c: BertConfiguration, visible: Value, x: Value) -> Value:
    inner = m.at("self")
    query, key, value = (
        split_heads(inner, linear(inner.at(name), x, c.width, bias=True), c.heads) for name in ("query", "key", "value")
    )
    return m.named(_joined(m.at("output"), c, attend(inner, query, key, value, visible), x))


def _joined(m: Network, c: BertConfiguration, x: Value, residual: Value) -> Value:
    return layer_norm(m.at("LayerNorm"), added(m, linear(m.at("dense"), x, c.width, bias=True), residual), c.epsilon)


def _pooled(m: Network, c: BertConfiguration, x: Value) -> Value:
    """What the first token stands for: the whole text."""
    with m.op("first") as b:
        first = b.gather(x, b.constant(0, dtypes.i64), axis=1)
    return m.named(activation(m, "tanh", linear(m.at("dense"), first, c.width, bias=True)))


_SPARE = (r".*position_ids", r"(cls|lm_head|qa_outputs|classifier)\..*")
"""Numbers of positions that older versions of Hugging Face's library saved, and heads of other tasks."""

_GGUF_NAMES: Mapping[str, str] = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "encoder.layer.{}.attention.self.query": "blk.{}.attn_q",
    "encoder.layer.{}.attention.self.key": "blk.{}.attn_k",
    "encoder.layer.{}.attention.self.value": "blk.{}.attn_v",
    "encoder.layer.{}.attention.output.dense": "blk.{}.attn_output",
    "encoder.layer.{}.attention.output.LayerNorm": "blk.{}.attn_output_norm",
    "encoder.layer.{}.intermediate.dense": "blk.{}.ffn_up",
    "encoder.layer.{}.output.dense": "blk.{}.ffn_down",
    "encoder.layer.{}.output.LayerNorm": "blk.{}.layer_output_norm",
}

BERT = Family(
    "bert",
    (
        FileLayout(HUGGING_FACE, _of_bert, ("bert",), ignored=_SPARE),
        FileLayout(HUGGING_FACE, _of_roberta, ("roberta", "xlm-roberta"), ignored=_SPARE),
        FileLayout(GGUF, _of_gguf, ("bert",), naming=renamed(_GGUF_NAMES)),
    ),
    _build,
)
