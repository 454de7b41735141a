"""Views of the models: one row for each case, output, op, configuration, time and earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay.evidence.records.diff import part_of_allowed, relative_time, verdicts, worst_error
from assay.evidence.records.schema import Record
from assay.evidence.report.base import Base
from assay.evidence.report.cells import Cell, Column, DistinctCount, Link, Ratio, Row, Table, natural, written

CASE = (
    Column("model", "Model", "link"),
    Column("target", "Target"),
    Column("mode", "Mode"),
    Column("size", "Size"),
    Column("dtype", "Dtype"),
)
"""What tells the cases of models apart."""

CASE_KEYS = tuple(column.key for column in CASE[1:])


def case_cells(base: Base, record: Record) -> Row:
    """The cells of CASE."""
    case = record.case
    return base.model(case.name), case.target, case.mode, case.size, case.dtype


def models(base: Base) -> Table:
    """The supported models: a row for each case of a model, and one for each model known by its ops alone."""
    columns = (
        *CASE,
        Column("status", "Status", "status", "How far it came, in the words of the records."),
        Column("verdict", "Verdict", "long", "What a pass rests on, where that is more than eager's own rounding."),
        Column("ops_before", "Torch Ops Before (Unique Ops)", "counted", "Nodes of the graphs that torch hands over."),
        Column("ops_remain", "Torch Ops Remain (Unique Ops)", "counted", "Nodes that did not become the target's."),
        Column("transfers", "Transfers", "count", "Values that cross between targets in one run."),
        Column("transfer_bytes", "Transferred", "bytes", "How much those are."),
        Column("eager_time", "Original Run Time (ms)", "ms", "Median of torch's eager runs, the model alone."),
        Column("time", "Compiled Run Time (ms)", "ms", "Median of the compiled model's runs, the model alone."),
        Column("speed_up", "Speed-up", "times", "Eager's time ÷ the compiled model's, measured in turns."),
        Column("worst_error", "Worst Error ÷ Allowed", "error", "Above 1 is more than rounding explains."),
        Column("pcc", "Min PCC", "part", "The least correlation of an output, rounded down."),
        Column("top1", "Top-1", "part", "The least part of rows whose largest element is eager's, rounded down."),
        Column("configurations", "Configurations Passed", "ratio", "Its op configurations that pass by themselves."),
        Column("cause", "Cause", "link"),
    )
    rows = [(*case_cells(base, record), *_figures(base, record)) for record in base.runs]
    known = {(record.case.target, record.case.name) for record in base.runs}
    nothing: Row = (None,) * (len(columns) - len(CASE) - 2)
    for target, model in base.cases_of:
        if (target, model) not in known:
            alone = (base.model(model), target, None, None, None, *nothing)
            rows.append((*alone, _configurations(base, target, model), None))
    rows.sort(key=lambda row: [natural(written(cell, "text")) for cell in row[: len(CASE)]])
    return Table("models", "Models", columns, tuple(rows))


def _figures(base: Base, record: Record) -> Iterator[Cell]:
    found = verdicts(record)
    relative = relative_time(record)
    yield record.status
    yield record.verdict or None
    yield DistinctCount(sum(use.count for use in record.ops), len(record.ops)) if record.ops else None
    remaining = [use.remaining for use in record.ops if use.remaining]
    yield DistinctCount(sum(remaining), len(remaining)) if record.ops else None
    yield record.transfers.count if record.transfers else None
    yield record.transfers.bytes if record.transfers else None
    yield record.speed.eager_median
    yield record.speed.median
    yield 1 / relative if relative else None
    yield worst_error(record)
    yield min((each.pcc for each in found if each.pcc is not None), default=None)
    yield min((each.top1 for each in found if each.top1 is not None), default=None)
    yield _configurations(base, record.case.target, record.case.name)
    yield base.cause(record.cause)


def _configurations(base: Base, target: str, model: str) -> Ratio | None:
    found = [record for record in base.cases_of[target, model] if record.case.kind == "op"]
    return Ratio(sum(record.green for record in found), len(found)) if found else None


def overview(base: Base) -> Table:
    """The status of each model on each target, in one row."""
    shared = tuple(column for column in CASE if column.key != "target")
    columns = (*shared, *(Column(f"on_{target}", target, "status") for target in base.targets))
    found: dict[Row, dict[str, str]] = {}
    for record in base.runs:
        name, target, *rest = case_cells(base, record)
        found.setdefault((name, *rest), {})[str(target)] = record.words
    rows = [(*case, *(statuses.get(target) for target in base.targets)) for case, statuses in found.items()]
    rows.sort(key=lambda row: [natural(written(cell, "text")) for cell in row[: len(shared)]])
    return Table("overview", "Overview", columns, tuple(rows))


def details(base: Base) -> Table:
    """What there is to say in words about each case of a model."""
    columns = (
        *CASE,
        Column("status", "Status", "status"),
        Column("verdict", "Verdict", "long"),
        Column("stage", "Stage Reached"),
        Column("cause", "Cause", "link"),
        Column("first_wrong", "First Wrong Value", "code"),
        Column("reproducer", "Reproducer", "link"),
        Column("gradients", "Gradients Right", "ratio"),
        Column("metrics", "Task Metrics"),
        Column("inputs", "Inputs", "code"),
        Column("parameters", "Parameters", "count"),
        Column("graphs", "Graphs", "count"),
        Column("breaks", "Breaks", "count"),
        Column("notes", "Notes", "long"),
    )
    rows = tuple((*case_cells(base, record), *_words(base, record)) for record in base.runs)
    return Table("cases", "Status", columns, rows)


def _words(base: Base, record: Record) -> Iterator[Cell]:
    yield record.status
    yield record.verdict
    yield record.stage
    yield base.cause(record.cause)
    yield record.attribution
    name = record.reproducer.rpartition("/")[2]
    checked = {True: "fails in the same way", False: "does not fail in the same way", None: "was not run"}
    yield Link(f"{name} ({checked[record.reproduced]})", record.reproducer, file=True) if name else None
    yield Ratio(record.gradients_right, record.gradient_count) if record.gradient_count else None
    yield ", ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
    yield ", ".join(f"{name}: {kind}" for name, kind in record.inputs.items())
    yield record.parameters
    yield record.graphs
    yield record.breaks
    yield "; ".join(record.notes)


def conversions(base: Base) -> Table:
    """What became of every op of every case."""
    columns = (
        *CASE,
        Column("op", "Op", "link"),
        Column("count", "Nodes", "count"),
        Column("converted", "Converted", "count", "Became core ops of the target."),
        Column("removed", "Removed", "count", "Were not needed."),
        Column("opaque", "Opaque", "count", "Ran through torch itself."),
        Column("fallback", "Fallback", "count", "Ran on another target."),
        Column("core", "Core Ops", "code", "What runs for it."),
        Column("ran_on", "Ran On"),
        Column("reasons", "Reasons", "long"),
    )
    rows = tuple(
        (
            *case,
            base.op(use.op),
            use.count,
            use.converted,
            use.removed,
            use.opaque,
            use.fallback,
            ", ".join(use.core),
            ", ".join(use.targets),
            "; ".join(use.reasons),
        )
        for record in base.runs
        for case in (case_cells(base, record),)
        for use in record.ops
    )
    return Table("conversions", "Op conversion", columns, rows)


def fallbacks(found: Table) -> Table:
    """The rows of `conversions` with nodes that ran elsewhere than on the target."""
    opaque, fallback = found.place("opaque"), found.place("fallback")
    kept = found.where(lambda row: bool(row[opaque] or row[fallback])).without("converted", "removed", "core")
    return Table("fallbacks", "Fallbacks", kept.columns, kept.rows)


def outputs(base: Base) -> Table:
    """Every output and gradient with every figure of its accuracy."""
    columns = (
        *CASE,
        Column("what", "What"),
        Column("name", "Name", "code"),
        Column("type", "Type", "code"),
        Column("ok", "Verdict", "mark"),
        Column("part_of_allowed", "Error ÷ Allowed", "error"),
        Column("max_abs", "Max Abs", "number"),
        Column("allowed", "Allowed", "number", "The largest error that rounding explains."),
        Column("noise", "Noise", "number", "How far torch's eager result is from the exact one."),
        Column("max_rel", "Max Rel", "number"),
        Column("max_ulp", "Max ULP", "number"),
        Column("snr", "SNR (dB)", "number"),
        Column("pcc", "PCC", "part"),
        Column("top1", "Top-1", "part"),
        Column("top5", "Top-5", "part"),
        Column("nan", "NaN", "count"),
        Column("inf", "Inf", "count"),
        Column("elements", "Elements", "count"),
        Column("complaint", "Complaint", "long"),
    )
    return Table("outputs", "Accuracy", columns, tuple(_outputs(base)))


def _outputs(base: Base) -> Iterator[Row]:
    for record in base.runs:
        for what, found in {"output": record.outputs, "gradient": record.gradients}.items():
            for each in found:
                yield (
                    *case_cells(base, record),
                    what,
                    each.name,
                    each.type,
                    "right" if each.ok else "wrong",
                    part_of_allowed(each),
                    each.max_abs,
                    each.allowed,
                    each.noise,
                    each.max_rel,
                    each.max_ulp,
                    each.snr,
                    each.pcc,
                    each.top1,
                    each.top5,
                    each.nan,
                    each.inf,
                    each.count,
                    each.complaint,
                )


def timings(base: Base) -> Table:
    """How long every part of a case took."""
    parts = {
        "build": "Build", "trace": "Trace", "importing": "Import", "lowering": "Lowering", "compiling": "Compilation",
        "cold": "Cold", "warm": "Warm",
    }  # fmt: skip
    runs = {
        "first_run": "First Run (ms)", "median": "Median (ms)", "p95": "p95 (ms)",
        "eager_median": "Eager Median (ms)", "eager_p95": "Eager p95 (ms)",
    }  # fmt: skip
    columns = (
        *CASE,
        *(Column(key, f"{title} (s)", "seconds") for key, title in parts.items()),
        *(Column(key, title, "ms") for key, title in runs.items()),
        Column("runs", "Runs", "count"),
        Column("peak_memory", "Peak Memory", "bytes"),
        Column("threads", "Threads", "count"),
        Column("workers", "Cases at Once", "count", "With several, times are not for comparison with other runs."),
        Column("others", "Used by Others", "part", "The part of the machine that other processes used meanwhile."),
    )
    rows = tuple(
        (
            *case_cells(base, record),
            *(getattr(record.speed, key) for key in (*parts, *runs)),
            record.speed.runs,
            record.speed.peak_memory,
            record.environment.threads,
            record.environment.workers,
            record.speed.others,
        )
        for record in base.runs
    )
    return Table("timings", "Timings", columns, rows)


def history(base: Base) -> Table:
    """Every run of every case of a model, the latest first."""
    columns = (
        *CASE,
        Column("date", "Date"),
        Column("commit", "Commit", "code"),
        Column("status", "Status", "status"),
        Column("stage", "Stage"),
        Column("ops_remain", "Ops Remain", "count"),
        Column("time", "Compiled Run Time (ms)", "ms"),
        Column("speed_up", "Speed-up", "times"),
        Column("worst_error", "Worst Error ÷ Allowed", "error"),
        Column("cause", "Cause", "link"),
        Column("command", "Command", "code"),
    )
    return Table("history", "History", columns, tuple(_history(base, reversed(base.records))))


def _history(base: Base, records: Iterable[Record]) -> Iterator[Row]:
    for record in records:
        if record.case.kind != "model":
            continue
        relative = relative_time(record)
        yield (
            *case_cells(base, record),
            record.environment.date,
            record.environment.commit,
            record.words,
            record.stage,
            sum(use.remaining for use in record.ops) if record.ops else None,
            record.speed.median,
            1 / relative if relative else None,
            worst_error(record),
            base.cause(record.cause),
            record.environment.command,
        )
