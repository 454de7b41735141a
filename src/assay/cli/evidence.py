"""`assay evidence`: what the records of runs hold, and what changed between two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.numbers import MOST_FACTOR, number_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, reporting
from assay.errors import BadFeed, NotFound, hint_for

if TYPE_CHECKING:
    from assay.evidence.records.diff import Change
    from assay.evidence.records.files import Damage, Records
    from assay.evidence.records.schema import Case, Record

evidence = typer.Typer(no_args_is_help=True, help="Merge, compare, show and validate files of records.")

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of records.", show_default=False)]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file of records.", show_default=False)]
SlowerOption = Annotated[
    float, number_option("--slower", least=1.0, most=MOST_FACTOR, help="From which factor on a time has changed.")
]
AccuracyOption = Annotated[
    float,
    number_option("--accuracy", least=1.0, most=MOST_FACTOR, help="From which factor an accuracy has changed."),
]


@evidence.command()
def merge(
    files: FilesArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the result goes.")],
    json: JsonOption = None,
) -> None:
    """Write the latest record of each case, by date, to one file, compressed if its name ends in .gz.

    The files that show failures are copied along. The result is whole or is not written at all. Lines that are no
    records are listed, and the command exits with 1.
    """
    from assay.evidence.records.files import read
    from assay.evidence.records.merge import copy_reproducers, merged, write

    with reporting(json) as report:
        found = read(files)
        kept = merged(found.records)
        write(output, kept)
        copy_reproducers(files, kept, output)
        report.text(f"{len(found.records)} records of {len(files)} files, {len(kept)} cases: {output}")
        _tell_damage(report, found.damaged)
        report.result({"records": len(found.records), "cases": len(kept), "damaged": _damage_data(found.damaged)})
    _end(bool(found.damaged))


@evidence.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The earlier run's records.", show_default=False)],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The later run's records.", show_default=False)],
    slower: SlowerOption = 1.2,
    accuracy: AccuracyOption = 2.0,
    json: JsonOption = None,
) -> None:
    """Tell what changed between two runs: what is new, gone, fixed, broken, slower, less accurate.

    Times are compared in parts of eager's in the same run, errors in parts of what rounding explains. Exits with 1 if
    the new run is worse in anything.
    """
    from assay.evidence.records.diff import BAD, changes
    from assay.evidence.records.files import read

    with reporting(json) as report:
        before, after = _whole(read(old), report), _whole(read(new), report)
        found = changes(before.records, after.records, slower=slower, accuracy=accuracy)
        _show_changes(report, found)
        damaged = (*before.damaged, *after.damaged)
        report.result({"changes": [_change_data(each) for each in found], "damaged": _damage_data(damaged)})
    _end(bool(damaged) or any(each.kind in BAD for each in found))


@evidence.command()
def show(
    file: FileArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Models or ops.")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Of this target alone.")] = None,
    json: JsonOption = None,
) -> None:
    """Show the records of a file: a line for each, or all that is known of those that are named."""
    import msgspec

    from assay.evidence.records.files import read

    with reporting(json) as report:
        found = _whole(read(file), report)
        chosen = _chosen(found, names or (), target)
        if names:
            for record in chosen:
                _show_record(report, record)
        else:
            _show_all(report, chosen)
        report.result({"records": msgspec.to_builtins(chosen), "damaged": _damage_data(found.damaged)})
    _end(bool(found.damaged))


@evidence.command()
def validate(files: FilesArgument, json: JsonOption = None) -> None:
    """Check every line of files of records; those that are damaged are listed with the reason, and it exits with 1."""
    from assay.evidence.records.files import read

    with reporting(json) as report:
        found = read(files)
        _tell_damage(report, found.damaged)
        report.text(f"{len(found.records)} valid records, {len(found.damaged)} damaged lines")
        if not found.records and not found.damaged:
            raise BadFeed("there are no records", hint="a run that made none has failed")
        report.result({"valid": len(found.records), "damaged": _damage_data(found.damaged)})
    _end(bool(found.damaged))


def _end(differs: bool) -> None:
    if differs:
        raise typer.Exit(DIFFERS)


def _whole(found: Records, report: CommandOutput) -> Records:
    """The records, if there are any; damaged lines are told."""
    _tell_damage(report, found.damaged)
    if not found.records:
        raise BadFeed("there are no records", hint="is this a file of `assay sweep`? a run that made none has failed")
    return found


def _tell_damage(report: CommandOutput, damaged: Sequence[Damage]) -> None:
    for each in damaged:
        report.text(f"{each.file}:{each.line}: {each.reason}")
    if damaged:
        report.text("1 damaged line is left out" if len(damaged) == 1 else f"{len(damaged)} damaged lines are left out")


def _damage_data(damaged: Iterable[Damage]) -> list[dict[str, Any]]:
    return [{"file": each.file, "line": each.line, "reason": each.reason} for each in damaged]


def _chosen(found: Records, names: Sequence[str], target: str | None) -> list[Record]:
    known = {record.case.name for record in found.records}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no record of '{name}'", hint=hint_for(name, known))
    targets = {record.case.target for record in found.records}
    if target is not None and target not in targets:
        raise NotFound(f"there is no record of the target '{target}'", hint=hint_for(target, targets))
    return [
        record
        for record in found.records
        if (not names or record.case.name in names) and target in (None, record.case.target)
    ]


def case_text(case: Case) -> str:
    """A case in a few words."""
    words = [case.name, case.configuration, case.target, case.mode, case.size, case.dtype]
    return " · ".join(word for word in [*words, f"fault {case.fault}" if case.fault else ""] if word)


def _show_changes(report: CommandOutput, found: Sequence[Change]) -> None:
    from assay.evidence.records.diff import KINDS

    counts = {kind: sum(change.kind == kind for change in found) for kind in KINDS}
    if not found:
        report.text("nothing changed")
        return
    rows = [
        (
            change.kind.replace("_", " "),
            case_text(change.case),
            change.before,
            change.after,
            "" if change.factor is None else f"{change.factor:.2f}×",
        )
        for change in found
    ]
    report.table("", ("change", "case", "before", "after", ">factor"), rows)
    report.text(", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count))


def _change_data(change: Change) -> dict[str, Any]:
    import msgspec

    return {"meaning": _meaning(change), **msgspec.to_builtins(change)}


def _meaning(change: Change) -> str:
    from assay.evidence.records.diff import KINDS

    return KINDS[change.kind]


def _show_all(report: CommandOutput, records: Iterable[Record]) -> None:
    from assay.evidence.records.diff import cause_text, relative_time, worst_error

    rows = [
        (
            case_text(record.case),
            record.words,
            record.environment.date,
            _figure(record.speed.median, 1e3),
            _figure(relative_time(record)),
            _figure(worst_error(record)),
            cause_text(record.cause),
        )
        for record in records
    ]
    columns = ("case", "status", "date", ">median, ms", ">÷ eager", ">error ÷ allowed", "cause")
    report.table("", columns, rows)


def _figure(value: float | None, factor: float = 1.0) -> str:
    return "" if value is None else f"{value * factor:.3g}"


def _show_record(report: CommandOutput, record: Record) -> None:
    import msgspec

    from assay.evidence.records.diff import cause_text, verdicts

    report.text(case_text(record.case))
    facts = {
        "status": record.status,
        "verdict": record.verdict,
        "stage": record.stage,
        "cause": cause_text(record.cause),
        "said": record.cause.detail if record.cause else "",
        "first wrong value": record.attribution,
        "reproducer": record.reproducer,
        "date": record.environment.date,
        "commit": record.environment.commit,
        "command": record.environment.command,
        "inputs": ", ".join(f"{name}: {kind}" for name, kind in record.inputs.items()),
        "notes": "; ".join(record.notes),
    }
    report.table("", ("", ""), [(f"  {name}", text) for name, text in facts.items() if text])
    if record.ops:
        columns = ("  op", ">nodes", ">converted", ">removed", ">opaque", ">fallback", "reasons")
        rows = [
            (f"  {use.op}", use.count, use.converted, use.removed, use.opaque, use.fallback, "; ".join(use.reasons))
            for use in record.ops
        ]
        report.table("", columns, rows)
    if verdicts(record):
        columns = ("  output", "type", "right", ">error", ">allowed", ">PCC", "complaint")
        rows = [
            (
                f"  {each.name}",
                each.type,
                "yes" if each.ok else "no",
                _figure(each.max_abs),
                _figure(each.allowed),
                "" if each.pcc is None else f"{each.pcc:.6f}",
                each.complaint,
            )
            for each in verdicts(record)
        ]
        report.table("", columns, rows)
    times: dict[str, Any] = msgspec.to_builtins(record.speed)
    if times:
        report.text("  " + ", ".join(f"{name} {value:g}" for name, value in times.items()))
    report.text()
