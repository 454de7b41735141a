"""The files of a report: the same rows in all four forms, links that lead somewhere, text that stays text."""

from __future__ import annotations

import csv
import gc
import json
import re
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from evidence.report.samples import EVIL, SMALL, cause, failed, model, output, synthetic
from typer.testing import CliRunner

from assay.cli import app
from assay.cli.output import DIFFERS, OK
from assay.errors import BadFeed, NotFound
from assay.evidence.records import Configuration, Environment, OpUse, Records, Speed, append
from assay.evidence.report import Report, make_report, uncollected, write
from assay.evidence.report.cells import Link, Table, data_keys, written
from assay.evidence.report.markdown import as_markdown

EVIL_RECORDS = Records(
    (
        failed(EVIL, cause(op=EVIL, message=EVIL, component=EVIL, detail=EVIL), notes=(EVIL,)),
        model(
            EVIL + "2",
            ops=(OpUse(EVIL, 1, converted=1),),
            configurations=(Configuration(EVIL, (EVIL,)),),
            outputs=(output(EVIL, complaint=EVIL),),
        ),
        model("=1+1", target=EVIL),
    )
)


class Page(HTMLParser):
    """What a page holds: tables as rows of text, links, ids, and tags that are not closed in their order."""

    VOID = ("meta", "br", "input", "link", "line", "circle", "rect", "path")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.scripts = self.texts = 0
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.misplaced: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.scripts += tag == "script"
        if tag == "a":
            self.links.append(found["href"] or "")
        if "id" in found:
            self.ids.append(found["id"] or "")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID and self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data: str) -> None:
        if "td" in self.open and "summary" not in self.open:
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(SMALL, "Small")


