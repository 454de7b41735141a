"""The tutorials: every command and every block of code runs, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT, agrees, blocks, run

TUTORIALS = sorted((ROOT / "docs").glob("tutorial-*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_written(page: Path, tmp_path: Path) -> None:
    wrong = [each for each in run(page, tmp_path) if not agrees(each.expected, each.printed)]
    assert not wrong, "\n\n".join(f"{page.name}:{each.line}: {each.what}\n{each.printed}" for each in wrong)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_shows_what_it_does(page: Path) -> None:
    """Else it would pass without saying anything."""
    kinds = [block.language for block in blocks(page)]
    assert set(kinds) <= {"python", "text", "console", "toml"}
    assert len(kinds) >= 8


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("took 1.5 s", "took 22.75 s", True),
        ("a  1e-07", "a 3.25e-11", True),
        ("7 nodes", "8 nodes", False),
        ("x\n…\ny", "x\n1\n2\ny", True),
        ("x\n…\ny", "x\ny", True),
        ("x\n…\ny", "x\n1\n2\nz", False),
        ("there are … more", "there are 12 more", True),
        ("opset 17.", "opset 18.", False),
        ("f32[1, 4]", "f32[1, 5]", False),
    ],
)
def test_what_counts_as_the_same_output(expected: str, printed: str, same: bool) -> None:
    assert agrees(expected, printed) is same
