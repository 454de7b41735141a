"""Requests to workers: messages, threads, several workers, forks and other interpreters."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import process_services as services
import pytest
from processes.common import FILE, SMALL, died, gone, interpreters, same

from assay.processes import Nursery, Worker, WorkerDied, WorkerLimits, WorkerRaised, run_jobs

# --- talking


def test_messages_come_before_the_reply(deadly: Worker) -> None:
    seen: list[int] = []
    assert deadly.ask(("messages", 5, 0.0), told=seen.append) == "end"
    assert seen == [0, 1, 2, 3, 4]


class _Enough(Exception):
    """What a caller raises."""


@pytest.mark.parametrize("error", [_Enough, EOFError, ConnectionResetError, KeyboardInterrupt])
def test_what_the_caller_raises_ends_the_worker_and_is_raised(error: type[BaseException], deadly: Worker) -> None:
    def raising(message: Any = None) -> None:
        if message is None or message == 1:
            raise error

    deadly.start()
    pid = deadly.pid
    assert pid is not None
    with pytest.raises(error):
        deadly.ask(("messages", 100, 0.1), told=raising)
    assert gone(pid, seconds=0.1)
    deadly.start()
    with pytest.raises(error):
        deadly.ask(("hang",), watch=raising)
    assert deadly.ask(("garbage",)) == "fine"


def test_threads_take_turns() -> None:
    with Worker(services.echo) as worker, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(worker.ask, range(200))) == list(range(200))


def test_closing_from_another_thread_ends_a_request(deadly: Worker) -> None:
    deadly.start()
    threading.Timer(0.3, deadly.close).start()
    started = time.monotonic()
    assert died(deadly, "hang").ending.how == "stopped"
    assert time.monotonic() - started < 5
    assert deadly.closed
    assert died(deadly, "pid").ending.how == "stopped"


def test_arguments_and_the_environment_reach_the_service() -> None:
    with Worker(services.begun, 1, ("two",), environment={"PYTHONHASHSEED": "7"}) as worker:
        found = worker.ask(None)
        assert found["arguments"] == (1, ("two",))
        assert found["pid"] == worker.pid
        assert b"PYTHONHASHSEED=7" in Path(f"/proc/{worker.pid}/environ").read_bytes()


def test_jobs_on_several_workers() -> None:
    jobs = [("pid",), ("abort",), ("garbage",), ("raise", "no"), *[("pid",)] * 8]
    done = list(run_jobs(lambda: Worker(services.deadly), jobs, processes=2, jobs_per_process=3))
    assert sorted(each.job for each in done) == sorted(jobs)
    errors = {each.job[0]: each.error.reason for each in done if each.error}
    assert errors == {"abort": "the process died with signal 6", "raise": "ValueError: no"}
    assert len({each.reply for each in done if each.job == ("pid",)}) >= 3


def test_who_stops_to_listen_ends_the_workers() -> None:
    workers: list[Worker] = []

    def made() -> Worker:
        workers.append(Worker(services.deadly))
        return workers[-1]

    done = run_jobs(made, [("pid",), ("hang",), ("hang",)], processes=2)
    pid = next(done).reply
    done.close()  # type: ignore[attr-defined]
    assert gone(pid)
    assert all(worker.closed and worker.pid is None for worker in workers)


# --- forks of a process that has imported what they need


def test_forked_workers(nursery: Nursery) -> None:
    with Worker(services.deadly, limits=WorkerLimits(seconds=2), nursery=nursery) as worker:
        first = worker.ask(("pid",))
        assert os.getsid(first) == first
        child = worker.ask(("child",))
        assert died(worker, "abort").ending.signal_name == "SIGABRT"
        assert gone(child)
        assert died(worker, "exit", 3).ending.said == "first\nlast words"
        error = died(worker, "hang")
        assert error.ending.how == "time"
        assert "_hang" in error.ending.stack
        last = worker.ask(("pid",))
    assert gone(first, last)


@pytest.mark.parametrize("forked", [False, True])
def test_with_many_files_open(forked: bool, nursery: Nursery) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2000:
        pytest.skip("so many files may not be open here")
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with Worker(services.deadly, nursery=nursery if forked else None) as worker:
            assert died(worker, "exit", 3).ending.number == 3
            assert worker.ask(("garbage",)) == "fine"
    finally:
        for each in opened:
            os.close(each)


def test_a_nursery_that_dies_is_started_again() -> None:
    nursery = Nursery(["json"])
    with Worker(services.deadly, nursery=nursery) as worker:
        pid = worker.ask(("pid",))
        above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(above, signal.SIGKILL)
        assert gone(above)
        assert isinstance(worker.ask(("pid",)), int)
    nursery.close()


def test_a_nursery_that_cannot_import() -> None:
    with (
        Worker(services.echo, nursery=Nursery(["no_such_module"])) as worker,
        pytest.raises(WorkerDied, match="No module named 'no_such_module'"),
    ):
        worker.ask(1)


# --- another interpreter


@pytest.fixture(params=interpreters() or [None], ids=lambda path: str(path))
def other(request: pytest.FixtureRequest) -> str:
    if request.param is None:
        pytest.skip("there is no other Python on this machine")
    return request.param


def test_another_interpreter(other: str) -> None:
    with Worker(f"{FILE}:begun", "x", python=other, limits=WorkerLimits(seconds=60)) as worker:
        found = worker.ask({"n": 2**70})
        assert found["arguments"] == ("x",)
        assert found["version"] != list(sys.version_info[:2])
    with Worker(f"{FILE}:deadly", python=other, limits=WorkerLimits(seconds=5)) as worker:
        child = worker.ask(("child",))
        assert died(worker, "abort").ending.signal_name == "SIGABRT"
        assert gone(child)
        assert worker.ask(("garbage",)) == "fine"
        assert died(worker, "hang").ending.how == "time"
        assert died(worker, "write", b"garbage" * 10, True).ending.how == "protocol"
        with pytest.raises(WorkerRaised, match="ValueError: no"):
            worker.ask(("raise", "no"))


def test_arrays_in_another_interpreter(other: str) -> None:
    with Worker(f"{FILE}:elements", python=other, limits=WorkerLimits(seconds=60)) as worker:
        for array in (
            np.arange(6, dtype=np.float32).reshape(2, 3).T,
            np.ones((2, 0)),
            np.array(3, np.int16),
            np.array([1.5, -2], ml_dtypes.bfloat16),
            np.arange(2.0 * SMALL),
        ):
            _, name, shape, data, back = worker.ask(array)
            assert (name, tuple(shape)) == (array.dtype.name, array.shape)
            assert data == array.tobytes()
            same(array, back)
