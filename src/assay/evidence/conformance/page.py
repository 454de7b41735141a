"""The page docs/conformance.md: a view of a conformance run's records, never written by hand."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from assay.evidence.conformance.run import ConformanceRun, excuse
from assay.evidence.conformance.suite import KINDS
from assay.evidence.engines import engine
from assay.evidence.marks import has_place, put_between

_BEGIN = "<!-- conformance: begin (written by `assay conformance`) -->"
_END = "<!-- conformance: end -->"
_PAGE = ("docs", "conformance.md")
_INTRODUCTION = """\
# Conformance

The official ONNX backend suite: every case was run and compared strictly. dtype and shape must match, a NaN
equals only a NaN, an infinity only the same infinity; strings are equal; sequences, optionals and maps agree item
by item. The tolerances are the suite's own (for bf16 results, its runner's). All are judged by this comparison.

This page is generated: do not edit it.
"""


def write_page(path: Path, outcome: ConformanceRun, command: str) -> None:
    """Write the page; the project's own, docs/conformance.md, also as a table of counts into the README."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcome, command), encoding="utf-8")
    *_, folder, name = path.resolve().parts
    readme = path.resolve().parent.parent / "README.md"
    if (folder, name) == _PAGE and has_place(readme, _BEGIN, _END):
        put_between(readme, _BEGIN, _END, counts_table(outcome))


def page(outcome: ConformanceRun, command: str) -> str:
    """The whole page as Markdown. All but its last section is the same for the same results."""
    return "\n".join(_page(outcome, command)) + "\n"


def _page(outcome: ConformanceRun, command: str) -> Iterator[str]:
    yield _INTRODUCTION
    yield "```sh"
    yield command
    yield "```"
    yield ""
    yield ", ".join(f"{name} {number}" for name, number in versions().items()) + "."
    yield ""
    yield "## Passed"
    yield ""
    yield counts_table(outcome)
    for name in outcome.engines:
        yield from _failures(outcome, name)
    for name in outcome.engines:
        yield from _fallbacks(outcome, name)
    yield from _times(outcome)


def counts_table(outcome: ConformanceRun) -> str:
    """The counts of passed cases by kind, one row for each engine."""
    kinds = [kind for kind in KINDS if any(kind in outcome.counts(name) for name in outcome.engines)]
    lines = [f"| | {' | '.join(kinds)} | all |", f"|---|{'---:|' * (len(kinds) + 1)}"]
    for name in outcome.engines:
        counts = outcome.counts(name)
        cells = [f"{good} of {total}" for good, total in (counts[kind] for kind in kinds)]
        good, total = (sum(pair[i] for pair in counts.values()) for i in (0, 1))
        lines.append(f"| {_title(outcome, name)} | {' | '.join(cells)} | {good} of {total} |")
    return "\n".join(lines)


def _title(outcome: ConformanceRun, name: str) -> str:
    return f"{name} {outcome.engines[name]}"


def _failures(outcome: ConformanceRun, name: str) -> Iterator[str]:
    failed = [record for record in outcome.of(name) if not record.passed]
    yield ""
    yield f"## Not passed by {name}"
    yield ""
    if not failed:
        yield "Nothing."
        return
    own = engine(name).options is not None
    yield "| case | kind | status | why |"
    yield "|---|---|---|---|"
    for record in failed:
        known = excuse(record) if own else None
        why = known.reason if known else record.reason
        yield f"| {record.name} | {record.kind} | {record.status} | {_cell(why)} |"


def _fallbacks(outcome: ConformanceRun, name: str) -> Iterator[str]:
    """What a target leaves to the oracle; nothing is said of the oracle itself and of peers."""
    causes = Counter(cause for record in outcome.of(name) for cause in dict.fromkeys(record.fallbacks))
    if not causes:
        return
    yield ""
    yield f"## Left to the oracle by {name}"
    yield ""
    counts = [f"{kind} {good} of {total}" for kind, (good, total) in outcome.native(name).items()]
    yield f"Passed with no op on floats left to the oracle: {', '.join(counts)}."
    yield ""
    yield "| op and reason | cases |"
    yield "|---|---:|"
    for cause, count in sorted(causes.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"| {_cell(cause)} | {count} |"


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= 200 else flat[:199] + "…"


def _times(outcome: ConformanceRun) -> Iterator[str]:
    yield ""
    yield f"## Times of the run of {datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    yield ""
    yield "Seconds to load and run all cases of a kind, each engine in turn on the same case."
    yield ""
    yield f"| | {' | '.join(KINDS)} | all |"
    yield f"|---|{'---:|' * (len(KINDS) + 1)}"
    for name in outcome.engines:
        spent = outcome.seconds(name)
        cells = " | ".join(f"{spent[kind]:.1f}" for kind in KINDS)
        yield f"| {name} | {cells} | {sum(spent.values()):.1f} |"


def versions() -> dict[str, str]:
    """What the results depend on, besides the engines."""
    packages = ("onnx", "numpy", "ml_dtypes")
    return {**{package: version(package) for package in packages}, "Python": platform.python_version()}
