"""Benchmarks: Assay and its peers on a model, each in a process of its own, which run in turns."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import BadFeed
from assay.evidence.bench.models import BenchModel, Material, RightOutputs
from assay.evidence.bench.peers import ENTRIES
from assay.evidence.bench.race import ContestantDied, Race, Racer, interleave
from assay.evidence.bench.records import FORMAT, SELF, Match, Result
from assay.evidence.bench.worker import (
    PREPARE,
    ContestantFailed,
    ContestantReady,
    ContestantTask,
    material_service,
    service,
)
from assay.evidence.machine import cpu_of, described
from assay.processes import Handler, Worker, WorkerDied, WorkerFailed, WorkerLimits

_ENOUGH = 10.0
"""Seconds after which a contestant is not started once more with filled caches."""
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How every model is run: `repeat` rounds with turns of about `seconds`; `cold` measures empty caches too.

    With filled caches, a contestant is started `starts` times.

    `form` is what Assay is given of a torch model: the `onnx` file that other runtimes get, or the exported `program`.
    """

    target: str
    peers: tuple[str, ...]
    threads: int
    form: str = "onnx"
    repeat: int = 20
    seconds: float = 0.3
    cold: bool = True
    timeout: float = 900.0
    starts: int = 5

    @property
    def contestants(self) -> tuple[str, ...]:
        """All that run, Assay first."""
        return (SELF, *self.peers)


class Process:
    """A contestant in a process."""

    def __init__(
        self,
        task: ContestantTask,
        environment: Mapping[str, str],
        timeout: float,
        service: Callable[[ContestantTask], Handler] = service,
    ) -> None:
        limits = WorkerLimits(start=timeout, seconds=timeout)
        self._worker = Worker(service, task, limits=limits, pickled=True, environment=environment)

    def ready(self) -> ContestantReady:
        """How the preparation went; `ContestantDied` if it did not."""
        return self._reply(PREPARE)

    def turn(self, count: int) -> list[float]:
        """The seconds that each of `count` inferences took."""
        return self._reply(count)

    def cpu(self) -> float | None:
        """The CPU time of the process so far, on Linux."""
        return cpu_of(self._worker.pid)

    def stop(self) -> None:
        """End the process for good; it has some time to end itself."""
        self._worker.close(_PATIENCE)

    def _reply(self, request: int) -> Any:
        return _asked_of(self._worker, request)


def _asked_of(worker: Worker, request: Any) -> Any:
    """A reply; `ContestantDied` if there is none."""
    try:
        reply = worker.ask(request)
    except WorkerDied as death:
        said = death.ending.last_line[:200] if death.ending.how in ("exit", "signal") else ""
        raise ContestantDied(f"{death.reason}: {said}" if said else death.reason) from None
    except WorkerFailed as error:
        raise ContestantDied(error.reason) from None
    if isinstance(reply, ContestantFailed):
        raise ContestantDied(reply.reason)
    return reply


def header(settings: BenchSettings, command: str) -> dict[str, Any]:
    """The first line of a run's records."""
    packages = dict.fromkeys(ENTRIES[name].package for name in settings.contestants)
    versions = {each.package: each.version() or "absent" for each in ENTRIES.values() if each.package in packages}
    return {
        "record": "run",
        "format": FORMAT,
        "command": command,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "machine": described(),
        "versions": {**versions, "Python": platform.python_version()},
        **_asked(settings),
    }


def _asked(settings: BenchSettings) -> dict[str, Any]:
    found = {key: getattr(settings, key) for key in ("target", "form", "threads", "repeat", "seconds", "cold")}
    return {**found, "peers": list(settings.peers)}


def check_resumed(before: Mapping[str, Any], settings: BenchSettings) -> None:
    """BadFeed if an earlier run was about something else."""
    for key, value in _asked(settings).items():
        if before.get(key) != value:
            raise BadFeed(
                f"the run to resume had {key} {before.get(key)}, this one has {value}",
                hint="give the same options, or start anew without --resume",
            )


