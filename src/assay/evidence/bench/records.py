"""What a benchmark finds: one record for each contestant on each model, and the figures that follow from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from assay.errors import BadFeed
from assay.evidence.json_lines import read_lines

FORMAT = 1
"""The version of the records; a reader refuses others."""
SELF = "assay"
"""The contestant that all others are compared with."""

STATUSES = {
    "ok": "ran, and the outputs are right",
    "wrong": "ran, and an output is farther from the expected one than rounding explains",
    "failed": "could not prepare or run the model",
    "absent": "is not installed, or takes no models of this kind",
}


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some numbers, and the tenth and ninetieth percentile."""

    middle: float
    low: float
    high: float


def spread(numbers: Sequence[float]) -> Spread | None:
    """The spread of some numbers; None if there are none."""
    if not numbers:
        return None
    if len(numbers) == 1:
        return Spread(numbers[0], numbers[0], numbers[0])
    cuts = statistics.quantiles(numbers, n=10, method="inclusive")
    return Spread(statistics.median(numbers), cuts[0], cuts[-1])


def geometric_mean(numbers: Sequence[float]) -> float | None:
    """None if there are no numbers."""
    return math.exp(statistics.fmean(map(math.log, numbers))) if numbers else None


@dataclass(slots=True)
class Result:
    """One contestant on one model. Times are in seconds, memory in bytes; None is what was not measured.

    `turns` has the median time of one inference for each round. `cold` and `warm` are what it takes to prepare the
    model with empty and with filled caches, `first_run` what the first inference after that takes. `peak` is the most
    memory that the process had beyond what its libraries take, `kept` what it has while it runs the model. `error` is
    the largest error of an output in parts of its largest element, `allowed` what rounding explains of that. `idle` is
    the part of one core that the process used while others ran. `placed` counts Assay's nodes by target, `left` those
    with floats that do not run on the target, by op and reason.
    """

    model: str
    contestant: str
    status: str = "ok"
    reason: str = ""
    turns: list[float] = field(default_factory=list[float])
    iterations: int = 0
    cold: float | None = None
    warm: float | None = None
    first_run: float | None = None
    peak: int | None = None
    kept: int | None = None
    error: float | None = None
    allowed: float | None = None
    idle: float | None = None
    placed: dict[str, int] = field(default_factory=dict[str, int])
    left: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def time(self) -> Spread | None:
        """The time of one inference over the rounds."""
        return spread(self.turns)

    @property
    def counts(self) -> bool:
        """True if its time may be compared: it ran to the end, and rightly."""
        return self.status == "ok" and bool(self.turns)


@dataclass(slots=True)
class Match:
    """All contestants on one model. `others` is the part of the machine that other processes used in each round."""

    model: str
    results: dict[str, Result]
    others: list[float | None] = field(default_factory=list["float | None"])

    @property
    def own(self) -> Result | None:
        """Assay's result."""
        return self.results.get(SELF)

    def ratio(self, peer: str) -> Spread | None:
        """A peer's time ÷ Assay's, round by round; None unless both are right."""
        return self._ratio(peer, SELF)

    def slowness(self, peer: str) -> Spread | None:
        """Assay's time ÷ a peer's, round by round; None unless both are right."""
        return self._ratio(SELF, peer)

    def _ratio(self, over: str, under: str) -> Spread | None:
        upper, lower = self.results.get(over), self.results.get(under)
        if upper is None or lower is None or not (upper.counts and lower.counts):
            return None
        return spread([one / other for one, other in zip(upper.turns, lower.turns, strict=True)])

    @property
    def noise(self) -> float | None:
        """The part of the machine that others used in half of the rounds or more."""
        known = [each for each in self.others if each is not None]
        return statistics.median(known) if known else None

    @property
    def best(self) -> str | None:
        """The fastest of the peers that are right."""
        times = {
            name: statistics.median(each.turns) for name, each in self.results.items() if name != SELF and each.counts
        }
        return min(times, key=lambda name: times[name], default=None)

    @property
    def best_ratio(self) -> Spread | None:
        """The best peer's time ÷ Assay's."""
        return self.ratio(self.best) if self.best else None

    def lines(self) -> Iterator[dict[str, Any]]:
        """One line for each contestant, and one that says that the model is done."""
        for result in self.results.values():
            yield {"record": "contestant", **asdict(result)}
        ratios = {peer: self.ratio(peer) for peer in self.results if peer != SELF}
        plain = {peer: asdict(found) if found else None for peer, found in ratios.items()}
        yield {"record": "model", "model": self.model, "best": self.best, "ratios": plain, "others": self.others}


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A run so far: how it was started (`header`) and what it found."""

    header: Mapping[str, Any]
    matches: Sequence[Match]

    @property
    def peers(self) -> list[str]:
        """The contestants beside Assay."""
        return list(self.header["peers"])

    def best_ratios(self) -> list[float]:
        """The best peer's time ÷ Assay's for each model that has both."""
        return [found.middle for match in self.matches if (found := match.best_ratio)]

    def over(self, peer: str, what: str) -> list[float]:
        """A figure of Assay's ÷ the same of a peer's, for each model for which both are known and not 0."""
        pairs = [
            (getattr(match.own, what), getattr(match.results[peer], what))
            for match in self.matches
            if match.own and peer in match.results
        ]
        return [mine / theirs for mine, theirs in pairs if mine and theirs]

    def summary(self) -> dict[str, Any]:
        """The figures over all models."""
        best = self.best_ratios()
        return {
            "models": len(self.matches),
            "compared": len(best),
            "mean_of_best": geometric_mean(best),
            "least_of_best": min(best, default=None),
            "cold_over_inductor": geometric_mean(self.over("inductor", "cold")),
            "warm_over_onnxruntime": geometric_mean(self.over("onnxruntime", "warm")),
            "error_over_onnxruntime": geometric_mean(errors := self.over("onnxruntime", "error")),
            "most_error_over_onnxruntime": max(errors, default=None),
        }


def read(path: Path) -> BenchRun:
    """What a file of JSON lines holds. Models that were not finished, and lines cut short, are left out."""
    header: dict[str, Any] = {}
    matches: list[Match] = []
    open_results: dict[str, dict[str, Result]] = {}
    for line in read_lines(path):
        kind = line["record"]
        if kind == "run":
            if line.get("format") != FORMAT:
                raise BadFeed(f"'{path}' has records of format {line.get('format')}", hint=f"this is format {FORMAT}")
            header = line
        elif kind == "contestant":
            found = Result(**{each.name: line[each.name] for each in fields(Result) if each.name in line})
            open_results.setdefault(found.model, {})[found.contestant] = found
        elif kind == "model":
            matches.append(Match(line["model"], open_results.pop(line["model"], {}), line["others"]))
    return BenchRun(header, matches)
