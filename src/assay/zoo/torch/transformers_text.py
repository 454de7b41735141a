"""Models of the transformers library that read or write text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.zoo.torch.model import Input, Model, ones
from assay.zoo.torch.transformers import MARKS, model, text, text_to_text, tokens

_READER: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
"""A small encoder in the manner of BERT."""
_ALBERT: dict[str, Any] = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "inner_group_num": 1,
    "num_hidden_groups": 1,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
}
_T5_SMALL = {"d_kv": 8, "num_heads": 4, "vocab_size": 97, "decoder_start_token_id": 0}
_T5_FULL = {"d_kv": 64, "vocab_size": 32128, "decoder_start_token_id": 0}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def _reader(
    name: str, constructor: str, length: int, count: int, full: Mapping[str, Any], small: Mapping[str, Any] = _READER
) -> Model:
    """A model that reads a text as a whole."""
    family = constructor.partition("For")[0].removesuffix("Reader").lower()
    return model(
        name, family, constructor, small=small, full=full, inputs=text(length), lengths=(5, 9, 17), count=count
    )


def _albert(name: str, task: str, count: int, width: int, layers: int, heads: int, small: int = 32) -> Model:
    full = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    full["intermediate_size"] = 4 * width
    fewer = {"vocab_size": 97, "embedding_size": 16, "hidden_size": small, "intermediate_size": 4 * small}
    fewer |= {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    return _reader(name, f"AlbertFor{task}", 16, count, {**_ALBERT, **full}, {**_ALBERT, **fewer})


def _writer(
    name: str,
    constructor: str,
    count: int,
    small: Mapping[str, Any],
    full: Mapping[str, Any],
    family: str = "",
    **more: Any,
) -> Model:
    """A model that goes on with a text."""
    small = {"vocab_size": 97, **MARKS, **small}
    sizes: dict[str, Any] = {"small": small, "full": full, "inputs": text(32), "lengths": (5, 9, 17), "count": count}
    return model(name, family or name.lower(), constructor, **sizes, **more)


def _t5(name: str, count: int, small: Mapping[str, Any], full: Mapping[str, Any], **both: Any) -> Model:
    return model(
        name,
        "t5",
        "T5ForConditionalGeneration",
        small={**_T5_SMALL, **small, **both},
        full={**_T5_FULL, **full, **both},
        inputs=text_to_text(16, 4),
        lengths=(6, 11, 18),
        count=count,
        unscaled=".q.weight",
    )


_READERS = (
    _reader(
        "BERT",
        "BertForQuestionAnswering",
        128,
        332531714,
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "vocab_size": 28996,
        },
    ),
    _reader("DPR", "DPRReader", 64, 108893955, {}),
    _reader(
        "RoBERTa",
        "RobertaForMaskedLM",
        16,
        124697433,
        {
            "vocab_size": 50265,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "layer_norm_eps": 1e-05,
        },
        {**_READER, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    _reader(
        "SqueezeBERT",
        "SqueezeBertForSequenceClassification",
        32,
        51096579,
        {"vocab_size": 30528, "num_labels": 3},
        {**_READER, "embedding_size": 32, "num_labels": 3},
    ),
    _reader(
        "distilbert-base-uncased",
        "DistilBertForMaskedLM",
        16,
        66985530,
        {},
        {
            "vocab_size": 97,
            "dim": 32,
            "hidden_dim": 64,
            "n_layers": 2,
            "n_heads": 4,
            "max_position_embeddings": 64,
        },
    ),
    _albert("albert/albert-base-v2", "MaskedLM", 11221680, 768, 12, 12),
    _albert("albert/albert-large-v2", "MaskedLM", 16795824, 1024, 24, 16, 48),
    _albert("albert/albert-xlarge-v2", "MaskedLM", 54821040, 2048, 24, 16, 64),
    _albert("albert/albert-xxlarge-v2", "MaskedLM", 206368944, 4096, 12, 64, 80),
    _albert("textattack/albert-base-v2-imdb", "SequenceClassification", 11685122, 768, 12, 12),
    _albert("twmkn9/albert-base-v2-squad2", "QuestionAnswering", 11094530, 768, 12, 12),
)

_PERCEIVER = model(
    "Perceiver IO",
    "perceiver",
    "PerceiverForMaskedLM",
    small={
        "d_latents": 64,
        "d_model": 48,
        "num_latents": 16,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
        "qk_channels": 32,
        "v_channels": 64,
        "vocab_size": 262,
        "max_position_embeddings": 40,
    },
    full={
        "d_latents": 1280,
        "d_model": 768,
        "num_latents": 256,
        "num_blocks": 1,
        "num_self_attends_per_block": 26,
        "num_self_attention_heads": 8,
        "num_cross_attention_heads": 8,
        "qk_channels": 256,
        "v_channels": 1280,
        "vocab_size": 262,
        "max_position_embeddings": 2048,
    },
    inputs={
        "inputs": Input(tokens, (1, 2048), lambda length: (2, length)),
        "attention_mask": Input(ones, (1, 2048), lambda length: (2, length)),
    },
    lengths=(40,),
    count=201108230,
)

_GPT2 = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 64}

_WRITERS = (
    _writer(
        "GPT-2",
        "GPT2ForSequenceClassification",
        124441344,
        {**_GPT2, "num_labels": 2},
        {"num_labels": 2, "pad_token_id": 50256},
        family="gpt2",
        note="reads a text and classifies it; 'gpt2' is the network that writes",
    ),
    _writer("gpt2", "GPT2LMHeadModel", 124439808, _GPT2, {}, family="gpt2"),
    _writer(
        "GPTNeo",
        "GPTNeoForCausalLM",
        125198592,
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 7,
            "max_position_embeddings": 64,
        },
        {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]},
        unscaled="q_proj.weight",
    ),
    _writer(
        "OPT",
        "OPTForCausalLM",
        125239296,
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "word_embed_proj_dim": 16,
            "max_position_embeddings": 64,
        },
        {},
    ),
    _writer(
        "codegen",
        "CodeGenForCausalLM",
        356712448,
        {"n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 4, "n_positions": 64, "n_ctx": 64},
        {
            "vocab_size": 51200,
            "n_positions": 2048,
            "n_ctx": 2048,
            "n_embd": 1024,
            "n_layer": 20,
            "n_head": 16,
            "rotary_dim": 32,
        },
    ),
    _writer(
        "Bloom",
        "BloomForCausalLM",
        1065314304,
        {"hidden_size": 32, "n_layer": 1, "n_head": 4},
        {"vocab_size": 250880, "hidden_size": 1536, "n_layer": 24, "n_head": 16},
    ),
    _writer(
        "XGLM",
        "XGLMForCausalLM",
        564463616,
        {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4, "max_position_embeddings": 64},
        {"vocab_size": 256008, "d_model": 1024, "ffn_dim": 4096, "num_layers": 24, "attention_heads": 16},
    ),
    _writer(
        "Falcon",
        "FalconForCausalLM",
        6921720704,
        {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
        {"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
        full_dtype="bf16",
    ),
    _writer(
        "Llama",
        "LlamaForCausalLM",
        6738415616,
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        },
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "rms_norm_eps": 1e-06,
            "max_position_embeddings": 2048,
        },
        full_dtype="bf16",
    ),
    _t5(
        "t5-small",
        60506624,
        {"d_model": 32, "d_ff": 64, "num_layers": 1},
        {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    ),
    _t5(
        "t5-base",
        222903552,
        {"d_model": 48, "d_ff": 96, "num_layers": 1, "num_heads": 6},
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    _t5(
        "t5-large",
        737668096,
        {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 8},
        {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
    ),
    _t5(
        "FLAN-T5",
        60511616,
        {"d_model": 32, "d_ff": 64, "num_layers": 1},
        {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
        **_GATED,
    ),
)

MODELS = (*_READERS, _PERCEIVER, *_WRITERS)
"""Those that read, then those that write."""