def environment(threads: int, caches: Path | None) -> dict[str, str]:
    """What a contestant's process starts with; with `caches`, everything that it keeps on disk goes there."""
    count = str(threads)
    found = {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        # oneDNN's AMX kernels end eager's bf16 products with an illegal instruction where the kernel denies the tiles.
        "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"),
    }
    if caches is not None:
        names = ("ASSAY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")
        found |= {name: str(caches / name.lower()) for name in names}
    return found


def run_model(subject: BenchModel, settings: BenchSettings, tell: Callable[[str], None] = lambda text: None) -> Match:
    """All contestants on one model; what goes wrong with one of them is in its result."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as place, ExitStack() as stack:
        folder = Path(place)
        results = {name: Result(subject.name, name) for name in settings.contestants}
        tell("exporting")
        try:
            material, truth = _material(subject, folder / "model", settings)
        except ContestantDied as death:
            for result in results.values():
                result.status, result.reason = "failed", f"no model to run: {death}"
            return Match(subject.name, results)
        racers: dict[str, Racer] = {}
        for name, result in results.items():
            tell(f"{name} prepares")
            given = replace(material, program=None) if (name, settings.form) == (SELF, "onnx") else material
            result.reason = ENTRIES[name].refusal(given)
            if result.reason:
                result.status = "absent"
                continue
            task = ContestantTask(name, given, settings.threads, settings.target)
            try:
                process = _prepared(task, folder / f"{name}.caches", result, truth, settings, stack)
            except ContestantDied as death:
                result.status, result.reason = "failed", str(death)
                continue
            if result.status == "ok":
                racers[name] = process
            else:
                process.stop()
        rounds = settings.repeat
        race = interleave(racers, rounds, settings.seconds, lambda done: tell(f"round {done} of {rounds}"))
    for name in racers:
        _note(results[name], name, race)
    return Match(subject.name, results, [each.others for each in race.rounds])


def _material(subject: BenchModel, folder: Path, settings: BenchSettings) -> tuple[Material, RightOutputs]:
    """The model's forms, made in a process of its own."""
    with_onnx = settings.form == "onnx" or any("onnx" in ENTRIES[name].forms for name in settings.peers)
    with Worker(material_service, pickled=True, environment=environment(settings.threads, None)) as worker:
        return _asked_of(worker, (subject, folder, with_onnx))


def _prepared(
    task: ContestantTask, place: Path, result: Result, truth: RightOutputs, settings: BenchSettings, stack: ExitStack
) -> Process:
    """The contestant's process, ready to run; what it took, and how right it is, goes into `result`.

    `place` is for caches that are empty at first.
    """
    caches = place if settings.cold else None

    def started() -> Process:
        process = Process(task, environment(settings.threads, caches), settings.timeout)
        stack.callback(process.stop)
        return process

    if settings.cold:
        process = started()
        result.cold = process.ready().prepared
        process.stop()
    process, ready, result.warm = _warm(started, settings.starts)
    result.first_run = ready.first_run
    result.peak, result.kept, result.placed, result.left = ready.peak, ready.kept, ready.placed, ready.left
    verdict = truth.judge(ready.outputs)
    result.error, result.allowed = verdict.error, verdict.allowed
    if verdict.complaint:
        result.status, result.reason = "wrong", verdict.complaint
    return process


def _warm(started: Callable[[], Process], starts: int) -> tuple[Process, ContestantReady, float]:
    """A process that is ready, and what that took: the median of `starts`, of fewer if they take long."""
    seconds: list[float] = []
    while True:
        process = started()
        ready = process.ready()
        seconds.append(ready.prepared)
        if len(seconds) == starts or sum(seconds) >= _ENOUGH:
            return process, ready, statistics.median(seconds)
        process.stop()


def _note(result: Result, name: str, race: Race) -> None:
    result.turns = [each.turns[name] for each in race.rounds if name in each.turns]
    result.iterations, result.idle = race.iterations.get(name, 0), race.idle.get(name)
    if name in race.fallen:
        result.status, result.reason = "failed", race.fallen[name]
