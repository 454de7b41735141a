"""Processes that take jobs one after the other; one that dies or takes too long is a finding and is replaced."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, TypeAlias

from assay.evidence.attempts import exit_text

JOBS_PER_PROCESS = 150
"""After so many a new process is started: what dynamo keeps makes the old one large and slow."""

_FAREWELL = 5.0
"""Seconds that a process may take to end by itself."""

_ENVIRONMENT = {
    # oneDNN's AMX kernels end eager's bf16 products with an illegal instruction where the kernel denies the tile state.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
    # There are as many processes as cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

Serve: TypeAlias = Callable[[Connection], None]
"""What a process runs: `serving` around a function of one job."""


@dataclass(frozen=True, slots=True)
class Died:
    """A job whose process ended or was ended: how, and what it had said last that it was doing."""

    reason: str
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Doing:
    """What a job is at."""

    what: str


def serving(line: Connection, prepared: Callable[[], Callable[[Any, Callable[[str], None]], Any]]) -> None:
    """Answer the jobs that come along `line` until it is closed. `prepared` is called once, in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    os.environ.update(_ENVIRONMENT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # C++ warnings know no other way
    work = prepared()
    line.send(None)
    while True:
        try:
            job = line.recv()
        except EOFError:
            return
        try:
            answer = work(job, lambda what: line.send(Doing(what)))
        except Exception as error:  # a defect of the generator: it must not pass for a good run
            answer = Died("".join(traceback.format_exception(error)[-4:]))
        line.send(answer)


def run_jobs(serve: Serve, jobs: Sequence[Any], *, processes: int, timeout: float) -> Iterator[tuple[Any, Any]]:
    """Each job with its answer, or with `Died`, as they come. A job may take `timeout` seconds."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    stopped = threading.Event()
    threads = [
        threading.Thread(target=_worked, args=(serve, waiting, done, timeout, stopped), daemon=True)
        for _ in range(min(processes, len(jobs)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in jobs:
            yield done.get()
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _worked(serve: Serve, waiting: Any, done: Any, timeout: float, stopped: threading.Event) -> None:
    """One thread: a process that is kept for many jobs."""
    live: tuple[SpawnProcess, Connection] | None = None
    answered = 0
    while not stopped.is_set():
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        if live is None or answered == JOBS_PER_PROCESS:
            _end(live)
            live, answered = _start(serve), 0
        answer = _answer(*live, job, timeout, stopped)
        if isinstance(answer, Died):
            _end(live)
            live = None
        answered += 1
        done.put((job, answer))
    _end(live)


def _answer(process: SpawnProcess, line: Connection, job: Any, timeout: float, stopped: threading.Event) -> Any:
    doing = ""
    try:
        line.send(job)
        while _heard(line, timeout, stopped):
            answer = line.recv()
            if not isinstance(answer, Doing):
                return answer
            doing = answer.what
    except (EOFError, OSError):
        process.join()
        return Died(f"the process died with {exit_text(process.exitcode)}", doing)
    return Died(f"took longer than {timeout:g} s", doing)


def _heard(line: Connection, timeout: float, stopped: threading.Event) -> bool:
    """Whether something came within the time, and nobody wants to stop."""
    left = timeout
    while left > 0 and not stopped.is_set():
        if line.poll(min(left, 1.0)):
            return True
        left -= 1.0
    return False


def _start(serve: Serve) -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    ours.recv()
    return process, ours


def _end(live: tuple[SpawnProcess, Connection] | None) -> None:
    """End a process: one that waits for a job ends by itself and gives back its semaphores, any other is killed."""
    if live is not None:
        process, line = live
        line.close()
        process.join(_FAREWELL)
        process.kill()
        process.join()
