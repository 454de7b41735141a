"""One job in a process of its own, within its limits: a crash, a hang or too much memory is a record too."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from assay.errors import BadFeed
from assay.evidence.records import Cause, Record
from assay.evidence.records.files import decoded
from assay.evidence.records.schema import Status
from assay.evidence.sweep.causes import cause_of_death
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.machine import resident_memory
from assay.evidence.sweep.worker import LAST, SHOW_STACK, serve

_LOOK = 0.2
"""Seconds between two looks at a process."""
_GRACE = 1.0
"""Seconds in which a process that is to be ended writes down where it is, and one that is through cleans up."""


class Stopped(Exception):
    """Nobody wants the record any more."""


def supervise(job: Job, stopped: Callable[[], bool] = lambda: False) -> Record:
    """Run a job in a process of its own; never raises for what it does there. Stopped as soon as `stopped` says so."""
    known = Record(case=job.case, environment=job.environment, status="crash", stage="build", cause=Cause("build"))
    if job.skipped:
        cause = Cause("build", "", "skipped", job.skipped, detail=job.skipped)
        return msgspec.structs.replace(known, status="skipped", cause=cause, models=job.models)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["assay.evidence.sweep.preload"])
    with tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True) as folder:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(msgspec.json.encode(job), theirs, folder), daemon=True)
        try:
            process.start()
        except OSError as error:
            return _ended(known, "crash", "no process", f"no process could be started: {error}", "")
        theirs.close()
        try:
            return _watched(job, known, process, ours, Path(folder), stopped)
        finally:
            _end(process)
            ours.close()


def _watched(
    job: Job, known: Record, process: BaseProcess, line: Connection, folder: Path, stopped: Callable[[], bool]
) -> Record:
    """The last record that the process sends, or what is known when it dies or breaks a limit."""
    until = time.monotonic() + job.limits.seconds
    with suppress(EOFError, OSError):
        while time.monotonic() < until:
            if stopped():
                raise Stopped
            if line.poll(_LOOK):
                message = line.recv_bytes()
                try:
                    known = decoded(message[1:])
                except BadFeed as error:
                    return _ended(known, "crash", "bad record", error.message, "")
                if message[:1] == LAST:
                    process.join(_GRACE)
                    return known
            if resident_memory(process.pid or 0) > job.limits.memory:
                return _ended(known, "crash", "out of memory", _memory_text(job), _stack(process, folder))
        text = f"took longer than {job.limits.seconds:g} s"
        return _ended(known, "timeout", "timeout", text, _stack(process, folder))
    process.join(_GRACE)
    error, detail = _death(process.exitcode)
    said = _read(folder / "output").strip().rpartition("\n")[2] if error == "exit" else ""
    return _ended(known, "crash", error, f"{detail}: {said}" if said else detail, _read(folder / "stack"))


def _ended(known: Record, status: Status, error: str, detail: str, stack: str) -> Record:
    """What is to be said of a process that ended too early; a verdict that it had reached before stays."""
    if known.status != "crash":
        return known
    cause = cause_of_death(known.stage, error, detail, stack)
    return msgspec.structs.replace(known, status=status, cause=cause)


def _memory_text(job: Job) -> str:
    return f"took more than {job.limits.memory / 2**30:g} GiB of memory"


def _death(code: int | None) -> tuple[str, str]:
    """The error and the text of a process that died."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return name, f"the process died of {name}"
    return "exit", f"the process ended with code {code}"


def _stack(process: BaseProcess, folder: Path) -> str:
    """Where the process is just now."""
    with suppress(OSError):
        os.kill(process.pid or 0, SHOW_STACK)
        time.sleep(_GRACE)
    return _read(folder / "stack")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _end(process: BaseProcess) -> None:
    """Kill the process and what it started."""
    with suppress(OSError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()
