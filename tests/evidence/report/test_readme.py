"""The table of models in a README, and reports in some forms alone."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from evidence.report.samples import failed, model, synthetic

from assay.errors import NotFound
from assay.evidence.records import Records, Transfers
from assay.evidence.report import made, write, write_readme
from assay.evidence.report.readme import BEGIN, END


def test_the_table_stands_between_its_marks_and_leads_to_the_pages(tmp_path: Path) -> None:
    records = synthetic()
    report = made(records, "Models")
    write(tmp_path / "docs" / "models", report, ["markdown"])
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_readme(page, report, records, tmp_path / "docs" / "models")
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"\n{END}\nafter\n")
    assert "old" not in text
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) == len(set(report.tables["models"].column("model")))
    links = {line.split("](<")[1].split(">)")[0] for line in rows}
    assert links
    assert all((tmp_path / link).is_file() for link in links)
    first = report.tables["models"].rows[0]
    status = report.tables["models"].place("status")
    assert str(first[status]).replace("_", "\\_") in rows[0]


def test_each_model_has_one_row_with_its_status_in_every_sweep(tmp_path: Path) -> None:
    small, training = {"size": "small"}, {"size": "small", "mode": "train"}
    records = Records(
        (
            model("both", case={"dtype": "bf16"}, transfers=Transfers(7, 0)),
            model("both", "reference", case=small, transfers=Transfers(8, 0)),
            failed("both", case=training),
            model("late", "reference", case=small),
        )
    )
    page = tmp_path / "README.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    write_readme(page, made(records, "Models"), records, tmp_path)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines()]
    summary = [row for row in cells if len(row) == 6]
    assert summary == [
        ["Target", "Mode", "Size", "Green", "pass", "fail\\_lower"],
        ["---", "---", "---", "---:", "---:", "---:"],
        ["cpu", "eval", "full", "1/1 (100 %)", "1", "0"],
        ["reference", "eval", "small", "2/2 (100 %)", "2", "0"],
        ["cpu", "train", "small", "0/1 (0 %)", "0", "1"],
    ]
    titles, _, both, late = [row for row in cells if len(row) > 6]
    named = dict(zip(titles, both, strict=True))
    assert (named["Dtype"], named["Status"], named["Transfers"]) == ("bf16", "pass", "7")
    assert (named["reference, eval, small"], named["cpu, train, small"]) == ("pass", "fail\\_lower")
    assert late[1:] == ["–"] * 9 + ["pass", "–"]


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("nothing\n")
    records = synthetic()
    with pytest.raises(NotFound, match="no place for the table"):
        write_readme(page, made(records, "Models"), records, tmp_path)
    assert page.read_text() == "nothing\n"


@pytest.mark.parametrize(("form", "endings"), [("markdown", {".md"}), ("html", {".html", ".csv"}), ("data", {".csv"})])
def test_only_one_form(tmp_path: Path, form: str, endings: set[str]) -> None:
    written = write(tmp_path, made(synthetic(), "Models"), [form])
    found = {Path(name).suffix for name in written}
    assert found & {".md", ".html", ".csv"} == endings


def test_html_alone_has_all_that_it_links_to(tmp_path: Path) -> None:
    write(tmp_path, made(synthetic(), "Models"), ["html"])
    pages = list(tmp_path.rglob("*.html"))
    links = {(page, link) for page in pages for link in re.findall(r'href="([^"#]+)"', page.read_text())}
    assert any(link.endswith("data/index.html") for _, link in links)
    assert any(link.endswith(".csv") for _, link in links)
    for page, link in links:
        if "reproducers/" not in link:
            assert (page.parent / unquote(html.unescape(link))).is_file(), f"{page} links to {link}"
