"""A report of records, and its files."""

from __future__ import annotations

import gc
import json
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from assay.errors import NotFound
from assay.evidence.records.files import Records
from assay.evidence.report import checks as self_checks
from assay.evidence.report import components, failures, html, markdown, models, ops
from assay.evidence.report.base import Base, base
from assay.evidence.report.cells import Table
from assay.evidence.report.charts import Chart
from assay.evidence.report.checks import Check
from assay.evidence.report.data import as_csv, as_json
from assay.evidence.report.html import resource
from assay.evidence.report.pages import Page, data_page, pages

FORMS = ("markdown", "html", "data")
"""What a report is written as; charts are with each, and data with html, whose pages link to them."""
_MANIFEST = "data/files.json"


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report: its pages, the tables that they show, and what it found about itself."""

    title: str
    pages: tuple[Page, ...]
    tables: Mapping[str, Table]
    checks: tuple[Check, ...]


@contextmanager
def uncollected() -> Generator[None]:
    """Without the garbage collector: a report is millions of small objects in no cycles, which it would go through."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def make_report(records: Records, title: str) -> Report:
    """The report of records; no records are an error."""
    found = base(records)
    blocking = failures.blockers(found)
    tables = {table.name: table for table in _tables(found, blocking)}
    every = pages(found, tables, blocking, title)
    checked = self_checks.checks(found, tables, blocking, [page.path for page in every])
    shown = self_checks.table(checked)
    home = every[0]
    home = Page(home.path, home.title, (*home.blocks, shown), home.kind)
    return Report(title, (home, *every[1:]), {**tables, shown.name: shown}, checked)


def _tables(found: Base, blocking: failures.Blockers) -> Iterator[Table]:
    yield components.statuses(found)
    yield models.models(found)
    yield models.overview(found)
    yield models.details(found)
    conversions = models.conversions(found)
    yield conversions
    yield models.fallbacks(conversions)
    yield models.outputs(found)
    yield models.timings(found)
    yield models.history(found)
    used = ops.ways(found)
    yield ops.input_variations(found, used)
    yield ops.op_variations(found, used)
    yield ops.op_users(found)
    yield ops.ops(found)
    yield ops.op_failures(found)
    yield failures.component_failures(found, blocking)
    yield failures.unlocks(found, blocking)
    yield failures.fix_plan(found, blocking)
    yield failures.unknown(found, blocking)
    yield failures.not_tried(found)
    yield failures.cause_cases(found)
    yield failures.faults(found)
    yield components.components(found)
    yield components.model_rates(found)


def write(folder: Path, report: Report, forms: Collection[str] = FORMS) -> list[str]:
    """Write the files of a report in these forms; those of an earlier report that this one does not have go."""
    stale = _earlier(folder)
    written: list[str] = []
    made_folders: set[Path] = set()
    for name, text in _files(report, forms):
        path = folder / name
        try:
            if path.parent not in made_folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                made_folders.add(path.parent)
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise NotFound(f"'{path}' cannot be written: {error.strerror}") from error
        written.append(name)
    for name in sorted(stale - set(written)):
        (folder / name).unlink(missing_ok=True)
    (folder / _MANIFEST).parent.mkdir(exist_ok=True)
    (folder / _MANIFEST).write_text(json.dumps(sorted(written), indent=0) + "\n", encoding="utf-8")
    return written


def _files(report: Report, forms: Collection[str]) -> Iterator[tuple[str, str]]:
    failed = tuple(check for check in report.checks if not check.ok)
    style = resource("chart.css")
    known = markdown.memory(), html.memory()
    for page in report.pages:
        if "markdown" in forms:
            yield from markdown.files(page, failed, known[0])
        if "html" in forms:
            yield f"{page.path}.html", html.as_html(page, report.title, failed, known[1])
        for block in page.blocks:
            if isinstance(block, Chart):
                yield f"charts/{block.name}.svg", block.alone(style)
    if "html" in forms:
        yield "data/index.html", html.as_html(data_page(report.tables.values()), report.title, failed)
    for table in report.tables.values() if {"data", "html"} & set(forms) else ():
        yield f"data/{table.name}.csv", as_csv(table)
        yield f"data/{table.name}.json", as_json(table)


def _earlier(folder: Path) -> set[str]:
    """The files that an earlier report wrote here; nothing outside the folder."""
    try:
        names = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return set()
    inside = folder.resolve()
    return {name for name in names if (folder / name).resolve().is_relative_to(inside)}
