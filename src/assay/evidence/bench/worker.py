"""The process of one contestant: it prepares the model, tells how that went, and runs it when it is told to."""

from __future__ import annotations

import gc
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from assay.evidence.bench.models import Material, reason_of
from assay.evidence.bench.peers import ENTRIES, Contestant
from assay.evidence.machine import forget_peak, memory_of
from assay.ir.dtypes import Array

_WARM_UP = 10
"""One inference in so many is run before each turn, and at least one."""


@dataclass(frozen=True, slots=True)
class Task:
    """Whom a process is for, and what it works on. What it writes to stderr goes to `log`."""

    contestant: str
    material: Material
    threads: int
    target: str
    log: Path


@dataclass(frozen=True, slots=True)
class Ready:
    """A contestant is prepared: seconds for that and for the first inference, the outputs, bytes of memory."""

    prepared: float
    first_run: float
    outputs: list[Array]
    peak: int
    kept: int
    placed: dict[str, int]
    left: dict[str, int]


@dataclass(frozen=True, slots=True)
class Failed:
    """A contestant came to nothing."""

    reason: str


def serve(line: Connection, task: Task) -> None:
    """Prepare; then time as many inferences as is said along `line`, again and again, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    redirect_errors(task.log)
    try:
        contestant, ready = _prepared(task)
    except Exception as error:
        line.send(Failed(reason_of(error)))
        return
    line.send(ready)
    while True:
        try:
            count: int = line.recv()
        except EOFError:
            return
        try:
            line.send(turn(contestant.run, count))
        except Exception as error:
            line.send(Failed(reason_of(error)))


def redirect_errors(log: Path) -> None:
    """What this process writes to stderr goes to a file from now on."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)


def _prepared(task: Task) -> tuple[Contestant, Ready]:
    contestant = ENTRIES[task.contestant].make(task.material, task.threads, task.target)
    before = _memory("VmRSS")
    contestant.read()
    forget_peak()
    prepared = _timed(contestant.prepare)
    first_run = _timed(contestant.run)
    outputs = contestant.outputs()
    gc.collect()
    peak, kept = _memory("VmHWM") - before, _memory("VmRSS") - before
    return contestant, Ready(prepared, first_run, outputs, peak, kept, contestant.placed(), contestant.left())


def turn(run: Callable[[], object], count: int) -> list[float]:
    """The seconds that each of `count` inferences takes, after a few to warm up."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(max(1, count // _WARM_UP)):
            run()
        return [_timed(run) for _ in range(count)]
    finally:
        gc.enable()


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _memory(key: str) -> int:
    """Bytes of the process that are in memory (VmRSS), or the most so far (VmHWM); without Linux always the most."""
    return memory_of("self", key) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
