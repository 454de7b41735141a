"""How long a demo takes: its first run in stages, and its second, which is what all later ones take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.progress import Progress

from assay.cli.output import CommandOutput
from assay.runtime.stages import Clock, timing
from assay.runtime.targets import is_modelled
from assay.targets.base import DEVICE_MODEL

Found = TypeVar("Found")

_WORDS = {
    "trace": "tracing",
    "import": "importing",
    "lower": "lowering",
    "compile": "compiling",
    "run": "running",
}


class DemoProgress:
    """Tells on a progress bar what is being done, and how many tokens there are."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task = bar, bar.task_ids[0]

    def doing(self, what: str) -> None:
        """From now on this is done; for a stage its name is enough."""
        self._bar.update(self._task, description=_WORDS.get(what, what))

    def tokens(self, count: int) -> None:
        """So many tokens were chosen."""
        self._bar.update(self._task, completed=count)


@dataclass(frozen=True, slots=True)
class Timed(Generic[Found]):
    """What a run found, how long it took, and how much of that each stage took."""

    found: Found
    seconds: float
    stages: dict[str, float]

    @property
    def outside(self) -> float:
        """What was taken outside of all stages."""
        return max(self.seconds - sum(self.stages.values()), 0.0)


def timed(work: Callable[[], Found], watch: DemoProgress, between: str) -> Timed[Found]:
    """Do `work`; `between` is what is under way outside of stages."""
    clock = Clock(watch.doing, between)
    watch.doing(between)
    started = time.perf_counter()
    with timing(clock):
        found = work()
    return Timed(found, time.perf_counter() - started, clock.seconds)


def first_run(first: Timed[Any], second: Timed[Any]) -> dict[str, float]:
    """The stages of a first run. What it took outside of them beyond what the second run takes there is tracing, if
    there was any; the rest belongs to the run."""
    traced = max(first.outside - second.outside, 0.0) if "run" in first.stages else 0.0
    stages = {**first.stages, "run": first.stages.get("run", 0.0) + first.outside - traced}
    if "run" in first.stages:
        stages["trace"] = traced
    return {name: stages[name] for name in _WORDS if name in stages}


def show_times(
    report: CommandOutput, chain: str, sound: float, stages: dict[str, float], second: float
) -> dict[str, Any] | None:
    """The headline is the second run; what the first one took more is told by stages. Gives both as JSON has them; None
    if a device model computed, of which no times are told."""
    if is_modelled(chain):
        report.text(DEVICE_MODEL)
        return None
    report.text(f"{sound:.1f} s of speech in {second:.2f} s, the second time.")
    whole = ", ".join(f"{_WORDS[name]} {seconds:.2f} s" for name, seconds in stages.items())
    report.text(f"The first time it took {sum(stages.values()):.1f} s: {whole}")
    return {"second": second, "first": stages}
