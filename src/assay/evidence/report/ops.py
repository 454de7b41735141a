"""Views of the ops: which there are, who uses them, in which configurations, and how those fare by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from assay.evidence.records.diff import verdicts, worst_error
from assay.evidence.records.schema import Record
from assay.evidence.report.base import Base, models_of
from assay.evidence.report.cells import Cell, Column, Link, Ratio, Row, Table

OpWithArguments: TypeAlias = tuple[str, str]
"""An op and its arguments as text."""

Used: TypeAlias = Mapping[OpWithArguments, "tuple[Mapping[tuple[str, str, str, str], int], Uses]"]
"""By way: how many nodes of each model (with its mode, size and dtype) are used so, and all uses."""


@dataclass(slots=True)
class Uses:
    """How often models use something, and what became of it there."""

    nodes: int = 0
    models: set[str] = field(default_factory=set[str])
    remaining: Counter[str] = field(default_factory=Counter[str])
    """By target: the nodes that ran elsewhere."""


def ways(base: Base) -> Used:
    """In which ways models use ops."""
    found: dict[OpWithArguments, tuple[dict[tuple[str, str, str, str], int], Uses]] = {}
    for record in base.runs:
        case = record.case
        for each in record.configurations:
            counts, uses = found.setdefault((each.op, base.texts[id(each)]), ({}, Uses()))
            key = case.name, case.mode, case.size, case.dtype
            counts[key] = max(counts.get(key, 0), each.count)  # targets share one graph
            uses.models.add(case.name)
            if each.opaque or each.fallback:
                uses.remaining[case.target] += each.opaque + each.fallback
    for counts, uses in found.values():
        uses.nodes = sum(counts.values())
    return found


def _alone(base: Base) -> Mapping[OpWithArguments, list[Record]]:
    found: dict[OpWithArguments, list[Record]] = {}
    for record in base.op_runs:
        found.setdefault((record.case.name, record.case.configuration), []).append(record)
    return found


def input_variations(base: Base, used: Used) -> Table:
    """The configurations in which each model uses each op."""
    columns = (
        Column("model", "Model", "link"),
        Column("mode", "Mode"),
        Column("size", "Size"),
        Column("dtype", "Dtype"),
        Column("op", "Op", "link"),
        Column("configuration", "Input Variation", "code"),
        Column("count", "Nodes", "count"),
        Column("alone", "By Itself", "text", "How the configuration fares when it runs alone, by target."),
    )
    alone = {way: _statuses(records) for way, records in _alone(base).items()}
    rows = [
        (base.model(model), mode, size, dtype, base.op(op), text, count, alone.get((op, text), ""))
        for (op, text), (counts, _) in used.items()
        for (model, mode, size, dtype), count in counts.items()
    ]
    rows.sort(key=lambda row: (row[0].text, *row[1:4], row[4].text if row[4] else "", row[5]))
    return Table("input_variations", "Input variations", columns, tuple(rows))


def _statuses(records: list[Record]) -> str:
    return ", ".join(f"{record.case.target} {record.status}" for record in records)


def op_variations(base: Base, used: Used) -> Table:
    """Every configuration of every op: who uses it, and how it fares by itself on each target."""
    columns = (
        Column("op", "Op", "link"),
        Column("configuration", "Input Variation", "code"),
        Column("nodes", "Nodes", "count"),
        Column("models", "Models", "links"),
        Column("remaining", "Ran Elsewhere", "text", "Nodes in models that did not run on the target, by target."),
        Column("target", "Target"),
        Column("mode", "Mode"),
        Column("size", "Size"),
        Column("dtype", "Dtype"),
        Column("status", "By Itself", "status"),
        Column("worst_error", "Worst Error ÷ Allowed", "error"),
        Column("max_abs", "Max Abs", "number"),
        Column("max_ulp", "Max ULP", "number"),
        Column("pcc", "Min PCC", "part"),
        Column("time", "Time (ms)", "ms"),
        Column("reproducer", "Reproducer", "link"),
        Column("cause", "Cause", "link"),
    )
    return Table("op_variations", "Input variations of ops", columns, tuple(_op_variations(base, used)))


def _op_variations(base: Base, used: Used) -> Iterator[Row]:
    alone = _alone(base)
    nobody: tuple[Mapping[tuple[str, str, str, str], int], Uses] = {}, Uses()
    for op, text in sorted({*used, *alone}):
        _, uses = used.get((op, text), nobody)
        records = alone.get((op, text), [])
        users = uses.models.union(*(record.models for record in records))
        links = tuple(base.model(name) for name in sorted(users))
        shared = base.op(op), text, uses.nodes or None, links, _by_target(uses.remaining)
        for record in records:
            yield (*shared, *_by_itself(base, record))
        if not records:
            yield (*shared, *(None,) * 12)


def _by_itself(base: Base, record: Record) -> Iterator[Cell]:
    case, found = record.case, verdicts(record)
    yield from (case.target, case.mode, case.size, case.dtype)
    yield record.status
    yield worst_error(record)
    yield max((each.max_abs for each in found if each.max_abs is not None), default=None)
    yield max((each.max_ulp for each in found if each.max_ulp is not None), default=None)
    yield min((each.pcc for each in found if each.pcc is not None), default=None)
    yield record.speed.median
    name = record.reproducer.rpartition("/")[2]
    yield Link(name, record.reproducer, file=True) if name else None
    yield base.cause(record.cause)


def ops(base: Base) -> Table:
    """Every op: what became of its nodes on each target, and who uses it."""
    columns = (
        Column("op", "Op", "link"),
        Column("target", "Target"),
        Column("models", "Models", "count", "How many models use it."),
        Column("nodes", "Nodes", "count"),
        Column("converted", "Converted", "count"),
        Column("removed", "Removed", "count"),
        Column("opaque", "Opaque", "count"),
        Column("fallback", "Fallback", "count"),
        Column("variations", "Input Variations", "count"),
        Column("alone", "Pass by Themselves", "ratio", "Configurations that pass when they run alone."),
        Column("failed", "Failed Models", "count", "Models in which it is the op that failed."),
    )
    nodes: dict[tuple[str, str], list[int]] = {}
    users: dict[tuple[str, str], set[str]] = {}
    variations: dict[tuple[str, str], set[str]] = {}
    alone: dict[tuple[str, str], list[bool]] = {}
    for record in base.latest:
        target = record.case.target
        for use in record.ops if record.case.kind == "model" else ():
            sums = nodes.setdefault((use.op, target), [0] * 5)
            for place, count in enumerate((use.count, use.converted, use.removed, use.opaque, use.fallback)):
                sums[place] += count
            users.setdefault((use.op, target), set()).add(record.case.name)
        for each in record.configurations if record.case.kind == "model" else ():
            variations.setdefault((each.op, target), set()).add(base.texts[id(each)])
            users.setdefault((each.op, target), set()).add(record.case.name)
        if record.case.kind == "op":
            key = record.case.name, target
            alone.setdefault(key, []).append(record.green)
            variations.setdefault(key, set()).add(record.case.configuration)
            users.setdefault(key, set()).update(record.models)
    failing = {(op, target): found for target, op, found in failing_models(base)}
    rows = [
        (
            base.op(op),
            target,
            len(users.get((op, target), ())),
            *nodes.get((op, target), [None] * 5),
            len(variations.get((op, target), ())),
            Ratio(sum(found), len(found)) if (found := alone.get((op, target))) else None,
            len(failing.get((op, target), ())),
        )
        for op, target in sorted({*nodes, *users, *variations, *alone, *failing})
    ]
    return Table("ops", "Ops", columns, tuple(rows))


def op_users(base: Base) -> Table:
    """The models that use each op, with the nodes that ran elsewhere than on a target."""
    columns = (
        Column("op", "Op", "link"),
        Column("model", "Model", "link"),
        Column("nodes", "Nodes", "count", "The most in one case."),
        Column("remaining", "Ran Elsewhere", "text", "Nodes that did not run on the target, by target."),
    )
    nodes: dict[tuple[str, str], int] = {}
    remaining: dict[tuple[str, str], Counter[str]] = {}
    for record in base.runs:
        for use in record.ops:
            key = use.op, record.case.name
            nodes[key] = max(nodes.get(key, 0), use.count)
            if use.remaining:
                counts = remaining.setdefault(key, Counter())
                counts[record.case.target] = max(counts[record.case.target], use.remaining)
    rows = tuple(
        (base.op(op), base.model(model), count, _by_target(remaining.get((op, model), Counter())))
        for (op, model), count in sorted(nodes.items())
    )
    return Table("op_users", "Models that use it", columns, rows)


def _by_target(counts: Counter[str]) -> str:
    return ", ".join(f"{target} {count:,}" for target, count in sorted(counts.items()))


def failing_models(base: Base) -> Iterator[tuple[str, str, set[str]]]:
    """By target and op: the models in which it is the op that failed, in the model itself or by itself."""
    found: dict[tuple[str, str], set[str]] = {}
    for record in base.failed:
        op = record.case.name if record.case.kind == "op" else record.cause.op if record.cause else ""
        if op:
            found.setdefault((record.case.target, op), set()).update(models_of(record))
    for (target, op), names in found.items():
        yield target, op, names


def op_failures(base: Base) -> Table:
    """The ops that fail, those first that fail in most models."""
    columns = (
        Column("target", "Target"),
        Column("op", "Operation Name", "link"),
        Column("count", "Number of Failed Models", "count"),
        Column("models", "Failed Models", "links"),
    )
    found = sorted(failing_models(base), key=lambda each: (each[0], -len(each[2]), each[1]))
    rows = tuple(
        (target, base.op(op), len(names), tuple(base.model(name) for name in sorted(names)))
        for target, op, names in found
    )
    return Table("op_failures", "Op-specific failures", columns, rows)
