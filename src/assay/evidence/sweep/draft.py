"""A record in the making: what is known of a case so far, so that a process that dies loses only what it was at."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from assay.errors import NotFound
from assay.evidence.records import Cause, Record
from assay.evidence.records.schema import STATUS_AT, Speed, Status
from assay.evidence.sweep.causes import cause_of
from assay.evidence.sweep.jobs import Job
from assay.runtime.stages import Clock, timing


@dataclass(slots=True)
class Draft:
    """What is known so far; `send` is given a record of it at every stage, as if the process had died there."""

    job: Job
    send: Callable[[Record], None]
    stage: str = "build"
    known: dict[str, Any] = field(default_factory=dict[str, Any])
    speed: dict[str, Any] = field(default_factory=dict[str, Any])
    _clock: Clock = field(default_factory=Clock)

    def enter(self, stage: str) -> None:
        """A stage begins."""
        self.stage = stage
        self.send(self.record("crash", Cause(stage)))

    def note(self, *words: str) -> None:
        """Something that a reader should know."""
        self.known["notes"] = (*self.known.get("notes", ()), *words)

    @contextmanager
    def timed(self, name: str, stage: str) -> Generator[None]:
        """A stage whose time is kept under a name of `Speed`."""
        self.enter(stage)
        started = time.perf_counter()
        yield
        self.speed[name] = time.perf_counter() - started

    @contextmanager
    def compiling(self) -> Generator[dict[str, float]]:
        """Inside, the backend's stages are entered, told and timed; outside of them torch traces."""
        self.enter("trace")
        self._clock = Clock(self.enter, "trace")
        with timing(self._clock):
            yield self._clock.seconds

    def record(self, status: Status, cause: Cause | None = None) -> Record:
        """The record as things stand."""
        job = self.job
        return Record(
            case=job.case,
            environment=job.environment,
            status=status,
            stage=self.stage,
            cause=cause,
            models=job.models,
            speed=Speed(**self.speed),
            **self.known,
        )

    def failed(self, error: Exception) -> Record:
        """The record of a case that ended with an exception."""
        cause = cause_of(error, self._clock.failed or self.stage)
        self.stage = cause.stage
        status = "unsupported" if isinstance(error, NotFound) else STATUS_AT[cause.stage]
        return self.record(status, cause)
