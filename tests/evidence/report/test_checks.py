"""The self-checks: each of them finds what it is there for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from evidence.report.samples import SMALL, model

from assay.evidence.records import Records
from assay.evidence.records.files import Damage
from assay.evidence.report import make_report
from assay.evidence.report.base import base
from assay.evidence.report.cells import Cell, Link, Ratio, Table
from assay.evidence.report.checks import Check, checks
from assay.evidence.report.failures import blockers
from assay.evidence.report.html import as_html
from assay.evidence.report.markdown import as_markdown

BASE = base(SMALL)
FOUND = blockers(BASE)
REPORT = make_report(SMALL, "Small")
TABLES = {name: table for name, table in REPORT.tables.items() if name != "checks"}
PAGES = [page.path for page in REPORT.pages]


def with_cell(table: Table, key: str, cell: Cell, row: int = 0) -> Table:
    """The table with another cell."""
    place = table.place(key)
    rows = [list(each) for each in table.rows]
    rows[row][place] = cell
    return replace(table, rows=tuple(map(tuple, rows)))


def broken(tables: Mapping[str, Table] = TABLES, **more: Any) -> list[str]:
    """The names of the checks that fail."""
    given = {"base": BASE, "found": FOUND, "pages": PAGES} | more
    return [check.name for check in checks(tables=tables, **given) if not check.ok]


def changed(name: str, change: Callable[[Table], Table]) -> list[str]:
    return broken({**TABLES, name: change(TABLES[name])})


def test_a_sound_report_has_none_that_fail() -> None:
    assert broken() == []
    assert len(REPORT.checks) == 11


CHANGES: Mapping[str, tuple[str, Callable[[Table], Table]]] = {
    "statuses add up to cases": ("statuses", lambda table: with_cell(table, "pass_with_fallback", 2)),
    "the nodes of ops add up": ("conversions", lambda table: with_cell(table, "converted", 1)),
    "no part is larger than its whole": ("models", lambda table: with_cell(table, "configurations", Ratio(3, 2))),
    "rates can be computed again": ("components", lambda table: with_cell(table, "average", "99 % (1)")),
    "every record is in a table": ("history", lambda table: replace(table, rows=table.rows[1:])),
    "every failure is accounted for": ("component_failures", lambda table: replace(table, rows=table.rows[1:])),
    "every name leads to a page": ("ops", lambda table: with_cell(table, "op", Link("a", "ops/a"))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_table_that_was_changed_is_found_out(name: str) -> None:
    table, change = CHANGES[name]
    assert name in changed(table, change)


@pytest.mark.parametrize("table", ["unknown_causes", "not_tried"])
def test_failures_that_are_left_out_are_found_out(table: str) -> None:
    assert changed(table, lambda each: replace(each, rows=())) == ["every failure is accounted for"]


def test_a_green_figure_that_is_too_good_is_found_out() -> None:
    assert changed("statuses", lambda table: with_cell(table, "green", Ratio(5, 5))) == ["statuses add up to cases"]


def test_a_percentage_that_was_rounded_up_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.evidence.report.cells.percent", lambda found: f"{round(found * 100)} %")
    assert "100 % is all of it" in changed("models", lambda t: with_cell(t, "configurations", Ratio(999, 1000)))


def test_damaged_lines_are_found_out() -> None:
    damaged = Records(SMALL.records, (Damage("a.jsonl", 7, "cut short"),))
    assert broken(base=base(damaged)) == ["every line of the records is valid"]


def test_a_pass_that_judged_nothing_is_found_out() -> None:
    assert [check.name for check in make_report(Records((model("m", outputs=()),)), "None").checks if not check.ok] == [
        "a pass has outputs that were judged"
    ]


def test_a_plan_that_leaves_models_out_is_found_out() -> None:
    short = replace(FOUND, plans={**FOUND.plans, "cpu": FOUND.plans["cpu"][:-1]})
    assert broken(found=short) == ["the fix plan ends with every blocked model"]
    loose = replace(FOUND, blocked={"cpu": {}, "ttnn": {}}, plans={"cpu": [], "ttnn": []})
    assert broken(found=loose) == ["the fix plan ends with every blocked model"]


def test_a_check_that_fails_is_at_the_top_of_every_page() -> None:
    bad = (Check("sums add up", False, "3 is not 4 <b>"),)
    for page in REPORT.pages:
        assert "**A self-check of this report fails:** sums add up: 3 is not 4 \\<b\\>" in as_markdown(page, bad)
        html = as_html(page, "Small", bad)
        assert '<p class="alarm" role="alert">' in html
        assert html.index("3 is not 4 &lt;b&gt;") < html.index("<h1>")
        assert "self-check of this report fails" not in as_html(page, "Small")


def test_the_first_page_has_every_check() -> None:
    text = as_markdown(REPORT.pages[0])
    assert all(check.name in text for check in REPORT.checks)
