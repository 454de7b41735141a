"""What an OpInfo run writes down: JSON lines, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.evidence.json_lines import read_lines

DTYPES = ("f32", "f64", "bf16", "i64", "bool")
SELF = "assay"
STATUSES: Mapping[str, str] = {
    "pass": "outputs, inputs after the call and gradients agree with eager's",
    "rounding": "beyond the tolerance, but no farther from eager's float64 result than eager is",
    "wrong": "the results differ",
    "error": "the call failed where eager's did not",
    "crash": "the process died",
    "timeout": "the time limit was exceeded",
    "no_graph": "dynamo handed over no graph: nothing ran on the backend",
    "nondeterministic": "eager does not agree with itself under one seed: shapes and dtypes alone were compared",
    "skipped": "eager itself fails",
}
JUDGED = ("pass", "rounding", "wrong", "error", "crash", "timeout")
"""The statuses of samples that were really put to the test."""


@dataclass(frozen=True, slots=True)
class OpUnit:
    """The samples of one op (with its variant) in one dtype; with `grad` they are differentiated too."""

    op: str
    dtype: str
    grad: bool = False

    def __str__(self) -> str:
        return f"{self.op} {self.kind}"

    @property
    def kind(self) -> str:
        """The dtype, and whether it is about gradients."""
        return f"{self.dtype} grad" if self.grad else self.dtype


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What became of one sample on one backend."""

    status: str
    reason: str = ""
    breaks: int = 0
    """How many graph breaks there were: parts of the sample that ran in Python."""


@dataclass(slots=True)
class UnitResults:
    """All that is known about a unit."""

    unit: OpUnit
    samples: int = 0
    verdicts: dict[str, dict[int, SampleResult]] = field(default_factory=dict[str, dict[int, SampleResult]])
    """By backend and sample."""
    differentiable: set[int] = field(default_factory=set[int])
    """The samples of a unit with gradients that have one in eager."""
    graphs: dict[str, int] = field(default_factory=dict[str, int])
    """How many graphs Assay compiled, by phase."""
    opaque: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By phase: the aten ops that torch ran, with the reason."""
    tolerance: tuple[float, float] = (0.0, 0.0)
    seconds: float = 0.0
    failure: str = ""
    """Why there are no samples, or not all."""

    @property
    def judged_count(self) -> int:
        """How many verdicts there are."""
        return sum(len(verdicts) for verdicts in self.verdicts.values())

    def lines(self) -> Iterator[dict[str, Any]]:
        """The finding as JSON lines: one for each sample and backend, then one for the unit."""
        name = {"op": self.unit.op, "dtype": self.unit.dtype, "grad": self.unit.grad}
        for backend, verdicts in self.verdicts.items():
            for index in sorted(verdicts):
                verdict = verdicts[index]
                line: dict[str, Any] = {"record": "sample", **name, "sample": index, "backend": backend}
                line["status"] = verdict.status
                extra = {"reason": verdict.reason, "breaks": verdict.breaks}
                yield line | {key: value for key, value in extra.items() if value}
        yield {
            "record": "unit",
            **name,
            "samples": self.samples,
            "differentiable": sorted(self.differentiable),
            "graphs": self.graphs,
            "opaque": self.opaque,
            "tolerance": list(self.tolerance),
            "seconds": round(self.seconds, 3),
            "failure": self.failure,
        }


@dataclass(frozen=True)
class OpInfoRun:
    """A run so far: how it was started (`header`) and what it found."""

    header: Mapping[str, Any]
    findings: Sequence[UnitResults]

    @property
    def peers(self) -> list[str]:
        """The backends that ran beside Assay."""
        return list(self.header["peers"])


def read(path: Path) -> OpInfoRun:
    """What a file of JSON lines holds. Units that were not finished, and lines cut short, are left out."""
    header: dict[str, Any] = {}
    findings: list[UnitResults] = []
    open_units: dict[OpUnit, UnitResults] = {}
    for line in read_lines(path):
        if line["record"] == "run":
            header = line
        if line["record"] not in ("sample", "unit"):
            continue
        unit = OpUnit(line["op"], line["dtype"], line["grad"])
        finding = open_units.setdefault(unit, UnitResults(unit))
        if line["record"] == "sample":
            verdict = SampleResult(line["status"], line.get("reason", ""), line.get("breaks", 0))
            finding.verdicts.setdefault(line["backend"], {})[line["sample"]] = verdict
            continue
        finding.samples, finding.seconds = line["samples"], line["seconds"]
        finding.differentiable, finding.tolerance = set(line["differentiable"]), tuple(line["tolerance"])
        finding.graphs, finding.opaque, finding.failure = line["graphs"], line["opaque"], line["failure"]
        findings.append(open_units.pop(unit))
    return OpInfoRun(header, findings)
