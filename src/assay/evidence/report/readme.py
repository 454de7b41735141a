"""The table of models in a README: a row for each model, with the commands that made the records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assay.evidence.marks import put_between
from assay.evidence.records import Record, Records
from assay.evidence.records.merge import merged
from assay.evidence.records.schema import GREEN, STATUSES, worded
from assay.evidence.report.cells import Cell, Column, Ratio, Row, Table, natural, written
from assay.evidence.report.markdown import table_lines
from assay.evidence.report.write import Report

BEGIN = "<!-- models: begin (written by `assay report`) -->"
END = "<!-- models: end -->"
_FIGURES = ("dtype", "status", "ops_before", "ops_remain", "transfers", "eager_time", "time", "worst_error", "top1")

Group = tuple[str, str, str]
"""A target, a mode and a size: what a sweep runs all models in."""


def write_readme(path: Path, report: Report, records: Records, folder: Path) -> None:
    """Put the table between its marks into a page that has them; names lead to the pages in `folder`."""
    up = Path(os.path.relpath(folder, path.parent)).as_posix() + "/"
    shown = [each for each in merged(records.records) if each.case.kind == "model" and not each.case.fault]
    put_between(path, BEGIN, END, "\n".join(_block(report, shown, up)))


def _block(report: Report, records: Sequence[Record], up: str) -> Iterator[str]:
    yield "```sh"
    yield from dict.fromkeys(record.environment.command for record in records)
    yield "```"
    yield ""
    dates = sorted(record.environment.date[:10] for record in records)
    machines = dict.fromkeys(record.environment.machine for record in records)
    between = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    yield f"{len(records)} cases of {between} on {', '.join(machines)}. [All pages]({up}index.md)."
    yield ""
    table = report.tables["models"]
    groups = _groups(table)
    if groups:
        yield from table_lines(_summary(table, groups), up)
        yield ""
        yield f"The figures are those of {_title(next(iter(groups)))}."
        yield ""
        yield from table_lines(_by_model(table, groups), up)


def _groups(table: Table) -> Mapping[Group, tuple[Row, ...]]:
    """The rows of each group; the one whose figures are shown comes first: full models in eval mode."""
    places = [table.place(key) for key in ("target", "mode", "size")]
    found: dict[Group, list[Row]] = {}
    for row in table.rows:
        if row[table.place("status")] is not None:  # a model that is known by its ops alone was not run
            target, mode, size = (str(row[place]) for place in places)
            found.setdefault((target, mode, size), []).append(row)
    order = sorted(found, key=lambda group: (group[2] != "full", group[1] != "eval", group[0]))
    return {group: tuple(found[group]) for group in order}


def _summary(table: Table, groups: Mapping[Group, tuple[Row, ...]]) -> Table:
    """How many cases of each group have each status; without the statuses that none has."""
    place = table.place("status")
    counts = {group: Counter(str(row[place]) for row in rows) for group, rows in groups.items()}
    used = [status for status in STATUSES if any(found[status] for found in counts.values())]
    columns = (
        *(Column(key, key.capitalize()) for key in ("target", "mode", "size")),
        Column("green", "Green", "ratio"),
        *(Column(status, status, "count") for status in used),
    )
    rows = tuple(
        (*group, Ratio(sum(found[status] for status in GREEN), found.total()), *(found[status] for status in used))
        for group, found in counts.items()
    )
    return Table("summary", "Summary", columns, rows)


def _by_model(table: Table, groups: Mapping[Group, tuple[Row, ...]]) -> Table:
    """A row for each model: the figures of the first group, and its status in each of the others."""
    model = table.place("model")
    (_, first), *others = groups.items()
    statuses = [_statuses(table, rows) for _, rows in others]
    columns = (
        table.columns[model],
        *(table.columns[table.place(key)] for key in _FIGURES),
        *(Column("_".join(group), _title(group), "status") for group, _ in others),
    )
    known = {row[model] for row in first}
    figures = [(row[model], *(_figure(table, row, key) for key in _FIGURES)) for row in first]
    missing = dict.fromkeys(name for found in statuses for name in found if name not in known)
    figures += [(name, *[None] * len(_FIGURES)) for name in missing]
    rows = [(*row, *(found.get(row[0]) for found in statuses)) for row in figures]
    rows.sort(key=lambda row: natural(written(row[0], "text")))
    return Table("models", "Models", columns, tuple(rows))


def _title(group: Group) -> str:
    target, mode, size = group
    return f"{target}, {mode}, {size}"


def _figure(table: Table, row: Row, key: str) -> Cell:
    """A cell; the status of a pass says whether it rests on a verdict."""
    cell = row[table.place(key)]
    return worded(str(cell), str(row[table.place("verdict")] or "")) if key == "status" else cell


def _statuses(table: Table, rows: tuple[Row, ...]) -> dict[Cell, str]:
    """The status of each model; of one with several cases, such as two dtypes, all that it has."""
    found: dict[Cell, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row[table.place("model")], {})[str(_figure(table, row, "status"))] = None
    return {name: ", ".join(each) for name, each in found.items()}
