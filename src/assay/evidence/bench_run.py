"""Benchmarks: contestants in processes of their own that run in turn, round after round, never two at once.

What disturbs the machine for longer than a turn thus disturbs all of them, and ratios are taken within a round. The
processes stay alive between their turns; how much of a core each uses meanwhile is recorded.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from assay.errors import BadFeed
from assay.evidence.attempts import exit_text
from assay.evidence.bench_machine import cores, cpu_of, cpu_of_all, described
from assay.evidence.bench_models import Material, Subject, Truth, make_material, reason_of
from assay.evidence.bench_peers import ENTRIES
from assay.evidence.bench_records import FORMAT, SELF, Match, Result
from assay.evidence.bench_worker import Failed, Ready, Task, serve

_PAUSE = 0.02
"""Seconds between turns, in which the threads of the one before come to rest."""
_MOST = 2000
"""Inferences in a turn."""
_DISTURBED = 0.1
"""A round is disturbed if other processes used more than this part of the machine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How every model is run: `repeat` rounds with turns of about `seconds`; `cold` measures empty caches too."""

    target: str
    peers: tuple[str, ...]
    threads: int
    repeat: int = 20
    seconds: float = 0.3
    cold: bool = True
    timeout: float = 900.0

    @property
    def contestants(self) -> tuple[str, ...]:
        """All that run, Assay first."""
        return (SELF, *self.peers)


class Died(Exception):
    """A contestant's process ended, hung or refused; the text says how."""


class Racer(Protocol):
    """Somebody who runs when it is his turn."""

    def turn(self, count: int) -> list[float]:
        """The seconds that each of `count` inferences took; Died if it comes to nothing."""
        ...

    def cpu(self) -> float | None:
        """The seconds of CPU time used so far; None where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the median seconds of each racer's turn, and the part of the machine that others used meanwhile."""

    turns: Mapping[str, float]
    others: float | None


@dataclass(slots=True)
class Race:
    """What came of some rounds: how many inferences a turn has, CPU use of each racer at rest, why some fell out."""

    rounds: list[Round] = field(default_factory=list[Round])
    iterations: dict[str, int] = field(default_factory=dict[str, int])
    idle: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    fallen: dict[str, str] = field(default_factory=dict[str, str])


def interleave(
    racers: Mapping[str, Racer],
    repeat: int,
    seconds: float,
    tell: Callable[[int], None] = lambda done: None,
    used: Callable[[], float | None] = cpu_of_all,
) -> Race:
    """Rounds in which every racer has one turn of about `seconds`, each time beginning with another.

    There are `repeat` of them; if others disturb, up to twice as many, of which the quietest are kept. Who dies is out.
    `used` tells the CPU time of the whole machine.
    """
    race = Race()
    live = {name: _Lane(racer) for name, racer in racers.items()}

    def attempt(name: str, count: int) -> list[float]:
        time.sleep(_PAUSE)
        try:
            return live[name].turn(count)
        except Died as death:
            race.fallen[name] = str(death)
            del live[name]
            return []

    for name in racers:
        first = attempt(name, 1)
        pace = attempt(name, 3 if first[0] < seconds else 1) if first else []
        if pace:
            race.iterations[name] = min(_MOST, max(1, round(seconds / statistics.median(pace))))
    while live and len(race.rounds) < 2 * repeat and _quiet(race.rounds) < repeat:
        order, start = tuple(live), len(race.rounds) % len(live)
        watch = _Watch(used, [lane.racer for lane in live.values()])
        turns = {name: attempt(name, race.iterations[name]) for name in order[start:] + order[:start]}
        medians = {name: statistics.median(times) for name, times in turns.items() if times}
        race.rounds.append(Round(medians, watch.others()))
        tell(len(race.rounds))
    race.rounds = sorted(race.rounds, key=lambda each: each.others or 0.0)[:repeat]
    race.idle = {name: lane.idle for name, lane in live.items()}
    return race


def _quiet(rounds: Sequence[Round]) -> int:
    """How many rounds were not disturbed, as far as is known."""
    return sum((each.others or 0.0) <= _DISTURBED for each in rounds)


class _Lane:
    """A racer, and what it uses of the CPU while it is not its turn."""

    def __init__(self, racer: Racer) -> None:
        self.racer = racer
        self._rested: tuple[float, float] | None = None
        self._cpu = self._wall = 0.0

    def turn(self, count: int) -> list[float]:
        """The racer's turn."""
        cpu = self.racer.cpu()
        if self._rested is not None and cpu is not None:
            self._cpu += cpu - self._rested[0]
            self._wall += time.perf_counter() - self._rested[1]
        times = self.racer.turn(count)
        cpu = self.racer.cpu()
        self._rested = None if cpu is None else (cpu, time.perf_counter())
        return times

    @property
    def idle(self) -> float | None:
        """The part of one core that it used between turns."""
        return self._cpu / self._wall if self._wall else None


class _Watch:
    """What of the machine is used by others than some racers, from now on."""

    def __init__(self, used: Callable[[], float | None], racers: Sequence[Racer]) -> None:
        self._used, self._racers = used, racers
        self._begun = self._figures()

    def others(self) -> float | None:
        """The part of all cores; None if it is not known."""
        begun, now = self._begun, self._figures()
        if begun is None or now is None or now[0] <= begun[0]:
            return None
        return max(0.0, (now[1] - begun[1]) / (now[0] - begun[0]) / cores())

    def _figures(self) -> tuple[float, float] | None:
        whole, own = self._used(), [racer.cpu() for racer in self._racers]
        known = [each for each in own if each is not None]
        return None if whole is None or len(known) < len(own) else (time.perf_counter(), whole - sum(known))


