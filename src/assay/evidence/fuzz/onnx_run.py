"""Random ONNX models on Assay's targets beside onnxruntime and the reference evaluator, in processes of their own."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Sequence

import onnx.printer

from assay.evidence.fuzz.onnx_cases import OnnxCase, random_case, smaller
from assay.evidence.fuzz.onnx_deviations import PEERS
from assay.evidence.fuzz.onnx_verdict import JudgedModel, deviating, judge
from assay.evidence.fuzz.report import GOOD, Answer, FuzzJob, FuzzReport, Progress, collected, normal
from assay.evidence.fuzz.workers import JobDied
from assay.processes import Handler

TARGETS = ("reference", "cpu")
TIMEOUT = 120.0
SHRUNK = 3
"""How many faults of one kind a process makes small."""


def run_onnx(
    count: int,
    seed: int = 0,
    targets: Sequence[str] = TARGETS,
    *,
    first: int = 0,
    processes: int = 2,
    progress: Progress | None = None,
) -> FuzzReport:
    """Run the models `first` to `first + count - 1` of a seed on the targets, and on the peers beside them."""
    return collected(
        FuzzReport("ONNX models", seed),
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
    if not isinstance(answer, JobDied):
        report.add(job, answer)
    elif answer.doing in PEERS:
        report.count += 1
        report.why[f"{answer.doing}: {answer.reason}"] += 1
    else:
        report.died(job, answer, "")


# --- in the process


def service() -> Handler:
    """What a process runs."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    return ModelRunner().run


class ModelRunner:
    """Runs models; a fault is shrunk if few like it were seen before."""

    def __init__(self, shrunk: int = SHRUNK) -> None:
        self._shrunk = shrunk
        self._seen: Counter[str] = Counter()

    def run(self, job: FuzzJob, doing: Callable[[str], None] = lambda what: None) -> Answer:
        """One model on every target."""
        doing(PEERS[0])  # what nobody else can compute on the way, it is asked
        case = random_case(job.seed, job.index)
        judged = judge(case, job.targets, doing)
        rows = [(target, *self._told(case, target, found, job.targets)) for target, found in judged.items()]
        traits = [case.style, f"{len(case.growths)} feeds"]
        why = [f"{peer}: {text}" for peer, reasons in deviating(case, case.growths[0]).items() for text in reasons]
        return Answer(tuple(rows), tuple(traits), tuple(case.ops), tuple(why))

    def _told(self, case: OnnxCase, target: str, found: JudgedModel, targets: Sequence[str]) -> tuple[str, str, str]:
        if found.status in GOOD:
            return found.status, "", ""
        key = f"{found.status} {normal(found.message)}"
        self._seen[key] += 1
        if self._seen[key] <= self._shrunk:
            case, found = shrunk(case, target, found, targets)
        return found.status, f"feed {found.feed}: {found.message}", text_of(case)


def shrunk(case: OnnxCase, target: str, found: JudgedModel, targets: Sequence[str]) -> tuple[OnnxCase, JudgedModel]:
    """The least case found that shows a fault of the same kind."""
    tried = True
    while tried:
        tried = False
        for less in smaller(case):
            again = judge(less, targets)[target]
            if again.status == found.status:
                case, found, tried = less, again, True
                break
    return case, found


def text_of(case: OnnxCase) -> str:
    """The model and what it is fed, as text."""
    lines = [onnx.printer.to_text(case.proto())]
    for growth in case.growths:
        lines += [f"{name} = {growth.values[name]!r}" for name in case.fed]
    fixed = [f"{name} = {array!r}" for name, array in case.growths[0].fixed.items()]
    return "\n".join([*lines, *fixed])
