"""What a report is about: the records, who uses what, and the page of every name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from assay.errors import BadFeed
from assay.evidence.records.files import Damage, Records, read
from assay.evidence.records.merge import merged, moment
from assay.evidence.records.schema import NOT_TRIED, Cause, Record
from assay.evidence.report.cells import Link
from assay.evidence.report.names import file_names

FailureKey: TypeAlias = tuple[str, str, str, str]
"""Stage, component, error and message of causes: what one row of the failure analysis is about, whatever the op."""

CauseKey: TypeAlias = tuple[str, ...]

UNKNOWN = "unknown"


def gathered(paths: Iterable[Path], folder: Path) -> Records:
    """The records of files, with their reproducers as seen from the folder of the report."""
    records: list[Record] = []
    damaged: list[Damage] = []
    for path in paths:
        found = read(path)
        damaged += found.damaged
        for record in found.records:
            if record.reproducer:
                place = quote(os.path.relpath(path.parent / record.reproducer, folder).replace(os.sep, "/"))
                record = msgspec.structs.replace(record, reproducer=place)
            records.append(record)
    return Records(tuple(records), tuple(damaged))


def failure_of(cause: Cause) -> FailureKey:
    """The failure that a cause is one of."""
    return cause.stage, cause.component, cause.error, cause.message


def said(failure: FailureKey) -> str:
    """A failure in a line."""
    _, _, error, message = failure
    if not message or not error or error in message:
        return message or error or "said nothing"
    return f"{error}: {message}"


def tried(record: Record) -> bool:
    """True if the record says something about the compiler."""
    return record.status not in NOT_TRIED


@dataclass(frozen=True)
class Base:
    """Records in the order of their dates, without cases that were broken on purpose; those are `faults`."""

    records: tuple[Record, ...]
    faults: tuple[Record, ...] = ()
    damaged: tuple[Damage, ...] = ()

    @cached_property
    def latest(self) -> tuple[Record, ...]:
        """The latest record of each case."""
        return merged(self.records)

    @cached_property
    def runs(self) -> tuple[Record, ...]:
        """The latest records of models."""
        return tuple(record for record in self.latest if record.case.kind == "model")

    @cached_property
    def op_runs(self) -> tuple[Record, ...]:
        """The latest records of ops."""
        return tuple(record for record in self.latest if record.case.kind == "op")

    @cached_property
    def failed(self) -> tuple[Record, ...]:
        """The latest records that say that the compiler failed."""
        return tuple(record for record in self.latest if not record.green and tried(record))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """All targets."""
        return tuple(sorted({record.case.target for record in self.records}))

    @cached_property
    def cases_of(self) -> Mapping[tuple[str, str], tuple[Record, ...]]:
        """By target and model: the latest records of the model itself and of its op configurations."""
        found: dict[tuple[str, str], list[Record]] = {}
        for record in self.latest:
            for model in models_of(record):
                found.setdefault((record.case.target, model), []).append(record)
        return {key: tuple(records) for key, records in sorted(found.items())}

    @cached_property
    def models(self) -> Mapping[str, str]:
        """Every model and its page."""
        return _pages("models", (model for record in self.records for model in models_of(record)))

    @cached_property
    def ops(self) -> Mapping[str, str]:
        """Every op and its page."""
        return _pages("ops", (op for record in self.records for op in _ops_of(record)))

    @cached_property
    def causes(self) -> Mapping[FailureKey, str]:
        """Every failure, of cases that were not tried too, and its page."""
        found = {failure_of(each.cause) for each in self.records if each.cause}
        texts = {failure: "/".join((failure[1] or UNKNOWN, failure[0], said(failure)[:48])) for failure in found}
        unique = {failure: f"{text}\0{failure}" for failure, text in texts.items()}
        names = file_names(unique.values())
        return {failure: f"causes/{names[unique[failure]]}" for failure in sorted(found)}

    @cached_property
    def texts(self) -> Mapping[int, str]:
        """By the id of a configuration of a run: its arguments as text."""
        return {id(each): each.text for record in self.runs for each in record.configurations}

    @cached_property
    def _model_links(self) -> Mapping[str, Link]:
        return {name: Link(name, page) for name, page in self.models.items()}

    @cached_property
    def _op_links(self) -> Mapping[str, Link]:
        return {name: Link(name, page) for name, page in self.ops.items()}

    def model(self, name: str) -> Link:
        """The link to a model's page."""
        return self._model_links[name]

    def op(self, name: str) -> Link | None:
        """The link to an op's page; None for no op."""
        return self._op_links[name] if name else None

    def cause(self, cause: Cause | None) -> Link | None:
        """The link to the page of a cause; None for none."""
        if cause is None:
            return None
        failure = failure_of(cause)
        return Link(f"{cause.op}: {said(failure)}" if cause.op else said(failure), self.causes[failure])

    def failure(self, failure: FailureKey) -> Link:
        """The link to the page of a failure."""
        return Link(said(failure), self.causes[failure])


def base(found: Records) -> Base:
    """What a report of these records is about; no records are an error."""
    if not found.records:
        raise BadFeed("there are no records to report", hint="a run that made none has failed; look at its output")
    ordered = sorted(found.records, key=moment)
    sound = tuple(record for record in ordered if not record.case.fault)
    return Base(sound, tuple(record for record in ordered if record.case.fault), found.damaged)


def models_of(record: Record) -> tuple[str, ...]:
    """The models that a record is about: its own, or those that use the op."""
    return (record.case.name,) if record.case.kind == "model" else record.models


def _ops_of(record: Record) -> Iterable[str]:
    if record.case.kind == "op":
        yield record.case.name
    if record.cause and record.cause.op:
        yield record.cause.op
    yield from (use.op for use in record.ops)
    yield from (configuration.op for configuration in record.configurations)


def _pages(folder: str, things: Iterable[str]) -> Mapping[str, str]:
    return {thing: f"{folder}/{name}" for thing, name in file_names(things).items()}
