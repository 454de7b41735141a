"""The table of models in a README: a short form of the report's, with the commands that made the records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from assay.evidence.marks import put_between
from assay.evidence.records import Record, Records
from assay.evidence.records.merge import merged
from assay.evidence.report.cells import Table, written
from assay.evidence.report.markdown import table_lines
from assay.evidence.report.write import Report

BEGIN = "<!-- models: begin (written by `assay report`) -->"
END = "<!-- models: end -->"
_SHOWN = (
    *("model", "target", "mode", "size", "status", "ops_before", "ops_remain", "transfers"),
    *("eager_time", "time", "worst_error", "top1"),
)


def write_readme(path: Path, report: Report, records: Records, folder: Path) -> None:
    """Put the table between its marks into a page that has them; names lead to the pages in `folder`."""
    up = Path(os.path.relpath(folder, path.parent)).as_posix() + "/"
    put_between(path, BEGIN, END, "\n".join(_block(report, merged(records.records), up)))


def _block(report: Report, records: tuple[Record, ...], up: str) -> Iterator[str]:
    yield "```sh"
    yield from dict.fromkeys(record.environment.command for record in records)
    yield "```"
    yield ""
    dates = sorted(record.environment.date[:10] for record in records)
    machines = dict.fromkeys(record.environment.machine for record in records)
    between = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    yield f"{len(records)} cases of {between} on {', '.join(machines)}. [All pages]({up}index.md)."
    yield ""
    yield from table_lines(_statuses(report.tables["statuses"]), up)
    yield ""
    yield from table_lines(_short(report.tables["models"]), up)


def _statuses(table: Table) -> Table:
    """Without the statuses that no case has."""
    kept = [row for row in table.rows if any(written(cell, "text") not in ("0", "–", "") for cell in row[1:])]
    return Table(table.name, table.title, table.columns, tuple(kept))


def _short(table: Table) -> Table:
    places = [table.place(key) for key in _SHOWN]
    columns = tuple(table.columns[place] for place in places)
    return Table(table.name, table.title, columns, tuple(tuple(row[place] for place in places) for row in table.rows))
