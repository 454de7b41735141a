"""A file for every failure that shows it by itself, and the proof that it does."""

from __future__ import annotations

import hashlib
import os
import pprint
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from assay.errors import BadFeed
from assay.evidence.records import Cause, Configuration, Record
from assay.evidence.records.files import decoded
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.machine import resident_memory
from assay.evidence.sweep.supervise import Stopped, supervise

FAILED = 3
"""What a reproducer's process ends with when the failure is still there; Python itself ends with 1 or 2."""
_FOLDER = "reproducers"
_SLACK = 60.0
"""Seconds that starting Python and importing libraries may take beyond the limit of the case."""
_LOOK = 0.1
_NOT_SHOWN = ("unsupported", "skipped")

_TEXT = '''"""{title}

{detail}
Run it with Python. It prints what it finds, and ends with code {code} while the failure is there.
"""

from assay.evidence.sweep.reproduce import reproduce

reproduce(
    {case},
    {configuration},
)
'''


def proven(job: Job, stopped: Callable[[], bool] = lambda: False) -> Record:
    """The record of a job. Of a failure a file is made that shows it, and run once; a pass has none."""
    record = supervise(job, stopped)
    if record.green or record.status in _NOT_SHOWN:
        return record
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reproducer.py")
        path.write_text(script(record, job.configuration), encoding="utf-8")
        shown = _shows(path, record, job, stopped)
    return msgspec.structs.replace(record, reproducer=f"{_FOLDER}/{_slug(record)}.py", reproduced=shown)


def write_reproducer(record: Record, job: Job, records: Path) -> None:
    """Put the file that shows a failure where its record says, beside the file of `records`."""
    if record.reproducer:
        path = records.parent / record.reproducer
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(record, job.configuration), encoding="utf-8")


def _slug(record: Record) -> str:
    """A file name of its own for each case."""
    case = record.case
    words = "-".join(filter(None, (case.name, case.target, case.mode, case.size, case.fault)))
    mark = hashlib.sha256(msgspec.json.encode(case)).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', words)}-{mark}"


def script(record: Record, configuration: Configuration | None) -> str:
    """The text of a file that shows the failure of a record."""
    case, cause = record.case, record.cause or Cause(record.stage)
    title = f"{case.name} on the target {case.target}: {record.status} at {record.stage}."
    told = f"{cause.error}: {cause.detail}".replace("\\", "\\\\").replace('"""', "'''")
    return _TEXT.format(
        title=title,
        detail=f"{told}\n" if told.strip(": ") else "",
        code=FAILED,
        case=_literal(case),
        configuration=_literal(configuration),
    )


def _literal(value: Any) -> str:
    """Plain data as Python writes it."""
    return pprint.pformat(msgspec.to_builtins(value), width=110, sort_dicts=False).replace("\n", "\n    ")


def _shows(path: Path, record: Record, job: Job, stopped: Callable[[], bool]) -> bool:
    """Whether the file, run now within the same limits, fails in the same way."""
    assert record.cause is not None
    with tempfile.TemporaryFile() as output:
        ended, code = _ended_by(path, output, job, stopped)
        output.seek(0)
        lines = output.read().strip().split(b"\n")
    if ended:
        return record.cause.error == ended
    if code != FAILED:
        return False
    try:
        again = decoded(lines[-1])
    except BadFeed:
        return False
    return again.cause is not None and again.cause.key == record.cause.key


def _ended_by(path: Path, output: IO[bytes], job: Job, stopped: Callable[[], bool]) -> tuple[str, int]:
    """What ended the process of a file before it was through, a limit or a signal (empty if nothing did), and its code.

    The process and what it starts end with this one: then nobody holds the other end of its input any more.
    """
    until = time.monotonic() + job.limits.seconds + _SLACK
    command = [sys.executable, "-m", "assay.evidence.sweep.leash", path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while process.poll() is None:
                if stopped():
                    raise Stopped
                if time.monotonic() > until:
                    return "timeout", 0
                if resident_memory(process.pid) > job.limits.memory:
                    return "out of memory", 0
                time.sleep(_LOOK)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    code = process.returncode
    return signal.Signals(-code).name if code < 0 else "", code
