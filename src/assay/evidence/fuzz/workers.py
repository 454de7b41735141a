"""Processes that take jobs one after the other; one that dies or takes too long is a finding and is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.processes import Handler, Worker, WorkerLimits, run_jobs

JOBS_PER_PROCESS = 150
"""After so many a new process is started: what dynamo keeps makes the old one large and slow."""

_ENVIRONMENT = {
    # oneDNN's AMX kernels end eager's bf16 products with an illegal instruction where the kernel denies the tile state.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
    # There are as many processes as cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class JobDied:
    """A job without an answer: why, and what it had said last that it was doing."""

    reason: str
    doing: str = ""


def answers(
    service: Callable[[], Handler], jobs: Sequence[Any], *, processes: int, timeout: float
) -> Iterator[tuple[Any, Any]]:
    """Each job with its answer, or with `JobDied`, as they come. A job may be silent for `timeout` seconds."""

    def made() -> Worker:
        return Worker(service, limits=WorkerLimits(silence=timeout), pickled=True, environment=_ENVIRONMENT)

    for done in run_jobs(made, jobs, processes=processes, jobs_per_process=JOBS_PER_PROCESS):
        # What the service raises is a defect of the generator: it must not pass for a good run.
        died = done.error and JobDied(done.error.traceback or done.error.reason, done.last or "")
        yield done.job, died or done.reply
