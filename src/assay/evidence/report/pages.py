"""The pages of a report: which tables and charts stand where. Markdown and HTML are both made from these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from assay.evidence.machine import DISTURBED
from assay.evidence.records.schema import STATUSES
from assay.evidence.report.base import UNKNOWN, Base, FailureKey, said
from assay.evidence.report.cells import Cell, Column, Kind, Link, Table, number, written
from assay.evidence.report.charts import Chart, accuracy_chart, plan_chart, speed_chart, status_chart
from assay.evidence.report.failures import Blockers
from assay.evidence.report.models import CASE_KEYS


@dataclass(frozen=True, slots=True)
class Facts:
    """Things with a name, such as the fields of a cause."""

    facts: tuple[tuple[str, Cell, Kind], ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence that a reader must not miss."""

    text: str
    link: Link | None = None


PageBlock: TypeAlias = Table | Chart | Facts | Remark


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `path` is where it stands in the report, without an ending."""

    path: str
    title: str
    blocks: tuple[PageBlock, ...]
    kind: str = ""


HOME, FAILURES, OPS = "index", "failures", "ops"
SECTIONS: Mapping[str, str] = {HOME: "Models", FAILURES: "Failures", OPS: "Ops"}
"""The pages that every page leads to."""


def pages(base: Base, tables: Mapping[str, Table], found: Blockers, title: str) -> tuple[Page, ...]:
    """All pages, the first one first. The tables hold what they show, but for the self-checks."""
    return (
        Page(HOME, title, tuple(_home(base, tables, found))),
        Page(FAILURES, "Failures", tuple(_failures(tables, found, base))),
        Page(OPS, "Ops", (tables["ops"].plain("target"), tables["op_failures"].plain("target"))),
        *_model_pages(base, tables),
        *_op_pages(base, tables),
        *_cause_pages(base, tables),
    )


def data_page(tables: Iterable[Table]) -> Page:
    """The page that leads to the data files."""
    columns = (
        Column("table", "Table"),
        Column("rows", "Rows", "count"),
        Column("csv", "CSV", "link"),
        Column("json", "JSON", "link"),
    )
    rows = tuple(
        (
            table.title,
            len(table.rows),
            *(Link(f"{table.name}.{form}", f"data/{table.name}.{form}", file=True) for form in ("csv", "json")),
        )
        for table in tables
    )
    return Page("data/index", "Data", (Table("data", "The rows of every table", columns, rows),))


def _home(base: Base, tables: Mapping[str, Table], found: Blockers) -> Iterator[PageBlock]:
    yield Facts(tuple(_origin(base)))
    runs: dict[str, dict[str, int]] = {}
    table = tables["statuses"]
    for row in table.rows:
        name = str(row[1]) if row[0] == "model" else f"{row[1]} (ops)"
        runs[name] = {s: count for s in STATUSES if (count := number(row[table.place(s)]))}
    yield from _chart(status_chart(runs))
    yield from _chart(speed_chart(_by_target(tables["models"], "speed_up")))
    worst = _by_target(tables["models"], "worst_error")
    yield from _chart(accuracy_chart({target: [value for _, value in each] for target, each in worst.items()}))
    yield from _remarks(tables, found)
    yield from _crowded(base)
    yield tables["models"].plain("mode", "size", "dtype").tidy()
    if len(base.targets) > 1:
        yield tables["overview"].plain("mode", "size", "dtype")
    used = {status: meaning for status, meaning in STATUSES.items() if any(table.column(status))}
    yield table.without(*(status for status in STATUSES if status not in used))
    yield Facts(tuple((status, meaning, "text") for status, meaning in used.items()))


def _chart(chart: Chart | None) -> Iterator[Chart]:
    if chart:
        yield chart


def _by_target(table: Table, key: str) -> dict[str, list[tuple[str, float]]]:
    model, target, place = table.place("model"), table.place("target"), table.place(key)
    found: dict[str, list[tuple[str, float]]] = {}
    for row in table.rows:
        value = row[place]
        if isinstance(value, int | float):
            found.setdefault(str(row[target]), []).append((written(row[model], "link"), float(value)))
    return found


def _origin(base: Base) -> Iterator[tuple[str, Cell, Kind]]:
    """Where the records are from."""
    dates = sorted(record.environment.date for record in base.latest)
    commits = sorted({record.environment.commit for record in base.latest if record.environment.commit})
    commands = sorted({record.environment.command for record in base.latest if record.environment.command})
    versions = sorted({f"{k} {v}" for record in base.latest for k, v in record.environment.versions.items()})
    machines = sorted({record.environment.machine for record in base.latest if record.environment.machine})
    yield "Models", len(base.models), "count"
    yield "Targets", ", ".join(base.targets), "text"
    yield "Cases", len(base.latest), "count"
    yield "Dates", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}", "text"
    for name, words in {"Commit": commits, "Command": commands, "Versions": versions, "Machine": machines}.items():
        if words:
            more = f" … and {len(words) - 8} more" if len(words) > 8 else ""
            yield name, ", ".join(words[:8]) + more, "code" if name in ("Commit", "Command") else "text"


def _remarks(tables: Mapping[str, Table], found: Blockers) -> Iterator[Remark]:
    """For each target what fixing its most impactful failure would do."""
    table = tables["component_failures"]
    count, unlocks, failure = table.place("count"), table.place("unlocks"), table.place("failure")
    for target in found.blocked:
        rows = [row for row in table.rows if row[0] == target]
        top = max(rows, key=lambda row: number(row[count]), default=None)
        if top is None or not top[count]:
            continue
        done = f"unlocks {top[unlocks]} of them" if top[unlocks] else "unlocks no model"
        text = f"The failure that impacts most models on {target} ({top[count]}), fixed alone, {done}: "
        link = top[failure]
        yield Remark(text, link if isinstance(link, Link) else None)


def _crowded(base: Base) -> Iterator[Remark]:
    """Whether times are of runs that others disturbed."""
    timed = [record for record in base.runs if record.speed.median is not None]
    together = sum((record.environment.workers or 1) > 1 for record in timed)
    disturbed = sum((record.speed.others or 0.0) > DISTURBED for record in timed)
    for count, told in (
        (together, "are of runs with several cases at once"),
        (disturbed, f"were taken while other processes used more than {DISTURBED:.0%} of the machine"),
    ):
        if count:
            yield Remark(f"{count} of {len(timed)} times {told}: they are not for comparison with other runs.")


def _failures(tables: Mapping[str, Table], found: Blockers, base: Base) -> Iterator[PageBlock]:
    yield from _remarks(tables, found)
    if not base.failed:
        yield Remark("No case failed.")
    steps = {target: [(len(s.fixes), len(s.models)) for s in plan] for target, plan in found.plans.items()}
    blocked = {target: len(models) for target, models in found.blocked.items()}
    yield tables["component_failures"].plain("target")
    yield tables["components"].plain("target")
    yield tables["op_failures"].plain("target")
    yield from _chart(plan_chart(steps, blocked))
    yield tables["fix_plan"].plain("target")
    yield tables["unlocks"].plain("target")
    for name in ("unknown_causes", "not_tried", "faults"):
        if tables[name].rows:
            yield tables[name]


_MODEL_TABLES = ("cases", "models", "fallbacks", "outputs", "timings", "conversions", "input_variations", "history")


def _model_pages(base: Base, tables: Mapping[str, Table]) -> Iterator[Page]:
    own = {name: tables[name].by("model") for name in (*_MODEL_TABLES, "component_rates")}
    variations = tables["op_variations"]
    place = variations.place("cause")
    bad = variations.where(lambda row: row[place] is not None).without("nodes", "remaining").by("models")
    for name, path in base.models.items():
        blocks = [own[each][path].plain(*CASE_KEYS).tidy() for each in _MODEL_TABLES if path in own[each]]
        blocks = [replace(e.without("cause"), title="Figures") if e.name == "models" else e for e in blocks]
        if path in bad:
            failing = bad[path].plain("target", "mode", "size", "dtype").tidy()
            blocks.insert(2, replace(failing, title="Op configurations that fail by themselves"))
        if path in own["component_rates"]:
            blocks.append(own["component_rates"][path].plain("target"))
        yield Page(path, name, tuple(blocks), "model")


_OP_TITLES = {"ops": "By target", "op_variations": "Input variations", "op_failures": "Failed models"}


def _op_pages(base: Base, tables: Mapping[str, Table]) -> Iterator[Page]:
    names = ("ops", "op_variations", "op_failures", "op_users")
    own = {name: tables[name].by("op") for name in names}
    for name, path in base.ops.items():
        found = [own[each][path].plain("mode", "size", "dtype").tidy() for each in names if path in own[each]]
        blocks = tuple(replace(each, title=_OP_TITLES.get(each.name, each.title)) for each in found)
        yield Page(path, name, blocks, "op")


def _cause_pages(base: Base, tables: Mapping[str, Table]) -> Iterator[Page]:
    impact = tables["component_failures"].by("failure")
    fixes, cases = tables["unlocks"].by("cause"), tables["failed_cases"].by("failure")
    for failure, path in base.causes.items():
        blocks: list[PageBlock] = [Facts(tuple(_fields(failure)))]
        if path in impact:
            blocks.append(replace(impact[path].without("component", "stage"), title="Impact"))
        if path in fixes:
            blocks.append(replace(fixes[path].without("component"), title="What the fix unlocks"))
        if path in cases:
            blocks.append(cases[path].plain("kind", "mode", "size", "dtype").tidy())
        else:
            blocks.append(Remark("No case fails so any more."))
        yield Page(path, said(failure), tuple(blocks), "cause")


def _fields(failure: FailureKey) -> Iterator[tuple[str, Cell, Kind]]:
    stage, component, error, message = failure
    yield "Component", component or UNKNOWN, "text"
    yield "Stage", stage, "text"
    yield "Error", error, "code"
    yield "Message", message, "code"
