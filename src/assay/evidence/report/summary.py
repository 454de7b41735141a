"""What a README and the page of all models say in short: totals, a row for each model, what did not pass, and what ran
elsewhere. Names stand without links: the pages of single models are made for a reader, and not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from assay.evidence.records import Record, Records
from assay.evidence.records.merge import merged
from assay.evidence.records.schema import GREEN, STATUSES, worded
from assay.evidence.report.cells import Cell, Column, Ratio, Row, Table, natural, written

_FIGURES = ("dtype", "status", "ops_before", "ops_remain", "transfers", "eager_time", "time", "worst_error", "top1")
_GROUP = tuple(Column(key, key.capitalize()) for key in ("target", "mode", "size"))

Group = tuple[str, str, str]
"""A target, a mode and a size: what a sweep runs all models in."""


def shown(records: Records) -> list[Record]:
    """The latest record of each model, without those of faults that were injected; the first group's come first."""
    found = [each for each in merged(records.records) if each.case.kind == "model" and not each.case.fault]
    return sorted(found, key=lambda record: (order(group_of(record)), natural(record.case.name)))


def group_of(record: Record) -> Group:
    """The sweep that a record is of."""
    return record.case.target, record.case.mode, record.case.size


def order(group: Group) -> tuple[bool, bool, str]:
    """Full models in eval mode come first."""
    target, mode, size = group
    return size != "full", mode != "eval", target


def title(group: Group) -> str:
    """A group in words."""
    return ", ".join(group)


def groups(table: Table) -> Mapping[Group, tuple[Row, ...]]:
    """The rows of each group; the one whose figures are shown comes first."""
    places = [table.place(column.key) for column in _GROUP]
    found: dict[Group, list[Row]] = {}
    for row in table.rows:
        if row[table.place("status")] is not None:  # a model that is known by its ops alone was not run
            target, mode, size = (str(row[place]) for place in places)
            found.setdefault((target, mode, size), []).append(row)
    return {group: tuple(found[group]) for group in sorted(found, key=order)}


def origin(records: Sequence[Record]) -> str:
    """How many cases there are, when and where they were run."""
    dates = sorted(record.environment.date[:10] for record in records)
    machines = dict.fromkeys(record.environment.machine for record in records)
    between = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"{len(records)} cases of {between} on {', '.join(machines)}."


def meanings(records: Sequence[Record]) -> Iterator[str]:
    """What each status that occurs means, as a list."""
    used = {record.status for record in records}
    yield from (f"- `{status}`: {meaning}" for status, meaning in STATUSES.items() if status in used)


def totals(table: Table, found: Mapping[Group, tuple[Row, ...]]) -> Table:
    """How many cases of each group have each status; without the statuses that none has."""
    place = table.place("status")
    counts = {group: Counter(str(row[place]) for row in rows) for group, rows in found.items()}
    used = [status for status in STATUSES if any(each[status] for each in counts.values())]
    columns = (*_GROUP, Column("green", "Green", "ratio"), *(Column(status, status, "count") for status in used))
    rows = tuple(
        (*group, Ratio(sum(each[status] for status in GREEN), each.total()), *(each[status] for status in used))
        for group, each in counts.items()
    )
    return Table("totals", "Totals", columns, rows)


def by_model(table: Table, found: Mapping[Group, tuple[Row, ...]]) -> Table:
    """A row for each model: the figures of the first group, and its status in each of the others."""
    (_, first), *others = found.items()
    statuses = [_statuses(table, rows) for _, rows in others]
    columns = (
        Column("model", "Model"),
        *(table.columns[table.place(key)] for key in _FIGURES),
        *(Column("_".join(group), title(group), "status") for group, _ in others),
    )
    figures = [(_name(table, row), *(_figure(table, row, key) for key in _FIGURES)) for row in first]
    known = {row[0] for row in figures}
    missing = dict.fromkeys(name for each in statuses for name in each if name not in known)
    figures += [(name, *[None] * len(_FIGURES)) for name in missing]
    rows = [(*row, *(each.get(str(row[0])) for each in statuses)) for row in figures]
    rows.sort(key=lambda row: natural(str(row[0])))
    return Table("models", "Models", columns, tuple(rows))


def _name(table: Table, row: Row) -> str:
    return written(row[table.place("model")], "text")


def _figure(table: Table, row: Row, key: str) -> Cell:
    """A cell; the status of a pass says whether it rests on a verdict."""
    cell = row[table.place(key)]
    return worded(str(cell), str(row[table.place("verdict")] or "")) if key == "status" else cell


def _statuses(table: Table, rows: tuple[Row, ...]) -> dict[str, str]:
    """The status of each model; of one with several cases, such as two dtypes, all that it has."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(_name(table, row), {})[str(_figure(table, row, "status"))] = None
    return {name: ", ".join(each) for name, each in found.items()}


def not_passed(records: Sequence[Record]) -> Table:
    """Every case that is not green, with what it said."""
    columns = (
        Column("model", "Model"),
        *_GROUP,
        Column("status", "Status", "status"),
        Column("stage", "Stage"),
        Column("component", "Component"),
        Column("detail", "What It Said", "long"),
    )
    rows = tuple(
        (record.case.name, *group_of(record), record.status, record.stage, cause.component, cause.detail)
        for record in records
        if (cause := record.cause) is not None
    )
    return Table("not_passed", "What did not pass", columns, rows)


def elsewhere(records: Sequence[Record]) -> Table:
    """What ran elsewhere than on the target: ops with the reason, and where torch left a graph."""
    columns = (
        *_GROUP,
        Column("what", "What", "long"),
        Column("count", "Models", "count"),
        Column("models", "Which", "long"),
    )
    found: dict[tuple[Group, str], dict[str, None]] = {}
    for record in records:
        for what in _left(record):
            found.setdefault((group_of(record), what), {})[record.case.name] = None
    rows = tuple((*group, what, len(names), ", ".join(names)) for (group, what), names in found.items())
    return Table("elsewhere", "What ran elsewhere", columns, rows)


def _left(record: Record) -> Iterator[str]:
    if not record.green:
        return
    for use in record.ops:
        if use.remaining:
            yield f"{use.op}: {'; '.join(use.reasons)}"
    if record.breaks:
        yield from record.notes
