"""A sweep from its options to its records: what there is to do, what is done already, and the rest of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import BadFeed, NotFound
from assay.evidence.records import Case, Configuration, Environment, Record, append, read
from assay.evidence.records.schema import Mode, Size
from assay.evidence.sweep.executors import Executor
from assay.evidence.sweep.jobs import Job, Limits, Shard, part
from assay.evidence.sweep.reproducers import add_reproducer

if TYPE_CHECKING:
    from assay.zoo.torch import Model


class Settings(msgspec.Struct, frozen=True):
    """How every job of a sweep is run."""

    environment: Environment
    limits: Limits = Limits()
    threads: int = 0
    rounds: int = 10

    def job(self, case: Case, configuration: Configuration | None = None, models: Sequence[str] = ()) -> Job:
        """A job with these settings."""
        return Job(
            case,
            self.environment,
            self.limits,
            self.threads,
            self.rounds,
            configuration=configuration,
            models=tuple(models),
        )


def model_jobs(
    models: Sequence[str], targets: Sequence[str], mode: Mode, size: Size, faults: Sequence[str], settings: Settings
) -> list[Job]:
    """A job for each model, target and fault; NotFound for a model that the zoo does not have."""
    from assay.zoo.torch import MODELS, find

    named = [find(name) for name in models] if models else list(MODELS.values())
    chosen = [model for model in named if mode in model.modes]
    if not chosen:
        raise NotFound(f"none of the models has the mode '{mode}'", hint="assay zoo list shows the modes")
    cases = [
        Case("model", model.name, target, mode, size, _dtype(model, size), fault=fault)
        for model in chosen
        for target in targets
        for fault in faults or [""]
    ]
    return [settings.job(case) for case in cases]


def _dtype(model: Model, size: Size) -> str:
    return model.full_dtype if size == "full" else "f32"


def op_jobs(records: Sequence[Record], targets: Sequence[str], settings: Settings) -> list[Job]:
    """A job for each distinct configuration of an op that some models' records have, on each target."""
    users: dict[str, list[str]] = {}
    found: dict[str, Configuration] = {}
    for record in records:
        for each in record.configurations if record.case.kind == "model" else ():
            key = f"{each.op} {each.text}"
            found.setdefault(key, each)
            users.setdefault(key, []).append(record.case.name)
    if not found:
        raise BadFeed("no record tells which ops its model uses", hint="sweep models first, into the same file")
    return [
        settings.job(Case("op", each.op, target, configuration=each.text), each, sorted(set(users[key])))
        for key, each in sorted(found.items())
        for target in targets
    ]


def remaining(jobs: Sequence[Job], path: Path, resume: bool) -> list[Job]:
    """The jobs that the file has no record of. BadFeed if it has records and nobody said that it should be gone on
    with, so that no run is mixed with another by mistake."""
    if not path.exists() or not path.stat().st_size:
        return list(jobs)
    if not resume:
        raise BadFeed(f"'{path}' has records already", hint="go on with them by --resume, or name another file")
    done = {record.case for record in read(path).records}
    return [job for job in jobs if job.case not in done]


def sweep(jobs: Sequence[Job], shard: Shard, executor: Executor, path: Path) -> Iterator[Record]:
    """Run jobs and append the record of each to a file as soon as it is done; then it is given to the caller."""
    chosen = {job.case: job for job in part(jobs, shard)}
    for record in executor.run(list(chosen.values())):
        whole = add_reproducer(record, chosen[record.case], path)
        append(path, whole)
        yield whole
