"""Configurations that are damaged or lie, and tensors that do not fit them, are errors that say what is wrong."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.checkpoint.recipe_models import SMALL, VOCABULARY, randomized, saved
from frontends.checkpoint.test_encoder_recipes import IMAGES, LAYERS, T5_SIZES
from frontends.checkpoint.test_gguf_recipes import MODELS as GGUF_MODELS
from frontends.checkpoint.test_gguf_recipes import write as write_gguf
from frontends.checkpoint.test_recipes import DECODERS
from gguf import GGMLQuantizationType
from safetensors.numpy import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, BertConfig, CLIPConfig, T5Config

from assay.errors import AssayError, ImportFailed
from assay.evidence.mutate.file_kinds import FILE_KINDS
from assay.frontends.checkpoint import load_model

MODELS: dict[str, Callable[[Path], Any]] = {
    **{name: (lambda folder, name=name: saved(folder, DECODERS[name])) for name in ("llama", "gpt2", "gemma3", "neox")},
    "phi3": lambda folder: saved(folder, DECODERS["phi3 of long texts"]),
    "qwen2": lambda folder: saved(folder, DECODERS["qwen2 with windows"]),
    "bert": lambda folder: saved(folder, BertConfig(**SMALL), AutoModel),
    "t5": lambda folder: saved(folder, T5Config(**T5_SIZES), AutoModelForSeq2SeqLM),
    "clip": lambda folder: saved(
        folder,
        CLIPConfig(
            text_config={**LAYERS, "vocab_size": VOCABULARY, "eos_token_id": 90}, vision_config={**LAYERS, **IMAGES}
        ),
        AutoModel,
    ),
}
ODD: list[Any] = [
    None,
    True,
    "",
    "x" * 5000,
    -1,
    0,
    1,
    3,
    2**28,
    2**63,
    10**30,
    0.5,
    -1e308,
    float("nan"),
    float("inf"),
    [],
    [1, "a", None],
    {},
    {"rope_type": "yarn", "factor": -1},
]


def paths(config: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in nested tables and lists."""
    inside = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    return [at, *(place for key, value in inside for place in paths(value, (*at, key)))]


def mutated(config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The configuration with a value changed or taken out, or two of them."""
    found = json.loads(json.dumps(config))
    for _ in range(rng.choice([1, 1, 2])):
        place = rng.choice(paths(found)[1:])
        holder: Any = found
        for key in place[:-1]:
            holder = holder[key]
        if rng.random() < 0.15:
            del holder[place[-1]]
        else:
            holder[place[-1]] = rng.choice(ODD)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_mutated_configurations_load_or_are_refused(name: str, tmp_path: Path) -> None:
    MODELS[name](tmp_path)
    file = tmp_path / "config.json"
    config, rng = json.loads(file.read_text()), random.Random(name)
    refused = 0
    for _ in range(150):
        file.write_text(json.dumps(mutated(config, rng)))
        start, error = time.process_time(), refusal(tmp_path)
        assert error is None or str(tmp_path) in error
        assert time.process_time() - start < 5
        refused += error is not None
    assert 30 < refused < 150


def refusal(folder: Path) -> str | None:
    """Why a model cannot be loaded."""
    try:
        load_model(folder)
    except AssayError as error:
        return str(error)
    return None


FIELDS: dict[str, tuple[Any, str]] = {
    "hidden_size": (33, r"tensor 'model.embed_tokens.weight'"),
    "num_hidden_layers": (4, r"tensor 'model.layers.3."),
    "vocab_size": ("many", r"'vocab_size' should be an integer from 1 to \d+, and is 'many'"),
    "num_key_value_heads": (3, r"'num_attention_heads' is 4, which is no multiple of 'num_key_value_heads', 3"),
    "intermediate_size": (None, r"'intermediate_size' is missing"),
    "hidden_act": ("snake", r"'hidden_act' should be one of .*silu.*, and is 'snake'"),
    "rms_norm_eps": (0, r"'rms_norm_eps' should be a number above zero, and is 0"),
    "rope_parameters": ({"rope_type": "spiral"}, r"'rope_type' should be one of default, .*, and is 'spiral'"),
    "model_type": ("lama", r"the architecture 'lama' is not known"),
    "tie_word_embeddings": ("yes", r"'tie_word_embeddings' should be true or false, and is 'yes'"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_errors_name_the_field_and_what_it_should_be(name: str, tmp_path: Path) -> None:
    saved(tmp_path, DECODERS["llama"])
    file = tmp_path / "config.json"
    value, message = FIELDS[name]
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(ImportFailed, match=message) as caught:
        load_model(tmp_path)
    assert str(tmp_path) in str(caught.value)


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tensors = dict(load_file(folder / "model.safetensors"))
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


NAME = "model.layers.1.mlp.up_proj.weight"
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing": (lambda tensors: tensors.pop(NAME), "the file has no such tensor"),
    "unexpected": (lambda tensors: tensors.update({"model.extra": np.zeros(3)}), "the recipe has no use for it"),
    "turned": (
        lambda tensors: tensors.update({NAME: np.ascontiguousarray(tensors[NAME].T)}),
        r"it has the sizes \[32, 48\], and the configuration asks for \[48, 32\]",
    ),
    "integers": (lambda tensors: tensors.update({NAME: tensors[NAME].astype(np.int32)}), "it holds i32"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_errors_name_the_tensor(name: str, tmp_path: Path) -> None:
    saved(tmp_path, DECODERS["llama"])
    change, message = CHANGES[name]
    change_tensors(tmp_path, change)
    with pytest.raises(ImportFailed, match=message) as caught:
        load_model(tmp_path)
    tensor = "model.extra" if name == "unexpected" else NAME
    assert f"{tmp_path}: tensor '{tensor}'" in str(caught.value)


def test_files_without_a_model(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "some.pt")
    with pytest.raises(ImportFailed, match="the tensors of no model that is known"):
        load_model(tmp_path / "some.pt")
    save_file({"weight": np.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ImportFailed, match=r"give the folder with config\.json"):
        load_model(tmp_path / "model.safetensors")
    with pytest.raises(ImportFailed, match=r"'config\.model_type' is missing"):
        load_model(tmp_path)


def test_damaged_gguf_files_of_every_family(tmp_path: Path) -> None:
    """Each is read, or refused by an error that says where and what to do."""
    path, names = tmp_path / "model.gguf", [name for name in GGUF_MODELS if "layers" not in name]
    files: list[bytes] = []
    for name in names:
        arch, config = GGUF_MODELS[name]
        model = AutoModelForCausalLM.from_config(deepcopy(config))
        write_gguf(path, arch, randomized(model), GGMLQuantizationType.F32)
        files.append(path.read_bytes())
    reasons: list[str | None] = []
    for index in range(60 * len(files)):
        path.write_bytes(FILE_KINDS["gguf"].mutant(files, index, 17)[1])
        reasons.append(refusal(path))
    assert None in reasons
    assert len(set(reasons)) > len(files)
