"""Every command: what it prints, its JSON, its exit codes, and how it tells of errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from assay.cli import main
from assay.cli.output import DEFECT, DIFFERS, EXIT_CODES, FAILED, OK, REFUSED, USAGE

ROOT = Path(__file__).parents[2]
COMMANDS = (
    *(
        "run",
        "inspect",
        "compare",
        "generate",
        "chat",
        "transcribe",
        "classify",
        "embed",
        "bench",
        "conformance",
        "opinfo",
        "fuzz",
        "mutate",
    ),
    *("demo", "targets", "trace", "sweep", "report", "zoo list", "zoo show", "import"),
    *(f"evidence {verb}" for verb in ("merge", "diff", "show", "validate")),
)

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x, int64[n] picks) => (float[batch, n] y, int64 count) {
  taken = Gather <axis = 1> (x, picks)
  y = Softmax <axis = 1> (taken)
  count = Size (y)
}"""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON document that is all of stdout."""
        return json.loads(self.out)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Done(int(stopped.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    return path


def saved(path: Path, array: Any) -> Path:
    np.save(path, array)
    return path


X, PICKS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([2, 0])


# --- the whole


def test_help_names_every_command_and_exit_code(call: Any) -> None:
    shown = call("--help")
    words = " ".join(shown.out.split())
    assert shown.code == OK
    assert all(command.split()[0] in words for command in COMMANDS)
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in words


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(call: Any, command: str) -> None:
    shown = call(*command.split(), "--help")
    assert shown.code == OK
    assert "--json" in shown.out


def test_the_documentation_is_complete(call: Any) -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert all(f"`assay {command.split()[0]}" in text for command in COMMANDS)
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in text
    for command in COMMANDS:
        section = text[text.index(f"## `assay {command.split()[0]}") :].split("\n## ")[0]
        options = set(re.findall(r"--[a-z]+", call(*command.split(), "--help").out)) - {"--help", "--json"}
        assert {option for option in options if f"`{option}" not in section} == set(), command


def test_no_arguments_show_the_help(call: Any) -> None:
    assert "Usage" in "".join(call()[1:])


def test_the_version(call: Any) -> None:
    assert call("--version").out.strip() == "0.1.0"


@pytest.mark.parametrize("line", ["nonsense", "run", "run m.onnx --nonsense", "inspect m --level x", "fuzz --count 0"])
def test_bad_usage(call: Any, line: str) -> None:
    assert call(*line.split()).code == USAGE


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "assay.cli", "targets", "--json", "-"], capture_output=True, text=True)
    assert done.returncode == OK
    assert json.loads(done.stdout)["targets"]["reference"]["present"] is True
    assert done.stderr == ""


def test_the_command_line_starts_without_onnx_and_numpy_heavies() -> None:
    code = "import sys, assay.cli; print([m for m in ('onnx', 'onnxruntime', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- run


def test_run_shows_and_saves_the_outputs(call: Any, model: Path, tmp_path: Path) -> None:
    x, picks = saved(tmp_path / "x.npy", X), saved(tmp_path / "p.npy", PICKS)
    done = call("run", model, "--input", x, "--input", picks, "--output", "out")
    assert done.code == OK
    assert re.search(r"y +f32 +\[2, 2\] +0\.119203 +0\.5 +0\.880797", done.out)
    expected = np.exp(X[:, [2, 0]]) / np.exp(X[:, [2, 0]]).sum(1, keepdims=True)
    np.testing.assert_allclose(np.load("out/y.npy"), expected, rtol=1e-6)
    assert np.load("out/count.npy") == 4


CONVOLVED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 1, samples] x) => (float[batch, 1, m] y) <float[1, 1, 7] w = {1, 2, 3, 4, 5, 6, 7}>
{ first = Conv <strides = [3]> (x, w)  y = Conv <strides = [2]> (first, w) }"""
PICKED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, length] x) => (float[batch, 1] y) <int64[1] third = {3}> { y = Gather <axis = 1> (x, third) }"""


@pytest.mark.parametrize(
    ("text", "given", "code", "words"),
    [
        (CONVOLVED, "", USAGE, "the size of the symbolic dim 'samples' is missing: with 1 a tensor would have"),
        (CONVOLVED, "--dim samples=9", USAGE, "samples=9 is too small: with it a tensor would have"),
        (PICKED, "", FAILED, "batch, length had no size and are 1"),
        (PICKED, "--dim batch=2", FAILED, "length had no size and is 1"),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_size_that_is_missing_is_named_and_the_flag_in_the_hint_works(
    call: Any, tmp_path: Path, text: str, given: str, code: int, words: str, target: str
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    line = ["run", path, "--random", 0, "--target", target]
    done = call(*line, *given.split())
    assert done.code == code
    assert words in done.err
    kept = [] if "samples=9" in given else given.split()
    suggested = re.findall(r"--dim \w+=\d+", done.err)
    assert suggested
    assert call(*line, *kept, *" ".join(suggested).split()).code == OK


def test_inputs_by_name_from_archives_and_protos(call: Any, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=X, picks=PICKS)
    (tmp_path / "p.pb").write_bytes(onnx.numpy_helper.from_array(PICKS).SerializeToString())
    x = saved(tmp_path / "x=1.npy", X)
    ways = (["--input", "all.npz"], ["-i", "picks=p.pb", "-i", f"x={x}"], ["-i", x, "-i", "picks=p.pb"])
    found = [call("run", model, *way, "--json", "-").data["outputs"] for way in ways]
    assert found[0][0] == {"name": "y", "dtype": "f32", "shape": [2, 2], **found[0][0]}
    assert found[0] == found[1] == found[2]


def test_random_inputs_take_their_dims_from_options_and_given_inputs(call: Any, model: Path, tmp_path: Path) -> None:
    saved(tmp_path / "x.npy", np.zeros((5, 3), np.float32))
    ways: list[list[str]] = [[], ["--dim", "batch=4", "--dim", "n=2"], ["-i", "x.npy"]]
    found = [call("run", model, "--random", 0, *way, "--json", "-").data["outputs"][0]["shape"] for way in ways]
    assert found == [[1, 1], [4, 2], [5, 1]]
    one, two, three = (call("run", model, "--random", seed, "--json", "-").data["outputs"] for seed in (1, 1, 2))
    assert one == two
    assert one != three or one[0]["mean"] == 1.0


def test_dtypes_that_numpy_files_lack(call: Any, tmp_path: Path) -> None:
    info = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2]), helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [info[0]], [info[1]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    saved(tmp_path / "x.npy", np.array([1.5, -2], ml_dtypes.bfloat16))
    found = call("run", "m.onnx", "-i", "x.npy", "-o", "out", "--json", "-").data["outputs"]
    assert (found[0]["dtype"], found[0]["min"], found[0]["max"]) == ("bf16", -1.5, 2.0)
    again = call("run", "m.onnx", "-i", "out/y.npy", "--json", "-").data["outputs"]
    assert (again[0]["min"], again[0]["max"]) == (-2.0, 1.5)


def test_outputs_that_are_sequences(call: Any, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x) => (seq(float[a]) s) { s = SplitToSequence (x) }"""
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    found = call("run", "m.onnx", "--random", 0, "-o", "out", "--json", "-").data["outputs"]
    assert [leaf["name"] for leaf in found] == ["s.0", "s.1", "s.2", "s.3"]
    assert np.load("out/s.3.npy").shape == (1,)


