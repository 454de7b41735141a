"""A worker process of an OpInfo run that dies, hangs or works as its unit says, without torch; for the tests."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from assay.evidence.opinfo.messages import (
    Begun,
    Differentiable,
    GraphsCompiled,
    SamplesMade,
    Settled,
    UnitFailed,
    UnitJob,
)
from assay.evidence.opinfo.records import SELF, SampleResult
from assay.processes import Handler, Tell


def deadly() -> Handler:
    """What the process runs."""

    def run(job: UnitJob, tell: Tell) -> UnitFailed | None:
        for message in _messages(job):
            tell(message)
        return UnitFailed("ValueError: a defect") if job.unit.op == "fails" else None

    return run


def _messages(job: UnitJob) -> Iterator[Any]:
    """Four samples in two groups; sample 2 is the deadly one."""
    yield SamplesMade(4, (0.0, 0.0))
    for group in [(0,), (1,), (2,), (3,)] if job.alone else [(0, 1), (2, 3)]:
        left = tuple(i for i in group if (SELF, i) not in job.known)
        if not left:
            continue
        yield Begun(SELF, left)
        if 2 in left:
            _die(job.unit.op)
        yield GraphsCompiled({"inference": 1}, {"inference": {"aten.x": "none"}})
        yield Differentiable(left[0])
        yield Settled(SELF, {i: SampleResult("pass") for i in left})


def _die(how: str) -> None:
    if how == "dies":
        os.abort()
    if how == "hangs":
        time.sleep(60)
