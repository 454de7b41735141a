"""The table of models in a README, and reports in some forms alone."""

from __future__ import annotations

import html
import itertools
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from evidence.report.samples import failed, model, synthetic

from assay.cli import main
from assay.cli.output import USAGE
from assay.errors import NotFound
from assay.evidence.records import OpUse, Records, Transfers
from assay.evidence.report import make_report, write, write_page, write_readme
from assay.evidence.report.readme import BEGIN, END, ROWS, varied


def test_the_table_stands_between_its_marks_and_leads_to_the_page(tmp_path: Path) -> None:
    records = synthetic()
    report = make_report(records, "Models")
    (tmp_path / "docs").mkdir()
    write_page(tmp_path / "docs" / "models.md", report, records)
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_readme(page, report, records, tmp_path / "docs" / "models.md")
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"\n{END}\nafter\n")
    assert "old" not in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links == ["docs/models.md"]


def test_the_readme_shows_ten_models_and_the_page_all(tmp_path: Path) -> None:
    records = synthetic()
    report = make_report(records, "Models")
    page, readme = tmp_path / "models.md", tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    write_page(page, report, records)
    write_readme(readme, report, records, page)
    names = {record.case.name for record in records.records if record.case.kind == "model"}
    assert len(names) > ROWS
    assert len(rows_of_models(readme)) == ROWS
    assert len(rows_of_models(page)) == len(names)
    assert {row[0] for row in rows_of_models(readme)} <= {row[0] for row in rows_of_models(page)}
    assert "](" not in page.read_text(), "pages of single models are not kept"


def table_of(page: Path, start: str) -> list[list[str]]:
    """The cells of the first table whose titles begin so, the titles first."""
    lines = page.read_text().splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith(start))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[first:])
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows]
    return [found[0], *found[2:]]


def rows_of_models(page: Path) -> list[list[str]]:
    return table_of(page, "| Model | Dtype |")[1:]


def test_each_model_of_the_readme_is_chosen_for_most_ops_that_those_before_it_lack() -> None:
    used = {"many": "abcd", "some": "abe", "same": "abcd", "other": "efg"}
    records = [model(name, ops=tuple(OpUse(op, 1, converted=1) for op in ops)) for name, ops in used.items()]
    training = model("train", case={"mode": "train"}, ops=tuple(OpUse(op, 1, converted=1) for op in "opqrst"))
    assert varied([*records, training]) == ["many", "other", "some", "same"]


def test_the_page_tells_what_did_not_pass_and_what_ran_elsewhere(tmp_path: Path) -> None:
    draws = OpUse("aten.rand.default", 2, opaque=2, reasons=("draws from torch's generator",))
    records = Records(
        (
            model("good"),
            model("draws", status="pass_with_fallback", ops=(draws,)),
            model("split", status="pass_with_fallback", breaks=1, notes=("torch left a graph at a.py:3",)),
            failed("bad"),
        )
    )
    write_page(tmp_path / "models.md", make_report(records, "Models"), records)
    assert [row[0] for row in table_of(tmp_path / "models.md", "| Model | Target |")[1:]] == ["bad"]
    told = [row[3:] for row in table_of(tmp_path / "models.md", "| Target | Mode | Size | What |")[1:]]
    assert told == [
        ["aten.rand.default: draws from torch's generator", "1", "draws"],
        ["torch left a graph at a.py:3", "1", "split"],
    ]


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
    page = tmp_path / "models.md"
    write_page(page, make_report(records, "Models"), records)
    assert table_of(page, "| Target | Mode | Size | Green |") == [
        ["Target", "Mode", "Size", "Green", "pass", "fail\\_lower"],
        ["cpu", "eval", "full", "1/1 (100 %)", "1", "0"],
        ["reference", "eval", "small", "2/2 (100 %)", "2", "0"],
        ["cpu", "train", "small", "0/1 (0 %)", "0", "1"],
    ]
    titles, both, late = table_of(page, "| Model | Dtype |")
    named = dict(zip(titles, both, strict=True))
    assert (named["Dtype"], named["Status"], named["Transfers"]) == ("bf16", "pass", "7")
    assert (named["reference, eval, small"], named["cpu, train, small"]) == ("pass", "fail\\_lower")
    assert late[1:] == ["–"] * 9 + ["pass", "–"]


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("nothing\n")
    records = synthetic()
    with pytest.raises(NotFound, match="no place for the table"):
        write_readme(page, make_report(records, "Models"), records, tmp_path / "models.md")
    assert page.read_text() == "nothing\n"


def test_a_readme_needs_the_page_that_it_leads_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["report", "records.jsonl", "-o", str(tmp_path / "report"), "--readme", str(tmp_path / "README.md")])
    assert stopped.value.code == USAGE
    assert "--page FILE" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "endings"), [("markdown", {".md"}), ("html", {".html", ".csv"}), ("data", {".csv"})])
def test_only_one_form(tmp_path: Path, form: str, endings: set[str]) -> None:
    written = write(tmp_path, make_report(synthetic(), "Models"), [form])
    found = {Path(name).suffix for name in written}
    assert found & {".md", ".html", ".csv"} == endings


def test_html_alone_has_all_that_it_links_to(tmp_path: Path) -> None:
    write(tmp_path, make_report(synthetic(), "Models"), ["html"])
    pages = list(tmp_path.rglob("*.html"))
    links = {(page, link) for page in pages for link in re.findall(r'href="([^"#]+)"', page.read_text())}
    assert any(link.endswith("data/index.html") for _, link in links)
    assert any(link.endswith(".csv") for _, link in links)
    for page, link in links:
        if "reproducers/" not in link:
            assert (page.parent / unquote(html.unescape(link))).is_file(), f"{page} links to {link}"
