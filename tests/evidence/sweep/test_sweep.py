"""A sweep loses nothing: cases, limits, shards, resuming, and the executors."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadFeed, NotFound
from assay.evidence.records import Case, Cause, Configuration, Environment, Record, append, read
from assay.evidence.records.files import inconsistency
from assay.evidence.records.merge import merged
from assay.evidence.sweep import run as run_module
from assay.evidence.sweep import subjects
from assay.evidence.sweep.accuracy import judged
from assay.evidence.sweep.attribution import first_wrong
from assay.evidence.sweep.executors import make_executor
from assay.evidence.sweep.faults import injected
from assay.evidence.sweep.jobs import CaseLimits, Job, Shard, parse_shard, part
from assay.evidence.sweep.measure import measure
from assay.evidence.sweep.run import SweepSettings, model_jobs, op_jobs, remaining, sweep
from assay.evidence.sweep.subjects import Subject, named_tensors
from assay.evidence.sweep.supervise import supervise
from assay.evidence.sweep.worker import run
from assay.ir.dtypes import Array
from assay.runtime.torch.backend import Options
from assay.zoo.torch import MODELS as MODELS_BY_NAME

SETTINGS = SweepSettings(Environment("now"), CaseLimits(200.0, 4 << 30), 1, 1)
MODELS = ["Mnist", "Autoencoder (linear)", "Autoencoder (conv)"]
TARGETS = ["cpu", "reference"]


def jobs(mode: str = "eval") -> list[Job]:
    return model_jobs(MODELS, TARGETS, mode, "small", [], SETTINGS)  # type: ignore[arg-type]


def test_every_case_of_the_small_models_passes(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    found = list(sweep(jobs(), make_executor("local", 2), path))
    assert sorted(record.case for record in found) == sorted(job.case for job in jobs())
    assert {record.status for record in found} == {"pass"}
    assert read(path).damaged == ()
    assert merged(read(path).records) == tuple(sorted(found, key=lambda record: record.case))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_what_a_record_holds(mode: str, target: str) -> None:
    record = run(Job(Case("model", "Mnist", target, mode, "small"), Environment("now"), rounds=2), lambda _: None)  # type: ignore[arg-type]
    assert record.status == "pass" or (mode == "train" and record.status == "pass_with_fallback")
    assert record.graphs == (1 if mode == "eval" else 2)
    assert {use.op for use in record.ops} >= {"aten.convolution.default", "aten.addmm.default"}
    assert sum(each.count for each in record.configurations) == sum(use.count for use in record.ops)
    assert record.parameters
    assert record.inputs
    speed = record.speed
    assert None not in (speed.cold, speed.warm, speed.median, speed.p95, speed.eager_median, speed.peak_memory)
    assert speed.runs == 2
    parts = (speed.trace, speed.importing, speed.lowering, speed.compiling)
    assert speed.cold == pytest.approx(sum(each for each in parts if each is not None))
    assert all(each.ok and each.allowed and each.noise is not None for each in record.outputs)
    if mode == "train":
        assert [each.name for each in record.outputs] == ["loss"]
        assert record.gradient_count == record.gradients_right == 8


def test_real_weights_are_set_their_task() -> None:
    job = Job(Case("model", "mobilenet_v2", "cpu"), Environment("now"), rounds=1)
    record = run(job, lambda _: None)
    assert record.status == "pass"
    assert record.metrics == {"top1": 1.0, "top5": 1.0, "eager_top1": 1.0, "eager_top5": 1.0}


def test_ops_run_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    list(sweep(jobs()[:1], make_executor("local", 1), path))
    todo = op_jobs(read(path).records, ["cpu"], SETTINGS)
    assert len(todo) == len(read(path).records[0].configurations)
    assert todo == op_jobs(read(path).records, ["cpu"], SETTINGS, ["Mnist"])
    with pytest.raises(BadFeed):
        op_jobs(read(path).records, ["cpu"], SETTINGS, ["BERT"])
    found = [run(job, lambda _: None) for job in todo]
    assert {record.status for record in found} <= {"pass", "pass_with_fallback"}, [r.cause for r in found]
    assert {record.models for record in found} == {("Mnist",)}
    assert all(record.outputs for record in found)


def test_ops_of_other_namespaces_run_by_themselves() -> None:
    used = Configuration(
        "prims.convert_element_type.default", ({"dtype": "f32", "shape": [4]}, {"torch": "torch.float64"})
    )
    case = Case("op", used.op, "cpu", configuration=used.text)
    record = run(Job(case, Environment("now"), rounds=1, configuration=used), lambda _: None)
    assert record.green, record.cause
    assert record.outputs[0].type == "f64[4]"


def test_ops_that_torch_has_not() -> None:
    used = Configuration("aten.no_such_op.default", ())
    record = run(Job(Case("op", used.op, "cpu"), Environment("now"), configuration=used), lambda _: None)
    assert (record.status, record.stage) == ("unsupported", "build")


def test_a_failure_has_a_file_that_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    broken = model_jobs(["Mnist"], ["cpu"], "eval", "small", ["lowering", "run"], SETTINGS)
    for record in sweep(broken, make_executor("local", 2), path):
        assert record.reproduced is True
        assert (tmp_path / record.reproducer).is_file()


def test_a_file_that_shows_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.evidence.sweep import reproducers

    monkeypatch.setattr(reproducers, "script", lambda *_: "raise SystemExit(0)")
    path = tmp_path / "records.jsonl"
    broken = model_jobs(["Mnist"], ["cpu"], "eval", "small", ["compile"], SETTINGS)
    (record,) = sweep(broken, make_executor("local", 1), path)
    assert record.reproduced is False


def test_shards_have_every_job_once() -> None:
    found = [job.case for index in (1, 2, 3, 4) for job in part(jobs(), Shard(index, 4))]
    assert sorted(found) == sorted(job.case for job in jobs())
    assert parse_shard("2/5") == Shard(2, 5)
    for wrong in ("0/2", "3/2", "2", "a/b", "1/", "-1/2"):
        with pytest.raises(BadFeed):
            parse_shard(wrong)


def test_records_are_gone_on_with_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert len(remaining(jobs(), path, resume=False)) == len(jobs())
    first = jobs()[0]
    append(path, Record(case=first.case, environment=first.environment, status="pass", stage="accuracy"))
    with pytest.raises(BadFeed, match="has records already"):
        remaining(jobs(), path, resume=False)
    assert [job.case for job in remaining(jobs(), path, resume=True)] == [job.case for job in jobs()[1:]]


def test_a_part_of_a_sweep_is_gone_on_with_as_that_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    own = part(jobs(), Shard(1, 2))
    append(path, Record(case=own[0].case, environment=own[0].environment, status="pass", stage="accuracy"))
    taken: list[Case] = []
    monkeypatch.setattr(run_module, "sweep", lambda todo, *_: taken.extend(job.case for job in todo) or iter(()))
    chosen = [word for name in MODELS for word in ("--models", name)]
    more = ["-t", "cpu", "-t", "reference", "--shard", "1/2", "--resume"]
    done = CliRunner().invoke(app, ["sweep", "-o", str(path), *chosen, *more])
    assert done.exit_code == 0, done.output
    assert taken == [job.case for job in own[1:]]


def test_going_on_with_a_finished_sweep_tells_its_failures_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    case = jobs()[0].case
    wrong = Record(case=case, environment=SETTINGS.environment, status="crash", stage="run", cause=Cause("run"))
    append(path, wrong)
    done = CliRunner().invoke(app, ["sweep", "-o", str(path), "--models", case.name, "-t", case.target, "--resume"])
    assert done.exit_code == 1
    assert "crash at run" in done.output


def test_a_mode_that_a_model_has_not_is_skipped_visibly() -> None:
    (job,) = model_jobs(["ssd300_vgg16"], ["cpu"], "train", "small", [], SETTINGS)
    record = supervise(job)
    assert (record.status, inconsistency(record)) == ("skipped", "")
    assert record.cause is not None
    assert "no train mode" in record.cause.detail


def test_a_sweep_that_is_stopped_ends_at_once() -> None:
    hanging = model_jobs(["Mnist"], ["cpu"], "eval", "small", ["hang", ""], SETTINGS)
    records = make_executor("local", 2).run(hanging)
    assert next(records).status == "pass"
    started = time.monotonic()
    records.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < SETTINGS.limits.seconds / 4


# --- what is no pass


class Plain(nn.Module):
    """What there is nothing to be said against."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(0)


