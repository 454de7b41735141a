"""The page docs/opinfo.md: a view of an OpInfo run's records, never written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.evidence.opinfo.records import SELF, STATUSES, OpInfoRun, OpUnit
from assay.evidence.opinfo.summary import (
    FAILED,
    FailedSample,
    Fraction,
    KindRow,
    Summary,
    failures,
    opaque_ops,
    summary,
)

_INTRODUCTION = """\
# PyTorch's op database

Every sample of PyTorch's own op database (OpInfo: `torch.testing._internal.common_methods_invocations.op_db`) went
through `torch.compile(backend="assay")` and was compared with eager. Outputs must have the same structure, dtypes,
shapes and values; the inputs must be after the call what they are after eager's, since ops work in place; with
gradients, those of every input for the same random directions must match ones that eager computed afresh. Every run
has its own copies of the inputs and the same seed.

Values are compared by `torch.testing.assert_close` (a NaN equals only a NaN, an infinity only the same one) with
torch's default tolerances for the result's dtype, raised to what the OpInfo itself states for tests of a second
implementation on the CPU (the decorators `toleranceOverride` and `precisionOverride` for all tests, for
`test_compare_cpu`, and for the tests of AOTAutograd, of decompositions and of inductor), as torch's own tests do.

This page is generated: do not edit it.
"""
_COLUMNS = ("pass", "rounding", "wrong", "error", "crash", "timeout", "no_graph", "nondeterministic", "skipped")
_LISTED = 12


def write_page(path: Path, run: OpInfoRun) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(run), encoding="utf-8")


def page(run: OpInfoRun) -> str:
    """The whole page as Markdown."""
    return "\n".join(_page(run, summary(run))) + "\n"


def _page(run: OpInfoRun, facts: Summary) -> Iterator[str]:
    yield _INTRODUCTION
    yield "```sh"
    yield run.header["command"]
    yield "```"
    yield ""
    versions = ", ".join(f"{name} {number}" for name, number in run.header["versions"].items())
    seconds = sum(finding.seconds for finding in run.findings)
    yield f"Run of {run.header['date']} on target `{run.header['target']}`; {versions}. {seconds / 60:.0f} minutes."
    partial = "" if run.header["samples"] is None else f" At most {run.header['samples']} of each op and dtype."
    yield f"{len({finding.unit.op for finding in run.findings}):,} ops.{partial}"
    yield from _bars(facts)
    yield from _table(run, facts.rows)
    yield from _failures(run)
    yield from _rounding(run)
    yield from _opaque(run)
    yield from _without_graph(run, facts)
    yield from _tolerances(run)


def _bars(facts: Summary) -> Iterator[str]:
    yield ""
    yield "## What was asked for, and what was found"
    yield ""
    yield "| | asked for | found | |"
    yield "|---|---|---|---|"
    rows: list[tuple[str, str, str, bool]] = [
        (f"samples that {peer} passes and Assay passes too", "at least 97 %", str(fraction), fraction.reaches(97))
        for peer, fraction in facts.peer.items()
    ]
    deaths = facts.failed["crash"] + facts.failed["timeout"]
    wrong = facts.failed["wrong"]
    shared = f" (on {facts.shared['wrong']:,} of them a peer is wrong too)" if facts.shared["wrong"] else ""
    rows += [
        ("crashes and hangs", "none", f"{deaths:,}", deaths == 0),
        ("wrong results", "none", f"{wrong:,}{shared}", wrong == 0),
        ("ops without an opaque node in any graph", "at least 85 %", str(facts.clean), facts.clean.reaches(85)),
    ]
    if facts.gradients.whole:
        share = facts.gradients
        name = "differentiable samples whose gradients match eager's"
        rows.append((name, "at least 95 %", str(share), share.reaches(95)))
    for what, asked, found, reached in rows:
        yield f"| {what} | {asked} | {found} | {'reached' if reached else '**not reached**'} |"
    yield ""
    yield f"Without the graphs of training, {facts.clean_inference} ops have no opaque node."
    if facts.gradients_unjudged:
        yield f"{facts.gradients_unjudged:,} differentiable samples gave no graph or have no definite result in eager."


def _table(run: OpInfoRun, rows: Sequence[KindRow]) -> Iterator[str]:
    yield ""
    yield "## Samples"
    yield ""
    columns = [column for column in _COLUMNS if any(row.statuses.get(column) for row in rows) or column in FAILED]
    heads = [f"{peer} passes | Assay passes of those" for peer in run.peers]
    names = " | ".join(["samples", *heads, *columns])
    yield f"| | {names} |"
    yield "|---|" + "---:|" * (1 + 2 * len(heads) + len(columns))
    statuses = {column: sum(row.statuses.get(column, 0) for row in rows) for column in columns}
    peers = {peer: _sum([row.peer[peer] for row in rows if row.peer]) for peer in run.peers}
    for row in (*rows, KindRow("all", sum(row.samples for row in rows), statuses, peers)):
        cells = [f"{row.samples:,}"]
        for peer in run.peers:
            found = row.peer.get(peer)
            cells += [f"{found.whole:,}", f"{found.part:,}"] if found else ["", ""]
        cells += [f"{row.statuses.get(column, 0):,}" for column in columns]
        yield f"| {row.kind} | {' | '.join(cells)} |"
    if run.peers:
        yield ""
        yield "Peers run the samples with gradients only where Assay does not pass."
    yield ""
    yield "What the words mean:"
    yield ""
    for column in columns:
        yield f"- {column}: {STATUSES[column]}"


def _sum(parts: Sequence[Fraction]) -> Fraction:
    return Fraction(sum(each.part for each in parts), sum(each.whole for each in parts))


def _failures(run: OpInfoRun) -> Iterator[str]:
    yield ""
    yield "## What does not pass"
    yield ""
    yield from _groups(list(failures(run)), bool(run.peers))
    broken = [finding for finding in run.findings if finding.failure]
    if broken:
        yield ""
        yield "Without all samples:"
        yield ""
        yield from (f"- {finding.unit}: {_cell(finding.failure)}" for finding in broken)


def _rounding(run: OpInfoRun) -> Iterator[str]:
    found = list(failures(run, ("rounding",)))
    if found:
        yield ""
        yield "## Rounding"
        yield ""
        yield "Counted as not passed: eager's own result is at least as far from the float64 one as Assay's is."
        yield ""
        yield from _groups(found, bool(run.peers))


def _groups(found: Sequence[FailedSample], peers: bool) -> Iterator[str]:
    if not found:
        yield "Nothing."
        return
    groups: dict[tuple[OpUnit, str, bool], list[FailedSample]] = {}
    for each in found:
        groups.setdefault((each.unit, each.verdict.status, each.shared), []).append(each)
    yield "| op | dtype | status | samples | " + ("peers fail too | " if peers else "") + "why, for the first |"
    yield "|---|---|---|---|" + ("---|" if peers else "") + "---|"
    for (unit, status, shared), members in sorted(groups.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        too = f"{'yes' if shared else 'no'} | " if peers else ""
        reason = _cell(members[0].verdict.reason)
        yield f"| {unit.op} | {unit.kind} | {status} | {_indices([each.sample for each in members])} | {too}{reason} |"


def _indices(samples: Sequence[int]) -> str:
    """How many, and which, the first of them at least."""
    shown = ", ".join(str(index) for index in sorted(samples)[:_LISTED])
    return f"{len(samples)}: {shown}{' …' if len(samples) > _LISTED else ''}"


def _opaque(run: OpInfoRun) -> Iterator[str]:
    yield ""
    yield "## Ops that torch runs"
    yield ""
    found = opaque_ops(run)
    if not found:
        yield "None."
        return
    yield "Opaque nodes by aten op, in which graphs, and for which ops of the database."
    yield ""
    yield "| aten op | graphs | ops | why |"
    yield "|---|---|---|---|"
    for target, (reason, ops, phases) in found.items():
        names = ", ".join(sorted(ops)[:_LISTED]) + (" …" if len(ops) > _LISTED else "")
        yield f"| {target} | {', '.join(sorted(phases))} | {len(ops)}: {names} | {_cell(reason)} |"


def _without_graph(run: OpInfoRun, facts: Summary) -> Iterator[str]:
    if not facts.no_graph_ops:
        return
    yield ""
    yield "## Ops without a graph"
    yield ""
    yield "Dynamo handed over no graph for any of their samples, so nothing of them ran on Assay."
    yield ""
    yield "| op | why, for the first sample |"
    yield "|---|---|"
    for op in facts.no_graph_ops:
        reasons = (
            verdict.reason
            for finding in run.findings
            if finding.unit.op == op
            for _, verdict in sorted(finding.verdicts.get(SELF, {}).items())
        )
        yield f"| {op} | {_cell(next(reasons, 'there are no samples'))} |"


def _tolerances(run: OpInfoRun) -> Iterator[str]:
    raised = {finding.unit: finding.tolerance for finding in run.findings if any(finding.tolerance)}
    if not raised:
        return
    yield ""
    yield "## Tolerances that an OpInfo raises"
    yield ""
    yield "| op | dtype | relative | absolute |"
    yield "|---|---|---:|---:|"
    for unit, (relative, absolute) in sorted(raised.items(), key=lambda item: str(item[0])):
        yield f"| {unit.op} | {unit.kind} | {relative:g} | {absolute:g} |"


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= 200 else flat[:199] + "…"
