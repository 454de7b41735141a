"""A sweep from its options to its records: what there is to do, what is done already, and the rest of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.errors import BadFeed
from assay.evidence.records import Case, Configuration, Environment, Record, append, read
from assay.evidence.records.schema import Mode, Size
from assay.evidence.sweep.executors import Executor
from assay.evidence.sweep.jobs import CaseLimits, Job
from assay.evidence.sweep.reproducers import write_reproducer

if TYPE_CHECKING:
    from assay.zoo.torch import Model


class SweepSettings(msgspec.Struct, frozen=True):
    """How every job of a sweep is run."""

    environment: Environment
    limits: CaseLimits = CaseLimits()
    threads: int = 0
    rounds: int = 10

    def job(self, case: Case, **more: Any) -> Job:
        """A job with these settings, and with other fields of its own."""
        return Job(case, self.environment, self.limits, self.threads, self.rounds, **more)


def model_jobs(
    models: Sequence[str],
    targets: Sequence[str],
    mode: Mode,
    size: Size,
    faults: Sequence[str],
    settings: SweepSettings,
) -> list[Job]:
    """A job for each model, target and fault; one that cannot be run says why. NotFound for a model that the zoo does
    not have."""
    from assay.zoo.torch import MODELS, find

    return [
        settings.job(
            Case("model", model.name, target, mode, size, _dtype(model, size), fault=fault),
            skipped=_impossible(model, mode),
        )
        for model in ([find(name) for name in models] if models else MODELS.values())
        for target in targets
        for fault in faults or [""]
    ]


def _impossible(model: Model, mode: Mode) -> str:
    """Why a model cannot be run; empty if it can."""
    return model.unavailable or ("" if mode in model.modes else f"the zoo has no {mode} mode of it")


def _dtype(model: Model, size: Size) -> str:
    return model.full_dtype if size == "full" else "f32"


def op_jobs(
    records: Sequence[Record], targets: Sequence[str], settings: SweepSettings, models: Sequence[str] = ()
) -> list[Job]:
    """A job for each distinct op configuration in the records of models (all, or those named), on each target."""
    users: dict[str, list[str]] = {}
    found: dict[str, Configuration] = {}
    for record in records:
        counts = record.case.kind == "model" and (not models or record.case.name in models)
        for each in record.configurations if counts else ():
            key = f"{each.op} {each.text}"
            found.setdefault(key, each)
            users.setdefault(key, []).append(record.case.name)
    if not found:
        raise BadFeed("no record tells which ops its model uses", hint="sweep models first, into the same file")
    return [
        settings.job(
            Case("op", each.op, target, dtype=_dtype_of(each), configuration=each.text),
            configuration=each,
            models=tuple(sorted(set(users[key]))),
        )
        for key, each in sorted(found.items())
        for target in targets
    ]


def _dtype_of(configuration: Configuration) -> str:
    """The dtype of the first tensor that an op gets."""
    return next((str(spec["dtype"]) for spec in configuration.tensors()), "f32")


def remaining(jobs: Sequence[Job], path: Path, resume: bool) -> list[Job]:
    """The jobs that the file has no record of. BadFeed if it has records and nobody said that it should be gone on
    with, so that no run is mixed with another by mistake."""
    if not path.exists() or not path.stat().st_size:
        return list(jobs)
    if not resume:
        raise BadFeed(f"'{path}' has records already", hint="go on with them by --resume, or name another file")
    done = {record.case for record in read(path).records}
    return [job for job in jobs if job.case not in done]


def sweep(jobs: Sequence[Job], executor: Executor, path: Path) -> Iterator[Record]:
    """Run jobs and append the record of each to a file as soon as it is done; then it is given to the caller."""
    by_case = {job.case: job for job in jobs}
    for record in executor.run(jobs):
        write_reproducer(record, by_case[record.case], path)
        append(path, record)
        yield record
