"""Many jobs on a few workers at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from assay.processes.endings import WorkerFailed
from assay.processes.worker import Worker


@dataclass(frozen=True, slots=True)
class Done:
    """A job and its reply, or the error instead of one and the last message that came before it."""

    job: Any
    reply: Any = None
    error: WorkerFailed | None = None
    last: Any = None


_Queue: TypeAlias = "queue.SimpleQueue[Any]"


def run_jobs(
    make: Callable[[], Worker], jobs: Sequence[Any], *, processes: int, jobs_per_process: int | None = None
) -> Iterator[Done]:
    """Ask workers for all jobs; each comes back as it is done. After `jobs_per_process` a worker's process is renewed.

    Who stops to listen ends all workers.
    """
    waiting, done = queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    for job in jobs:
        waiting.put(job)
    workers = [make() for _ in range(min(processes, len(jobs)))]
    threads = [
        threading.Thread(target=_work, args=(worker, waiting, done, jobs_per_process), daemon=True)
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in jobs:
            yield done.get()
    finally:
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join()


def _work(worker: Worker, waiting: _Queue, done: _Queue, jobs_per_process: int | None) -> None:
    """One thread: a worker that is asked job after job."""
    count = 0
    while not worker.closed:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        if jobs_per_process is not None and count == jobs_per_process:
            worker.stop()
            count = 0
        done.put(_done(worker, job))
        count += 1


def _done(worker: Worker, job: Any) -> Done:
    last: list[Any] = [None]
    try:
        return Done(job, worker.ask(job, on_message=lambda message: last.__setitem__(0, message)))
    except WorkerFailed as error:
        return Done(job, error=error, last=last[0])
