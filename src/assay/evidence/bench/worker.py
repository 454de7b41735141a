"""The process of one contestant: it prepares the model, tells how that went, and runs it when it is told to."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.evidence.bench.models import BenchModel, Material, make_material, reason_of
from assay.evidence.bench.peers import ENTRIES, Contestant
from assay.evidence.machine import forget_peak, memory_of
from assay.ir.dtypes import Array
from assay.processes import Handler, Tell

PREPARE = 0
"""The request to prepare, instead of a number of inferences."""
_WARM_UP = 10
"""One inference in so many is run before each turn, and at least one."""


@dataclass(frozen=True, slots=True)
class ContestantTask:
    """Whom a process is for, and what it works on."""

    contestant: str
    material: Material
    threads: int
    target: str


@dataclass(frozen=True, slots=True)
class ContestantReady:
    """A contestant is prepared: seconds for that and for the first inference, the outputs, bytes of memory."""

    prepared: float
    first_run: float
    outputs: list[Array]
    peak: int
    kept: int
    placed: dict[str, int]
    left: dict[str, int]


@dataclass(frozen=True, slots=True)
class ContestantFailed:
    """A contestant came to nothing."""

    reason: str


def service(task: ContestantTask) -> Handler:
    """What the process of a contestant runs. The request PREPARE is answered with `ContestantReady`, a number with the
    seconds that each of so many inferences took."""
    contestant = ENTRIES[task.contestant].make(task.material, task.threads, task.target)

    def run(request: int, tell: Tell) -> Any:
        try:
            return _prepared(contestant) if request == PREPARE else turn(contestant.run, request)
        except Exception as error:
            return ContestantFailed(reason_of(error))

    return run


def material_service() -> Handler:
    """What the process that makes a model's forms runs."""

    def run(request: tuple[BenchModel, Path, bool], tell: Tell) -> Any:
        try:
            return make_material(*request)
        except Exception as error:  # whatever the model's own code raises
            return ContestantFailed(reason_of(error))

    return run


def _prepared(contestant: Contestant) -> ContestantReady:
    before = _memory("VmRSS")
    contestant.read()
    forget_peak()
    prepared = _timed(contestant.prepare)
    first_run = _timed(contestant.run)
    outputs = contestant.outputs()
    gc.collect()
    peak, kept = _memory("VmHWM") - before, _memory("VmRSS") - before
    return ContestantReady(prepared, first_run, outputs, peak, kept, contestant.placed(), contestant.left())


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
