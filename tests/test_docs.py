"""What the docs name exists: files, links, make targets, commands and their options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from assay.cli import app

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "assay"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MAPS = [ROOT / name for name in ("CONTRIBUTING.md", "docs/architecture.md", "docs/adding-an-op.md", "docs/glossary.md")]
"""Pages that tell where things are."""


def by_name(page: Path) -> str:
    return page.name


def plain(page: Path) -> str:
    """The text of a page without its blocks of code, which hold files of their own."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", MAPS, ids=by_name)
def test_files_that_a_map_names_exist(page: Path) -> None:
    new = set(re.findall(r"In `src/([^`]+\.py)`:\n\n```python", page.read_text()))  # the page makes them itself
    named = set(re.findall(r"`(?:src/)?((?:[\w.-]+/)+[\w.-]*)`", plain(page)))
    assert named
    missing = [
        path
        for path in sorted(named)
        if path not in new and not any((root / path).exists() for root in (ROOT, PACKAGE, PACKAGE.parent))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(<?([^)>#]+)[^)]*\)", plain(page))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", MAPS, ids=by_name)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"(?:`| {4})make ([a-z]+)", page.read_text()))
    assert named <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def options() -> dict[str, set[str]]:
    """The options of every command, those of its own commands included."""
    group: Any = typer.main.get_command(app)
    common = {"--help", "--debug", "--json"}
    found: dict[str, set[str]] = {}
    for name, command in group.commands.items():
        inner: list[Any] = [command, *getattr(command, "commands", {}).values()]
        found[name] = common.union(*((*each.opts, *each.secondary_opts) for one in inner for each in one.params))
    return found


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_commands_that_are_named_exist(page: Path) -> None:
    known = options()
    lines = re.findall(r"(?:`|^ {4}|bin/)assay ([a-z]+)([^`\n#]*)", page.read_text(), re.MULTILINE)
    assert {command for command, _ in lines} <= known.keys()
    wrong = [
        f"{command} {option}"
        for command, rest in lines
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)
        if option not in known[command]
    ]
    assert wrong == []
