"""The table of docs/onnx-models.md: real models on Assay and onnxruntime, a view of a benchmark's records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.evidence.bench.page import in_milliseconds, noise_cell, opening, quotient, remarks
from assay.evidence.bench.records import SELF, BenchRun, Match, geometric_mean
from assay.evidence.marks import put_between
from assay.zoo.onnx_models import ONNX_MODELS

PEER = "onnxruntime"
MOST = 1.5
"""How many times onnxruntime's time Assay may take."""
_BEGIN = "<!-- onnx-models: begin (written by `assay bench --suite onnx`) -->"
_END = "<!-- onnx-models: end -->"


def write_onnx_page(path: Path, run: BenchRun) -> None:
    """Put the table between its marks into a page that has them."""
    put_between(path, _BEGIN, _END, "\n".join(_lines(run)))


def _lines(run: BenchRun) -> Iterator[str]:
    yield from opening(run)
    yield from _asked(run)
    yield ""
    yield "| model | package | onnxruntime, ms | Assay, ms | Assay ÷ onnxruntime | error | floats not native | others |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for match in run.matches:
        yield f"| {match.model} | {_package(match.model)} | {' | '.join(_cells(match))} | {noise_cell(match)} |"
    yield from _left(run.matches)
    yield from remarks(run)


def _asked(run: BenchRun) -> Iterator[str]:
    ratios = {match.model: found.middle for match in run.matches if (found := match.slowness(PEER))}
    slow = [name for name, ratio in ratios.items() if ratio > MOST]
    worst = max(ratios, key=lambda name: ratios[name], default=None)
    yield f"{len(run.matches)} models, of which {len(ratios)} are right and timed."
    if worst is None:
        return
    yield f"Assay's time ÷ onnxruntime's: geometric mean {geometric_mean(list(ratios.values())):.2f},"
    reached = f"**not reached** by {', '.join(slow)}" if slow else "reached by all"
    yield f"most {ratios[worst]:.2f} ({worst}). At most {MOST:g} is asked for: {reached}."


def _package(model: str) -> str:
    return ONNX_MODELS[model].package if model in ONNX_MODELS else "–"


def _cells(match: Match) -> Sequence[str]:
    """Both times, their ratio, the error, and how many nodes with floats are not native."""
    results = [match.results.get(name) for name in (PEER, SELF)]
    times = [in_milliseconds(each.time) if each and each.time else "–" for each in results]
    own, ratio = match.own, match.slowness(PEER)
    slowness = quotient(ratio) if ratio else own.status if own and own.status != "ok" else "–"
    error = f"{own.error:.1e}" if own and own.error is not None else "–"
    return (*times, slowness, error, str(sum(own.left.values())) if own and own.placed else "–")


def _left(matches: Sequence[Match]) -> Iterator[str]:
    lines = [
        f"- {match.model}: {count} × {reason}"
        for match in matches
        for reason, count in (match.own.left if match.own else {}).items()
    ]
    yield ""
    if not lines:
        yield "All work on floats is native."
        return
    yield "Nodes with floats that are not native, and why:"
    yield ""
    yield from lines
