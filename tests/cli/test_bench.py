"""`assay bench`: turns, records, verdicts, processes that die, the table, the picture and the page."""

from __future__ import annotations

import itertools
import json
import os
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

pytest.importorskip("torch")

import torch
from typer.testing import CliRunner

from assay.cli import app
from assay.cli.output import DIFFERS, OK, USAGE
from assay.errors import BadFeed, NotFound
from assay.evidence.bench import race as bench_race
from assay.evidence.bench.models import BenchModel, Material, RightOutputs, make_material
from assay.evidence.bench.page import ratio_cell, tables, write_page
from assay.evidence.bench.peers import ENTRIES, PEERS, Entry, check_peers
from assay.evidence.bench.picture import picture
from assay.evidence.bench.race import ContestantDied, interleave
from assay.evidence.bench.records import FORMAT, SELF, BenchRun, Match, Result, Spread, geometric_mean, read, spread
from assay.evidence.bench.run import BenchSettings, Process, check_resumed, environment, header, run_model
from assay.evidence.bench.worker import ContestantTask, service, turn
from assay.evidence.machine import cores, cpu_of, cpu_of_all, described
from assay.processes import Handler
from assay.zoo.torch.workloads import SUITES, WORKLOADS

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x) => (float[batch, 3] y, int64 count) {
  y = Softmax <axis = 1> (x)
  count = Size (y)
}"""
QUICK = ("--target", "reference", "--threads", "1", "--repeat", "2", "--seconds", "0.001")


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    return path


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_race, "_PAUSE", 0.0)


# --- turns


class Fake:
    """A racer that takes some time and may die in a turn."""

    def __init__(self, name: str, seconds: float, diary: list[str], dies: int | None = None) -> None:
        self.name, self.seconds, self.diary, self.dies = name, seconds, diary, dies
        self.counts: list[int] = []

    def turn(self, count: int) -> list[float]:
        self.diary.append(self.name)
        self.counts.append(count)
        if self.dies is not None and len(self.counts) > self.dies:
            raise ContestantDied("hit by lightning")
        return [self.seconds] * count

    def cpu(self) -> float | None:
        return 0.0


def test_every_racer_has_one_turn_in_a_round_and_another_begins_each_time() -> None:
    diary: list[str] = []
    racers = {name: Fake(name, 0.01, diary) for name in "abc"}
    race = interleave(racers, 4, 0.1, used=lambda: 0.0)
    assert diary[:6] == list("aabbcc")  # to find out how long a turn is
    assert ["".join(diary[at : at + 3]) for at in range(6, 18, 3)] == ["abc", "bca", "cab", "abc"]
    assert [each.turns for each in race.rounds] == [dict.fromkeys("abc", 0.01)] * 4
    assert race.iterations == dict.fromkeys("abc", 10)
    assert race.idle == dict.fromkeys("abc", 0.0)


def test_a_slow_racer_runs_once_in_a_turn_and_a_quick_one_a_bounded_number_of_times() -> None:
    racers = {"slow": Fake("slow", 5.0, []), "quick": Fake("quick", 1e-9, [])}
    assert interleave(racers, 1, 0.1, used=lambda: None).iterations == {"slow": 1, "quick": 2000}
    assert racers["slow"].counts == [1, 1, 1]


def test_who_dies_is_out_and_the_others_go_on() -> None:
    diary: list[str] = []
    racers = {"a": Fake("a", 0.01, diary), "early": Fake("early", 0.01, diary, 0), "late": Fake("late", 0.01, diary, 3)}
    race = interleave(racers, 3, 0.1, used=lambda: None)
    assert race.fallen == {"early": "hit by lightning", "late": "hit by lightning"}
    assert [sorted(each.turns) for each in race.rounds] == [["a", "late"], ["a"], ["a"]]
    assert interleave({}, 3, 0.1).rounds == []


def test_disturbed_rounds_are_run_again_and_the_quietest_are_kept() -> None:
    def used(total: float = 0.0) -> Iterator[float]:
        for noise in (1000.0, 0.0, 1000.0, 0.0, 0.0):
            yield from (total, total := total + noise)

    figures = used()
    racer = Fake("a", 0.01, [])
    race = interleave({"a": racer}, 3, 0.1, used=lambda: next(figures))
    assert [each.others for each in race.rounds] == [0.0, 0.0, 0.0]
    assert len(racer.counts) == 2 + 5


def test_a_disturbed_machine_does_not_go_on_for_ever() -> None:
    busy = itertools.count(0, 1000)
    racer = Fake("a", 0.01, [])
    assert len(interleave({"a": racer}, 3, 0.1, used=lambda: float(next(busy))).rounds) == 3
    assert len(racer.counts) == 2 + 6


def test_a_turn_warms_up_first() -> None:
    calls: list[int] = []
    assert len(turn(lambda: calls.append(1), 30)) == 30
    assert len(calls) == 33


def test_the_machine_tells_of_itself() -> None:
    assert f"{cores()} cores" in described()
    before, all_before = cpu_of(os.getpid()), cpu_of_all()
    if before is None or all_before is None:
        pytest.skip("no Linux")
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert (cpu_of(os.getpid()) or 0) >= before + 0.05
    assert (cpu_of_all() or 0) > all_before
    assert cpu_of(None) is None


# --- records


def result(model: str, name: str, turns: list[float], **more: Any) -> Result:
    figures = {"cold": 2.0, "warm": 0.5, "first_run": 0.01, "peak": 1 << 20, "kept": 1 << 20, "error": 1e-7}
    return Result(model, name, **{"turns": turns, "allowed": 1e-5, "idle": 0.0, "iterations": 3, **figures, **more})


def a_run() -> BenchRun:
    head = header(BenchSettings("cpu", ("eager", "inductor", "onnxruntime"), 2), "assay bench one two")
    peer_errs = {"status": "wrong", "reason": "max abs 7", "warm": 0.25, "error": 4e-7}
    one = {
        SELF: result("one", SELF, [1.0, 2.0, 4.0], placed={"cpu": 5, "reference": 2}),
        "eager": result("one", "eager", [3.0, 8.0, 8.0]),
        "inductor": result("one", "inductor", [2.0, 1.0, 2.0], cold=8.0),
        "onnxruntime": result("one", "onnxruntime", [0.1] * 3, **peer_errs),
    }
    two = {
        SELF: result("two", SELF, [1.0, 1.0, 1.0], cold=1.0),
        "eager": result("two", "eager", [2.0, 2.0, 2.0]),
        "inductor": Result("two", "inductor", "failed", "a | b"),
        "onnxruntime": Result("two", "onnxruntime", "absent", "onnxruntime is not installed"),
    }
    return BenchRun(head, [Match("one", one, [0.0, 0.25, 0.5]), Match("two", two, [None, None, None])])


def test_medians_and_spreads() -> None:
    assert spread([]) is None
    assert spread([3.0]) == Spread(3.0, 3.0, 3.0)
    found = spread([float(each) for each in range(11)])
    assert found == Spread(5.0, 1.0, 9.0)
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([]) is None


def test_ratios_are_taken_within_a_round_and_only_of_right_results() -> None:
    one, two = a_run().matches
    assert (one.ratio("eager") or Spread(0, 0, 0)).middle == 3.0  # of 3, 4 and 2
    assert one.ratio("onnxruntime") is None
    assert one.best == "inductor"
    assert (one.best_ratio or Spread(0, 0, 0)).middle == 0.5  # of 2, 0.5 and 0.5
    assert two.best == "eager"
    assert one.noise == 0.25
    assert two.noise is None


def test_the_summary() -> None:
    facts = a_run().summary()
    assert facts["models"] == facts["compared"] == 2
    assert facts["mean_of_best"] == pytest.approx(1.0)
    assert facts["least_of_best"] == 0.5
    assert facts["cold_over_inductor"] == 0.25
    assert facts["warm_over_onnxruntime"] == 2.0
    assert facts["error_over_onnxruntime"] == pytest.approx(0.25)
    assert facts["most_error_over_onnxruntime"] == pytest.approx(0.25)


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = a_run()
    lines = [run.header, *(line for match in run.matches for line in match.lines())]
    path = tmp_path / "run.jsonl"
    unfinished = json.dumps({"record": "contestant", "model": "three"})[:-4]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + unfinished)
    found = read(path)
    assert found.header == run.header
    assert list(found.matches) == list(run.matches)
    assert {line["record"] for line in lines} == {"run", "contestant", "model"}
    assert run.header["format"] == FORMAT


def test_records_of_another_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"record": "run", "format": FORMAT + 1}) + "\n")
    with pytest.raises(BadFeed, match="format"):
        read(path)


def test_only_the_same_run_is_resumed() -> None:
    settings = BenchSettings("cpu", ("eager",), 2)
    check_resumed(header(settings, ""), settings)
    with pytest.raises(BadFeed, match="threads"):
        check_resumed(header(BenchSettings("cpu", ("eager",), 1), ""), settings)


# --- what is shown


def test_the_page_has_its_tables_between_the_marks(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    with pytest.raises(NotFound, match="no place"):
        write_page(path, a_run())
    begin, end = "<!-- bench: begin (written by `assay bench`) -->", "<!-- bench: end -->"
    path.write_text(f"before\n{begin}\nfigures of last year\n{end}\nafter\n")
    write_page(path, a_run())
    write_page(path, a_run())
    text = path.read_text()
    assert text.startswith(f"before\n{begin}\n")
    assert text.endswith(f"\n{end}\nafter\n")
    assert "last year" not in text
    assert path.with_suffix(".svg").is_file()


def test_the_tables_tell_everything() -> None:
    text = tables(a_run(), "p.svg")
    assert "| best peer's time ÷ Assay's, geometric mean | at least 0.9 | 1.00 | reached |" in text
    assert "| the same, least of all models | at least 0.7 | 0.50 | **not reached** |" in text
    assert "| largest error ÷ onnxruntime's, geometric mean | at most 1.0 | 0.25 | reached |" in text
    assert "| one | 2000.0 (1200.0–3600.0) | 3.00 (2.20–3.80) | 0.50 (0.50–1.70) | wrong | inductor | 25 % |" in text
    assert "two, inductor: failed: a | b" in text
    assert "one: 5 nodes on cpu, 2 nodes on reference" in text
    assert all(line.count("|") == text.splitlines()[at - 1].count("|") for at, line in rows(text))


def rows(text: str) -> list[tuple[int, str]]:
    """The lines of tables that follow another line of the same table."""
    lines = text.splitlines()
    return [(at, line) for at, line in enumerate(lines) if line.startswith("|") and lines[at - 1].startswith("|")]


def test_a_missing_ratio_says_why() -> None:
    one, two = a_run().matches
    assert ratio_cell(one, "onnxruntime") == "wrong"
    assert ratio_cell(two, "inductor") == "failed"
    assert ratio_cell(two, "nobody") == "–"
    wrong = Match("m", {SELF: result("m", SELF, [1.0], status="wrong"), "eager": result("m", "eager", [1.0])})
    assert ratio_cell(wrong, "eager") == "Assay wrong"


def test_the_picture_is_svg_with_a_bar_for_each_ratio() -> None:
    root = ElementTree.fromstring(picture(a_run()))
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"one", "two", "eager", "3.00", "0.50", "2.00", "wrong", "failed", "absent"} <= set(texts)
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if each.get("height") == "10"]
    assert len(bars) == 3
    assert ElementTree.fromstring(picture(BenchRun(a_run().header, []))) is not None


# --- verdicts


def test_rounding_is_right_and_more_is_wrong() -> None:
    exact = np.linspace(1.0, 2.0, 50)
    truth = RightOutputs([exact.astype(np.float32)], [exact])
    right = truth.judge([exact.astype(np.float32)])
    assert not right.complaint
    assert right.error is not None
    assert right.error < 1e-7
    off = truth.judge([exact.astype(np.float32) + np.float32(1e-3)])
    assert off.complaint
    assert off.error == pytest.approx(5e-4, rel=0.01)
    assert "2 outputs" in truth.judge([exact, exact]).complaint
    assert "f64[50] instead of f32[50]" in truth.judge([exact]).complaint
    assert "NaN" in truth.judge([np.full(50, np.nan, np.float32)]).complaint


def test_integers_must_be_equal() -> None:
    truth = RightOutputs([np.array([1, 2])], [np.array([1, 2])])
    assert not truth.judge([np.array([1, 2])]).complaint
    assert truth.judge([np.array([1, 3])]).complaint


# --- models and contestants


def test_a_torch_model_in_all_forms(tmp_path: Path) -> None:
    material, truth = make_material(BenchModel("mnist"), tmp_path, with_onnx=False)
    assert material.has("module")
    assert material.has("program")
    assert not material.has("onnx")
    assert [each.shape for each in material.inputs()] == [(1, 1, 28, 28)]
    assert [each.dtype for each in (*truth.plain, *truth.exact)] == [np.float32, np.float64]
    again = make_material(BenchModel("again", material.program), tmp_path / "again", with_onnx=False)
    assert np.array_equal(again[1].plain[0], truth.plain[0])
    for name in (SELF, "eager"):
        contestant = ENTRIES[name].make(material, 1, "reference")
        contestant.read()
        contestant.prepare()
        assert not truth.judge(contestant.outputs()).complaint
    torch.set_grad_enabled(True)


def test_the_suite_is_in_the_zoo() -> None:
    assert set(SUITES["cpu"]) <= set(WORKLOADS)
    assert len(SUITES["cpu"]) == 9
    assert "Falcon" in WORKLOADS


@pytest.mark.parametrize("name", ["whisper-tiny-step", "llama-step", "mnist"])
def test_workloads_are_the_same_each_time_and_finite(name: str) -> None:
    found: list[Any] = []
    for _ in range(2):
        module = WORKLOADS[name].build()
        with torch.no_grad():
            outputs = module(**WORKLOADS[name].example(module))
        found.append(outputs[0] if isinstance(outputs, tuple) else outputs)
    assert torch.equal(*found)
    assert found[0].isfinite().all()


def test_who_cannot_take_a_model_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Material(
        BenchModel("m.onnx", Path("m.onnx")), tmp_path, onnx=Path("m.onnx"), missing={"module": "no torch model"}
    )
    assert ENTRIES["eager"].refusal(file) == "no torch model"
    assert ENTRIES[SELF].refusal(file) == ""
    assert ENTRIES["onnxruntime"].refusal(file) == ""
    program = Material(BenchModel("mnist"), tmp_path, program=Path("m.pt2"), missing={"onnx": "no exporter"})
    assert ENTRIES["openvino"].refusal(program) in ("no exporter", "openvino is not installed")
    monkeypatch.setattr(Entry, "version", lambda self: None)
    assert ENTRIES["openvino"].refusal(file) == "openvino is not installed"
    assert set(PEERS) == {"eager", "inductor", "onnxruntime", "openvino"}
    with pytest.raises(NotFound, match="eagle"):
        check_peers(["eagle"])


def test_processes_are_told_how_many_threads_and_where_caches_go(tmp_path: Path) -> None:
    plain, cold = environment(3, None), environment(3, tmp_path)
    assert plain["OMP_NUM_THREADS"] == plain["OPENBLAS_NUM_THREADS"] == "3"
    assert set(cold) - set(plain) == {"ASSAY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"}
    assert all(str(tmp_path) in cold[name] for name in set(cold) - set(plain))


# --- processes


def die(task: ContestantTask) -> Handler:
    """What a broken installation does."""
    os.write(2, b"a lot\nout of luck\n")
    os._exit(3)


def hang(task: ContestantTask) -> Handler:
    time.sleep(60)
    raise AssertionError


@pytest.fixture
def task(model: Path, tmp_path: Path) -> ContestantTask:
    arrays: dict[str, Any] = {"0": np.zeros((2, 3), np.float32)}
    np.savez(tmp_path / "inputs.npz", **arrays)
    return ContestantTask("onnxruntime", Material(BenchModel("m", model), tmp_path, onnx=model), 1, "reference")


def test_a_process_prepares_and_runs(task: ContestantTask) -> None:
    process = Process(task, environment(1, None), 60.0, service)
    try:
        ready = process.ready()
        assert ready.prepared > 0
        assert ready.peak >= ready.kept or ready.peak >= 0
        assert np.allclose(ready.outputs[0], 1 / 3)
        assert len(process.turn(4)) == 4
    finally:
        process.stop()
    with pytest.raises(ContestantDied):
        process.turn(1)


def test_a_process_that_fails_tells_why(task: ContestantTask, model: Path) -> None:
    model.write_bytes(b"nothing like a model")
    process = Process(task, environment(1, None), 60.0)
    with pytest.raises(ContestantDied, match=r"InvalidProtobuf|Fail"):
        process.ready()
    process.stop()


def test_a_process_that_dies_or_hangs_is_noticed(task: ContestantTask) -> None:
    process = Process(task, {}, 60.0, die)
    with pytest.raises(ContestantDied, match="exit code 3: out of luck"):
        process.ready()
    process.stop()
    process = Process(task, {}, 0.5, hang)
    with pytest.raises(ContestantDied, match=r"longer than 0\.5 s"):
        process.ready()
    process.stop()


# --- the command


def test_an_onnx_file_from_end_to_end(model: Path, tmp_path: Path) -> None:
    json_file, drawn = tmp_path / "run.jsonl", tmp_path / "run.svg"
    peers = ("--peer", "onnxruntime", "--peer", "eager")
    done = invoke(model, *peers, *QUICK, "--dim", "batch=4", "--json", json_file, "--picture", drawn)
    assert done.exit_code == OK, done.output
    assert "absent: there is no torch model of an ONNX file" in done.output
    assert "best peer ÷ Assay: geometric mean" in done.output
    assert drawn.read_text().startswith("<svg")
    run = read(json_file)
    own = run.matches[0].results[SELF]
    assert len(own.turns) == 2
    assert set(own.placed) == {"reference"}
    assert min(own.cold or 0, own.warm or 0, own.first_run or 0) > 0
    assert run.matches[0].best == "onnxruntime"
    assert json.loads(json_file.read_text().splitlines()[-1])["record"] == "summary"
    again = invoke(model, *peers, *QUICK, "--resume", "--json", json_file)
    assert again.exit_code == OK, again.output
    assert list(read(json_file).matches) == list(run.matches)


def test_wrong_results_are_flagged(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RightOutputs, "judge", lambda self, outputs: judged(outputs))
    settings = BenchSettings("reference", ("onnxruntime",), 1, repeat=1, seconds=0.001, cold=False)
    match = run_model(BenchModel("m", model, {"x": np.ones((1, 3), np.float32)}), settings)
    assert {each.status for each in match.results.values()} == {"wrong"}
    assert not any(each.turns for each in match.results.values())
    assert match.best is None


def judged(outputs: Any) -> Any:
    from assay.evidence.bench.models import OutputError

    return OutputError(1.0, 0.1, f"{len(outputs)} outputs are off")


def test_a_model_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bad.pt2"
    path.write_bytes(b"nothing")
    done = invoke(path, *QUICK, "--peer", "eager")
    assert done.exit_code == DIFFERS
    assert "no model to run" in done.output


@pytest.mark.parametrize(
    "line",
    [
        "",
        "resnet5000",
        "missing.onnx",
        "mnist --peer eagle",
        "mnist --form x",
        "mnist --target x",
        "--suite x",
        "mnist --resume",
    ],
)
def test_bad_usage(line: str) -> None:
    done = invoke(*line.split())
    assert done.exit_code == USAGE or isinstance(done.exception, NotFound | BadFeed)


def test_the_models_are_listed() -> None:
    done = invoke("--list")
    assert done.exit_code == OK
    assert "whisper-tiny-encoder" in done.output


def test_an_error_leaves_earlier_records_as_they_are(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(header(BenchSettings("reference", ("eager",), 1), "")) + "\n")
    before = path.read_text()
    done = invoke(model, *QUICK, "--peer", "onnxruntime", "--resume", "--json", path)
    assert isinstance(done.exception, BadFeed)
    assert path.read_text() == before


def test_the_documentation_has_a_place_for_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text((Path(__file__).parents[2] / "docs" / "performance.md").read_text())
    write_page(page, a_run())
    assert "two, inductor: failed" in page.read_text()
