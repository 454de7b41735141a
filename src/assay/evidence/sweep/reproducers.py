"""A file for every failure that shows it by itself, and the proof that it does."""

from __future__ import annotations

import hashlib
import pprint
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import BadFeed
from assay.evidence.records import Cause, Configuration, Record
from assay.evidence.records.files import decoded
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.machine import resident_memory

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


def add_reproducer(record: Record, job: Job, records: Path) -> Record:
    """The record with a file beside `records` that shows its failure, run once; a pass stays as it is."""
    if record.green or record.status in _NOT_SHOWN or record.cause is None:
        return record
    path = records.parent / _FOLDER / f"{_slug(record)}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_script(record, record.cause, job.configuration), encoding="utf-8")
    shown = _shows(path, record, job)
    return msgspec.structs.replace(record, reproducer=f"{_FOLDER}/{path.name}", reproduced=shown)


def _slug(record: Record) -> str:
    """A file name of its own for each case."""
    case = record.case
    words = "-".join(filter(None, (case.name, case.target, case.mode, case.size, case.fault)))
    mark = hashlib.sha256(msgspec.json.encode(case)).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', words)}-{mark}"


def _script(record: Record, cause: Cause, configuration: Configuration | None) -> str:
    case = record.case
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


def _shows(path: Path, record: Record, job: Job) -> bool:
    """Whether the file, run now within the same limits, fails in the same way."""
    assert record.cause is not None
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, path], stdout=output, stderr=subprocess.DEVNULL)
        ended = _ended_by(process, job)
        output.seek(0)
        lines = output.read().strip().split(b"\n")
    if ended:
        return record.cause.error == ended
    if process.returncode != FAILED:
        return False
    try:
        again = decoded(lines[-1])
    except BadFeed:
        return False
    return again.cause is not None and again.cause.key == record.cause.key


def _ended_by(process: subprocess.Popen[bytes], job: Job) -> str:
    """What ended a process before it was through: a limit or a signal; empty if nothing did."""
    until = time.monotonic() + job.limits.seconds + _SLACK
    while process.poll() is None:
        broken = "timeout" if time.monotonic() > until else ""
        broken = broken or ("out of memory" if resident_memory(process.pid) > job.limits.memory else "")
        if broken:
            process.kill()
            process.wait()
            return broken
        time.sleep(_LOOK)
    return signal.Signals(-process.returncode).name if process.returncode < 0 else ""