class Process:
    """A contestant in a process."""

    def __init__(self, task: Task, environment: Mapping[str, str], timeout: float) -> None:
        self._task, self._timeout = task, timeout
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=serve, args=(theirs, task), daemon=False)
        with _environment(environment):
            self._process.start()
        theirs.close()

    def ready(self) -> Ready:
        """How the preparation went; Died if it did not."""
        return self._reply()

    def turn(self, count: int) -> list[float]:
        """The seconds that each of `count` inferences took."""
        try:
            self._line.send(count)
        except OSError:
            raise Died(self._end()) from None
        return self._reply()

    def cpu(self) -> float | None:
        """The CPU time of the process so far, on Linux."""
        return cpu_of(self._process.pid)

    def stop(self) -> None:
        """End the process; it has some time to end itself."""
        self._line.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _reply(self) -> Any:
        try:
            if not self._line.poll(self._timeout):
                self._process.kill()
                self._process.join()
                raise Died(f"took longer than {self._timeout:g} s")
            reply = self._line.recv()
        except (EOFError, OSError):
            raise Died(self._end()) from None
        if isinstance(reply, Failed):
            raise Died(reply.reason)
        return reply

    def _end(self) -> str:
        """How the process ended, and the last that it said."""
        self._process.join(5.0)
        said = ""
        with suppress(OSError):
            said = next(reversed(self._task.log.read_text(errors="replace").split("\n\n")[-1].strip().splitlines()), "")
        return f"the process died with {exit_text(self._process.exitcode)}" + (f": {said[:200]}" if said else "")


@contextmanager
def _environment(changes: Mapping[str, str]) -> Generator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def header(settings: Settings, command: str) -> dict[str, Any]:
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


def _asked(settings: Settings) -> dict[str, Any]:
    found = {key: getattr(settings, key) for key in ("target", "threads", "repeat", "seconds", "cold")}
    return {**found, "peers": list(settings.peers)}


def check_resumed(before: Mapping[str, Any], settings: Settings) -> None:
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


def run_model(subject: Subject, settings: Settings, tell: Callable[[str], None] = lambda text: None) -> Match:
    """All contestants on one model; what goes wrong with one of them is in its result."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as place, ExitStack() as stack:
        folder = Path(place)
        results = {name: Result(subject.name, name) for name in settings.contestants}
        tell("exporting")
        try:
            material, truth = _material(subject, folder / "model", settings)
        except Exception as error:  # whatever the model's own code raises
            for result in results.values():
                result.status, result.reason = "failed", f"no model to run: {reason_of(error)}"
            return Match(subject.name, results)
        racers: dict[str, Racer] = {}
        for name, result in results.items():
            tell(f"{name} prepares")
            result.reason = ENTRIES[name].refusal(material)
            if result.reason:
                result.status = "absent"
                continue
            task = Task(name, material, settings.threads, settings.target, folder / f"{name}.log")
            try:
                racers[name] = _prepared(task, result, truth, settings, stack)
            except Died as death:
                result.status, result.reason = "failed", str(death)
        rounds = settings.repeat
        race = interleave(racers, rounds, settings.seconds, lambda done: tell(f"round {done} of {rounds}"))
    for name in racers:
        _note(results[name], name, race)
    return Match(subject.name, results, [each.others for each in race.rounds])


def _material(subject: Subject, folder: Path, settings: Settings) -> tuple[Material, Truth]:
    """The model's forms, made in a process of its own."""
    with_onnx = any(ENTRIES[name].form == "onnx" for name in settings.contestants)
    context = multiprocessing.get_context("spawn")
    with _environment(environment(settings.threads, None)), ProcessPoolExecutor(1, context) as pool:
        return pool.submit(make_material, subject, folder, with_onnx).result()


def _prepared(task: Task, result: Result, truth: Truth, settings: Settings, stack: ExitStack) -> Process:
    """The contestant's process, ready to run; what it took, and how right it is, goes into `result`."""
    caches = task.log.with_suffix(".caches") if settings.cold else None

    def started() -> Process:
        process = Process(task, environment(settings.threads, caches), settings.timeout)
        stack.callback(process.stop)
        return process

    if settings.cold:
        process = started()
        result.cold = process.ready().prepared
        process.stop()
    process = started()
    ready = process.ready()
    result.warm, result.first_run = ready.prepared, ready.first_run
    result.peak, result.kept, result.placed = ready.peak, ready.kept, ready.placed
    verdict = truth.judge(ready.outputs)
    result.error, result.allowed = verdict.error, verdict.allowed
    if verdict.complaint:
        result.status, result.reason = "wrong", verdict.complaint
    return process


def _note(result: Result, name: str, race: Race) -> None:
    result.turns = [each.turns[name] for each in race.rounds if name in each.turns]
    result.iterations, result.idle = race.iterations.get(name, 0), race.idle.get(name)
    if name in race.fallen:
        result.status, result.reason = "failed", race.fallen[name]
