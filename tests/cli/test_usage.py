"""Every command with every option at fault: bad usage is told at once, in words and in JSON, and exits with 2."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import onnx.parser
import pytest
import typer

from assay.cli import app, main
from assay.cli.output import INTERRUPTED, OK, USAGE

ROOT = Path(__file__).parents[2]
MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Neg (x) }"""
).SerializeToString()
RECORDS = ROOT / "evidence"


class Option(NamedTuple):
    """One option of a command: its name on the line, and what it takes."""

    command: str
    name: str
    kind: Any
    least: float | None


def commands() -> dict[str, Any]:
    """Every command by its words, and the function behind it."""
    found = {info.name or info.callback.__name__: info.callback for info in app.registered_commands if info.callback}
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        for info in inner.registered_commands:
            assert info.callback
            found[f"{group.name} {info.name or info.callback.__name__}"] = info.callback
    return found


def options() -> Iterator[Option]:
    for command, function in commands().items():
        hints = get_type_hints(function, include_extras=True)
        for parameter in inspect.signature(function).parameters:
            kind = hints[parameter]
            if get_origin(kind) is not Annotated:
                continue
            bare, info = get_args(kind)[:2]
            if isinstance(info, typer.models.OptionInfo):
                words = [word for word in (info.default, *(info.param_decls or ())) if isinstance(word, str)]
                name = next((word for word in words if word.startswith("--")), f"--{parameter}")
                yield Option(command, name.split("/")[0], bare, info.min)