WRONG_RUNS: dict[str, tuple[list[str], int, str]] = {
    "no file": (["run", "none.onnx"], USAGE, "there is no model file 'none.onnx'"),
    "no inputs": (["run", "model.onnx"], USAGE, "the inputs 'x', 'picks' are missing"),
    "no input file": (["run", "model.onnx", "-i", "x=none.npy"], USAGE, "there is no input file 'none.npy'"),
    "wrong input name": (["run", "model.onnx", "-i", "pick=p.npy"], USAGE, "the model has no input 'pick'"),
    "wrong dtype": (["run", "model.onnx", "-i", "double.npy", "--random", "0"], USAGE, "the input 'x' is f64"),
    "no array": (["run", "model.onnx", "-i", "broken.npy"], USAGE, "'broken.npy' is no .npy file"),
    "strange file": (["run", "model.onnx", "-i", "broken.txt"], USAGE, "'broken.txt' is of no kind that can be read"),
    "too many": (["run", "model.onnx", *["-i", "double.npy"] * 3], USAGE, "3 files for 2 inputs"),
    "unknown dim": (["run", "model.onnx", "--random", "0", "--dim", "bach=3"], USAGE, "no symbolic dim 'bach'"),
    "bad dim": (["run", "model.onnx", "--random", "0", "--dim", "batch=x"], USAGE, "--dim takes NAME=SIZE"),
    "unknown target": (["run", "model.onnx", "--target", "tpu"], USAGE, "there is no target 'tpu'"),
    "unknown mode": (["run", "model.onnx", "--mode", "fast"], USAGE, "'fast' is not one of"),
    "broken model": (["run", "broken.onnx"], REFUSED, "this is no ONNX model"),
    "wrong opset": (["run", "old.onnx"], REFUSED, "has no op 'Softmaxx'"),
    "failing op": (["run", "model.onnx", "-i", "picks=high.npy", "--random", "0"], FAILED, "gather: IndexError"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG_RUNS.values(), ids=WRONG_RUNS.keys())
def test_errors_are_told_without_a_traceback(
    call: Any, model: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    saved(tmp_path / "double.npy", X.astype(np.float64))
    saved(tmp_path / "high.npy", np.array([7]))
    (tmp_path / "broken.npy").write_bytes(b"nonsense")
    (tmp_path / "broken.txt").write_bytes(b"nonsense")
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    unknown = onnx.parser.parse_model(MODEL.replace("Softmax", "Softmaxx"))
    (tmp_path / "old.onnx").write_bytes(unknown.SerializeToString())
    plain = call(*arguments)
    assert plain.code == code
    assert message in plain.err
    assert "Traceback" not in plain.err
    assert plain.out == ""
    told = call(*arguments, "--json", "-")
    assert told.code == code
    assert message in told.data["error"]["message"]
    assert told.data["exit_code"] == code


def test_debug_shows_the_traceback(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from assay.errors import BadFeed

    with pytest.raises(BadFeed):
        main(["run", str(model), "--debug"])
    with pytest.raises(BadFeed):
        main(["--debug", "run", str(model)])


def test_a_defect_has_its_own_code(call: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import assay.runtime.session

    def fail(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(assay.runtime.session.Session, "run", fail)
    done = call("run", model, "--random", 0)
    assert done.code == DEFECT
    assert "ZeroDivisionError: oops" in done.err


def test_json_goes_to_a_file_beside_the_tables(call: Any, model: Path, tmp_path: Path) -> None:
    done = call("run", model, "--random", 0, "--json", "result.json")
    assert "loaded in" in done.out
    assert json.loads((tmp_path / "result.json").read_text())["target"] == "reference"
    assert call("run", model, "--random", 0, "--json", "no/such/folder.json").code == USAGE


def test_json_has_words_for_what_it_lacks(call: Any, model: Path, tmp_path: Path) -> None:
    saved(tmp_path / "x.npy", np.full((1, 3), np.nan, np.float32))
    assert call("run", model, "-i", "x.npy", "--random", 0, "--json", "-").data["outputs"][0]["max"] == "nan"


# --- inspect


def test_inspect_shows_what_is_in_a_model(call: Any, model: Path) -> None:
    data = call("inspect", model, "--json", "-").data
    assert data["opsets"] == {"ai.onnx": 17}
    assert data["inputs"] == {"x": "f32[batch, 3]", "picks": "i64[n]"}
    assert data["outputs"] == {"y": "f32[batch, n]", "count": "i64[]"}
    assert data["dims"] == {"batch": ["x[0]"], "n": ["picks[0]"]}
    assert data["ops"]["symbolic"]["onnx.Softmax@13"] == 1
    assert data["ops"]["core"]["softmax"] == 1
    assert "softmax" not in data["ops"]["milli"]
    shown = call("inspect", model)
    assert "onnx.Softmax@13" in shown.out
    assert "Symbolic dims" in shown.out


def test_inspect_shows_what_a_checkpoint_holds(call: Any, tmp_path: Path) -> None:
    from frontends.checkpoint.checkpoint_files import WRITERS

    for name, write in WRITERS.items():
        write(tmp_path / name)
        data = call("inspect", tmp_path / name, "--json", "-").data
        assert len(data["tensors"]) > 10
    shown = call("inspect", tmp_path / "small.gguf").out
    assert "14 tensors" in shown
    assert "Q4_K" in shown
    assert "3 of them: a, ü, " in shown


def test_inspect_shows_what_it_can_of_a_model_that_cannot_be_lowered(call: Any, tmp_path: Path) -> None:
    text = MODEL.replace('"" : 17', '"" : 17, "own" : 1').replace("Softmax <axis = 1>", "own.Thing")
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    done = call("inspect", "m.onnx", "--json", "-")
    assert done.code == REFUSED
    assert "Thing" in done.err
    assert done.data["ops"] == {"symbolic": {"onnx.Gather@13": 1, "onnx.own.Thing@1": 1, "onnx.Size@13": 1}}
    assert "Thing" in done.data["refusal"]


def test_inspect_counts_parameters_in_bodies_too(call: Any, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
          a = Add (x, w)
          y = If (c) <
            then_branch = t () => (float[2] p) { k = Constant <value = float[2] {1, 2}> ()  p = Add (a, k) },
            else_branch = e () => (float[2] q) { q = Neg (a) }
          >
        }"""
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert call("inspect", "m.onnx", "--json", "-").data["parameters"] == {"tensors": 1, "count": 2, "bytes": 8}


@pytest.mark.parametrize(
    ("level", "word"), [("symbolic", "onnx.Softmax@13"), ("core", "softmax"), ("milli", "reduce_max")]
)
def test_inspect_prints_the_graph_as_text(call: Any, model: Path, level: str, word: str) -> None:
    done = call("inspect", model, "--level", level)
    assert done.out.startswith('graph "g"')
    assert word in done.out
    assert call("inspect", model, "--level", level, "--json", "-").data["text"].strip() == done.out.strip()


# --- compare


def test_compare_agrees(call: Any, model: Path) -> None:
    for pair in ("reference onnxruntime", "onnx-reference reference:decomposed", "reference reference:precise"):
        done = call("compare", model, *pair.split(), "--random", 0, "--dim", "batch=4", "--dim", "n=3", "--json", "-")
        assert done.code == OK, pair
        assert [value["name"] for value in done.data["values"]] == ["taken", "y", "count"]
        assert done.data["first_divergence"] is None


def test_compare_finds_the_first_divergence(call: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.evidence import peers

    honest = peers.OnnxRuntime.run_all

    def wrong(self: Any, feeds: Any) -> dict[str, Any]:
        found = honest(self, feeds)
        return {**found, "y": found["y"] * np.float32(1.0001)}

    monkeypatch.setattr(peers.OnnxRuntime, "run_all", wrong)
    done = call("compare", model, "reference", "onnxruntime", "--random", 0, "--dim", "n=3")
    assert done.code == DIFFERS
    assert "first divergence: 'y' of Softmax 'y': max abs" in done.out
    assert re.search(r"taken +Gather .* agrees", done.out)
    assert call("compare", model, "reference", "onnxruntime", "--random", 0, "--rtol", 1e-3).code == OK
    assert call("compare", model, "reference", "onnxruntime", "--random", 0, "--atol", 1e-9).code == DIFFERS


def test_compare_sees_nan_and_shape(call: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.evidence import peers

    honest = peers.OnnxReference.run_all

    def wrong(self: Any, feeds: Any) -> dict[str, Any]:
        found = honest(self, feeds)
        return {**found, "taken": found["taken"].T, "y": found["y"] * np.float32(np.nan)}

    monkeypatch.setattr(peers.OnnxReference, "run_all", wrong)
    data = call("compare", model, "reference", "onnx-reference", "--random", 0, "--dim", "n=3", "--json", "-").data
    assert [value["diverged"] for value in data["values"]] == [True, True, False]
    assert data["first_divergence"]["difference"] == "shape [1, 3] instead of [3, 1]"
    assert data["values"][1]["nan"] == 3


def test_compare_names_wrong_engines(call: Any, model: Path) -> None:
    done = call("compare", model, "reference", "onnxrt", "--random", 0)
    assert done.code == USAGE
    assert "onnxruntime" in done.err


def test_compare_tells_that_a_peer_failed(call: Any, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x, int64[1] i) => (float[1] y) { y = Gather (x, i) }"""
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    saved(tmp_path / "i.npy", np.array([5]))
    done = call("compare", "m.onnx", "onnxruntime", "onnx-reference", "-i", "i=i.npy", "--random", 0, "--rtol", 0)
    assert done.code == FAILED
    assert "at: onnxruntime" in done.err


# --- the others


def test_conformance_of_a_few(call: Any, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    done = call("conformance", "--filter", "test_sinh", "--peer", "onnx-reference", "--json", "lines.jsonl")
    assert done.code == OK
    assert re.search(r"reference +0\.1\.0 +2 of 2", done.out)
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["record"] for line in lines] == ["run", *["case"] * 4, "summary"]
    assert {"name", "kind", "engine", "status", "stage", "reason", "seconds"} <= lines[1].keys()
    assert lines[-1]["engines"]["onnx-reference"]["statuses"] == {"pass": 2}
    assert not (tmp_path / "docs" / "conformance.md").exists()


def test_conformance_decomposed_and_nothing(call: Any) -> None:
    assert "reference:decomposed" in call("conformance", "--filter", "test_sinh", "--decomposed").out
    assert call("conformance", "--filter", "no such case").code == USAGE


def test_conformance_tells_of_failures(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.evidence.conformance import run as conformance

    monkeypatch.setattr(conformance, "mismatch", lambda *arguments: "quite another")
    done = call("conformance", "--filter", "test_sinh")
    assert done.code == DIFFERS
    assert "0 of 2" in done.out
    assert "reference test_sinh: fail_accuracy: 'y': quite another" in done.out
    known = call("conformance", "--filter", "test_bernoulli_seed")
    assert known.code == OK
    assert "0 of 2" in known.out


def test_fuzz_a_little(call: Any) -> None:
    data = call("fuzz", "--count", 3, "--seed", 1, "--json", "-").data
    assert data["graphs"] == 3


def test_targets(call: Any) -> None:
    done = call("targets")
    assert done.code == OK
    assert re.search(r"reference +yes", done.out)
    assert "onnxruntime" in done.out


def test_demo_transcribes(call: Any) -> None:
    data = call("demo", "moonshine", "--json", "-").data
    assert data["text"].lower().startswith("ever tried, ever failed")
    assert data["onnxruntime"]["lowest_pcc"] > 0.99
    assert {row["target"] for rows in data["ops"].values() for row in rows} == {"reference"}
    assert list(data["seconds"]["first"]) == ["import", "lower", "compile", "run"]
    assert data["seconds"]["second"] > 0


def test_demo_tells_the_second_run_first(call: Any) -> None:
    told = call("demo", "moonshine").out
    assert re.search(r"10\.0 s of speech in \d+\.\d\d s, the second time\.", told)
    assert re.search(r"The first time it took .* s: importing .* s, lowering .* s, compiling .* s, running .* s", told)
    assert "on the target 'reference'" in told


# ---- limits ----------------------------------------------------------------------------------------------------

LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (y) {
  go = Constant <value = bool {1}> ()
  none = Constant <value = int64 {900000000}> ()
  y = Loop (none, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
    d = Identity (c)
    t = Add (s, s)
  }>
}"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_run_can_be_limited(call: Any, tmp_path: Path, target: str) -> None:
    path = tmp_path / "loop.onnx"
    path.write_bytes(onnx.parser.parse_model(LOOP).SerializeToString())
    done = call("run", path, "--random", 0, "-t", target, "--time-limit", 0.2, "--json", "-")
    assert done.code == FAILED
    assert "took longer than its 0.2 seconds" in done.data["error"]["message"]
    assert "onnx." in done.data["error"]["where"]
    done = call("run", path, "--random", 0, "-t", target, "--memory-limit", "4b")
    assert done.code == FAILED
    assert "it was given 4 B" in done.err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--time-limit", "0"), ("--time-limit", "-3"), ("--time-limit", "soon"), ("--memory-limit", "much")],
)
def test_a_limit_that_is_none_is_bad_usage(call: Any, model: Path, option: str, value: str) -> None:
    assert call("run", model, "--random", 0, option, value).code == USAGE


def test_passes_can_be_left_out(call: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def noted(graph: Any, result: Any, name: str) -> Any:
        ran.append(name)
        return result

    monkeypatch.setattr("assay.passes.stamped", noted)
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    line = ("run", model, "--random", "0", "--dim", "n=7")
    assert call(*line).code == OK
    whole, ran[:] = set(ran), []
    assert call(*line, "--disable-pass", "fold", "--disable-pass", "cse").code == OK
    assert whole == {"dce", "invariants", "fold", "simplify", "cse"}
    assert set(ran) == {"dce", "invariants", "simplify"}


def test_limits_that_suffice_change_nothing(call: Any, model: Path) -> None:
    done = call("run", model, "--random", 0, "--time-limit", 600, "--memory-limit", "1GiB", "--json", "-")
    plain = call("run", model, "--random", 0, "--json", "-")
    assert done.code == plain.code == OK
    assert done.data["outputs"] == plain.data["outputs"]


# ---- names of any length and kind ------------------------------------------------------------------------------

NAMES = {
    "long": "n" * 5000,
    "ways out": "../../../etc/x",
    "terminal": "\x1b[31mred\x07",
    "wide": "名" * 1000,
    "dots": "..",
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_in_models_are_only_names(call: Any, tmp_path: Path, kind: str) -> None:
    name = NAMES[kind]
    values = [helper.make_tensor_value_info(f"{name}{i}", TensorProto.FLOAT, [f"{name}d"]) for i in (0, 1)]
    nodes = [helper.make_node("Neg", [f"{name}0"], [f"{name}1"], f"{name}n")]
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, f"{name}g", values[:1], values[1:]), opset_imports=opsets), path
    )
    before = set(tmp_path.parent.iterdir())
    assert call("run", path, "--random", 0, "--output", tmp_path / "out").code == OK
    (file,) = (tmp_path / "out").iterdir()
    assert np.load(file).shape == (1,)
    assert set(tmp_path.parent.iterdir()) == before
    for command in (
        ["inspect", path],
        ["inspect", path, "--level", "core"],
        ["compare", path, "cpu", "reference", "--random", 0],
    ):
        assert call(*command).code == OK
    done = call("run", path, "--input", f"{name}9=x.npy")
    assert done.code == USAGE
    assert "\x1b" not in done.err
    assert len(done.err) < 12_000


@pytest.mark.parametrize("command", ["run", "inspect", "trace", "bench"])
def test_a_path_of_any_length_is_bad_usage(call: Any, command: str) -> None:
    for path in ("x" * 5000, "y" * 5000 + ".pt2", "z/" * 3000 + "m.onnx", "a\0b.onnx"):
        assert call(command, path).code in (USAGE, REFUSED)


def test_outputs_that_cannot_be_saved_are_bad_usage(call: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert call("run", model, "--random", 0, "--output", tmp_path / "file").code == USAGE
    assert call("run", model, "--random", 0, "--output", tmp_path / ("x" * 5000)).code == USAGE
