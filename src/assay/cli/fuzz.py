"""`assay fuzz`: random valid graphs, on whoever can run them."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.numbers import MOST_SEED, count_option
from assay.cli.output import DIFFERS, JsonOption, progress, reporting


def fuzz(
    count: Annotated[int, count_option("--count", "-n", help="How many graphs.")] = 2000,
    seed: Annotated[int, count_option("--seed", least=0, most=MOST_SEED, help="Which sequence of graphs.")] = 0,
    json: JsonOption = None,
) -> None:
    """Make random valid graphs and check that the oracle, the decomposed oracle and onnxruntime agree."""
    from assay.evidence.fuzz import run_fuzz

    with reporting(json) as report, progress("graphs") as bar:

        def watch(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        found = run_fuzz(count, seed, progress=watch)
        report.text(found)
        report.result(found.as_dict())
    raise typer.Exit(0 if found.ok else DIFFERS)
