"""What a report checks of itself. Every figure is counted once more, another way than the tables count it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from assay.evidence.records.schema import GREEN, STATUSES
from assay.evidence.report.base import UNKNOWN, Base, tried
from assay.evidence.report.cells import Cell, Column, Link, Ratio, Table, number, percent, written
from assay.evidence.report.failures import Blockers

Tables: TypeAlias = Mapping[str, Table]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what holds, whether it does, and the figures."""

    name: str
    ok: bool
    detail: str


def checks(base: Base, tables: Tables, found: Blockers, pages: Collection[str]) -> tuple[Check, ...]:
    """All checks of a report; `pages` are the pages that it has."""
    damaged = [f"{each.file}:{each.line}: {each.reason}" for each in base.damaged]
    records = len(base.records) + len(base.faults)
    made: tuple[tuple[str, str, list[str]], ...] = (
        ("every line of the records is valid", f"{records:,} records", damaged),
        ("statuses add up to cases", f"{len(base.latest):,} cases", list(_statuses(base, tables["statuses"]))),
        ("the nodes of ops add up", _nodes_told(tables), list(_nodes(base, tables))),
        ("no part is larger than its whole", _ratios_told(tables), list(_bounds(tables))),
        ("100 % is all of it", _ratios_told(tables), list(_percents(tables))),
        ("rates can be computed again", f"{len(tables['components'].rows)} rates", list(_rates(tables))),
        ("every record is in a table", f"{records:,} records", list(_complete(base, tables))),
        ("every failure is accounted for", f"{len(base.failed):,} failures", list(_accounted(base, tables))),
        ("a pass has outputs that were judged", f"{len(base.runs):,} runs", list(_judged(base))),
        ("the fix plan ends with every blocked model", _plans_told(found), list(_plans(base, found))),
        ("every name leads to a page", f"{len(pages):,} pages", list(_links(tables, pages))),
    )
    return tuple(Check(name, not bad, _listed(bad) or told) for name, told, bad in made)


def table(found: Collection[Check]) -> Table:
    """The checks as a table."""
    columns = (Column("check", "Check"), Column("result", "Result", "mark"), Column("detail", "Figures", "long"))
    rows = tuple((check.name, "holds" if check.ok else "fails", check.detail) for check in found)
    return Table("checks", "Self-checks", columns, rows)


def _listed(bad: list[str]) -> str:
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return "; ".join(bad[:_SHOWN]) + more


def _statuses(base: Base, table: Table) -> Iterator[str]:
    places = {status: table.place(status) for status in STATUSES}
    cases, green = table.place("cases"), table.place("green")
    for row in table.rows:
        counts = {status: number(row[place]) for status, place in places.items()}
        whole, ratio = number(row[cases]), row[green]
        if sum(counts.values()) != whole:
            yield f"{row[0]} {row[1]}: {sum(counts.values())} statuses of {whole} cases"
        if ratio != Ratio(sum(counts[status] for status in GREEN), whole):
            yield f"{row[0]} {row[1]}: green is {written(ratio, 'ratio')}"
    counted = Counter(record.status for record in base.latest)
    for status in STATUSES:
        total = sum(number(cell) for cell in table.column(status))
        if total != counted[status]:
            yield f"{status}: {total} in the table, {counted[status]} records"


_OP_PARTS = ("converted", "removed", "opaque", "fallback")


def _nodes_told(tables: Tables) -> str:
    return f"{sum(map(number, tables['conversions'].column('count'))):,} nodes"


def _nodes(base: Base, tables: Tables) -> Iterator[str]:
    found, summary = tables["conversions"], tables["ops"]
    parts = [found.column(key) for key in _OP_PARTS]
    for place, count in enumerate(found.column("count")):
        if sum(number(column[place]) for column in parts) != count:
            yield f"row {place + 1} of the op conversions does not add up to {count}"
    for key, other in {"count": "nodes", **{part: part for part in _OP_PARTS}}.items():
        counted = sum(getattr(use, key) for record in base.runs for use in record.ops)
        for name, total in {
            "op conversions": sum(map(number, found.column(key))),
            "ops": sum(map(number, summary.column(other))),
        }.items():
            if total != counted:
                yield f"{other} in {name}: {total:,}, in the records {counted:,}"


def _ratios(tables: Tables) -> Iterator[tuple[str, Ratio, str]]:
    for name, each in tables.items():
        for place, column in enumerate(each.columns):
            if column.kind == "ratio":
                for row in each.rows:
                    cell = row[place]
                    if isinstance(cell, Ratio):
                        yield f"{column.title} in {name}", cell, written(cell, "ratio")


