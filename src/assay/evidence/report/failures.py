"""Views of what fails: by component, by cause, by what a fix would free. Nothing that fails is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.evidence.records.schema import Record
from assay.evidence.report.base import UNKNOWN, Base, CauseKey, FailureKey, failure_of, models_of, said, tried
from assay.evidence.report.cells import Column, Link, Ratio, Row, Table, natural, number, written
from assay.evidence.report.clusters import clusters
from assay.evidence.report.unlock import Fixes, freed, shortest_fixes


@dataclass(frozen=True)
class Blockers:
    """By target: the models that do not pass, each with the causes that block it; and who failed of what."""

    blocked: Mapping[str, Mapping[str, frozenset[CauseKey]]]
    impact: Mapping[tuple[str, FailureKey], tuple[Record, ...]]
    plans: Mapping[str, list[Fixes[CauseKey]]]


def blockers(base: Base) -> Blockers:
    """What blocks what.

    A model is blocked on a target if a record of its own is not green there or, where it has none, if a record of one
    of its op configurations is not. Its own causes and those of its configurations block it.
    """
    blocked: dict[str, dict[str, frozenset[CauseKey]]] = {target: {} for target in base.targets}
    for (target, model), records in base.cases_of.items():
        own = [record for record in records if record.case.kind == "model"]
        bad = [record for record in records if not record.green and tried(record)]
        causes = frozenset(record.cause.key for record in bad if record.cause)
        if causes and any(not record.green for record in own or records):
            blocked[target][model] = causes
    impact: dict[tuple[str, FailureKey], list[Record]] = {}
    for record in base.failed:
        if record.cause:
            impact.setdefault((record.case.target, failure_of(record.cause)), []).append(record)
    plans = {target: shortest_fixes(models) for target, models in blocked.items()}
    return Blockers(blocked, {key: tuple(records) for key, records in impact.items()}, plans)


def impacted(records: tuple[Record, ...]) -> tuple[str, ...]:
    """The models that records are about."""
    return tuple(sorted({model for record in records for model in models_of(record)}))


def links(base: Base, models: tuple[str, ...]) -> tuple[Link, ...]:
    """The links to models."""
    return tuple(map(base.model, models))


def component_failures(base: Base, found: Blockers) -> Table:
    """Component → failure → models, the failures with most models first; unknown components are a row as any other."""
    columns = (
        Column("target", "Target"),
        Column("component", "Compiler Component"),
        Column("failure", "FailureKey", "link"),
        Column("stage", "Stage"),
        Column("ops", "Ops", "links", "The ops that failed so."),
        Column("count", "Number of Impacted Models", "count"),
        Column("cases", "Cases", "count", "Models and op configurations that failed so."),
        Column(
            "unlocks", "Unlocked by This Fix Alone", "count", "Models that pass once this and nothing else is fixed."
        ),
        Column("models", "Impacted Models", "links"),
    )
    rows: list[Row] = []
    for (target, failure), records in found.impact.items():
        stage, component, _, _ = failure
        models = impacted(records)
        keys = frozenset(record.cause.key for record in records if record.cause)
        ops = sorted({record.cause.op for record in records if record.cause and record.cause.op})
        rows.append(
            (
                target,
                component or UNKNOWN,
                base.failure(failure),
                stage,
                tuple(link for op in ops if (link := base.op(op))),
                len(models),
                len(records),
                len(freed(found.blocked[target], keys)),
                links(base, models),
            )
        )
    rows.sort(key=lambda row: (str(row[0]), str(row[1]), -number(row[5]), natural(written(row[2], "link"))))
    return Table("component_failures", "Compiler component failures by model impact", columns, tuple(rows))


def unlocks(base: Base, found: Blockers) -> Table:
    """For each cause the models that it alone blocks."""
    columns = (
        Column("target", "Target"),
        Column("cause", "Cause", "link", "One op and one failure; fixing it is one fix."),
        Column("component", "Component"),
        Column("impacted", "Blocked Models", "count", "Models that it blocks, alone or with others."),
        Column("unlocks", "Blocks Alone", "count", "Models that it alone blocks: fixing it unlocks them."),
        Column("models", "Models It Alone Blocks", "links"),
    )
    rows: list[tuple[str, Link | None, str, int, int, tuple[Link, ...]]] = []
    for target, blocked in found.blocked.items():
        for key, cause in _causes(base, target).items():
            alone = freed(blocked, frozenset([key]))
            every = sum(key in causes for causes in blocked.values())
            rows.append((target, cause, key[1] or UNKNOWN, every, len(alone), links(base, alone)))
    rows.sort(key=lambda row: (row[0], -row[4], -row[3], row[1].text if row[1] else ""))
    return Table("unlocks", "What each fix unlocks", columns, tuple(rows))


def _causes(base: Base, target: str) -> Mapping[CauseKey, Link | None]:
    return {
        record.cause.key: base.cause(record.cause)
        for record in base.failed
        if record.cause and record.case.target == target
    }


def fix_plan(base: Base, found: Blockers) -> Table:
    """k fixes → n models."""
    columns = (
        Column("target", "Target"),
        Column("fixes", "Fixes", "count"),
        Column("unlocked", "Models Unlocked", "ratio", "Of the models that are blocked."),
        Column(
            "method", "Found", "text", "exact: no other choice of as many fixes unlocks more; greedy: perhaps one does."
        ),
        Column("causes", "What to Fix", "links"),
        Column("models", "Unlocked", "links"),
    )
    rows: list[Row] = []
    for target, steps in found.plans.items():
        causes = _causes(base, target)
        for step in steps:
            fixes = tuple(link for key in step.fixes if (link := causes[key]))
            unlocked = Ratio(len(step.models), len(found.blocked[target]))
            method = "exact" if step.exact else "greedy"
            rows.append((target, len(step.fixes), unlocked, method, fixes, links(base, step.models)))
    return Table("fix_plan", "The shortest fix plan", columns, tuple(rows))


def unknown(base: Base, found: Blockers) -> Table:
    """Failures without a component, those that say nearly the same together."""
    columns = (
        Column("cluster", "Cluster", "count"),
        Column("failure", "FailureKey", "link"),
        Column("stage", "Stage"),
        Column("targets", "Targets"),
        Column("cases", "Cases", "count"),
        Column("count", "Impacted Models", "count"),
        Column("models", "Models", "links"),
    )
    nameless: dict[FailureKey, dict[str, tuple[Record, ...]]] = {}
    for (target, failure), records in found.impact.items():
        if not failure[1]:
            nameless.setdefault(failure, {})[target] = records
    rows: list[Row] = []
    for cluster, texts in enumerate(clusters(map(said, nameless)), 1):
        for failure in sorted(failure for failure in nameless if said(failure) in texts):
            targets = nameless[failure]
            records = tuple(record for each in targets.values() for record in each)
            models = impacted(records)
            shown = (cluster, base.failure(failure), failure[0], ", ".join(targets))
            rows.append((*shown, len(records), len(models), links(base, models)))
    note = "Failures whose component is unknown. Those in one cluster say nearly the same."
    return Table("unknown_causes", "Unknown causes", columns, tuple(rows), note)


def not_tried(base: Base) -> Table:
    """Cases that say nothing about the compiler, with the reason; they are no passes."""
    columns = (
        Column("name", "Name", "link"),
        Column("target", "Target"),
        Column("mode", "Mode"),
        Column("size", "Size"),
        Column("dtype", "Dtype"),
        Column("configuration", "Configuration", "code"),
        Column("status", "Status", "status"),
        Column("cause", "Why", "link"),
    )
    rows = tuple(
        (
            base.model(record.case.name) if record.case.kind == "model" else base.op(record.case.name),
            record.case.target,
            record.case.mode,
            record.case.size,
            record.case.dtype,
            record.case.configuration,
            record.status,
            base.cause(record.cause),
        )
        for record in base.latest
        if not tried(record)
    )
    return Table(
        "not_tried", "Not tried", columns, rows, "These count neither as passes nor as failures of the compiler."
    )


def cause_cases(base: Base) -> Table:
    """Every case that is not green, under its failure."""
    columns = (
        Column("failure", "FailureKey", "link"),
        Column("kind", "Kind"),
        Column("name", "Name", "link"),
        Column("configuration", "Configuration", "code"),
        Column("target", "Target"),
        Column("mode", "Mode"),
        Column("size", "Size"),
        Column("dtype", "Dtype"),
        Column("status", "Status", "status"),
        Column("op", "Op", "link"),
        Column("frame", "Frame", "code"),
        Column("where", "Where", "code"),
        Column("detail", "What It Said", "long"),
        Column("models", "Models", "links"),
    )
    rows: list[Row] = []
    for record in base.latest:
        case, cause = record.case, record.cause
        if cause is None:
            continue
        name = base.model(case.name) if case.kind == "model" else base.op(case.name)
        place = (case.target, case.mode, case.size, case.dtype, record.status)
        told = (
            base.op(cause.op),
            cause.frame,
            cause.where,
            cause.detail,
            links(base, tuple(sorted(models_of(record)))),
        )
        rows.append((base.failure(failure_of(cause)), case.kind, name, case.configuration, *place, *told))
    return Table("failed_cases", "Cases", columns, tuple(rows))


def faults(base: Base) -> Table:
    """Cases that were broken on purpose: whether the fault was found under the right stage and op."""
    columns = (
        Column("fault", "Fault"),
        Column("name", "Name"),
        Column("target", "Target"),
        Column("status", "Status", "status"),
        Column("stage", "Stage"),
        Column("component", "Component"),
        Column("op", "Op"),
        Column("message", "Message", "long"),
    )
    rows = tuple(
        (
            record.case.fault,
            record.case.name,
            record.case.target,
            record.status,
            record.stage,
            record.cause.component if record.cause else "",
            record.cause.op if record.cause else "",
            said(failure_of(record.cause)) if record.cause else "",
        )
        for record in base.faults
    )
    return Table("faults", "Injected faults", columns, rows, "Broken on purpose; they are in no other table.")
