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

from assay.errors import BadFeed, NotFound
from assay.evidence.records import Case, Environment, Record, append, read
from assay.evidence.records.merge import merged
from assay.evidence.sweep import subjects
from assay.evidence.sweep.executors import make_executor
from assay.evidence.sweep.jobs import Job, Limits, Shard, parse_shard, part
from assay.evidence.sweep.run import Settings, model_jobs, op_jobs, remaining, sweep
from assay.evidence.sweep.subjects import Subject, named_tensors
from assay.evidence.sweep.worker import run
from assay.zoo.torch import MODELS as MODELS_BY_NAME
from assay.zoo.torch._torchvision import declare_operators

SETTINGS = Settings(Environment("now"), Limits(200.0, 4 << 30), 1, 1)
MODELS = ["Mnist", "Autoencoder (linear)", "Autoencoder (conv)"]
TARGETS = ["cpu", "reference"]


def jobs(mode: str = "eval") -> list[Job]:
    return model_jobs(MODELS, TARGETS, mode, "small", [], SETTINGS)  # type: ignore[arg-type]


def test_every_case_of_the_small_models_passes(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    found = list(sweep(jobs(), Shard(), make_executor("local", 2), path))
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
    list(sweep(jobs()[:1], Shard(), make_executor("local", 1), path))
    todo = op_jobs(read(path).records, ["cpu"], SETTINGS)
    assert len(todo) == len(read(path).records[0].configurations)
    found = [run(job, lambda _: None) for job in todo]
    assert {record.status for record in found} <= {"pass", "pass_with_fallback"}, [r.cause for r in found]
    assert {record.models for record in found} == {("Mnist",)}
    assert all(record.outputs for record in found)


def test_a_failure_has_a_file_that_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    broken = model_jobs(["Mnist"], ["cpu"], "eval", "small", ["kernel", "run"], SETTINGS)
    for record in sweep(broken, Shard(), make_executor("local", 2), path):
        assert record.reproduced is True
        assert (tmp_path / record.reproducer).is_file()


def test_a_file_that_shows_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.evidence.sweep import reproducers

    monkeypatch.setattr(reproducers, "_script", lambda *_: "raise SystemExit(0)")
    path = tmp_path / "records.jsonl"
    broken = model_jobs(["Mnist"], ["cpu"], "eval", "small", ["compile"], SETTINGS)
    (record,) = sweep(broken, Shard(), make_executor("local", 1), path)
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


def test_unknown_names() -> None:
    with pytest.raises(NotFound, match="no model 'Mnits'"):
        model_jobs(["Mnits"], ["cpu"], "eval", "small", [], SETTINGS)
    with pytest.raises(NotFound, match="no executor"):
        make_executor("clouds", 1)


def test_a_target_that_does_not_exist_is_no_pass() -> None:
    record = run(Job(Case("model", "Mnist", "abacus", size="small"), Environment("now"), rounds=1), lambda _: None)
    assert record.status == "unsupported"


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
        found = list(sweep(jobs()[:3], Shard(), make_executor("ray", 2), path))
        assert ray.cluster_resources()["CPU"] == 2
    finally:
        ray.shutdown()
    assert sorted(record.case for record in found) == sorted(job.case for job in jobs()[:3])
    assert {record.status for record in found} == {"pass"}


def test_names_of_tensors() -> None:
    one = torch.ones(1)
    assert [name for name, _ in named_tensors({"a": [one, 3], "b": one})] == ["a.0", "b"]
    declare_operators()
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