def _ratios_told(tables: Tables) -> str:
    return f"{sum(1 for _ in _ratios(tables)):,} fractions"


def _bounds(tables: Tables) -> Iterator[str]:
    for place, ratio, text in _ratios(tables):
        if not 0 <= ratio.part <= ratio.whole:
            yield f"{place}: {text}"


def _percents(tables: Tables) -> Iterator[str]:
    for place, ratio, text in _ratios(tables):
        if ("100 %" in text) != (0 < ratio.whole == ratio.part):
            yield f"{place}: {text}"


def _rates(tables: Tables) -> Iterator[str]:
    """The statistics of components from the printed fractions of the models."""
    parts: dict[tuple[Cell, Cell], list[Ratio]] = {}
    for target, component, _, ratio in tables["component_rates"].rows:
        if isinstance(ratio, Ratio):
            parts.setdefault((target, component), []).append(ratio)
    for target, component, passed, average, _ in tables["components"].rows:
        found = parts.get((target, component), [])
        whole = Ratio(sum(ratio.part == ratio.whole for ratio in found), len(found))
        mean = sum((Fraction(ratio.part, ratio.whole) for ratio in found), Fraction(0)) / max(len(found), 1)
        if passed != whole or average != f"{percent(mean)} ({mean})":
            yield f"{component} on {target}: {written(passed, 'ratio')} and {average}, again {whole} and {mean}"


def _complete(base: Base, tables: Tables) -> Iterator[str]:
    kinds = Counter(record.case.kind for record in base.records)
    counts: dict[str, tuple[int, int]] = {
        "history": (len(tables["history"].rows), kinds["model"]),
        "models": (sum(cell is not None for cell in tables["models"].column("status")), len(base.runs)),
        "cases": (len(tables["cases"].rows), len(base.runs)),
        "timings": (len(tables["timings"].rows), len(base.runs)),
        "op_variations": (
            sum(cell is not None for cell in tables["op_variations"].column("status")),
            len(base.op_runs),
        ),
        "faults": (len(tables["faults"].rows), len(base.faults)),
        "outputs": (
            len(tables["outputs"].rows),
            sum(len(record.outputs) + len(record.gradients) for record in base.runs),
        ),
    }
    for name, (rows, wanted) in counts.items():
        if rows != wanted:
            yield f"{name} has {rows:,} rows for {wanted:,} records"


def _accounted(base: Base, tables: Tables) -> Iterator[str]:
    cases = sum(map(number, tables["component_failures"].column("cases")))
    if cases != len(base.failed):
        yield f"the component failures have {cases:,} cases, {len(base.failed):,} failed"
    nameless = sum(map(number, tables["unknown_causes"].column("cases")))
    components = tables["component_failures"].column("component")
    without = sum(
        number(count)
        for count, component in zip(tables["component_failures"].column("cases"), components, strict=True)
        if component == UNKNOWN
    )
    if nameless != without:
        yield f"{without:,} cases failed for unknown causes, {nameless:,} are shown"
    skipped = sum(not tried(record) for record in base.latest)
    if len(tables["not_tried"].rows) != skipped:
        yield f"{skipped:,} cases were not tried, {len(tables['not_tried'].rows):,} are shown"


def _judged(base: Base) -> Iterator[str]:
    for record in base.runs:
        if record.green and not record.outputs:
            yield f"{record.case.name} on {record.case.target} passes without an output"


def _plans_told(found: Blockers) -> str:
    return f"{sum(map(len, found.blocked.values())):,} blocked models"


def _plans(base: Base, found: Blockers) -> Iterator[str]:
    for target, blocked in found.blocked.items():
        steps = found.plans[target]
        last = set(steps[-1].models) if steps else set[str]()
        if last != set(blocked):
            yield f"{target}: {len(last)} of {len(blocked)}"
    for record in base.failed:
        if record.case.kind == "model" and record.case.name not in found.blocked[record.case.target]:
            yield f"{record.case.name} fails on {record.case.target} and nothing blocks it"


def _links(tables: Tables, pages: Collection[str]) -> Iterator[str]:
    known = set(pages)
    for name, each in tables.items():
        for column in each.columns:
            cells = set(each.column(column.key)) if column.kind in ("link", "links") else set[Cell]()
            for cell in cells:
                for link in cell if isinstance(cell, tuple) else (cell,):
                    if isinstance(link, Link) and not link.file and link.page not in known:
                        yield f"{link.text} in {name}"