def taken(kind: Any) -> Any:
    """What an option takes, without None and without the list that repetition makes."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = [each for each in get_args(kind) if each is not type(None)]
    return get_args(kind)[0] if get_origin(kind) is list else kind


EVERY = list(options())
NUMBERS = [each for each in EVERY if taken(each.kind) in (int, float)]
WORDS = [each for each in EVERY if taken(each.kind) is str or get_origin(taken(each.kind)) is Literal]
FREE = {"--json", "--title", "--filter", "--stop", "--system", "--name", "--template", "--language"}
"""Options whose text may be anything."""


def line(command: str, folder: Path) -> list[str]:
    """The command with all that it needs."""
    model, records = str(folder / "m.onnx"), str(next(RECORDS.glob("*.jsonl.gz")))
    needed = {
        "run": [model, "--random", "0"],
        "inspect": [model],
        "compare": [model, "reference", "reference"],
        "generate": [model, "Once"],
        "chat": [model],
        "transcribe": [model],
        "classify": [model, "Once"],
        "embed": [model, "Once"],
        "bench": [model],
        "trace": ["operator:neg", "-o", str(folder / "traced")],
        "sweep": ["-o", str(folder / "out.jsonl"), "--models", "Mnist"],
        "report": [records, "-o", str(folder / "report")],
        "evidence merge": [records, "-o", str(folder / "merged.jsonl")],
        "evidence diff": [records, records],
        "evidence show": [records],
        "evidence validate": [records],
        "zoo show": ["Mnist"],
    }
    return [*command.split(), *needed.get(command, [])]


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(MODEL)

    def run(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Done(int(stopped.value.code or 0), printed.out, printed.err)

    return run


def bad_numbers(option: Option) -> list[str]:
    least = 0 if option.least is None else option.least
    wrong = [str(least - 1), "9" * 40, "many"]
    return [*wrong, "nan", "inf"] if taken(option.kind) is float else [*wrong, "1.5"]


def test_the_table_is_not_empty() -> None:
    assert len(commands()) >= 19
    assert len(NUMBERS) > 15
    assert len(WORDS) > 25


@pytest.mark.parametrize("option", NUMBERS, ids=lambda each: f"{each.command} {each.name}")
def test_a_number_that_makes_no_sense_is_bad_usage(call: Any, tmp_path: Path, option: Option) -> None:
    for value in bad_numbers(option):
        done = call(*line(option.command, tmp_path), option.name, value)
        assert done.code == USAGE, f"{option.name} {value}: {done}"
        assert option.name in done.err, f"{option.name} {value}: {done}"


@pytest.mark.parametrize(
    "option", [each for each in WORDS if each.name not in FREE], ids=lambda each: f"{each.command} {each.name}"
)
def test_a_word_that_does_not_exist_is_bad_usage(call: Any, tmp_path: Path, option: Option) -> None:
    done = call(*line(option.command, tmp_path), option.name, "nonsense")
    assert done.code == USAGE, done
    assert "nonsense" in done.err
    left = {each.name for each in tmp_path.iterdir()} - {"m.onnx"}
    assert left == set(), "nothing may have been written"


@pytest.mark.parametrize("command", commands())
@pytest.mark.parametrize("form", [["--json", "-"], ["--json=-"], ["--json", "result.json"]], ids=" ".join)
def test_an_option_that_does_not_exist_is_told_in_json(
    call: Any, tmp_path: Path, command: str, form: list[str]
) -> None:
    done = call(*line(command, tmp_path), "--bogus", *form)
    told = done.out if "-" in form[-1].split("=") else (tmp_path / "result.json").read_text()
    data = json.loads(told)
    assert (done.code, data["exit_code"], data["error"]["stage"]) == (USAGE, USAGE, "usage")
    assert "--bogus" in data["error"]["message"]
    assert "--bogus" in done.err


@pytest.mark.parametrize("words", ["", "nonsense", "evidence nonsense", "run"])
def test_bad_commands_are_told_in_json(call: Any, words: str) -> None:
    done = call(*words.split(), "--json", "-")
    assert done.code == USAGE
    assert json.loads(done.out)["exit_code"] == USAGE


def test_a_defect_is_told_in_json(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("assay.runtime.load.read", broken)
    done = call("run", "m.onnx", "--json", "-")
    error = json.loads(done.out)
    assert (done.code, error["exit_code"], error["error"]["stage"]) == (5, 5, "defect")
    assert "ZeroDivisionError" in done.err


# --- interruption


@pytest.mark.parametrize(
    ("command", "to_json"), [("fuzz --count 100000", True), ("conformance --peer onnxruntime", False)]
)
def test_ctrl_c_says_interrupted(tmp_path: Path, command: str, to_json: bool) -> None:
    more = ["--json", "result.json"] if to_json else []
    process = subprocess.Popen(
        [sys.executable, "-m", "assay.cli", *command.split(), *more],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until_busy(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED
    assert told.strip().splitlines()[-1] == "interrupted"
    assert "Traceback" not in told
    if to_json:
        last = (tmp_path / "result.json").read_text().strip().splitlines()[-1]
        assert json.loads(last)["exit_code"] == INTERRUPTED


def wait_until_busy(pid: int) -> None:
    """Until the process has computed for some seconds: then it is past its imports."""
    ticks = os.sysconf("SC_CLK_TCK")
    until = time.monotonic() + 120
    while time.monotonic() < until:
        used = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / ticks
        if used > 3:
            return
        time.sleep(0.1)
    raise AssertionError("the command never got busy")


# --- shell completion


def completed(words: str, shell: str = "bash") -> str:
    environment = {
        **os.environ,
        "_ASSAY_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": f"assay {words}",
        "COMP_CWORD": str(len(words.split()) + (not words or words.endswith(" "))),
    }
    code = "from assay.cli import main; main([])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return done.stdout


def test_the_shell_completes_commands_options_and_words() -> None:
    assert {"run", "report", "evidence"} <= set(completed("").split())
    assert "compare" in completed("comp").split()
    assert "--random" in completed("run m.onnx --ra").split()
    assert set(completed("run m.onnx --mode ").split()) == {"exact", "precise"}


def test_completion_can_be_shown_and_is_documented(call: Any) -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for option in ("--install-completion", "--show-completion"):
        assert option in call("--help").out
        assert f"`assay {option}`" in text
    told = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # tests have no shell around them
    command = [sys.executable, "-m", "assay.cli", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, env=told)
    assert "complete" in done.stdout
    assert call("--help").code == OK
