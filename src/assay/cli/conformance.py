"""`assay conformance`: the official ONNX suite, and the score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.chains import DEFAULT, chosen
from assay.cli.output import DIFFERS, USAGE, CommandOutput, JsonOption, progress, reporting

TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="ENGINE",
        help=f"A target or a chain, as in cpu,reference:precise; may be repeated {DEFAULT}.",
    ),
]
DecomposedOption = Annotated[
    bool, typer.Option("--decomposed", help="Turn every composite off, so that milli-ops alone are tested.")
]
PeersOption = Annotated[
    list[str] | None,
    typer.Option("--peer", help="A peer for the same cases: onnx-reference, onnxruntime; may be repeated."),
]
FilterOption = Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only cases with TEXT in their name.")]
DocsOption = Annotated[
    Path | None,
    typer.Option("--docs", metavar="FILE", help="The page that a full run writes (else docs/conformance.md)."),
]
_SHOWN = 50


def conformance(
    target: TargetsOption = None,
    decomposed: DecomposedOption = False,
    peer: PeersOption = None,
    contains: FilterOption = "",
    docs: DocsOption = None,
    json: JsonOption = None,
) -> None:
    """Run the official ONNX backend suite and compare strictly: NaN, Inf, dtype and shape must match.

    The JSON result is JSON lines: the run, one line for each case and engine as soon as it is done, the summary.
    """
    from assay.evidence.conformance.page import versions, write_page
    from assay.evidence.conformance.run import CaseResult, run_conformance

    specs = [f"{name}:decomposed" if decomposed else name for name in target or [chosen(None)]] + list(peer or ())
    with reporting(json) as report, progress("conformance") as bar:
        report.line({"record": "run", "engines": specs, "filter": contains, "versions": versions()})

        def watch(record: CaseResult, done: int, total: int) -> None:
            report.line(record.as_dict())
            bar.update(bar.task_ids[0], completed=done, total=total)

        outcome = run_conformance(specs, contains, watch=watch)
        _show(report, outcome)
        report.line({"record": "summary", "engines": _summary(outcome), "surprises": len(outcome.surprises())})
        page = docs or Path("docs/conformance.md")
        if not contains and (docs is not None or page.parent.is_dir()):
            write_page(page, outcome, _command(target, decomposed, peer))
            report.text(f"written: {page}")
    if not outcome.records:
        typer.echo(f"assay: no case of the suite has '{contains}' in its name", err=True)
        raise typer.Exit(USAGE)
    raise typer.Exit(DIFFERS if outcome.surprises() else 0)


def _command(target: list[str] | None, decomposed: bool, peer: list[str] | None) -> str:
    """The command that gives the same page."""
    engines = [f"--target {name}" for name in target or ()] + ["--decomposed"] * decomposed
    return " ".join(["assay conformance", *engines, *(f"--peer {name}" for name in peer or ())])


def _summary(outcome: Any) -> dict[str, Any]:
    return {
        name: {
            "version": version,
            "passed": _shares(outcome.counts(name)),
            "native": _shares(outcome.native(name)),
            "statuses": dict(Counter(record.status for record in outcome.of(name))),
            "seconds": outcome.seconds(name),
        }
        for name, version in outcome.engines.items()
    }


def _shares(counts: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {kind: {"passed": good, "of": total} for kind, (good, total) in counts.items()}


def _show(report: CommandOutput, outcome: Any) -> None:
    rows: list[tuple[object, ...]] = []
    for name, version in outcome.engines.items():
        counts = outcome.counts(name)
        cells = [f"{good} of {total}" for good, total in counts.values()]
        rows.append((name, version, *cells, f"{sum(outcome.seconds(name).values()):.1f}"))
    first = next(iter(outcome.engines), "")
    report.table("Passed", ("engine", "version", *(f">{kind}" for kind in outcome.counts(first)), ">seconds"), rows)
    surprises = outcome.surprises()
    for record in surprises[:_SHOWN]:
        report.text(f"{record.engine} {record.name}: {record.status}: {record.reason}")
    if len(surprises) > _SHOWN:
        report.text(f"… and {len(surprises) - _SHOWN} more (all are in the JSON result)")
