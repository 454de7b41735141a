"""Bundles: what is saved is what was made, with its weights in their file; other runtimes compute the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from frontends.checkpoint.recipe_models import (
    Stepper,
    TheirStepper,
    assert_near,
    assert_same_steps,
    prompt,
    randomized,
    saved,
)
from frontends.checkpoint.test_encoder_recipes import T5_SIZES
from frontends.checkpoint.test_gguf_recipes import MODELS as GGUF_MODELS
from frontends.checkpoint.test_gguf_recipes import write
from frontends.checkpoint.test_recipes import DECODERS
from frontends.checkpoint.test_recurrent_recipes import rwkv7_weights
from gguf import GGMLQuantizationType
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, T5Config

from assay.cli import main
from assay.errors import AssayError, BadArgument, ImportFailed
from assay.frontends.checkpoint import load_model, save_bundle
from assay.ir.printer import print_graph


def lines(graph: Any) -> list[str]:
    """A graph's text, but for the order in which constants are listed."""
    return sorted(print_graph(graph).splitlines())


@pytest.fixture
def llama(tmp_path: Path) -> tuple[Any, Path]:
    """A model of the library, and its folder."""
    return saved(tmp_path / "source", DECODERS["llama 3"]), tmp_path / "source"


def test_what_is_saved_is_what_was_made(llama: tuple[Any, Path], tmp_path: Path) -> None:
    model, source = llama
    (source / "tokenizer.json").write_text("{}")
    made, folder = load_model(source), tmp_path / "bundle"
    save_bundle(made, folder)
    found = load_model(folder)
    assert (found.family, found.configuration) == (made.family, made.configuration)
    assert lines(found.graphs["decoder"]) == lines(made.graphs["decoder"])
    assert found.tokenizer.files["tokenizer.json"].read_text() == "{}"
    theirs = load_file(folder / "weights.safetensors")
    assert theirs.keys() == made.checkpoint.tensors.keys()
    constants = found.graphs["decoder"].constants.values()
    stored = [tensor.array() for tensor in found.checkpoint.tensors.values()]
    assert all(any(np.shares_memory(constant, array) for constant in constants) for array in stored)
    assert_same_steps(Stepper(found.graphs["decoder"]), TheirStepper(model), prompt(2, 16))
    with pytest.raises(BadArgument, match="is not empty"):
        save_bundle(made, folder)


def test_several_graphs_and_loops(tmp_path: Path) -> None:
    """Graphs that share a table, and one with a body."""
    saved(tmp_path / "t5", T5Config(**T5_SIZES), AutoModelForSeq2SeqLM)
    torch.save({name: torch.from_numpy(weight) for name, weight in rwkv7_weights().items()}, tmp_path / "rwkv.pth")
    for name in ("t5", "rwkv.pth"):
        made = load_model(tmp_path / name, logits="last")
        save_bundle(made, tmp_path / f"{name}.bundle")
        found = load_model(tmp_path / f"{name}.bundle")
        assert found.configuration == made.configuration
        assert {name: lines(graph) for name, graph in found.graphs.items()} == {
            name: lines(graph) for name, graph in made.graphs.items()
        }


def test_blocks_stay_packed(tmp_path: Path) -> None:
    arch, config = GGUF_MODELS["llama"]
    model = randomized(AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    write(tmp_path / "model.gguf", arch, model, GGMLQuantizationType.Q8_0)
    made = load_model(tmp_path / "model.gguf")
    save_bundle(made, tmp_path / "bundle")
    found = load_model(tmp_path / "bundle")
    assert found.tokenizer.facts == {"ggml.model": "gpt2"}
    stored = load_file(tmp_path / "bundle" / "weights.safetensors")
    assert stored["model.layers.0.mlp.up_proj.weight"].shape == (64, 34)
    assert_same_steps(Stepper(found.graphs["decoder"]), TheirStepper(model), prompt(2, 16))


def test_the_command_writes_onnx_files_that_another_runtime_takes(llama: tuple[Any, Path], tmp_path: Path) -> None:
    model, source = llama
    folder = tmp_path / "bundle"
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(source), "-o", str(folder), "--onnx", "--json", str(tmp_path / "told.json")])
    assert stopped.value.code == 0
    told = json.loads((tmp_path / "told.json").read_text())
    assert {"bundle.json", "decoder.graph", "decoder.onnx", "weights.safetensors"} <= told["files"].keys()
    session = onnxruntime.InferenceSession(str(folder / "decoder.onnx"), providers=["CPUExecutionProvider"])
    states = {each.name: np.zeros((2, 2, 0, 8), np.float32) for each in session.get_inputs()[1:]}
    theirs = TheirStepper(model)
    for part in (prompt(2, 7), prompt(2, 1)):
        logits, *renewed = session.run(None, {"tokens": part, **states})
        assert [each.name for each in session.get_outputs()][1:] == [f"{name}.next" for name in states]
        states = dict(zip(states, renewed, strict=True))
        assert_near(np.asarray(logits), theirs(part))


def test_damaged_bundles_are_refused_or_are_as_before(llama: tuple[Any, Path], tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    save_bundle(load_model(llama[1]), folder)
    rng, refused = random.Random(0), 0
    for _ in range(150):
        name = rng.choice(["bundle.json", "decoder.graph", "weights.safetensors"])
        whole = (folder / name).read_bytes()
        at = rng.randrange(min(len(whole), 3000))
        broken = whole[:at] + bytes([rng.randrange(256)]) + whole[at + rng.choice([0, 1, 40]) :]
        (folder / name).unlink()
        (folder / name).write_bytes(broken)
        try:
            load_model(folder)
        except AssayError:
            refused += 1
        (folder / name).unlink()
        (folder / name).write_bytes(whole)
    assert refused > 75
    load_model(folder)


def test_bundles_do_not_reach_outside(llama: tuple[Any, Path], tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    save_bundle(load_model(llama[1]), folder)
    table = json.loads((folder / "bundle.json").read_text())
    for key in ("graphs", "tokenizer"):
        (folder / "bundle.json").write_text(json.dumps({**table, key: ["../source/config.json"]}))
        with pytest.raises(ImportFailed, match=f"'{key}' is no list of names"):
            load_model(folder)
