"""Random torch programs on Assay's targets beside eager, in processes of their own."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from assay.evidence.fuzz.report import Answer, FuzzJob, FuzzReport, Progress, collected, normal
from assay.evidence.fuzz.torch_program import RandomProgram, reproducer
from assay.evidence.fuzz.workers import JobDied
from assay.processes import Handler

if TYPE_CHECKING:
    from assay.evidence.fuzz.torch_verdict import JudgedProgram

TARGETS = ("reference", "cpu")
TIMEOUT = 240.0
"""Seconds that a program may take on one target, the shrinking of what it shows included."""

SHRUNK = 2
"""How many faults of one kind a process makes small; those that follow are told as they are."""


def run_torch(
    count: int,
    seed: int = 0,
    targets: Sequence[str] = TARGETS,
    *,
    first: int = 0,
    processes: int = 2,
    progress: Progress | None = None,
) -> FuzzReport:
    """Run the programs `first` to `first + count - 1` of a seed on the targets, and on eager beside them."""
    return collected(
        FuzzReport("torch programs", seed),
        service,
        _note,
        targets=targets,
        first=first,
        count=count,
        processes=processes,
        timeout=TIMEOUT,
        progress=progress,
    )


def _note(report: FuzzReport, job: FuzzJob, answer: Answer | JobDied) -> None:
    if isinstance(answer, JobDied):
        report.died(job, answer, _source_of(job, answer) if answer.doing else "")
    else:
        report.add(job, answer)


def _source_of(job: FuzzJob, answer: JobDied) -> str:
    """The program that a process died of, which it had made."""
    from assay.evidence.fuzz.torch_random import random_program

    return reproducer(random_program(job.seed, job.index), answer.doing, answer.reason)


# --- in the process


def service() -> Handler:
    """What a process runs."""
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    return ProgramRunner().run


class ProgramRunner:
    """Runs programs; a fault is shrunk if few like it were seen before."""

    def __init__(self, shrunk: int = SHRUNK) -> None:
        self._shrunk = shrunk
        self._seen: Counter[tuple[str, str]] = Counter()

    def run(self, job: FuzzJob, doing: Callable[[str], None] = lambda what: None) -> Answer:
        """One program on every target."""
        from assay.evidence.fuzz.torch_random import random_program
        from assay.evidence.fuzz.torch_story import eager_story
        from assay.evidence.fuzz.torch_verdict import judge

        program = random_program(job.seed, job.index)
        expected = eager_story(program)
        rows: list[tuple[str, str, str, str]] = []
        for target in job.targets:
            doing(target)
            rows.append((target, *self._told(program, target, judge(program, target, expected))))
        raising = any(seen.error is not None for seen in expected)
        traits = {"grad": program.grad, "dynamic": program.dynamic, "raising in eager": raising}
        why = [normal(message) for _, status, message, _ in rows if status in ("torch", "kink")]
        held = (name for name, holds in traits.items() if holds)
        return Answer(tuple(rows), tuple(held), tuple(_ops(program)), tuple(why))

    def _told(self, program: RandomProgram, target: str, judged: JudgedProgram) -> tuple[str, str, str]:
        """(status, message, source) of a verdict."""
        if judged.found is None or judged.status in ("torch", "kink"):
            return judged.status, str(judged.found or ""), ""
        key = (judged.status, normal(str(judged.found)))
        self._seen[key] += 1
        least, message = program, str(judged.found)
        if self._seen[key] <= self._shrunk:
            least, message = _shrunk(program, target, judged)
        return "untyped error" if judged.untyped else judged.status, message, reproducer(least, target, message)


def _shrunk(program: RandomProgram, target: str, judged: JudgedProgram) -> tuple[RandomProgram, str]:
    """The least program found that shows a fault of the same kind, and how it shows it."""
    from assay.evidence.fuzz.torch_shrink import shrink
    from assay.evidence.fuzz.torch_story import eager_story
    from assay.evidence.fuzz.torch_verdict import judge

    message = str(judged.found)
    raising = any(seen.error is not None for seen in eager_story(program))

    def shows(smaller: RandomProgram) -> bool:
        nonlocal message
        try:
            expected = eager_story(smaller)
        except Exception:  # what is left makes no sense
            return False
        if not raising and any(seen.error is not None for seen in expected):
            return False
        again = judge(smaller, target, expected)
        alike = again.status == judged.status and _kind(again) == _kind(judged)
        message = str(again.found) if alike else message
        return alike

    least = shrink(program, shows)
    return least, message


def _kind(judged: JudgedProgram) -> str:
    """What must stay the same: the kind of difference, and for an error what it says."""
    if judged.found is None:
        return ""
    return normal(judged.found.message) if judged.found.kind == "error" else judged.found.kind


_OP = re.compile(r"\b(?:torch|F|nn)\.\w+|(?<=\.)\w+(?=\()|\b(?:cond|while_loop|map_|scan|checkpoint)\b")


def _ops(program: RandomProgram) -> Counter[str]:
    return Counter(name for step in program.steps for name in _OP.findall(step.text))
