"""The process of one job: it tells what it knows at every stage and dies with whoever started it."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from assay.evidence.records import Record
from assay.evidence.records.files import encoded
from assay.evidence.sweep.jobs import Job

ON_THE_WAY, LAST = b"-", b"+"
"""What stands before a record: whether more will come."""
SHOW_STACK = signal.SIGUSR1
"""Makes a process write its Python stack to its stack file."""


def serve(job: bytes, line: Connection, folder: str) -> None:
    """Run an encoded job. Along `line` go encoded records, each behind a mark: what is known so far, at last what was
    found."""
    os.setsid()  # what this process starts ends with it
    threading.Thread(target=_die_with_parent, args=(line,), daemon=True).start()
    _redirect(Path(folder, "output"))
    stack = os.open(Path(folder, "stack"), os.O_WRONLY | os.O_CREAT)
    faulthandler.enable(stack)
    faulthandler.register(SHOW_STACK, stack)
    os.environ["ASSAY_CACHE_DIR"] = str(Path(folder, "cache"))
    tempfile.tempdir = folder
    last = run(msgspec.json.decode(job, type=Job), lambda record: line.send_bytes(ON_THE_WAY + encoded(record)))
    line.send_bytes(LAST + encoded(last))


def run(job: Job, tell: Callable[[Record], None]) -> Record:
    """The record of a job, in this process."""
    import torch

    from assay.evidence.sweep.faults import injected
    from assay.evidence.sweep.measure import measure

    if job.threads:
        torch.set_num_threads(job.threads)
    with injected(job.case.fault):
        return measure(job, tell)


def _die_with_parent(line: Connection) -> None:
    """The other end never says anything: when there is something to read, it is closed."""
    line.poll(None)
    os.killpg(0, signal.SIGKILL)


def _redirect(path: Path) -> None:
    """Let everything that is printed, by libraries too, go to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
