"""What decoders in the manner of Llama share: sizes, names, and the way from tokens to logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding
from assay.frontends.checkpoint.recipes.layers import embedding, rms_norm, vocabulary_scores
from assay.frontends.checkpoint.recipes.network import Network, Tensors
from assay.ir.graph import Graph, Value

_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class DecoderConfiguration:
    """Sizes of a decoder. `tied` says that the table of embeddings also gives the scores."""

    vocabulary: int
    width: int
    inner_width: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    positions: int
    epsilon: float
    tied: bool


def read_decoder(
    fields: Fields, *, head_width: int | None = None, epsilon: float = 1e-6, tied: bool = False
) -> DecoderConfiguration:
    """The sizes in a Hugging Face configuration, with what a family takes where it says nothing."""
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    key_heads = fields.size("num_key_value_heads", heads)
    fields.divides("num_key_value_heads", "num_attention_heads", key_heads, heads)
    return DecoderConfiguration(
        vocabulary=fields.size("vocab_size"),
        width=width,
        inner_width=fields.size("intermediate_size"),
        layers=fields.layers("num_hidden_layers"),
        heads=heads,
        key_heads=key_heads,
        head_width=fields.size("head_dim", head_width or max(width // heads, 1)),
        positions=fields.size("max_position_embeddings", 2048),
        epsilon=fields.positive("rms_norm_eps", epsilon),
        tied=fields.flag("tie_word_embeddings", tied),
    )


def read_gguf_decoder(fields: Fields, tensors: Tensors) -> DecoderConfiguration:
    """The sizes in a GGUF file. Some do not tell that of the vocabulary, which a tensor has."""
    width, heads = fields.size("embedding_length"), fields.size("attention.head_count")
    key_heads = fields.size("attention.head_count_kv", heads)
    fields.divides("attention.head_count_kv", "attention.head_count", key_heads, heads)
    return DecoderConfiguration(
        vocabulary=tensors.matrix("model.embed_tokens.weight")[0],
        width=width,
        inner_width=fields.size("feed_forward_length"),
        layers=fields.layers("block_count"),
        heads=heads,
        key_heads=key_heads,
        head_width=fields.size("attention.key_length", max(width // heads, 1)),
        positions=fields.size("context_length", 2048),
        epsilon=fields.positive("attention.layer_norm_rms_epsilon"),
        tied=not tensors.has("lm_head.weight"),
    )


Windows = tuple[int | None, ...]
"""How far back the tokens of each layer see, None for all the way."""


def read_windows(fields: Fields, layers: int, window: int | None, slides: Callable[[int], bool]) -> Windows:
    """Windows by the kinds of layers, or where these are not listed by a rule for the layer's index."""
    if fields.has("layer_types"):
        kinds = fields.words("layer_types", layers, _KINDS)
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    return tuple(window if slides(index) else None for index in range(layers))


def decode(decoding: Decoding, c: DecoderConfiguration, layer: Callable[[Network, int, Value], Value]) -> Graph:
    """The graph from tokens through layers, each a function of its module, its index and what comes in, to logits."""
    root = decoding.network
    model = root.at("model")
    x = embedding(model.at("embed_tokens"), decoding.tokens, c.vocabulary, c.width)
    for index in range(c.layers):
        x = layer(model.at("layers", index), index, x)
    return decoding.finish(decoder_scores(root, c, rms_norm(model.at("norm"), x, c.epsilon)))


def decoder_scores(root: Network, c: DecoderConfiguration, x: Value) -> Value:
    """The logits of what the last layer gives."""
    head = root.at("model.embed_tokens") if c.tied else root.at("lm_head")
    return vocabulary_scores(root, head, x, c.vocabulary)


GGUF_NAMES: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.{}.input_layernorm": "blk.{}.attn_norm",
    "model.layers.{}.self_attn.q_proj": "blk.{}.attn_q",
    "model.layers.{}.self_attn.k_proj": "blk.{}.attn_k",
    "model.layers.{}.self_attn.v_proj": "blk.{}.attn_v",
    "model.layers.{}.self_attn.qkv_proj": "blk.{}.attn_qkv",
    "model.layers.{}.self_attn.q_norm": "blk.{}.attn_q_norm",
    "model.layers.{}.self_attn.k_norm": "blk.{}.attn_k_norm",
    "model.layers.{}.self_attn.o_proj": "blk.{}.attn_output",
    "model.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm",
    "model.layers.{}.mlp.gate_proj": "blk.{}.ffn_gate",
    "model.layers.{}.mlp.up_proj": "blk.{}.ffn_up",
    "model.layers.{}.mlp.gate_up_proj": "blk.{}.ffn_up",
    "model.layers.{}.mlp.down_proj": "blk.{}.ffn_down",
}
"""Modules as Hugging Face and as GGUF files call them; {} is the number of a layer."""

SPARE = (r".*rotary_emb\.inv_freq", r"lm_head\.weight")
"""What files may hold besides: tables that older versions of Hugging Face's library saved, and a head that is not used,
since the embeddings give the scores."""
