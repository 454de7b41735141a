"""The models in a README: totals and ten rows; and the page that has all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from assay.errors import NotFound
from assay.evidence.marks import put_between
from assay.evidence.records import Record, Records
from assay.evidence.report.cells import Table
from assay.evidence.report.markdown import table_lines
from assay.evidence.report.summary import (
    by_model,
    elsewhere,
    group_of,
    groups,
    meanings,
    not_passed,
    origin,
    shown,
    title,
    totals,
)
from assay.evidence.report.write import Report

BEGIN = "<!-- models: begin (written by `assay report`) -->"
END = "<!-- models: end -->"
ROWS = 10
"""How many models the README shows."""


def write_readme(path: Path, report: Report, records: Records, page: Path) -> None:
    """Put totals and the most varied models between their marks into a README; it leads to the page of all models."""
    link = Path(os.path.relpath(page, path.parent)).as_posix()
    put_between(path, BEGIN, END, "\n".join(_short(report.tables["models"], shown(records), link)))


def write_page(path: Path, report: Report, records: Records) -> None:
    """Write the page of all models: totals, a row for each, what did not pass, and what ran elsewhere."""
    text = "\n".join(_page(report, shown(records))) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotFound(f"'{path}' cannot be written: {error.strerror}") from error


def _short(table: Table, records: Sequence[Record], link: str) -> Iterator[str]:
    found = groups(table)
    if not found:
        yield "No model was run."
        return
    chosen = varied(records)
    yield from table_lines(totals(table, found), "")
    yield ""
    yield from meanings(records)
    yield ""
    yield (
        f"{origin(records)} [All models]({link}), with what did not pass and what ran elsewhere. Here are"
        f" {len(chosen)} of {len({record.case.name for record in records})}, with the figures of"
        f" {title(next(iter(found)))}: each is chosen for the most torch ops that those before it lack."
    )
    yield ""
    every = by_model(table, found)
    yield from table_lines(every.where(lambda row: str(row[0]) in chosen), "")


def varied(records: Sequence[Record]) -> list[str]:
    """Models of the first group; each in turn is the one with most torch ops that those before it lack."""
    first = [record for record in records if group_of(record) == group_of(records[0])]
    used = {record.case.name: frozenset(use.op for use in record.ops) for record in first}
    chosen: list[str] = []
    known: frozenset[str] = frozenset()
    while used and len(chosen) < ROWS:
        best = max(used, key=lambda name: len(used[name] - known))
        known |= used.pop(best)
        chosen.append(best)
    return chosen


def _page(report: Report, records: Sequence[Record]) -> Iterator[str]:
    table = report.tables["models"]
    found = groups(table)
    yield f"# {report.title}"
    yield ""
    yield "Written by `make report` from the records in `evidence/`: do not edit it."
    yield "The same command makes a page of every model, op and failure in `build/report`."
    yield ""
    yield origin(records)
    yield ""
    yield "```sh"
    yield from dict.fromkeys(record.environment.command for record in records)
    yield "```"
    yield ""
    yield from _section(totals(table, found))
    yield from meanings(records)
    yield ""
    every = by_model(table, found)
    yield from _section(replace(every, note=f"The figures are those of {title(next(iter(found)))}."))
    yield from _section(not_passed(records))
    yield from _section(elsewhere(records))
    yield from (f"A self-check fails: {check.name}: {check.detail}" for check in report.checks if not check.ok)


def _section(table: Table) -> Iterator[str]:
    yield f"## {table.title}"
    yield ""
    if table.note:
        yield table.note
        yield ""
    yield from table_lines(table, "") if table.rows else ("None.",)
    yield ""
