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
    kind: Annotated[
        str, typer.Option("--kind", help="What is damaged: onnx, gguf, safetensors, torch or job.")
    ] = "onnx",
    target: TargetOption = None,
    json: JsonOption = None,
) -> None:
    """Damage models, or files of weights or jobs, in many ways and check that each runs or gives a typed error."""
    from assay.errors import BadArgument, hint_for
    from assay.evidence.mutate.file_kinds import FILE_KINDS
    from assay.evidence.mutate.run import MODELS, run_mutations, table

    with reporting(json) as report, progress("mutants") as bar:
        chain = chosen(target)
        if kind not in (MODELS, *FILE_KINDS):
            raise BadArgument(f"files of the kind '{kind}' are not damaged", hint=hint_for(kind, (MODELS, *FILE_KINDS)))
        bar.update(bar.task_ids[0], total=count)
        outcome = run_mutations(
            count, seed, target=chain, file_kind=kind, progress=lambda done: bar.advance(bar.task_ids[0], done)
        )
        rows = [(damage, n["ran"], n["refused"], n["failed"]) for damage, n in table(outcome).items()]
        report.table(
            f"{outcome.total} mutants of {kind} files on {chain}", ("damage", ">ran", ">refused", ">failed"), rows
        )
        for failure in outcome.failures:
            report.text(f"failed: mutant {failure.index} ({failure.kind}): {failure.detail}")
        failures = [{"index": f.index, "damage": f.kind, "detail": f.detail} for f in outcome.failures]
        told = {"total": outcome.total, "kind": kind, "seed": seed, "target": chain}
        report.result({**told, "counts": table(outcome), "failures": failures})
    raise typer.Exit(DIFFERS if outcome.failures else 0)