class Broken(nn.Module):
    """A sum that torch cannot trace in one piece."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.exp().sum().item()
        return x * total


class Untraced(nn.Module):
    """What torch must not trace at all."""

    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Silent(nn.Module):
    """What gives no tensor."""

    def forward(self, x: torch.Tensor) -> int:
        (x * 2).sum()
        return 3


def measured(module: nn.Module, tell: list[Record] | None = None, rounds: int = 1) -> Record:
    job = Job(Case("model", "own", "cpu"), Environment("now"), rounds=rounds)
    told = [] if tell is None else tell
    return measure(job, told.append, lambda _: Subject(module, {"x": torch.ones(3)}))


def test_what_torch_runs_between_graphs_is_a_fallback() -> None:
    record = measured(Broken())
    assert record.status == "pass_with_fallback"
    assert record.breaks == 1
    assert "torch left a graph at test_sweep.py" in record.notes[0]
    assert not inconsistency(record)


@pytest.mark.parametrize(("module", "words"), [(Untraced(), "no graph"), (Silent(), "no tensor")])
def test_what_was_not_judged_is_no_pass(module: nn.Module, words: str) -> None:
    record = measured(module)
    assert record.status == "fail_accuracy"
    assert record.cause is not None
    assert words in record.cause.detail


def test_verdicts_alone() -> None:
    record = measured(Plain(), rounds=0)
    assert record.status == "pass"
    assert record.outputs
    assert record.speed.cold is not None
    assert (record.speed.median, record.speed.warm, record.speed.runs) == (None, None, 0)


class Narrowed(nn.Module):
    """A graph that says f32 inside, where f64 would do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear((x.double() * 2).to(torch.float32)).relu()


