"""The HTML in a real browser: sort, filter, follow links from a cause to a model to an op and back."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from evidence.report.samples import EVIL, synthetic
from evidence.report.test_pages import EVIL_RECORDS

from assay.evidence.report import gathered, make_report, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

RECORDS = Path(__file__).parents[3] / "evidence"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def absent(what: str) -> None:
    """Say that something is not here: on a continuous build that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        absent("Chromium (Debian's package chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright")
        raise
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write(folder, make_report(synthetic(16), "Made-up models"))
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that allows no network and no error of a script."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    found = context.new_page()
    errors: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield found
    context.close()
    assert errors == []


def section(page: Page, name: str) -> Locator:
    return page.locator(f'section[data-table="{name}"]').first


def column(where: Locator, title: str) -> list[str]:
    """The texts of a column's cells in the rows that are shown."""
    heads = [text.strip() for text in where.locator("thead th").all_inner_texts()]
    place = next(place for place, text in enumerate(heads) if text.removesuffix("↕").strip(" ↑↓") == title)
    return where.locator(f"tbody tr:not([hidden]) td:nth-child({place + 1})").all_inner_texts()


def figures(texts: list[str]) -> list[float]:
    return [float(text.removesuffix("×").replace(",", "")) for text in texts if text != "–"]


def test_a_column_sorts_by_value_both_ways_and_what_is_missing_stays_last(page: Page, folder: Path) -> None:
    page.goto((folder / "index.html").as_uri())
    models = section(page, "models")
    head = models.get_by_role("columnheader", name="Speed-up")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    texts = column(models, "Speed-up")
    assert figures(texts) == sorted(figures(texts))
    assert len(figures(texts)) > 10
    assert texts[len(figures(texts)) :] == ["–"] * (len(texts) - len(figures(texts))) != []
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    down = column(models, "Speed-up")
    assert figures(down) == sorted(figures(texts), reverse=True)
    assert down[-1] == "–"
    assert models.locator('th[aria-sort="descending"], th[aria-sort="ascending"]').count() == 1


def test_names_sort_as_people_count(page: Page, folder: Path) -> None:
    page.goto((folder / "index.html").as_uri())
    models = section(page, "models")
    models.get_by_role("columnheader", name="Model").get_by_role("button").click()
    names = column(models, "Model")
    assert names.index("resnet-2") < names.index("resnet-10")


def test_rows_are_filtered_by_words_and_by_status(page: Page, folder: Path) -> None:
    page.goto((folder / "index.html").as_uri())
    models = section(page, "models")
    total = len(column(models, "Model"))
    box = models.get_by_role("searchbox")
    box.fill("whisper ttnn")
    assert column(models, "Model") == ["openai/whisper-4", "openai/whisper-12"]
    assert models.locator(".shown").inner_text() == f"2 of {total} rows"
    box.fill("whisper -ttnn")
    assert set(column(models, "Target")) == {"cpu"}
    box.press("Escape")
    assert len(column(models, "Model")) == total
    chip = models.locator(".chips").get_by_role("button", name="pass_with_fallback")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert set(column(models, "Status")) == {"pass_with_fallback"}
    chip.click()
    assert len(column(models, "Model")) == total


