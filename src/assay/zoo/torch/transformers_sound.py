"""Models of the transformers library that hear, speak or play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.zoo.torch.model import Input, Model, Shape, noise, ones
from assay.zoo.torch.transformers import MARKS, builder_of, model, tokens

# --- Whisper: sound to text


def _whisper(name: str, count: int, layers: tuple[int, int], width: int, mels: int = 80, words: int = 51865) -> Model:
    return model(
        name,
        "whisper",
        "WhisperForConditionalGeneration",
        small={
            **_sides(32, (2, 1 if layers[1] < layers[0] else 2), 4),
            **MARKS,
            "num_mel_bins": 8,
            "vocab_size": 97,
            "decoder_start_token_id": 1,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
            "max_source_positions": 25,
            "max_target_positions": 80,
        },
        full={**_sides(width, layers, width // 64), "num_mel_bins": mels, "vocab_size": words},
        inputs={
            "input_features": Input(noise, (1, mels, 3000), lambda length: (2, 8, 50)),
            "decoder_input_ids": Input(tokens, (1, 4), lambda length: (2, length)),
        },
        lengths=(3, 5, 9),
        count=count,
    )


def _sides(width: int, layers: tuple[int, int], heads: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {"d_model": width}
    for side, count in zip(("encoder", "decoder"), layers, strict=True):
        sizes |= {f"{side}_layers": count, f"{side}_attention_heads": heads, f"{side}_ffn_dim": 4 * width}
    return sizes


# --- MusicGen: text to music


def _musicgen(name: str, count: int, width: int, layers: int, heads: int, **more: Any) -> Model:
    return model(
        name,
        "musicgen",
        "MusicgenForConditionalGeneration",
        make=builder_of(
            "MusicgenForConditionalGeneration",
            text_encoder="T5Config",
            audio_encoder="EncodecConfig",
            decoder="MusicgenDecoderConfig",
        ),
        small={"text_encoder": _TEXT_SMALL, "audio_encoder": _SOUND_SMALL, "decoder": _DECODER_SMALL},
        full={
            "text_encoder": _TEXT_FULL,
            "audio_encoder": _SOUND_FULL,
            "decoder": {
                "hidden_size": width,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "ffn_dim": 4 * width,
                "num_codebooks": 8,
                "audio_channels": 2,
            },
        },
        inputs={
            "input_ids": Input(_words, (1, 12), lambda length: (2, length)),
            "attention_mask": Input(ones, (1, 12), lambda length: (2, length)),
            "decoder_input_ids": Input(_start, (8, 1), lambda length: (8, 1)),
        },
        lengths=(6, 9, 13),
        count=count,
        **more,
    )


def _words(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randint(3, module.config.text_encoder.vocab_size, shape, generator=generator)


def _start(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """The mark before the first sound, for each codebook."""
    return torch.full(shape, module.config.decoder.pad_token_id)


_TEXT_SMALL: Mapping[str, Any] = {
    "d_model": 32,
    "d_ff": 64,
    "num_layers": 1,
    "d_kv": 8,
    "num_heads": 4,
    "vocab_size": 97,
    "decoder_start_token_id": 0,
}
_TEXT_FULL: Mapping[str, Any] = {
    "d_model": 768,
    "d_ff": 3072,
    "num_layers": 12,
    "d_kv": 64,
    "num_heads": 12,
    "vocab_size": 32128,
    "decoder_start_token_id": 0,
}
_SOUND_SMALL: Mapping[str, Any] = {
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
_SOUND_FULL: Mapping[str, Any] = {
    "sampling_rate": 32000,
    "upsampling_ratios": [8, 5, 4, 4],
    "target_bandwidths": [2.2],
    "codebook_size": 2048,
    "num_filters": 64,
    "norm_type": "weight_norm",
    "use_causal_conv": False,
    "normalize": False,
}
_DECODER_SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "ffn_dim": 64,
    "vocab_size": 64,
    "num_codebooks": 4,
    "pad_token_id": 64,
    "bos_token_id": 64,
    "max_position_embeddings": 64,
}

# --- SpeechT5: text to speech

_SPEECHT5 = model(
    "speecht5-tts",
    "speecht5",
    "SpeechT5ForTextToSpeech",
    small={
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
    full={"vocab_size": 81},
    inputs={
        "input_ids": Input(tokens, (1, 24), lambda length: (1, length)),
        "decoder_input_values": Input(noise, (1, 20, 80), lambda length: (1, length - 2, 10)),
        "speaker_embeddings": Input(noise, (1, 512), lambda length: (1, 12)),
    },
    lengths=(8, 14, 20),
    count=144431684,
    note="its decoder drops out in eval mode too: equal outputs need torch's seed set before each call",
)

MODELS = (
    _whisper("Whisper", 241734912, (12, 12), 768),
    _whisper("whisper-tiny", 37760640, (4, 4), 384),
    _whisper("whisper-base", 72593920, (6, 6), 512),
    _whisper("whisper-medium", 763857920, (24, 24), 1024),
    _whisper("whisper-large", 1543304960, (32, 32), 1280),
    _whisper("whisper-large-v3-turbo", 808878080, (32, 4), 1280, 128, 51866),
    _whisper("whisper-distil-large-v3", 756405760, (32, 2), 1280, 128, 51866),
    _SPEECHT5,
    _musicgen("musicgen-stereo-small", 604366146, 1024, 24, 16),
    _musicgen("musicgen-stereo-medium", 2031123266, 1536, 48, 24),
    _musicgen("musicgen-stereo-large", 3457732930, 2048, 48, 32, full_dtype="bf16"),
)
"""Those that hear, speak and play."""