def test_the_first_wrong_op_is_found_behind_a_cast() -> None:
    subject = Subject(Narrowed().requires_grad_(False), {"x": torch.ones(1, 3)})
    assert first_wrong(subject, Options("cpu")) is None
    with injected("lowering:aten.addmm.default"):
        found = first_wrong(subject, Options("cpu"))
    assert found is not None
    assert found.op == "aten.addmm.default"


def test_nothing_is_told_while_runs_are_timed() -> None:
    few: list[Record] = []
    many: list[Record] = []
    assert measured(Plain(), few, rounds=1).speed.runs == 1
    assert measured(Plain(), many, rounds=9).speed.runs == 9
    assert len(few) == len(many)


FLIPPED = np.array([5, 7]), np.array([900, 7])


@pytest.mark.parametrize(
    ("found", "plain", "exact", "ok"),
    [
        ([5, 7], *FLIPPED, True),
        ([900, 7], *FLIPPED, True),
        ([6, 7], *FLIPPED, False),
        ([5, 8], *FLIPPED, False),
        ([True, False], np.array([True, True]), np.array([True, False]), True),
        ([False, True], np.array([True, True]), np.array([True, True]), False),
        ([1.0, 2.0], np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0]), True),
        ([1.0, 2.1], np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0]), False),
        ([1.0, 2.0], np.array([1.0, 2.0]), None, True),
        ([1.0, 2.1], np.array([1.0, 2.0]), None, False),
    ],
)
def test_where_rounding_decides(found: list[float], plain: Array, exact: Array | None, ok: bool) -> None:
    """Labels may be eager's or the exact ones; without an exact result there is no noise floor."""
    output = judged("y", np.array(found), plain, exact)
    assert output.ok is ok
    assert (output.noise is None) == (exact is None or exact.shape != plain.shape)