@pytest.fixture(scope="module")
def folder(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write(folder, report)
    return folder


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evil")
    write(folder, make_report(EVIL_RECORDS, EVIL))
    return folder


def parsed(path: Path) -> Page:
    return Page(path.read_text())


def test_every_thing_has_its_page(folder: Path) -> None:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.html")}
    assert {"index.html", "failures.html", "ops.html"} < found
    assert {"models/albert-albert-base-v2.html", "models/gpt.html", "ops/aten.view.html", "ops/aten.foo.html"} < found
    assert sum(name.startswith("causes/") for name in found) == 5
    assert {path.with_suffix("") for path in folder.rglob("*.html")} == {
        *(path.with_suffix("") for path in folder.rglob("*.md")),
        folder / "data" / "index",
    }


@pytest.mark.parametrize("which", ["folder", "evil"])
def test_every_link_leads_to_a_file(which: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(which)
    count = 0
    for path in folder.rglob("*.html"):
        page = parsed(path)
        assert page.misplaced == []
        assert page.open == []
        assert len(set(page.ids)) == len(page.ids)
        for link in page.links:
            if link.startswith("#"):
                assert link[1:] in page.ids
            elif "reproducers" not in link:
                assert (path.parent / unquote(link)).exists(), link
            count += 1
    assert count > 50
    for path in folder.rglob("*.md"):
        for link in re.findall(r"\]\(<?([^)>]*)>?\)", path.read_text().replace("\\]", "").replace("\\[", "")):
            if "reproducers" not in link and "javascript" not in link:
                assert (path.parent / unquote(link)).exists(), link


def test_pages_need_nothing_from_elsewhere(folder: Path, evil: Path) -> None:
    for path in (*folder.rglob("*.html"), *evil.rglob("*.html")):
        text = path.read_text()
        assert not re.search(r"https?://|@import|url\(|<link|<img|<iframe| src=", text)
        assert parsed(path).scripts == 1


def test_text_stays_text(evil: Path) -> None:
    for path in evil.rglob("*.html"):
        text, page = path.read_text(), parsed(path)
        assert "<script>alert" not in text
        assert page.scripts == 1
        assert not any((value or "").strip().lower().startswith("javascript") for _, _, value in page.attributes)
        assert not any(name.startswith("on") for _, name, _ in page.attributes)
    cells = [cell for table in parsed(evil / "index.html").tables for row in table for cell in row]
    assert EVIL in cells
    for path in evil.rglob("*.md"):
        text = path.read_text()
        assert not re.search(r"(?<!\\)<script", re.sub(r"(`+).*?\1", "", text))


def test_tables_of_markdown_keep_their_columns(evil: Path) -> None:
    for path in evil.rglob("*.md"):
        widths: set[int] = set()
        for line in path.read_text().splitlines():
            if line.startswith("|"):
                widths.add(len(re.findall(r"(?<!\\)\|", line)))
            else:
                assert len(widths) <= 1, path
                widths = set()


def test_spreadsheets_take_names_for_no_formulas(evil: Path) -> None:
    with (evil / "data" / "models.csv").open() as file:
        assert "'=1+1" in [row["model"] for row in csv.DictReader(file)]


def shown(table: Table) -> list[list[str]]:
    """The cells of a table as a reader sees them; names in a list without what is between them."""
    return [
        [
            "".join(link.text for link in cell) if isinstance(cell, tuple) and cell else written(cell, column.kind)
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]


def test_the_four_forms_have_the_same_rows(report: Report, folder: Path) -> None:
    for name, table in report.tables.items():
        data = json.loads((folder / "data" / f"{name}.json").read_text())
        with (folder / "data" / f"{name}.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert len(data) == len(lines) == len(table.rows), name
        for one, other in zip(data, lines, strict=True):
            assert list(one) == list(other) == data_keys(table.columns)
            for key, value in one.items():
                assert other[key] == (
                    "" if value is None else "; ".join(value) if isinstance(value, list) else str(value)
                )
    for page in report.pages:
        tables = [block for block in page.blocks if isinstance(block, Table) and block.rows]
        html = parsed(folder / f"{page.path}.html").tables
        assert [table[1:] for table in html] == [shown(table) for table in tables], page.path
        text = as_markdown(page)
        for table in tables:
            for row in table.rows:
                cells = (cell for cell in row if isinstance(cell, Link))
                assert all(f"{cell.page}.md" in text for cell in cells if not cell.file)
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(lines) == sum(len(table.rows) + 2 for table in tables)


def test_pages_of_tables_hold_every_row_of_the_data(report: Report) -> None:
    """What the data files have of models is on the pages of the models."""
    for name in ("cases", "conversions", "outputs", "timings", "history", "input_variations"):
        on_pages = [b for page in report.pages for b in page.blocks if isinstance(b, Table) and page.kind == "model"]
        assert sum(len(table.rows) for table in on_pages if table.name == name) == len(report.tables[name].rows), name


def test_pairs_of_numbers_are_two_columns_of_data(folder: Path) -> None:
    first = json.loads((folder / "data" / "models.json").read_text())[0]
    assert (first["ops_before"], first["ops_before_unique"]) == (7, 2)
    assert (first["configurations"], first["configurations_of"]) == (1, 1)
    assert first["pcc"] == 0.99999999


def test_tables_can_be_sorted_and_read_by_everyone(folder: Path) -> None:
    page = parsed(folder / "index.html")
    heads = [(name, value) for tag, name, value in page.attributes if tag == "th"]
    assert heads.count(("scope", "col")) == heads.count(("aria-sort", "none")) > 10
    assert ("html", "lang", "en") in page.attributes
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes


def test_charts_are_pictures_by_themselves(folder: Path) -> None:
    found = {path.stem for path in (folder / "charts").iterdir()}
    assert found == {"status", "speed", "accuracy", "plan"}
    for path in (folder / "charts").iterdir():
        root = ElementTree.fromstring(path.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    status = (folder / "charts" / "status.svg").read_text()
    assert "cpu: 3 of 5 fail_lower" in status
    assert "1/5" in status
    assert "cpu: 2 fixes unlock 2 of 3 models" in (folder / "charts" / "plan.svg").read_text()
    assert "albert/albert-base v2 on cpu: 2.50×" in (folder / "charts" / "speed.svg").read_text()


def test_a_cause_leads_to_models_to_ops_and_back(report: Report) -> None:
    def links(path: str) -> set[str]:
        page = next(page for page in report.pages if page.path == path)
        cells = [cell for block in page.blocks if isinstance(block, Table) for row in block.rows for cell in row]
        return {
            link.page
            for cell in cells
            for link in (cell if isinstance(cell, tuple) else (cell,))
            if isinstance(link, Link)
        }

    why = next(page.path for page in report.pages if page.kind == "cause" and "another thing" in page.title)
    assert {"models/gpt", "ops/aten.foo"} <= links(why)
    assert {why, "ops/aten.foo"} <= links("models/gpt")
    assert {why, "models/gpt"} <= links("ops/aten.foo")
    assert why in links("failures")


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    records = synthetic(4)
    for name in ("a", "b"):
        write(tmp_path / name, make_report(records, "Again"))
    assert {p.relative_to(tmp_path / "a"): p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()} == {
        p.relative_to(tmp_path / "b"): p.read_bytes() for p in (tmp_path / "b").rglob("*") if p.is_file()
    }


def test_pages_of_an_earlier_report_go_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "out", make_report(Records((model("old"), model("new"))), "Two"))
    (tmp_path / "out" / "models" / "mine.md").write_text("mine")
    (tmp_path / "precious").write_text("not a part of the report")
    manifest = tmp_path / "out" / "data" / "files.json"
    manifest.write_text(json.dumps([*json.loads(manifest.read_text()), "../precious"]))
    write(tmp_path / "out", make_report(Records((model("new"),)), "One"))
    assert sorted(path.name for path in (tmp_path / "out" / "models").iterdir()) == ["mine.md", "new.html", "new.md"]
    assert (tmp_path / "precious").exists()


def test_times_of_crowded_runs_are_told() -> None:
    crowd = Environment(date="2026-11-02T00:00:00Z", workers=2)
    quick = Speed(median=1.0, eager_median=2.0)
    found = make_report(
        Records((model("a", environment=crowd, speed=quick), model("b", speed=quick), model("c"))), "Crowd"
    )
    assert "> 1 of 2 times are of runs with several cases at once" in as_markdown(found.pages[0])
    assert "at once" not in as_markdown(make_report(Records((model("b", speed=quick),)), "Alone").pages[0])


def test_times_of_disturbed_runs_are_told() -> None:
    quiet, loud = Speed(median=1.0, others=0.1), Speed(median=1.0, others=0.11)
    found = make_report(Records((model("a", speed=quiet), model("b", speed=loud))), "Neighbours")
    assert "> 1 of 2 times were taken while other processes used more than 10% of" in as_markdown(found.pages[0])
    assert "other processes used" not in as_markdown(make_report(Records((model("a", speed=quiet),)), "Quiet").pages[0])


def test_the_garbage_collector_is_on_again_after_a_report() -> None:
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with suppress(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_writes_a_report_of_several_files(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", model("bert", date="2026-10-01T00:00:00Z"))
    append(tmp_path / "b.jsonl", model("bert"))
    found = invoke(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out", "--title", "Two runs")
    assert found.exit_code == OK, found.output
    text = (tmp_path / "out" / "models" / "bert.md").read_text()
    assert "2026-10-01" in text
    assert "2026-11-02" in text
    assert (tmp_path / "out" / "index.md").read_text().startswith("# Two runs\n")


def test_a_damaged_line_makes_the_command_fail_and_is_at_the_top(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    append(file, model("bert"))
    file.write_bytes(file.read_bytes() + b"{}\n")
    found = invoke(file, "-o", tmp_path / "out", "--json", tmp_path / "result.json")
    assert found.exit_code == DIFFERS
    assert "every line of the records is valid" in found.output
    assert f"{file}:2" in (tmp_path / "out" / "index.md").read_text().replace("\\", "")
    checks = json.loads((tmp_path / "result.json").read_text())["checks"]
    assert [check["name"] for check in checks if not check["ok"]] == ["every line of the records is valid"]


def test_without_the_templates_language_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "a.jsonl", model("bert"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = invoke(tmp_path / "a.jsonl", "-o", tmp_path / "out")
    assert isinstance(found.exception, NotFound)
    assert "assay-compiler[report]" in found.exception.hint


def test_no_records_make_no_report(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    found = invoke(tmp_path / "a.jsonl", "-o", tmp_path / "out")
    assert isinstance(found.exception, BadFeed)
    assert not (tmp_path / "out").exists()
