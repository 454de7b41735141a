"""Plans stay what they are: a change of them is meant, or it is a mistake."""

from __future__ import annotations

import pytest
from targets.tapes import CASES, FOLDER


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_the_one_that_was_kept(name: str) -> None:
    kept = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert CASES[name]() == kept, "if the new plan is meant, run python tests/targets/tapes.py"


def test_every_file_is_of_a_case() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)
