"""Views of how far cases come: statuses by target, and how many models pass each component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from assay.evidence.records.schema import STATUSES, Record
from assay.evidence.report.base import Base, tried
from assay.evidence.report.cells import Column, Link, Ratio, Row, Table, percent

_LOWEST = 10


def statuses(base: Base) -> Table:
    """How many cases of each target have each status."""
    columns = (
        Column("kind", "Kind"),
        Column("target", "Target"),
        Column("cases", "Cases", "count"),
        Column("green", "Green", "ratio", "Passes of either kind, of all cases."),
        *(Column(status, status, "count", meaning) for status, meaning in STATUSES.items()),
    )
    counts: dict[tuple[str, str], Counter[str]] = {}
    for record in base.latest:
        counts.setdefault((record.case.kind, record.case.target), Counter())[record.status] += 1
    green: Counter[tuple[str, str]] = Counter(
        (record.case.kind, record.case.target) for record in base.latest if record.green
    )
    rows = tuple(
        (
            kind,
            target,
            found.total(),
            Ratio(green[kind, target], found.total()),
            *(found[status] for status in STATUSES),
        )
        for (kind, target), found in sorted(counts.items())
    )
    return Table("statuses", "Status by target", columns, rows)


def passed(record: Record, stage: str) -> bool:
    """True if a case came past a stage."""
    return record.green or record.stages.index(record.stage) > record.stages.index(stage)


def rates(base: Base) -> Mapping[tuple[str, str], Mapping[str, Ratio]]:
    """By target and component, in the order in which cases go through them: of each model the cases that came past it.

    A model's cases are its own runs and those of its op configurations; what was not tried is none.
    """
    found: dict[tuple[str, str], dict[str, Ratio]] = {}
    for (target, model), records in base.cases_of.items():
        cases = [record for record in records if tried(record)]
        for stage in dict.fromkeys(stage for record in cases for stage in record.stages):
            through = [record for record in cases if stage in record.stages]
            ratio = Ratio(sum(passed(record, stage) for record in through), len(through))
            found.setdefault((target, stage), {})[model] = ratio
    return found


def components(base: Base) -> Table:
    """How many models pass each component, and which come least far."""
    columns = (
        Column("target", "Target"),
        Column("component", "Compiler Component"),
        Column(
            "passed", "Models Passed", "ratio", "Models all of whose cases come past it; in parentheses the pass rate."
        ),
        Column(
            "average", "Average Pass Rate (%)", "text", "The mean over the models of their own pass rates, exactly."
        ),
        Column("lowest", f"Top-{_LOWEST} Blocked Models (pass rate in %)", "links"),
    )
    rows: list[Row] = []
    for (target, stage), models in rates(base).items():
        whole = Ratio(sum(ratio.part == ratio.whole for ratio in models.values()), len(models))
        mean = sum((ratio.value for ratio in models.values()), Fraction(0)) / len(models)
        stuck = [(name, ratio) for name, ratio in models.items() if ratio.part < ratio.whole]
        lowest = sorted(stuck, key=lambda item: (item[1].value, item[0]))[:_LOWEST]
        shown = tuple(
            Link(f"{name} ({ratio.part}/{ratio.whole}, {percent(ratio.value)})", base.models[name])
            for name, ratio in lowest
        )
        rows.append((target, stage, whole, f"{percent(mean)} ({mean})", shown))
    note = (
        "A model's cases are its own runs and those of its op configurations. 100 % is all of them, never rounded up."
    )
    return Table("components", "Compiler component statistics", columns, tuple(rows), note)


def model_rates(base: Base) -> Table:
    """The rates that `components` is made of."""
    columns = (
        Column("target", "Target"),
        Column("component", "Compiler Component"),
        Column("model", "Model", "link"),
        Column("passed", "Cases That Came Past", "ratio"),
    )
    rows = tuple(
        (target, stage, base.model(name), ratio)
        for (target, stage), models in rates(base).items()
        for name, ratio in models.items()
    )
    return Table("component_rates", "Pass rates by component", columns, rows)