def test_from_a_cause_to_a_model_to_an_op_and_back(page: Page, folder: Path) -> None:
    page.goto((folder / "index.html").as_uri())
    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Failures").click()
    failures = section(page, "component_failures")
    failures.locator("tbody tr", has=page.locator("td:nth-child(5) a")).first.locator("td:nth-child(3) a").click()
    assert page.locator("h1 .kind").inner_text().lower() == "cause"
    cause, cause_url = page.locator("h1").inner_text(), page.url
    impact = section(page, "component_failures")
    if impact.locator("details").count():
        impact.locator("summary").last.click()
    link = impact.locator("tbody tr").first.locator("td:last-child a").first
    name = link.inner_text()
    link.click()
    assert page.locator("h1 .kind").inner_text().lower() == "model"
    assert name in page.locator("h1").inner_text()
    model_url = page.url
    assert page.locator(f'a[href$="{cause_url.rpartition("/")[2]}"]').count() > 0
    op = section(page, "conversions").locator("tbody td:nth-child(2) a, tbody td:first-child a").first
    op_name = op.inner_text()
    op.click()
    assert page.locator("h1 .kind").inner_text().lower() == "op"
    assert op_name in page.locator("h1").inner_text()
    users = section(page, "op_users")
    users.get_by_role("searchbox").fill(name)
    users.locator("tbody tr:not([hidden]) a").first.click()
    assert page.url == model_url
    page.locator(f'a[href$="{cause_url.rpartition("/")[2]}"]').first.click()
    assert page.locator("h1").inner_text() == cause
    page.go_back()
    assert page.url == model_url


