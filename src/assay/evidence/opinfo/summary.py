"""The figures of an OpInfo run, all counted from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.evidence.opinfo.records import JUDGED, SELF, OpInfoRun, OpUnit, SampleResult, UnitResults

FAILED = ("wrong", "error", "crash", "timeout")
KINDS = ("f32", "f64", "bf16", "i64", "bool", "f32 grad")


@dataclass(frozen=True, slots=True)
class Fraction:
    """An exact fraction of things counted, never rounded into a pass."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part:,} of {self.whole:,}" + (f" ({self.percent})" if self.whole else "")

    @property
    def percent(self) -> str:
        """Rounded down, so that 100 % means all."""
        return f"{self.part * 10_000 // self.whole / 100:.2f} %"

    def reaches(self, percent: int) -> bool:
        """Whether the part is at least so many hundredths of the whole."""
        return self.whole > 0 and self.part * 100 >= percent * self.whole


@dataclass(frozen=True, slots=True)
class KindRow:
    """The samples of one kind: how many of each status on Assay, and how many a peer passes."""

    kind: str
    samples: int
    statuses: dict[str, int]
    peer: dict[str, Fraction]
    """By peer: of the samples that it passes, those that Assay passes too; nothing for gradients."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run shows."""

    rows: Sequence[KindRow]
    peer: dict[str, Fraction]
    """By peer, over all dtypes, without gradients."""
    gradients: Fraction
    """Of the differentiable samples that could be judged, those whose gradients match eager's."""
    gradients_unjudged: int
    failed: dict[str, int]
    """Samples that fail on Assay, by status."""
    shared: dict[str, int]
    """Those among them on which a peer fails too."""
    clean: Fraction
    """Ops none of whose graphs holds an opaque node, of those that have a graph."""
    clean_inference: Fraction
    no_graph_ops: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON takes it."""
        return asdict(self)


def summary(run: OpInfoRun) -> Summary:
    """The figures of a run."""
    plain = [finding for finding in run.findings if not finding.unit.grad]
    failed = list(failures(run))
    with_graphs = {op: found for op, found in _by_op(run.findings).items() if any(each.graphs for each in found)}
    inference = {op: found for op, found in _by_op(plain).items() if any(each.graphs for each in found)}
    judged, unjudged = _gradients(run.findings)
    return Summary(
        rows=[_row(kind, run) for kind in KINDS if any(each.unit.kind == kind for each in run.findings)],
        peer={peer: _also(plain, peer) for peer in run.peers},
        gradients=judged,
        gradients_unjudged=unjudged,
        failed={status: sum(each.verdict.status == status for each in failed) for status in FAILED},
        shared={status: sum(each.verdict.status == status and each.shared for each in failed) for status in FAILED},
        clean=_clean(with_graphs),
        clean_inference=_clean(inference),
        no_graph_ops=sorted(set(_by_op(run.findings)) - set(with_graphs)),
    )


@dataclass(frozen=True, slots=True)
class FailedSample:
    """A sample that fails on Assay; `shared` if a peer fails on it too."""

    unit: OpUnit
    sample: int
    verdict: SampleResult
    shared: bool


def failures(run: OpInfoRun, statuses: Sequence[str] = FAILED) -> Iterator[FailedSample]:
    """The samples that Assay leaves with one of these statuses."""
    for finding in run.findings:
        for index, verdict in finding.verdicts.get(SELF, {}).items():
            if verdict.status in statuses:
                yield FailedSample(finding.unit, index, verdict, _peer_fails(finding, index))


def _peer_fails(finding: UnitResults, index: int) -> bool:
    others = (verdicts.get(index) for backend, verdicts in finding.verdicts.items() if backend != SELF)
    return any(verdict is not None and verdict.status in FAILED for verdict in others)


def opaque_ops(run: OpInfoRun) -> dict[str, tuple[str, set[str], set[str]]]:
    """By aten op that torch had to run: the reason, the database's ops where that was, and the phases."""
    found: dict[str, tuple[str, set[str], set[str]]] = {}
    for finding in run.findings:
        for phase, reasons in finding.opaque.items():
            for target, reason in reasons.items():
                _, ops, phases = found.setdefault(target, (reason, set(), set()))
                ops.add(finding.unit.op)
                phases.add(phase)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1][1]), item[0])))


def _row(kind: str, run: OpInfoRun) -> KindRow:
    findings = [finding for finding in run.findings if finding.unit.kind == kind]
    statuses = Counter(verdict.status for each in findings for verdict in each.verdicts.get(SELF, {}).values())
    gradients = any(finding.unit.grad for finding in findings)
    peers = {} if gradients else {peer: _also(findings, peer) for peer in run.peers}
    return KindRow(kind, sum(finding.samples for finding in findings), dict(statuses), peers)


def _also(findings: Sequence[UnitResults], peer: str) -> Fraction:
    """Of the samples that the peer passes, those that Assay passes too."""
    passed = [
        finding.verdicts.get(SELF, {}).get(index)
        for finding in findings
        for index, verdict in finding.verdicts.get(peer, {}).items()
        if verdict.status == "pass"
    ]
    return Fraction(sum(verdict is not None and verdict.status == "pass" for verdict in passed), len(passed))


def _gradients(findings: Sequence[UnitResults]) -> tuple[Fraction, int]:
    verdicts = [
        finding.verdicts.get(SELF, {}).get(index)
        for finding in findings
        if finding.unit.grad
        for index in finding.differentiable
    ]
    judged = [verdict for verdict in verdicts if verdict is None or verdict.status in JUDGED]
    good = sum(verdict is not None and verdict.status == "pass" for verdict in judged)
    return Fraction(good, len(judged)), len(verdicts) - len(judged)


def _by_op(findings: Sequence[UnitResults]) -> dict[str, list[UnitResults]]:
    found: dict[str, list[UnitResults]] = {}
    for finding in findings:
        found.setdefault(finding.unit.op, []).append(finding)
    return found


def _clean(ops: dict[str, list[UnitResults]]) -> Fraction:
    return Fraction(sum(not any(finding.opaque for finding in found) for found in ops.values()), len(ops))
