"""What the file of a failure calls: the case once more, in the same way as the sweep ran it."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import msgspec

from assay.evidence.records import Case, Configuration, Environment
from assay.evidence.records.files import encoded
from assay.evidence.sweep import preload as preload  # sets what torch has to know before it is imported
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.reproducers import FAILED
from assay.evidence.sweep.worker import run


def reproduce(case: dict[str, Any], configuration: dict[str, Any] | None = None) -> None:
    """Run a case in this process and print its record; the process ends with code 3 unless it passes."""
    job = Job(
        msgspec.convert(case, Case),
        Environment(date=""),
        rounds=1,
        configuration=msgspec.convert(configuration, Configuration | None),
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["ASSAY_CACHE_DIR"] = folder  # what was compiled before must not hide the failure, nor it spoil that
        record = run(job, lambda _: None)
    sys.stdout.buffer.write(encoded(record) + b"\n")
    sys.exit(0 if record.green else FAILED)
