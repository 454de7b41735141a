"""Encoders, and encoders with decoders, compute what Hugging Face's library computes with the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.checkpoint.recipe_models import (
    SMALL,
    VOCABULARY,
    Stepper,
    TheirStepper,
    assert_near,
    assert_same_steps,
    greedy,
    prompt,
    saved,
)
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    BertConfig,
    CLIPConfig,
    RobertaConfig,
    T5Config,
    ViTConfig,
    WhisperConfig,
)
from transformers import AutoModelForImageClassification as ForImages

from assay.frontends.checkpoint import load_model
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.ir.verify import verify
from assay.ops.levels import core_level
from assay.runtime.session import Session, SessionOptions

CLASSES: dict[str, Any] = {"num_labels": 3}
IMAGES: dict[str, Any] = {"image_size": 12, "patch_size": 4, "num_channels": 3}
LAYERS: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def run(graph: Graph, **feeds: Array) -> dict[str, Array]:
    """The graph on the native target."""
    verify(graph, core_level)
    session = Session(graph, SessionOptions(target="cpu"))
    assert {node.target for node in session.explain().nodes} == {"cpu"}
    return session.run(feeds)


def random_image(rows: int = 2) -> Array:
    return np.random.default_rng(2).standard_normal((rows, 3, 12, 12)).astype(np.float32)


# --- text


TEXTS: dict[str, tuple[Any, Any]] = {
    "bert": (BertConfig(**SMALL), AutoModel),
    "bert with classes": (BertConfig(**SMALL, **CLASSES, hidden_act="gelu_new"), AutoModelForSequenceClassification),
    "roberta": (RobertaConfig(**{**SMALL, "pad_token_id": 1}, type_vocab_size=1), AutoModel),
}


@pytest.mark.parametrize("name", TEXTS)
def test_encoders_of_text(name: str, tmp_path: Path) -> None:
    """Two texts, the second one shorter."""
    config, kind = TEXTS[name]
    model = saved(tmp_path, config, kind)
    found = load_model(tmp_path)
    assert found.family == "bert"
    tokens, mask = prompt(2, 9), np.ones((2, 9), np.int64)
    mask[1, 6:] = 0
    tokens[1, 6:] = config.pad_token_id
    segments = np.zeros_like(tokens) if config.type_vocab_size == 1 else np.tile([0, 0, 0, 0, 1, 1, 1, 1, 1], (2, 1))
    with torch.no_grad():
        given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": segments}
        expected = model(**{key: torch.from_numpy(value) for key, value in given.items()}, output_hidden_states=True)
    ours = run(found.graphs["encoder"], tokens=tokens, mask=mask, segments=segments)
    hidden = expected.hidden_states[-1].numpy()
    assert_near(ours["hidden"][mask == 1], hidden[mask == 1])
    if kind is AutoModel:
        assert_near(ours["pooled"], expected.pooler_output.numpy())
    else:
        assert_near(ours["logits"], expected.logits.numpy())


# --- images


@pytest.mark.parametrize("kind", [AutoModel, ForImages])
def test_vit(kind: Any, tmp_path: Path) -> None:
    model = saved(tmp_path, ViTConfig(**LAYERS, **IMAGES, **CLASSES), kind)
    found = load_model(tmp_path)
    image = random_image()
    ours = run(found.graphs["encoder"], image=image)
    with torch.no_grad():
        expected = model(torch.from_numpy(image), output_hidden_states=True)
    if kind is ForImages:
        assert_near(ours["logits"], expected.logits.numpy())
    else:
        assert_near(ours["hidden"], expected.last_hidden_state.numpy())
        assert_near(ours["pooled"], expected.pooler_output.numpy())


@pytest.mark.parametrize("end", [2, 90])
def test_clip(end: int, tmp_path: Path) -> None:
    """With the end token of the first configurations, which stands for the token of the highest number, and another."""
    text = {**LAYERS, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "eos_token_id": end, "bos_token_id": 0}
    config = CLIPConfig(text_config=text, vision_config={**LAYERS, **IMAGES, "hidden_act": "gelu"}, projection_dim=24)
    model = saved(tmp_path, config, AutoModel)
    found = load_model(tmp_path)
    tokens = np.minimum(prompt(2, 9), 80)
    tokens[0, 4:], tokens[1, 8:] = 90, 90
    image = random_image()
    with torch.no_grad():
        expected = model(input_ids=torch.from_numpy(tokens), pixel_values=torch.from_numpy(image))
    for name, feeds, theirs in [
        ("text", {"tokens": tokens}, expected.text_embeds),
        ("image", {"image": image}, expected.image_embeds),
    ]:
        embedding = run(found.graphs[name], **feeds)["embedding"]
        assert_near(embedding / np.linalg.norm(embedding, axis=-1, keepdims=True), theirs.numpy())


# --- encoders with decoders


def test_whisper(tmp_path: Path) -> None:
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=40,
        max_source_positions=20,
        max_target_positions=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = saved(tmp_path, config, AutoModelForSpeechSeq2Seq)
    found = load_model(tmp_path)
    features = np.random.default_rng(3).standard_normal((2, 8, 40)).astype(np.float32)
    heard = run(found.graphs["encoder"], features=features)
    with torch.no_grad():
        theirs = model.model.encoder(torch.from_numpy(features))
    step = Stepper(found.graphs["decoder"], "cpu", **heard)
    assert_same_steps(step, TheirStepper(model, encoder_outputs=theirs), prompt(2, 16))
    step.start(2)
    assert greedy(step, prompt(2, 3), 200) == greedy(TheirStepper(model, encoder_outputs=theirs), prompt(2, 3), 200)


T5_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "decoder_start_token_id": 0,
}


@pytest.mark.parametrize("options", [{}, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}])
def test_t5(options: dict[str, Any], tmp_path: Path) -> None:
    """A source of two texts, the second one shorter, and a target that is longer than distances are told apart."""
    model = saved(tmp_path, T5Config(**T5_SIZES, **options), AutoModelForSeq2SeqLM)
    found = load_model(tmp_path)
    tokens, mask = prompt(2, 30), np.ones((2, 30), np.int64)
    mask[1, 11:] = 0
    read = run(found.graphs["encoder"], tokens=tokens, mask=mask)
    given = torch.from_numpy(mask)
    with torch.no_grad():
        theirs = model.encoder(torch.from_numpy(tokens), attention_mask=given)
    step = Stepper(found.graphs["decoder"], "cpu", **read)
    expected = TheirStepper(model, encoder_outputs=theirs, attention_mask=given)
    assert_same_steps(step, expected, prompt(2, 16))
    step.start(2)
    expected.past = None
    assert greedy(step, prompt(2, 2), 200) == greedy(expected, prompt(2, 2), 200)
