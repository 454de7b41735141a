"""`assay mutate`: damaged models, each of which must run or be refused properly."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.chains import TargetOption, chosen
from assay.cli.numbers import MOST_SEED, count_option
from assay.cli.output import DIFFERS, JsonOption, progress, reporting


def mutate(
    count: Annotated[int, count_option("--count", "-n", help="How many mutants.")] = 10_000,
    seed: Annotated[
        int, count_option("--seed", least=0, most=MOST_SEED, help="Where the sequence of mutants starts.")
    ] = 0,
    target: TargetOption = None,
    json: JsonOption = None,
) -> None:
    """Damage models in many ways and check that each runs or gives a typed error with a place and a hint."""
    from assay.evidence.mutate.run import run_mutations, table

    with reporting(json) as report, progress("mutants") as bar:
        chain = chosen(target)
        bar.update(bar.task_ids[0], total=count)
        outcome = run_mutations(count, seed, target=chain, progress=lambda done: bar.advance(bar.task_ids[0], done))
        rows = [(kind, n["ran"], n["refused"], n["failed"]) for kind, n in table(outcome).items()]
        report.table(f"{outcome.total} mutants on {chain}", ("damage", ">ran", ">refused", ">failed"), rows)
        for failure in outcome.failures:
            report.text(f"failed: mutant {failure.index} ({failure.kind}): {failure.detail}")
        failures = [{"index": f.index, "damage": f.kind, "detail": f.detail} for f in outcome.failures]
        told = {"total": outcome.total, "seed": seed, "target": chain}
        report.result({**told, "counts": table(outcome), "failures": failures})
    raise typer.Exit(DIFFERS if outcome.failures else 0)
