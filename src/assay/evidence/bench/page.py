"""The tables of docs/performance.md: a view of a benchmark's records, never written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from assay.evidence.bench.picture import picture
from assay.evidence.bench.records import SELF, BenchRun, Match, Result, Spread
from assay.evidence.marks import put_between

_BEGIN = "<!-- bench: begin (written by `assay bench`) -->"
_END = "<!-- bench: end -->"


def write_page(path: Path, run: BenchRun) -> None:
    """Put the tables between their marks into a page that has them, and the picture beside it."""
    drawn = path.with_suffix(".svg")
    put_between(path, _BEGIN, _END, tables(run, drawn.name))
    drawn.write_text(picture(run), encoding="utf-8")


def tables(run: BenchRun, drawn: str) -> str:
    """All tables as Markdown; `drawn` is the file of the picture."""
    return "\n".join(_tables(run, drawn))


def _tables(run: BenchRun, drawn: str) -> Iterator[str]:
    yield from opening(run)
    yield f"![A peer's time ÷ Assay's, for each model and peer]({drawn})"
    yield ""
    yield from _asked(run)
    yield from _speeds(run)
    yield from _times(run)
    yield from remarks(run)
    yield from _elsewhere(run)


def opening(run: BenchRun) -> Iterator[str]:
    """How the run was made: the command, when and where, versions."""
    header = run.header
    yield "```sh"
    yield header["command"]
    yield "```"
    yield ""
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    yield f"Run of {header['date']} on {header['machine']}, {header['threads']} threads, target `{header['target']}`;"
    yield f"{versions}. {header['repeat']} rounds with turns of about {header['seconds']:g} s."
    yield ""


def _asked(run: BenchRun) -> Iterator[str]:
    facts = run.summary()
    eager = [found.middle for match in run.matches if (found := match.ratio("eager"))]
    bars: list[tuple[str, str, float | None, Callable[[float], bool]]] = [
        ("best peer's time ÷ Assay's, geometric mean", "at least 0.9", facts["mean_of_best"], lambda x: x >= 0.9),
        ("the same, least of all models", "at least 0.7", facts["least_of_best"], lambda x: x >= 0.7),
        ("eager's time ÷ Assay's, least of all models", "above 1", min(eager, default=None), lambda x: x > 1),
        (
            "cold compile ÷ inductor's, geometric mean",
            "at most 0.33",
            facts["cold_over_inductor"],
            lambda x: x <= 1 / 3,
        ),
        (
            "warm start ÷ onnxruntime's, geometric mean",
            "at most 1.5",
            facts["warm_over_onnxruntime"],
            lambda x: x <= 1.5,
        ),
        (
            "largest error ÷ onnxruntime's, geometric mean",
            "at most 1.0",
            facts["error_over_onnxruntime"],
            lambda x: x <= 1,
        ),
        (
            "the same, most of all models",
            "at most 1.5",
            facts["most_error_over_onnxruntime"],
            lambda x: x <= 1.5,
        ),
    ]
    yield "| | asked for | found | |"
    yield "|---|---|---:|---|"
    for what, asked, found, reached in bars:
        if found is not None:
            yield f"| {what} | {asked} | {found:.2f} | {'reached' if reached(found) else '**not reached**'} |"


def _speeds(run: BenchRun) -> Iterator[str]:
    """A row for each model: the ratios to every peer."""
    yield ""
    yield f"A peer's time ÷ Assay's: median over the rounds, tenth to ninetieth percentile. {len(run.matches)} models."
    yield "*others*: the part of the machine that other processes used meanwhile."
    yield ""
    yield f"| | Assay, ms | {' | '.join(run.peers)} | best peer | others |"
    yield f"|---|---:|{'---:|' * len(run.peers)}---|---:|"
    for match in run.matches:
        cells = [_time(match.own), *(ratio_cell(match, peer) for peer in run.peers), match.best or "–"]
        yield f"| {match.model} | {' | '.join(cells)} | {noise_cell(match)} |"


def ratio_cell(match: Match, peer: str) -> str:
    """A peer's ratio with its spread, or why there is none."""
    found = match.ratio(peer)
    if found is not None:
        return quotient(found)
    own, theirs = match.own, match.results.get(peer)
    if theirs is None or not theirs.counts:
        return theirs.status if theirs and theirs.status != "ok" else "–"
    return f"Assay {own.status}" if own and own.status != "ok" else "–"


def quotient(found: Spread) -> str:
    """A ratio with its spread."""
    return f"{found.middle:.2f} ({found.low:.2f}–{found.high:.2f})"


def noise_cell(match: Match) -> str:
    """How much of the machine others used."""
    return "–" if match.noise is None else f"{100 * match.noise:.0f} %"


def _times(run: BenchRun) -> Iterator[str]:
    """A row for each contestant on each model: what it takes."""
    yield ""
    yield "What each takes. *cold* and *warm*: preparing the model with empty and with filled caches, in a new process."
    yield "*first run*: the first inference after that. Memory is beyond what the libraries take, the weights included."
    yield "*error*: the largest error of an output in parts of its largest element."
    yield ""
    yield "| model | | one inference, ms | cold, s | warm, s | first run, ms | peak, MiB | kept, MiB | error |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for match in run.matches:
        for result in match.results.values():
            yield f"| {match.model} | {result.contestant} | {' | '.join(figures(result))} |"


def figures(result: Result) -> tuple[str, ...]:
    """A result as cells: one inference, cold, warm, first run, peak, kept, error."""
    return (
        _time(result),
        _number(result.cold, 1.0, ".2f"),
        _number(result.warm, 1.0, ".2f"),
        _number(result.first_run, 1e3, ".1f"),
        _number(result.peak, 1 / (1 << 20), ".0f"),
        _number(result.kept, 1 / (1 << 20), ".0f"),
        _number(result.error, 1.0, ".1e"),
    )


def _number(value: float | None, factor: float, form: str) -> str:
    return "–" if value is None else format(value * factor, form)


def _time(result: Result | None) -> str:
    found = result.time if result else None
    return "–" if found is None else in_milliseconds(found)


def in_milliseconds(found: Spread) -> str:
    """A time with its spread."""
    digits = 1 if found.middle >= 0.1 else 2 if found.middle >= 0.01 else 3
    middle, low, high = (f"{each * 1e3:.{digits}f}" for each in (found.middle, found.low, found.high))
    return f"{middle} ({low}–{high})"


def remarks(run: BenchRun) -> Iterator[str]:
    """Who has no comparable time, and why."""
    found = [
        f"- {match.model}, {result.contestant}: {result.status}: {_line(result.reason)}"
        for match in run.matches
        for result in match.results.values()
        if result.status != "ok"
    ]
    yield from _listed("Without a comparable time:", found)


def _elsewhere(run: BenchRun) -> Iterator[str]:
    fallen = [f"- {match.model}: {_placed(match.own)}" for match in run.matches if match.own and _fell_back(match.own)]
    yield from _listed("Nodes that ran elsewhere than on the target:", fallen)


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield title
        yield ""
        yield from lines


def _fell_back(own: Result) -> bool:
    return own.contestant == SELF and len(own.placed) > 1


def _placed(own: Result) -> str:
    return ", ".join(f"{count:,} nodes on {name}" for name, count in sorted(own.placed.items()))


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 200 else flat[:199] + "…"
