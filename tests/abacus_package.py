"""The target of docs/writing-a-target.md as a package: what its page says, installed in a folder."""

from __future__ import annotations

from pathlib import Path

from pages import ROOT, blocks

PAGE = ROOT / "docs" / "writing-a-target.md"


def code(language: str) -> str:
    """The first block of a language on the page."""
    return blocks(PAGE, language)[0].text


def install(folder: Path) -> None:
    """Put the target into `folder`, with its entry point: it is registered wherever that is on the path."""
    (folder / "abacus.py").write_text(code("python"))
    about = folder / "abacus-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    group, line = code("toml").strip().splitlines()
    assert group == '[project.entry-points."assay.targets"]'
    (about / "entry_points.txt").write_text("[assay.targets]\n" + line.replace('"', "") + "\n")
