"""docs/ttnn-models.md says what the committed records say, and counts a graph that torch leaves as a transfer."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "ttnnmodels.py"))


def test_the_page_is_that_of_the_records(tool: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "ttnn-models.md").read_text() == tool["page"](), "run python tools/ttnnmodels.py"


def test_every_model_of_the_zoo_was_put_to_the_library(tool: dict[str, Any]) -> None:
    from assay.zoo.torch import MODELS

    assert set(tool["lines"]("full-eval.jsonl.gz")) == set(MODELS)


@pytest.mark.parametrize(
    ("crossings", "breaks", "refused", "still"),
    [
        (0, [], [], True),
        (1, [], [], False),
        (0, [["nms(boxes)", "its sizes depend", 1]], [], False),
        (0, [], ["it has no room"], False),
    ],
)
def test_what_torch_runs_between_graphs_is_a_transfer_too(
    crossings: int, breaks: list[Any], refused: list[str], still: bool
) -> None:
    zoo = runpy.run_path(str(ROOT / "tools" / "ttnnzoo.py"))
    assert zoo["still"]({"crossings": crossings, "breaks": breaks, "refused": refused}) is still
