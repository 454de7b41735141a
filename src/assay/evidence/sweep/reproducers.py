"""A file for every failure that shows it by itself, and the proof that it does."""

from __future__ import annotations

import hashlib
import io
import pprint
import re
import runpy
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, cast

import msgspec

from assay.errors import BadFeed
from assay.evidence.records import Cause, Configuration, Record
from assay.evidence.records.files import decoded
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.supervise import check, named, supervise
from assay.processes import Handler, Tell, Worker, WorkerDied, WorkerLimits, WorkerRaised

FAILED = 3
"""What a reproducer's process ends with when the failure is still there; Python itself ends with 1 or 2."""
_FOLDER = "reproducers"
_SLACK = 60.0
"""Seconds that starting Python and importing libraries may take beyond the limit of the case."""
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


def run_with_reproducer(job: Job, stopped: Callable[[], bool] = lambda: False) -> Record:
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
    limits = WorkerLimits(seconds=job.limits.seconds + _SLACK, resident=job.limits.memory)
    with Worker(service, limits=limits) as worker:
        try:
            code, output = worker.ask(str(path), watch=lambda: check(stopped))
        except WorkerDied as death:
            return named(death.ending)[0] == record.cause.error
        except WorkerRaised:
            return False
    if code != FAILED:
        return False
    try:
        again = decoded(output.strip().rpartition(b"\n")[2])
    except BadFeed:
        return False
    return again.cause is not None and again.cause.key == record.cause.key


def service() -> Handler:
    """What the process of a file runs: the file, as Python runs a script. It replies with its exit code and output."""

    def run(path: str, tell: Tell) -> tuple[int, bytes]:
        output = io.TextIOWrapper(io.BytesIO())
        try:
            with redirect_stdout(output):
                runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1, _content(output)
        return 0, _content(output)

    return run


def _content(output: io.TextIOWrapper) -> bytes:
    output.flush()
    return cast("io.BytesIO", output.buffer).getvalue()