def test_unknown_names() -> None:
    with pytest.raises(NotFound, match="no model 'Mnits'"):
        model_jobs(["Mnits"], ["cpu"], "eval", "small", [], SETTINGS)
    with pytest.raises(NotFound, match="no executor"):
        make_executor("clouds", 1)


def test_a_target_that_does_not_exist_is_no_pass() -> None:
    record = run(Job(Case("model", "Mnist", "slate", size="small"), Environment("now"), rounds=1), lambda _: None)
    assert record.status == "unsupported"


@pytest.mark.slow
def test_killed_and_gone_on_with_gives_the_same_records(tmp_path: Path) -> None:
    chance = random.Random(3)
    path = tmp_path / "records.jsonl"
    command = [
        sys.executable,
        "-m",
        "assay.cli",
        "sweep",
        "--out",
        path,
        "--size",
        "small",
        "--rounds",
        "1",
        "--resume",
    ]
    command += [word for name in MODELS for word in ("--models", name)] + ["-t", "cpu", "-t", "reference"]
    for _ in range(10):
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            time.sleep(chance.uniform(1.0, 9.0))
            process.kill()
            process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = read(path)
    assert sorted(record.case for record in found.records) == sorted(job.case for job in jobs())
    assert {record.status for record in found.records} == {"pass"}


def test_workers_die_with_the_sweep(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "assay.cli", "sweep", "--out", tmp_path / "r.jsonl", "--models", "Mnist"]
    with subprocess.Popen([*command, "--inject", "hang"], start_new_session=True) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not _workers(process.pid):
            time.sleep(0.2)
        workers = _workers(process.pid)
        assert workers
        process.kill()
        process.wait()
    until = time.monotonic() + 20
    while time.monotonic() < until and any(map(_alive, workers)):
        time.sleep(0.2)
    assert not any(map(_alive, workers))


def _workers(parent: int) -> list[int]:
    """The processes that descend from one, without their helpers that only wait."""
    table = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found, frontier = [], [parent]
    while frontier:
        frontier = [child for child, of in table.items() if of in frontier]
        found += frontier
    return [each for each in found if _session(each) == each]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except OSError:
        return 0


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_ray_cluster_of_two_workers(tmp_path: Path) -> None:
    import ray

    path = tmp_path / "records.jsonl"
    try:
        found = list(sweep(jobs()[:3], make_executor("ray", 2), path))
        assert ray.cluster_resources()["CPU"] == 2
    finally:
        ray.shutdown()
    assert sorted(record.case for record in found) == sorted(job.case for job in jobs()[:3])
    assert {record.status for record in found} == {"pass"}


def test_names_of_tensors() -> None:
    one = torch.ones(1)
    assert [name for name, _ in named_tensors({"a": [one, 3], "b": one})] == ["a.0", "b"]
    library = importlib.import_module("diffusers.models.unets.unet_2d_condition")
    assert [name for name, _ in named_tensors(library.UNet2DConditionOutput(one))] == ["0"]


@pytest.mark.parametrize(("name", "most"), [("Llama", 0), ("Falcon", 0), ("Llama", 1 << 30), ("speecht5-tts", 1 << 30)])
def test_narrow_weights_are_widened(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "_MOST", most)
    model = MODELS_BY_NAME[name]
    module = model.build().to(torch.bfloat16)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    inputs = {
        key: value.bfloat16() if value.is_floating_point() else value for key, value in model.example(module).items()
    }
    found = Subject(module, inputs).exact().outputs
    for key, value in module.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])
    wide = {key: value.float() if value.is_floating_point() else value for key, value in inputs.items()}
    expected = Subject(module.float(), wide).run(module).outputs
    for key, value in expected.items():
        assert found[key].dtype == np.float32
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())
