"""Models of the transformers library that write text or sound."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from assay.zoo.torch._torchvision import declare_operators
from assay.zoo.torch.model import Inputs, Model


def library() -> Any:
    """The transformers library, imported so that it also takes a torchvision without its compiled part."""
    declare_operators()
    return importlib.import_module("transformers")


def _from(name: str) -> Callable[[Mapping[str, Any]], Any]:
    def make(sizes: Mapping[str, Any]) -> Any:
        found = getattr(library(), name)
        return found(found.config_class(**sizes))

    return make


def _musicgen(sizes: Mapping[str, Any]) -> Any:
    found = library()
    config = found.MusicgenConfig(
        text_encoder=found.T5Config(**sizes["text"]),
        audio_encoder=found.EncodecConfig(**sizes["sound"]),
        decoder=found.MusicgenDecoderConfig(**sizes["decoder"]),
    )
    return found.MusicgenForConditionalGeneration(config)


def _tokens(module: Any, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Tokens without the lowest three, which mark padding, starts and ends."""
    most = module.config.get_text_config(decoder=True).vocab_size
    return torch.randint(3, most, shape, generator=generator)


def _text(module: Any, length: int, generator: torch.Generator) -> Inputs:
    tokens = _tokens(module, (2, length), generator)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _text_to_text(module: Any, length: int, generator: torch.Generator) -> Inputs:
    tokens = {"input_ids": length, "decoder_input_ids": length // 2}
    return {name: _tokens(module, (2, count), generator) for name, count in tokens.items()}


def _sound_to_text(module: Any, length: int, generator: torch.Generator) -> Inputs:
    frames = 2 * module.config.max_source_positions
    features = torch.randn(2, module.config.num_mel_bins, frames, generator=generator)
    return {"input_features": features, "decoder_input_ids": _tokens(module, (2, length), generator)}


def _text_to_speech(module: Any, length: int, generator: torch.Generator) -> Inputs:
    config = module.config
    return {
        "input_ids": _tokens(module, (1, length), generator),
        "decoder_input_values": torch.randn(1, length - 2, config.num_mel_bins, generator=generator),
        "speaker_embeddings": torch.randn(1, config.speaker_embedding_dim, generator=generator),
    }


def _text_to_music(module: Any, length: int, generator: torch.Generator) -> Inputs:
    text = module.config.text_encoder.vocab_size
    tokens = torch.randint(3, text, (2, length), generator=generator)
    start = torch.full((2 * module.config.decoder.num_codebooks, 1), module.config.decoder.pad_token_id)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "decoder_input_ids": start}


_MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_T5_SMALL = {"d_kv": 8, "num_heads": 4, "vocab_size": 97, "decoder_start_token_id": 0}
_T5_FULL = {"d_kv": 64, "vocab_size": 32128, "decoder_start_token_id": 0}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
_ENCODEC_SMALL = {
    "sampling_rate": 100,
    "upsampling_ratios": [2, 2],
    "target_bandwidths": [1.0],
    "codebook_size": 64,
    "codebook_dim": 8,
    "hidden_size": 8,
    "num_filters": 4,
    "num_lstm_layers": 1,
    "norm_type": "weight_norm",
}
_ENCODEC_FULL = {
    "sampling_rate": 32000,
    "upsampling_ratios": [8, 5, 4, 4],
    "target_bandwidths": [2.2],
    "codebook_size": 2048,
    "num_filters": 64,
    "norm_type": "weight_norm",
    "use_causal_conv": False,
    "normalize": False,
}
_WHISPER_SMALL = {
    **_MARKS,
    "decoder_start_token_id": 1,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "max_source_positions": 25,
    "max_target_positions": 80,
}


def _whisper(width: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    sides = {"layers": layers, "attention_heads": heads, "ffn_dim": 4 * width}
    both = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()}
    return {"d_model": width, **both, **more}


def _t5(name: str, small: Mapping[str, Any], full: Mapping[str, Any], **both: Any) -> Model:
    make = _from("T5ForConditionalGeneration")
    sizes = ({**_T5_SMALL, **small, **both}, {**_T5_FULL, **full, **both})
    return Model(name, "t5", make, _text_to_text, *sizes, (6, 11, 18), unscaled=".q.weight")


def _causal(name: str, found: str, small: Mapping[str, Any], full: Mapping[str, Any], **more: Any) -> Model:
    sizes = ({"vocab_size": 97, **_MARKS, **small}, full)
    return Model(name, name.lower(), _from(found), _text, *sizes, (5, 9, 17), **more)


MODELS = (
    _causal("GPT-2", "GPT2LMHeadModel", {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 64}, {}),
    _causal(
        "GPTNeo",
        "GPTNeoForCausalLM",
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
    _causal(
        "OPT",
        "OPTForCausalLM",
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
    _causal(
        "codegen",
        "CodeGenForCausalLM",
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
    _causal(
        "Bloom",
        "BloomForCausalLM",
        {"hidden_size": 32, "n_layer": 1, "n_head": 4},
        {"vocab_size": 250880, "hidden_size": 1536, "n_layer": 24, "n_head": 16},
    ),
    _causal(
        "Falcon",
        "FalconForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
        {"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
    ),
    _causal(
        "Llama",
        "LlamaForCausalLM",
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        },
        {"vocab_size": 32000, "intermediate_size": 11008},
    ),
    _t5(
        "t5-small",
        {"d_model": 32, "d_ff": 64, "num_layers": 1},
        {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    ),
    _t5(
        "t5-base",
        {"d_model": 48, "d_ff": 96, "num_layers": 1, "num_heads": 6},
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    _t5(
        "t5-large",
        {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 8},
        {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
    ),
    _t5(
        "FLAN-T5",
        {"d_model": 32, "d_ff": 64, "num_layers": 1},
        {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
        **_GATED,
    ),
    Model(
        "Whisper",
        "whisper",
        _from("WhisperForConditionalGeneration"),
        _sound_to_text,
        _whisper(32, 2, 4, num_mel_bins=8, vocab_size=97, **_WHISPER_SMALL),
        _whisper(768, 12, 12, num_mel_bins=80, vocab_size=51865),
        (3, 5, 9),
    ),
    Model(
        "speecht5-tts",
        "speecht5",
        _from("SpeechT5ForTextToSpeech"),
        _text_to_speech,
        {
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
            "hidden_size": 32,
            "vocab_size": 81,
            "num_mel_bins": 10,
            "speaker_embedding_dim": 12,
            "speech_decoder_prenet_units": 16,
            "speech_decoder_postnet_units": 16,
            "speech_decoder_postnet_layers": 2,
        },
        {"vocab_size": 81},
        (8, 14, 20),
    ),
    Model(
        "musicgen-stereo-small",
        "musicgen",
        _musicgen,
        _text_to_music,
        {
            "text": {"d_model": 32, "d_ff": 64, "num_layers": 1, **_T5_SMALL},
            "sound": _ENCODEC_SMALL,
            "decoder": {
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 4,
                "ffn_dim": 64,
                "vocab_size": 64,
                "num_codebooks": 4,
                "pad_token_id": 64,
                "bos_token_id": 64,
                "max_position_embeddings": 64,
            },
        },
        {
            "text": {**_T5_FULL, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
            "sound": _ENCODEC_FULL,
            "decoder": {"num_codebooks": 8, "audio_channels": 2},
        },
        (6, 9, 13),
    ),
)
"""The text models, then those that hear, speak and play."""