def test_the_page_fits_a_phone_and_both_themes(page: Page, folder: Path) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    for name in ("index", "failures", "ops"):
        page.goto((folder / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate(colour)
    assert dark != before
    page.emulate_media(color_scheme="dark")
    page.evaluate("delete document.documentElement.dataset.theme")
    assert page.evaluate(colour) == dark


def test_evil_names_are_shown_and_not_run(page: Page, tmp_path: Path) -> None:
    write(tmp_path, make_report(EVIL_RECORDS, EVIL))
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto((tmp_path / "index.html").as_uri())
    assert EVIL in column(section(page, "models"), "Model")
    section(page, "models").get_by_role("link", name=EVIL).first.click()
    assert EVIL in page.locator("h1").inner_text()


# --- small screens and letters

PHONE = 390
WIDTHS = [PHONE, 768, 1280]
LETTERS = """() => [...document.querySelectorAll(".chart")].flatMap((chart) => {
  if (!chart.getClientRects().length) return [];
  const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
  const box = chart.getBoundingClientRect();
  return [...chart.querySelectorAll("text")].map((text) => {
    const place = text.getBoundingClientRect();
    const under = document.elementsFromPoint(place.x + place.width / 2, place.y + place.height / 2)
      .find((each) => each.tagName === "rect");
    return {
      text: text.textContent, chart: chart.getAttribute("aria-label"), kind: text.getAttribute("class"),
      size: parseFloat(getComputedStyle(text).fontSize) * scale,
      colour: getComputedStyle(text).fill, under: under ? getComputedStyle(under).fill : "",
      box: [place.left, place.top, place.right, place.bottom],
      outside: place.left < box.left - 1 || place.right > box.right + 1 || place.bottom > box.bottom + 1,
    };
  });
})"""

TOO_WIDE = """() => [...document.querySelectorAll("main *")]
  .filter((each) => !each.closest(".scroll") && each.getClientRects().length)
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 90))"""
TOO_SMALL = """() => [...document.querySelectorAll("header a, header button, .chips button, .pager button")]
  .filter((each) => each.getClientRects().length && each.getBoundingClientRect().height < 24)
  .map((each) => each.textContent)"""


@pytest.fixture(scope="module", params=["made up", "real"])
def any_report(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of made-up records, and one of the committed ones."""
    if request.param == "made up":
        return folder
    place = tmp_path_factory.mktemp("real")
    write(place, make_report(gathered(sorted(RECORDS.glob("*.jsonl.gz")), place), "Models"), ["html"])
    return place


def luminance(colour: str) -> float:
    """WCAG's relative luminance of `rgb(…)`."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def overlapping(letters: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Texts of one chart that stand on each other."""
    found: list[tuple[str, str]] = []
    for a, b in itertools.combinations(letters, 2):
        (l1, t1, r1, b1), (l2, t2, r2, b2) = a["box"], b["box"]
        apart = r1 <= l2 + 1 or r2 <= l1 + 1 or b1 <= t2 + 3 or b2 <= t1 + 3
        if a["chart"] == b["chart"] and not apart:
            found.append((a["text"], b["text"]))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["index", "failures"])
def test_letters_in_charts_can_be_read(page: Page, any_report: Path, width: int, name: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # pyright: ignore[reportArgumentType]
    page.set_viewport_size({"width": width, "height": 6000})
    page.goto((any_report / f"{name}.html").as_uri())
    letters: list[dict[str, Any]] = page.evaluate(LETTERS)
    assert letters or name == "failures"
    assert [each for each in letters if each["size"] < 11] == []
    assert [each for each in letters if each["outside"]] == []
    assert overlapping(letters) == []
    inside = [each for each in letters if "inside" in each["kind"]]
    assert inside or name == "failures"
    assert [each for each in inside if contrast(each["colour"], each["under"]) < 4.5] == []


def test_a_phone_shows_all_of_a_page(page: Page, any_report: Path) -> None:
    """Nothing is wider than the screen but tables, which scroll by themselves; what is tapped is large enough."""
    page.set_viewport_size({"width": PHONE, "height": 844})
    longest = max((any_report / "ops").glob("*.html"), key=lambda path: path.stat().st_size)
    model = max((any_report / "models").glob("*.html"), key=lambda path: path.stat().st_size)
    for path in (*(any_report / f"{name}.html" for name in ("index", "failures", "ops")), longest, model):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE, path.name
        assert page.evaluate(TOO_WIDE) == [], path.name
        assert page.evaluate(TOO_SMALL) == [], path.name


def test_the_first_column_stays_in_sight_on_a_phone(page: Page, folder: Path) -> None:
    page.set_viewport_size({"width": PHONE, "height": 844})
    page.goto((folder / "index.html").as_uri())
    models = section(page, "models")
    models.locator(".scroll").evaluate("box => { box.scrollLeft = 400 }")
    cell = models.locator("tbody tr:not([hidden]) td").first.bounding_box()
    assert cell is not None
    assert 0 <= cell["x"] < 60
    assert cell["width"] < PHONE / 2


# --- pages of rows


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("long")
    write(place, make_report(synthetic(80), "Many models"), ["html"])
    return place / "index.html"


def test_long_tables_are_shown_a_page_at_a_time(page: Page, long_table: Path) -> None:
    page.goto(long_table.as_uri())
    models = section(page, "models")
    rows = models.locator("tbody tr").count()
    assert rows > 120
    pager = models.locator(".pager")
    seen = list[str]()
    for start in range(0, rows, 50):
        names = column(models, "Model")
        assert len(names) == min(50, rows - start)
        assert pager.locator("output").inner_text() == f"{start + 1}–{start + len(names)} of {rows}"
        seen += [f"{name} {target}" for name, target in zip(names, column(models, "Target"), strict=True)]
        if start + 50 < rows:
            pager.get_by_role("button", name="Next").click()
    assert len(set(seen)) == rows
    assert pager.get_by_role("button", name="Next").is_disabled()
    pager.get_by_role("button", name="All rows").click()
    assert len(column(models, "Model")) == rows
    pager.get_by_role("button", name="50 at a time").click()
    assert len(column(models, "Model")) == 50


def test_sorting_and_filtering_go_over_all_pages(page: Page, long_table: Path) -> None:
    page.goto(long_table.as_uri())
    models = section(page, "models")
    models.locator(".pager").get_by_role("button", name="Next").click()
    models.get_by_role("columnheader", name="Speed-up").get_by_role("button").dblclick()
    first = figures(column(models, "Speed-up"))
    models.locator(".pager").get_by_role("button", name="All rows").click()
    assert first == sorted(figures(column(models, "Speed-up")), reverse=True)[:50]
    models.get_by_role("searchbox").fill("whisper")
    kept = column(models, "Model")
    assert 0 < len(kept) < 50
    assert all("whisper" in name for name in kept)
    assert not models.locator(".pager").is_visible()


def test_short_tables_have_no_pager(page: Page, folder: Path) -> None:
    page.goto((folder / "failures.html").as_uri())
    assert page.locator(".pager:visible").count() == 0
