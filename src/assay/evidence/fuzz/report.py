"""What came of a run over random programs or models: counts for each target, and findings with what shows them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


def normal(message: str) -> str:
    """A message without its numbers, so that messages of one cause are one."""
    return re.sub(r"[(\[]?-?[0-9][0-9., e+-]*[)\]]?", "#", message)[:160]


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
class Report:
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

    def note(self, target: str, status: str) -> None:
        """Count one verdict."""
        self.statuses.setdefault(target, Counter())[status] += 1

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
