"""Where jobs run: a small protocol. Local processes by default; Ray for many machines."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Protocol

from assay.errors import NotFound, hint_for
from assay.evidence.records import Record
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.reproducers import run_with_reproducer
from assay.needs import require


class Executor(Protocol):
    """Runs jobs, several at once."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """The record of every job, in the order in which they end."""
        ...


class LocalProcesses:
    """Jobs on this machine, `workers` at a time."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """The record of every job, in the order in which they end."""
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="sweep")
        stop = threading.Event()
        try:
            for future in as_completed([pool.submit(run_with_reproducer, job, stop.is_set) for job in jobs]):
                yield future.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


class RayCluster:
    """Jobs on the machines of a Ray cluster: the one of `RAY_ADDRESS`, else one that is started here."""

    def __init__(self, workers: int) -> None:
        require("ray")
        self._ray: Any = importlib.import_module("ray")
        self._workers = workers

    def run(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """The record of every job, in the order in which they end."""
        ray = self._ray
        if not ray.is_initialized():
            ray.init(num_cpus=self._workers, include_dashboard=False, log_to_driver=False)
        remote = ray.remote(num_cpus=1)(run_with_reproducer)
        waiting = [remote.remote(job) for job in jobs]
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(done[0])


EXECUTORS: dict[str, Callable[[int], Executor]] = {"local": LocalProcesses, "ray": RayCluster}
"""Makers of executors by name; they are given the number of workers."""


def make_executor(name: str, workers: int) -> Executor:
    """The executor called `name`; NotFound if there is none."""
    if name not in EXECUTORS:
        raise NotFound(f"there is no executor '{name}'", hint=hint_for(name, EXECUTORS))
    return EXECUTORS[name](workers)
