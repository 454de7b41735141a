"""`assay fuzz`: random valid graphs, on whoever can run them."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.output import JsonOption, reporting
from assay.errors import NotFound


def fuzz(
    count: Annotated[int, typer.Option("--count", "-n", help="How many graphs.", min=1)] = 2000,
    seed: Annotated[int, typer.Option("--seed", help="Where the sequence of graphs starts.")] = 0,
    json: JsonOption = None,
) -> None:
    """Make random valid graphs and check that the oracle, the decomposed oracle and onnxruntime agree."""
    with reporting(json):
        raise NotFound("there is no fuzzing yet")
