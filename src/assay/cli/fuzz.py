"""`assay fuzz`: random graphs, torch programs and ONNX models, on whoever can run them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from assay.cli.chains import DEFAULT, METAVAR, chosen_all
from assay.cli.numbers import MOST_SEED, count_option
from assay.cli.output import DIFFERS, JsonOption, progress, reporting
from assay.runtime.targets import ORACLE


class Kind(StrEnum):
    """What is made at random."""

    graph = "graph"
    torch = "torch"
    onnx = "onnx"


TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--targets",
        "-t",
        metavar=METAVAR,
        help=f"A target or a chain; may be repeated {DEFAULT}, and the oracle).",
    ),
]
Watch = Callable[[int, int], None]
Runner = Callable[[int, int, Sequence[str], int, int, Watch], Any]
"""From count, seed, targets, the first number, the number of processes and a progress bar to a report."""


def fuzz(
    kind: Annotated[
        Kind, typer.Option("--kind", help="Graphs of core ops, torch programs or ONNX models.")
    ] = Kind.graph,
    count: Annotated[int, count_option("--count", "-n", help="How many.")] = 2000,
    seed: Annotated[int, count_option("--seed", least=0, most=MOST_SEED, help="Which sequence of them.")] = 0,
    first: Annotated[int, count_option("--first", least=0, help="The number of the sequence to begin with.")] = 0,
    targets: TargetsOption = None,
    workers: Annotated[int, count_option("--workers", least=0, help="How many processes (0: as many as cores).")] = 0,
    json: JsonOption = None,
) -> None:
    """Make random programs and check that all engines that can run them agree.

    Graphs of core ops: the oracle in several ways, onnxruntime, and targets with known and with symbolic sizes. Torch
    programs: eager. ONNX models: onnxruntime and
    the reference evaluator of the onnx package.
    """
    names = list(dict.fromkeys(chosen_all(targets) + ([] if targets else [ORACLE])))
    with reporting(json) as report, progress(_NOUNS[kind]) as bar:

        def watch(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        found = _RUNNERS[kind](count, seed, names, first, workers or os.cpu_count() or 1, watch)
        report.text(found)
        report.result(found.as_dict())
    raise typer.Exit(0 if found.ok else DIFFERS)


def _graphs(count: int, seed: int, targets: Sequence[str], first: int, workers: int, watch: Watch) -> Any:
    from assay.evidence.fuzz.graph_run import ALL_PEERS, run_fuzz
    from assay.evidence.fuzz.graph_targets import SYMBOLIC

    chains = [name + sizes for name in targets if name != ORACLE for sizes in ("", SYMBOLIC)]
    return run_fuzz(count, seed, [*ALL_PEERS, *chains], progress=watch, first=first)


def _torch_programs(count: int, seed: int, targets: Sequence[str], first: int, workers: int, watch: Watch) -> Any:
    from assay.evidence.fuzz.torch_run import run_torch

    return run_torch(count, seed, targets, first=first, processes=workers, progress=watch)


def _onnx_models(count: int, seed: int, targets: Sequence[str], first: int, workers: int, watch: Watch) -> Any:
    from assay.evidence.fuzz.onnx_run import run_onnx

    return run_onnx(count, seed, targets, first=first, processes=workers, progress=watch)


_NOUNS = {Kind.graph: "graphs", Kind.torch: "programs", Kind.onnx: "models"}
_RUNNERS: dict[Kind, Runner] = {Kind.graph: _graphs, Kind.torch: _torch_programs, Kind.onnx: _onnx_models}
