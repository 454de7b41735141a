"""Hugging Face's `generate` on compiled models gives the same tokens as in eager."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from assay.zoo.torch import MODELS
from assay.zoo.torch.transformers import library
from models.torch.common import clean_compiler as clean_compiler
from models.torch.common import watched

TEXT = ["gpt2", "GPTNeo", "OPT", "codegen", "Bloom", "Falcon", "Llama", "t5-small", "FLAN-T5"]
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False, "repetition_penalty": 2.0},
    "sampling": {"do_sample": True, "temperature": 1.0},
    "beams": {"do_sample": False, "num_beams": 3},
}
"""The penalty keeps random weights from giving one token over and over."""
NO_BEAMS = {"musicgen-stereo-small"}
"""MusicGen's own `generate` knows neither beams nor static caches."""
STEPS = 6


class Writer:
    """A model with its prompts."""

    def __init__(self, name: str) -> None:
        library().utils.logging.set_verbosity_error()
        self.model = MODELS[name]
        self.module = self.model.build()
        self.prompted = name == "Whisper"

    def write(self, length: int, steps: int = STEPS, **options: Any) -> torch.Tensor:
        """The tokens (or for music, the sound made of them) after a prompt of `length`, under a fixed seed."""
        inputs: dict[str, Any] = dict(self.model.example(self.module, length))
        if not self.prompted:
            inputs.pop("decoder_input_ids", None)
        torch.manual_seed(11)
        return self.module.generate(**inputs, max_new_tokens=steps, min_new_tokens=steps, **options)

    @contextmanager
    def compiled(self, backend: str) -> Generator[None]:
        """Inside, `generate` calls the compiled forward."""
        self.module.forward = torch.compile(self.module.forward, backend=backend, dynamic=True)
        try:
            yield
        finally:
            del self.module.forward


@pytest.mark.parametrize("name", [*TEXT, "musicgen-stereo-small"])
def test_dynamic_caches(name: str) -> None:
    writer = Writer(name)
    modes = [mode for mode in MODES if mode != "beams" or name not in NO_BEAMS]
    runs = [(length, MODES[mode]) for mode in modes for length in writer.model.lengths[:2]]
    expected = [writer.write(length, **options) for length, options in runs]
    with watched() as work, writer.compiled("assay"):
        found = [writer.write(length, **options) for length, options in runs]
    assert all(map(torch.equal, found, expected))
    assert len(work.graphs) >= 2  # the prompt, and one more token
    assert work.nodes_run > 0
    assert work.opaque() == set()


@pytest.mark.parametrize("name", [*TEXT, "Whisper"])
def test_static_caches(name: str) -> None:
    """The library itself compiles the step of one token; no graph is made for the second prompt.

    The longest prompt comes first: the library keeps the largest cache so far, and GPT-Neo's tokens depend on its size.
    """
    writer = Writer(name)
    config = library().CompileConfig(backend="assay", dynamic=True)
    config._compile_all_devices = True
    options = {**MODES["greedy"], "cache_implementation": "static"}
    lengths = sorted(writer.model.lengths[:2], reverse=True)
    expected = [writer.write(length, **options) for length in lengths]
    with watched() as work:
        found = [writer.write(length, **options, compile_config=config) for length in lengths]
    assert all(map(torch.equal, found, expected))
    assert len(work.graphs) == 1
    assert work.nodes_run > 0
    assert work.opaque() == set()


def test_sixty_steps_of_whisper_in_no_more_graphs_than_aot_eager() -> None:
    writer = Writer("Whisper")
    runs = [*((length, MODES["greedy"]) for length in (3, 5, 8, 11, 16)), (8, MODES["sampling"]), (8, MODES["beams"])]
    expected = [writer.write(length, 60, **options) for length, options in runs]
    assert all(tokens.shape == (2, 60) for tokens in expected)
    assert all(len(tokens.unique()) > 20 for tokens in expected[:-1])
    graphs: dict[str, int] = {}
    for backend in ("aot_eager", "assay"):
        torch._dynamo.reset()
        counters.clear()
        with watched() as work, writer.compiled(backend):
            found = [writer.write(length, 60, **options) for length, options in runs]
        assert all(map(torch.equal, found, expected))
        assert (work.nodes_run > 0) == (backend == "assay")
        graphs[backend] = counters["stats"]["unique_graphs"]
    assert 0 < graphs["assay"] <= graphs["aot_eager"]
    assert len(work.graphs) == graphs["assay"]


def test_speech_frame_by_frame() -> None:
    """`generate_speech` calls the model's parts, so these are compiled; its frames are numbers, not tokens."""
    model = MODELS["speecht5-tts"]
    module = model.build()
    inputs = [model.example(module, length) for length in model.lengths[:2]]

    def spoken() -> list[torch.Tensor]:
        torch.manual_seed(11)  # the prenet drops out in eval mode too
        return [module.generate_speech(i["input_ids"], i["speaker_embeddings"], maxlenratio=1.5) for i in inputs]

    parts = [module.speecht5.encoder, module.speecht5.decoder.prenet, module.speecht5.decoder.wrapped_decoder]
    with torch.no_grad():
        expected = spoken()
    for part in parts:
        part.compile(backend="assay", dynamic=True)
    with watched() as work:
        found = spoken()
    torch.testing.assert_close(found, expected)
    assert len(work.graphs) >= len(parts)
    assert work.nodes_run > 0
