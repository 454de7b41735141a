"""docs/models.md and the README's table are what the committed records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.evidence.records import Records
from assay.evidence.records.schema import STATUSES
from assay.evidence.report import Report, gathered, make_report, write_page, write_readme
from assay.evidence.report.readme import BEGIN, END

ROOT = Path(__file__).parents[1]
RECORDS = sorted((ROOT / "evidence").glob("*.jsonl.gz"))


@pytest.fixture(scope="module")
def records() -> Records:
    return gathered(RECORDS, ROOT / "build" / "report")


@pytest.fixture(scope="module")
def report(records: Records) -> Report:
    return make_report(records, "Models")


def test_the_records_are_sound(records: Records, report: Report) -> None:
    assert records.records
    assert not records.damaged
    assert all(check.ok for check in report.checks), report.checks


def test_the_page_is_that_of_the_records(tmp_path: Path, records: Records, report: Report) -> None:
    write_page(tmp_path / "models.md", report, records)
    assert (tmp_path / "models.md").read_text() == (ROOT / "docs" / "models.md").read_text(), "run `make report`"


def test_the_table_of_the_readme_is_that_of_the_records(tmp_path: Path, records: Records, report: Report) -> None:
    again = tmp_path / "README.md"
    again.write_text((ROOT / "README.md").read_text())
    write_readme(again, report, records, tmp_path / "docs" / "models.md")
    assert _table(again) == _table(ROOT / "README.md"), "run `make report`"


def test_statuses_mean_the_same_everywhere() -> None:
    for name in ("README.md", "docs/models.md", "docs/records.md"):
        text = (ROOT / name).read_text()
        assert STATUSES["pass_with_fallback"] in text, name
    assert (ROOT / "README.md").read_text().count("pass_with_fallback`") == 1, "it is defined once"


def _table(page: Path) -> str:
    return page.read_text().split(BEGIN)[1].split(END)[0]
