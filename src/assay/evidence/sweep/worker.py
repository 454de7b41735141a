"""The process of one job: it tells what it knows at every stage."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from assay.evidence.records import Record
from assay.evidence.records.files import encoded
from assay.evidence.sweep.jobs import Job
from assay.processes import Handler

PRELOAD = "assay.evidence.sweep.preload"
"""What every process of a sweep imports."""


def service(folder: str) -> Handler:
    """What the process runs: of an encoded job it tells encoded records, what is known so far, and replies with the
    last. What it keeps on disk goes to `folder`."""
    os.environ["ASSAY_CACHE_DIR"] = str(Path(folder, "cache"))
    tempfile.tempdir = folder
    importlib.import_module(PRELOAD)  # nothing is left to be done where it is preloaded
    return lambda job, send: encoded(run(msgspec.json.decode(job, type=Job), lambda record: send(encoded(record))))


def run(job: Job, send: Callable[[Record], None]) -> Record:
    """The record of a job, in this process."""
    import torch

    from assay.evidence.sweep.faults import injected
    from assay.evidence.sweep.measure import measure

    if job.threads:
        torch.set_num_threads(job.threads)
    with injected(job.case.fault):
        return measure(job, send)
