"""One job in a process of its own, within its limits: a crash, a hang or too much memory is a record too."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable

import msgspec

from assay.errors import BadFeed
from assay.evidence.records import Cause, Record
from assay.evidence.records.files import decoded
from assay.evidence.sweep.causes import cause_of_death
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.worker import PRELOAD, service
from assay.processes import Ending, Nursery, Worker, WorkerDied, WorkerLimits, WorkerRaised

_PATIENCE = 1.0
"""Seconds in which a process that is through cleans up."""


class Stopped(Exception):
    """Nobody wants the record any more."""


@functools.cache
def _nursery() -> Nursery | None:
    """The process that the others are forked from, where that can be done."""
    return Nursery([PRELOAD]) if Nursery.possible() else None


def supervise(job: Job, stopped: Callable[[], bool] = lambda: False) -> Record:
    """Run a job in a process of its own; never raises for what it does there. Stopped as soon as `stopped` says so."""
    known = Record(case=job.case, environment=job.environment, status="crash", stage="build", cause=Cause("build"))
    if job.skipped:
        cause = Cause("build", "", "skipped", job.skipped, detail=job.skipped)
        return msgspec.structs.replace(known, status="skipped", cause=cause, models=job.models)

    def note(record: bytes) -> None:
        nonlocal known
        known = decoded(record)

    limits = WorkerLimits(seconds=job.limits.seconds, resident=job.limits.memory)
    with tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True) as folder:
        worker = Worker(service, folder, limits=limits, nursery=_nursery())
        try:
            note(worker.ask(msgspec.json.encode(job), told=note, watch=lambda: check(stopped), what=job.case.name))
        except BadFeed as error:
            return _ended(known, "bad record", error.message)
        except WorkerDied as death:
            return _ended(known, *named(death.ending), death.ending)
        except WorkerRaised as error:
            return _ended(known, error.kind, error.reason)
        except OSError as error:
            return _ended(known, "no process", f"no process could be started: {error}")
        finally:
            worker.close(_PATIENCE)
    return known


def check(stopped: Callable[[], bool]) -> None:
    """Stopped if it says so."""
    if stopped():
        raise Stopped


def named(ending: Ending) -> tuple[str, str]:
    """The error and the detail that records have for the end of a process."""
    said = f": {ending.last_line}" if ending.last_line else ""
    names = {
        "signal": (ending.signal_name, f"the process died of {ending.signal_name}"),
        "exit": ("exit", f"the process ended with code {ending.number:g}{said}"),
        "time": ("timeout", ending.text),
        "memory": ("out of memory", f"took more than {ending.number / 2**30:g} GiB of memory"),
    }
    return names.get(ending.how, (ending.how, ending.text))


def _ended(known: Record, error: str, detail: str, ending: Ending | None = None) -> Record:
    """What is to be said of a process that ended too early; a verdict that it had reached before stays."""
    if known.status != "crash":
        return known
    cause = cause_of_death(known.stage, error, detail, ending.stack if ending else "")
    return msgspec.structs.replace(known, status="timeout" if error == "timeout" else "crash", cause=cause)
