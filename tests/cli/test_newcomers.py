"""What a stranger types first: looking into a model, and mistakes. Every error says what was wrong and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from assay.cli import main
from assay.cli.output import FAILED, OK, REFUSED, USAGE

SPOTTER = """<ir_version: 8, opset_import: ["": 17]>
spotter (float[batch, time] x) => (float[batch, time] y, int64[2, found] spots) {
    [double] doubled = Add (x, x)
    [act] y = Relu (doubled)
    [where] spots = NonZero (y)
}"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model in the current folder."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(SPOTTER), "spotter.onnx")
    return "spotter.onnx"


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Any:
    """The command line: (exit code, stdout, stderr)."""

    def called(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(each) for each in arguments])
        out, err = capfd.readouterr()
        return int(end.value.code or 0), out, err

    return called


def test_run_explains_observes_and_profiles(call: Any, model: str) -> None:
    line = ("run", model, "--random", 0, "--dim", "time=9", "--target", "cpu")
    looking = ("--explain", "--profile", "--observe", "doubled", "-o", "saved")
    code, out, _ = call(*line, *looking, "--json", "found.json")
    assert code == OK
    assert "there is no kernel" in out
    assert "3 nodes in 2 segments: 2 on cpu, 1 on reference" in out
    assert "The slowest of 2 calls" in out
    found = json.loads(Path("found.json").read_text())
    assert [each["name"] for each in found["observed"]] == ["doubled"]
    assert Path(found["observed"][0]["saved"]).exists()
    assert [(each["name"], each["target"]) for each in found["nodes"]] == [
        ("double", "cpu"),
        ("act", "cpu"),
        ("where", "reference"),
    ]
    assert [(each["names"], each["target"]) for each in found["profile"]] == [
        (["double", "act"], "cpu"),
        (["where"], "reference"),
    ]
    plain = json.loads(call(*line, "--json", "-")[1])
    assert plain["observed"] == []
    assert plain["nodes"] is plain["profile"] is None


def test_an_engine_may_be_a_target_without_a_pass(call: Any, model: str) -> None:
    assert call("compare", model, "cpu:-fusion:-fold", "cpu", "--random", 0)[0] == OK
    code, _, err = call("compare", model, "cpu:-fussion", "cpu", "--random", 0)
    assert code == USAGE
    assert "there is no pass 'fussion'" in err
    assert "did you mean 'fusion'?" in err
    code, _, err = call("compare", model, "cpu:fusion", "cpu", "--random", 0)
    assert code == USAGE
    assert "-fusion switches a pass off" in err


def test_a_pass_that_is_switched_off_does_not_run(model: str) -> None:
    from assay.evidence.engines import engine

    options = engine("cpu:-fusion:unoptimized:-cse").options
    assert options is not None
    assert (options.disabled_passes, options.optimize) == (("fusion", "cse"), False)


MISTAKES: dict[str, tuple[str, int, str, str]] = {
    "no inputs": ("run spotter.onnx", USAGE, "feed: the input 'x' is missing", "--input x=FILE, or --random 0"),
    "no inputs to compare": ("compare spotter.onnx cpu reference", USAGE, "feed: the input 'x'", "or --random 0"),
    "a folder": ("run folder", USAGE, "lookup: 'folder' is a folder and no model file", "folder/inside.onnx"),
    "an empty folder": ("inspect bare", USAGE, "'bare' is a folder", "give the file: MODEL.onnx"),
    "a missing file": ("run none.onnx", USAGE, "lookup: there is no model file 'none.onnx'", "check the path"),
    "a text": ("run text.onnx", REFUSED, "import: this is no ONNX model", "it is damaged or of another kind"),
    "a page": ("run page.onnx", REFUSED, "import: this is no ONNX model", "it is a page of HTML or XML"),
    "a pointer": ("run pointer.onnx", REFUSED, "import: this is no ONNX model", "git lfs pull"),
    "an archive": ("run archive.onnx", REFUSED, "import: this is no ONNX model", "it is a zip archive"),
    "a part": (
        "run part.onnx",
        REFUSED,
        "import: this is no ONNX model",
        "cut off or damaged: compare its size, 60 b",
    ),
    "no target": ("run spotter.onnx --target nosuch", USAGE, "lookup: there is no target 'nosuch'", "reference, cpu"),
    "no dim": ("run spotter.onnx --random 0 --dim tim=3", USAGE, "lookup: the model has no symbolic dim", "'time'"),
    "no value": ("run spotter.onnx --random 0 --observe dubled", USAGE, "no value called 'dubled'", "'doubled'"),
    "no memory": (
        "run spotter.onnx --random 0 --dim time=9999 --memory-limit 9",
        FAILED,
        "run: the run needs",
        "feed smaller inputs",
    ),
    "no model to time": ("bench nosuch", USAGE, "lookup: there is no model 'nosuch'", "assay bench --list"),
    "no records": ("report none.jsonl -o pages", USAGE, "lookup: there is no file of records", "assay sweep"),
    "no such records": ("evidence show text.onnx", USAGE, "feed: there are no records", "a file of `assay sweep`?"),
    "no folder": (
        "run spotter.onnx --random 0 -o text.onnx",
        USAGE,
        "cannot be saved in 'text",
        "another folder",
    ),
}


@pytest.mark.parametrize(("line", "code", "message", "hint"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_stage_and_what_to_do(
    call: Any, model: str, line: str, code: int, message: str, hint: str
) -> None:
    for folder in ("folder", "bare"):
        Path(folder).mkdir()
    Path("folder/inside.onnx").touch()
    whole = Path(model).read_bytes()
    files = {
        "text": b"hello world\n",
        "page": b"<!doctype html><p>not found",
        "pointer": b"version https://git-lfs.github.com/spec/v1\n",
        "archive": b"PK\x03\x04 and more",
        "part": whole[:60],
    }
    for name, content in files.items():
        Path(f"{name}.onnx").write_bytes(content)
    found, _, err = call(*line.split())
    assert found == code
    told, _, hinted = err.partition("  hint: ")
    assert message in told
    assert hint in hinted
    assert "Traceback" not in err
