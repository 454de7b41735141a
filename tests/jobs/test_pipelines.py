"""Pipelines and commands on folders that transformers wrote: the same tokens, streams, speed, errors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from jobs.small_models import TINY_LLAMA, save_writer  # noqa: E402

import assay  # noqa: E402
from assay.errors import BadArgument, FileMissing  # noqa: E402
from assay.jobs.generate import Sampling  # noqa: E402
from assay.jobs.job import read_job  # noqa: E402
from assay.jobs.pipelines import Beams, TextWriter  # noqa: E402

PROMPT = "The quick brown fox"
CONFIGURATIONS = {
    "llama": lambda size: transformers.LlamaConfig(vocab_size=size, **TINY_LLAMA),
    "rwkv": lambda size: transformers.RwkvConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, bos_token_id=1, eos_token_id=0
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, configuration in CONFIGURATIONS.items():
        path = found[name] = tmp_path_factory.mktemp(name)
        save_writer(path, configuration)
    return found


def expected(folder: Path, tokens: list[int], count: int) -> list[int]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    found = model.generate(
        torch.tensor([tokens]), max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=0
    )
    return found[0, len(tokens) :].tolist()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_pipeline_writes_what_transformers_writes(folders: dict[str, Path], name: str) -> None:
    writer = assay.pipeline("generate", folders[name], target="cpu")
    assert isinstance(writer, TextWriter)
    pieces: list[str] = []
    found = writer(PROMPT, Sampling(most=40), pieces=pieces.append)
    tokens = writer.tokenizer.encode(PROMPT)
    assert list(found.tokens) == expected(folders[name], tokens, 40)
    assert found.text == "".join(pieces)
    assert found.prompt_tokens == len(tokens)
    assert 0 < found.first_seconds < found.seconds
    again = writer(PROMPT + found.text, Sampling(most=5))
    fresh = assay.pipeline("generate", folders[name], target="cpu")(PROMPT + found.text, Sampling(most=5))
    assert again.tokens == fresh.tokens, "states of earlier texts lead to the same tokens"


def test_a_search_finds_what_transformers_finds(folders: dict[str, Path]) -> None:
    writer = assay.pipeline("generate", folders["llama"], target="cpu")
    found = writer.search(PROMPT, Beams(4, length_penalty=0.5), Sampling(most=24, repetition_penalty=1.3))
    tokens = torch.tensor([writer.tokenizer.encode(PROMPT)])
    model = transformers.AutoModelForCausalLM.from_pretrained(folders["llama"]).eval()
    settings = {"num_beams": 4, "length_penalty": 0.5, "repetition_penalty": 1.3, "do_sample": False}
    theirs = model.generate(tokens, max_new_tokens=24, pad_token_id=0, eos_token_id=0, **settings)
    made, padding = np.split(theirs[0, tokens.shape[1] :].numpy(), [len(found.tokens)])
    assert list(found.tokens) == made.tolist()
    assert not padding.any()
    assert found.tokens != writer(PROMPT, Sampling(most=24, repetition_penalty=1.3)).tokens
    assert found.text == writer.tokenizer.decode(found.tokens)
    assert found.prompt_tokens == tokens.shape[1]
    with pytest.raises(BadArgument, match="draws nothing"):
        writer.search(PROMPT, Beams(4), Sampling(temperature=1.0))


def test_generate_searches_and_compares(folders: dict[str, Path], call: Any, tmp_path: Path) -> None:
    words = ("generate", folders["llama"], PROMPT, "--max-tokens", 30, "--beams", 4, "--repetition-penalty", 1.3)
    saved = tmp_path / "search.job"
    for peer in ("hf", "reference"):
        code, out, _ = call(*words, "--compare-with", peer, "--save-job", saved, "--json", "-")
        told = json.loads(out)
        assert (code, told["compared"]["same"]) == (0, True)
        assert told["job"] == read_job(saved).digest
    code, out, told = call(*words, "--stop", "x")
    assert code == 2
    assert "leave --stop out" in told


def test_a_conversation_goes_on(folders: dict[str, Path]) -> None:
    writer = assay.pipeline("generate", folders["llama"], target="cpu")
    messages = [{"role": "user", "content": "hi"}]
    first = writer.chat(messages, Sampling(most=8))
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "and?"}]
    second = writer.chat(messages, Sampling(most=8))
    assert writer.tokenizer.template is not None
    text = writer.tokenizer.template.render(messages)
    assert list(second.tokens) == expected(folders["llama"], writer.tokenizer.encode(text, special=False), 8)


def test_what_cannot_be_opened_is_said(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="no task 'generat'"):
        assay.pipeline("generat", folders["llama"])
    with pytest.raises(FileMissing):
        assay.pipeline("generate", tmp_path / "nothing")
    for path in folders["llama"].iterdir():
        if path.name != "tokenizer.json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(FileMissing, match="tokenizer"):
        assay.pipeline("generate", tmp_path)


# --- commands


def test_generate_writes_and_compares(folders: dict[str, Path], call: Any, tmp_path: Path) -> None:
    folder, result = folders["llama"], tmp_path / "result.json"
    options = ["-n", 20, "--target", "cpu", "--save-job", tmp_path / "a.job", "--json", result]
    code, out, err = call("generate", folder, PROMPT, *options, "--compare-with", "hf")
    data = json.loads(result.read_text())
    assert code == 0, err
    assert out.startswith(PROMPT)
    assert "tokens/s" in out
    assert data["compared"]["same"]
    assert data["tokens"] == expected(folder, assay.pipeline("generate", folder).tokenizer.encode(PROMPT), 20)
    assert read_job(tmp_path / "a.job").digest == data["job"]
    code, out, err = call("generate", folder, PROMPT, *options, "--temperature", 1, "--compare-with", "reference")
    assert code == 0, err
    assert "reference: the same 20 tokens" in out
    assert json.loads(result.read_text())["tokens"] != data["tokens"]


def test_what_transformers_cannot_read_is_said(folders: dict[str, Path], call: Any, monkeypatch: Any) -> None:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise ValueError("it is required to have another package")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", refuse)
    code, _, err = call("generate", folders["llama"], PROMPT, "-n", 2, "--compare-with", "hf")
    assert code == 2
    assert "transformers does not read this model: it is required" in err


def test_generate_reads_a_prompt_and_leaves_out_what_terminals_obey(
    folders: dict[str, Path], call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\x1b[31mThe quick"))
    code, out, _ = call("generate", folders["llama"], "-", "-n", 3)
    assert code == 0
    assert out.startswith("[31mThe quick")
    assert "\x1b" not in out


def test_chat_answers_line_by_line(folders: dict[str, Path], call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\nand?\n"))
    code, out, err = call("chat", folders["llama"], "-n", 8, "--system", "Be brief.", "--json", "-")
    assert code == 0, err
    first, second = json.loads(out)["answers"]
    assert (first["prompt"], second["prompt"]) == ("hi", "and?")
    assert second["prompt_tokens"] > first["prompt_tokens"] + 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--temperature", "0.5", "--compare-with", "hf"], "draws other tokens"),
        (["--compare-with", "nonsense"], "nonsense"),
        (["--target", "nonsense"], "nonsense"),
        (["--top-p", "1.5"], "--top-p"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(call: Any, options: list[str], says: str) -> None:
    code, _, err = call("generate", "no-such-folder", "x", *options)
    assert code == 2
    assert says in err
