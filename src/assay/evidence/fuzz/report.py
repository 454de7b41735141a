"""What came of a run over random programs or models: counts for each target, and findings with what shows them."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from assay.evidence.fuzz.workers import JobDied, answers
from assay.processes import Handler


def normal(message: str) -> str:
    """A message without its numbers, so that messages of one cause are one."""
    return re.sub(r"[(\[]?-?[0-9][0-9., e+-]*[)\]]?", "#", message)[:160]


Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many are done, and how many there will be."""

GOOD = ("pass", "no graph", "no peer", "torch", "kink", "evaluator alone", "ill-conditioned")
"""Statuses that are no findings: right; nothing was compiled; nobody else can run it; torch itself is at fault;
rounding decides a choice; onnxruntime agrees and onnx's reference evaluator alone does not; rounding moves results by
as much."""


@dataclass(frozen=True, slots=True)
class FuzzJob:
    """The number of a program or model and the targets that it is run on."""

    seed: int
    index: int
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one: (target, status, message, source) for each target, its traits and ops, and whose answers did
    not count for what reason."""

    rows: tuple[tuple[str, str, str, str], ...]
    traits: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault: `source` is a script or text that shows it, as small as could be found."""

    index: int
    target: str
    status: str
    message: str
    source: str

    @property
    def key(self) -> str:
        """What findings of one cause have in common, as far as their messages tell."""
        return f"{self.status}: {normal(self.message)}"

    def __str__(self) -> str:
        return f"number {self.index} on {self.target}, {self.status}: {self.message}\n{self.source}"


@dataclass
class FuzzReport:
    """What a run found. `statuses` counts by target and status, `why` the reasons of those that are not ours."""

    kind: str
    seed: int
    count: int = 0
    seconds: float = 0.0
    statuses: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    traits: Counter[str] = field(default_factory=Counter[str])
    ops: Counter[str] = field(default_factory=Counter[str])
    why: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def ok(self) -> bool:
        """True if nothing was found, and something passed on every target."""
        return not self.findings and all(counts["pass"] for counts in self.statuses.values()) and bool(self.statuses)

    def add(self, job: FuzzJob, answer: Answer) -> None:
        """Count what became of one."""
        self.count += 1
        self.traits.update(answer.traits)
        self.ops.update(answer.ops)
        self.why.update(answer.why)
        for target, status, message, source in answer.rows:
            self.statuses.setdefault(target, Counter())[status] += 1
            if status not in GOOD:
                self.findings.append(Finding(job.index, target, status, message, source))

    def died(self, job: FuzzJob, answer: JobDied, source: str) -> None:
        """Count one whose process ended or was ended."""
        self.count += 1
        target = answer.doing or "outside of all targets"
        self.statuses.setdefault(target, Counter())["crash"] += 1
        self.findings.append(Finding(job.index, target, "crash", answer.reason, source))

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        statuses = {target: dict(counts) for target, counts in self.statuses.items()}
        counted = {name: dict(getattr(self, name).most_common()) for name in ("traits", "ops", "why")}
        findings = [
            {name: getattr(each, name) for name in ("index", "target", "status", "message", "source")}
            for each in self.findings
        ]
        return {**vars(self), "statuses": statuses, **counted, "findings": findings, "ok": self.ok}

    def __str__(self) -> str:
        traits = ", ".join(f"{count} {name}" for name, count in self.traits.most_common())
        lines = [
            f"{self.count} {self.kind} from seed {self.seed} in {self.seconds:.0f} s, {len(self.ops)} ops: "
            f"{len(self.findings)} findings",
            f"  {traits}",
        ]
        for target, counts in self.statuses.items():
            lines.append(f"  {target}: " + ", ".join(f"{count} {status}" for status, count in counts.most_common()))
        lines += [f"    {count} × {reason}" for reason, count in self.why.most_common(20)]
        return "\n".join([*lines, *map(str, self._first_of_each())])

    def _first_of_each(self) -> list[Finding]:
        """One finding for each cause."""
        return list({finding.key: finding for finding in reversed(self.findings)}.values())[::-1]


def collected(
    report: FuzzReport,
    service: Callable[[], Handler],
    note: Callable[[FuzzReport, FuzzJob, Answer | JobDied], None],
    *,
    targets: Sequence[str],
    first: int,
    count: int,
    processes: int,
    timeout: float,
    progress: Progress | None,
) -> FuzzReport:
    """The report of the programs or models `first` to `first + count - 1` of its seed: `service` runs them in processes
    of their own, each for `timeout` seconds at most, and `note` enters what came of one."""
    started = time.perf_counter()
    jobs = [FuzzJob(report.seed, first + index, tuple(targets)) for index in range(count)]
    for done, (job, answer) in enumerate(answers(service, jobs, processes=processes, timeout=timeout), start=1):
        note(report, job, answer)
        if progress is not None:
            progress(done, count)
    report.seconds = time.perf_counter() - started
    report.findings.sort(key=lambda finding: (finding.index, finding.target))
    return report
