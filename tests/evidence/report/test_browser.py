"""The HTML in a real browser: sort, filter, follow links from a cause to a model to an op and back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence.report.samples import EVIL, synthetic
from evidence.report.test_pages import EVIL_RECORDS

from assay.evidence.report import made, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

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
    write(folder, made(synthetic(16), "Made-up models"))
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
    write(tmp_path, made(EVIL_RECORDS, EVIL))
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto((tmp_path / "index.html").as_uri())
    assert EVIL in column(section(page, "models"), "Model")
    section(page, "models").get_by_role("link", name=EVIL).first.click()
    assert EVIL in page.locator("h1").inner_text()
