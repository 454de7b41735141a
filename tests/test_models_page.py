"""docs/models and the README's table are what the committed records say."""

from __future__ import annotations

from pathlib import Path

from assay.evidence.report import gathered, made, write, write_readme
from assay.evidence.report.readme import BEGIN, END

ROOT = Path(__file__).parents[1]
RECORDS = sorted((ROOT / "evidence").glob("*.jsonl.gz"))
PAGES = ROOT / "docs" / "models"


def test_pages_and_table_are_those_of_the_records(tmp_path: Path) -> None:
    records = gathered(RECORDS, PAGES)
    assert records.records
    assert not records.damaged
    report = made(records, "Models")
    assert all(check.ok for check in report.checks), report.checks
    names = write(tmp_path, report, ["markdown"])
    pages = {path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*") if path.is_file()}
    assert pages - {"data/files.json"} == set(names), "`make report` makes other pages"
    for name in names:
        assert (PAGES / name).read_text() == (tmp_path / name).read_text(), f"`make report` makes another {name}"
    again = tmp_path / "README.md"
    again.write_text((ROOT / "README.md").read_text())
    write_readme(again, report, records, tmp_path / "docs" / "models")
    assert _table(again) == _table(ROOT / "README.md"), "`make report` makes another table"


def _table(page: Path) -> str:
    return page.read_text().split(BEGIN)[1].split(END)[0]
