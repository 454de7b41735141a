"""Workers end, by themselves or by a limit, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import process_services as services
import pytest
from processes.common import FILE, SMALL, alive, died, gone

from assay.errors import AssayError, BadArgument
from assay.processes import Worker, WorkerDied, WorkerLimits, WorkerRaised

# --- how a worker ends


def test_death_by_a_signal(deadly: Worker) -> None:
    error = died(deadly, "abort")
    assert (error.ending.how, error.ending.number, error.ending.signal_name) == ("signal", 6, "SIGABRT")
    assert error.reason == "the process died with signal 6"
    assert error.where == "abort"
    assert "process_services.py" in error.ending.stack
    assert isinstance(error, AssayError)


def test_death_by_an_exit_tells_the_last_words_of_this_request(deadly: Worker) -> None:
    deadly.ask(("garbage",))
    error = died(deadly, "exit", 7)
    assert (error.ending.how, error.ending.number) == ("exit", 7)
    assert error.ending.said == "first\nlast words"
    assert error.ending.last_line == "last words"
    assert "last words" in str(error)


@pytest.mark.parametrize("in_c", [False, True])
def test_one_that_hangs_is_killed_in_time(in_c: bool) -> None:
    with Worker(services.deadly, limits=WorkerLimits(seconds=0.5)) as worker:
        worker.start()
        pid = worker.pid
        started = time.monotonic()
        error = died(worker, "hang", in_c)
        assert time.monotonic() - started < 5
    assert pid is not None
    assert gone(pid, seconds=0.1)
    assert (error.ending.how, error.reason) == ("time", "took longer than 0.5 s")
    assert "_hang" in error.ending.stack


def test_silence_and_the_whole_request_have_limits_of_their_own() -> None:
    with Worker(services.deadly, limits=WorkerLimits(silence=1.5)) as worker:
        assert worker.ask(("messages", 4, 0.6)) == "end"  # longer than 1.5 s, but never silent for so long
        assert died(worker, "messages", 1, 60.0).reason == "took longer than 1.5 s"
    with Worker(services.deadly, limits=WorkerLimits(seconds=1.0)) as worker:
        assert died(worker, "messages", 100, 0.05).reason == "took longer than 1 s"


def test_one_that_cannot_start_in_time() -> None:
    with (
        Worker("time:sleep", 100, limits=WorkerLimits(start=0.5)) as worker,
        pytest.raises(WorkerDied, match="longer than"),
    ):
        worker.ask(1)


def test_too_much_resident_memory() -> None:
    with Worker(services.deadly, limits=WorkerLimits(seconds=30, resident=300 << 20)) as worker:
        assert worker.ask(("allocate", 1 << 20)) == 1 << 20
        error = died(worker, "allocate", 600 << 20)
    assert (error.ending.how, error.ending.number) == ("memory", 300 << 20)


def test_too_much_address_space_is_a_memory_error_there() -> None:
    with Worker(services.deadly, limits=WorkerLimits(address_space=2 << 30)) as worker:
        with pytest.raises(WorkerRaised) as caught:
            worker.ask(("allocate", 4 << 30))
        assert caught.value.kind == "MemoryError"
        assert worker.ask(("allocate", 1 << 20)) == 1 << 20


def test_too_much_cpu_time() -> None:
    with Worker(services.deadly, limits=WorkerLimits(cpu=2, seconds=60)) as worker:
        assert died(worker, "burn").ending.signal_name == "SIGXCPU"


def test_an_error_of_the_service_is_told_and_the_process_lives_on(deadly: Worker) -> None:
    deadly.start()
    before = deadly.pid
    with pytest.raises(WorkerRaised, match="ValueError: no luck") as caught:
        deadly.ask(("raise", "no luck"))
    assert (caught.value.kind, caught.value.text) == ("ValueError", "no luck")
    assert "_raise" in caught.value.traceback
    with pytest.raises(WorkerRaised, match=r"CannotSend: a builtins\.object"):
        deadly.ask(("object",))
    assert deadly.ask(("pid",)) == before


def test_services_that_cannot_be_set_up() -> None:
    with Worker(services.broken) as worker, pytest.raises(WorkerRaised, match="LookupError: no such device"):
        worker.ask(1)
    with Worker(services.dead) as worker, pytest.raises(WorkerDied, match=r"exit code 4\nout of luck"):
        worker.ask(1)
    with Worker("no.such:thing") as worker, pytest.raises(WorkerRaised, match="ModuleNotFoundError"):
        worker.ask(1)
    with pytest.raises(BadArgument, match="cannot import"):
        Worker(lambda: services.echo())
    with pytest.raises(BadArgument, match="this interpreter"):
        Worker(f"{FILE}:echo", python="/usr/bin/python3", pickled=True)


def test_the_next_request_starts_another_process(deadly: Worker) -> None:
    first = deadly.ask(("pid",))
    died(deadly, "kill")
    second = deadly.ask(("pid",))
    assert second != first
    os.kill(second, signal.SIGKILL)  # while nobody asks
    assert gone(second)
    assert deadly.ask(("pid",)) not in (first, second)


def test_a_death_is_seen_though_a_fork_holds_the_wire(deadly: Worker) -> None:
    started = time.monotonic()
    error = died(deadly, "fork")
    assert (error.ending.how, error.ending.number) == ("exit", 5)
    assert time.monotonic() - started < 10


# --- what it leaves behind


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("end", ["close", "death", "time"])
def test_what_a_worker_started_ends_with_it(end: str, group: bool) -> None:
    with Worker(services.deadly, limits=WorkerLimits(seconds=2)) as worker:
        child = worker.ask(("child", group))
        assert alive(child)
        if end != "close":
            died(worker, "kill" if end == "death" else "hang")
            assert gone(child)
    assert gone(child)


PARENT = """
import sys, time
from assay.processes import Nursery, Worker, WorkerLimits
import process_services as services
worker = Worker(services.deadly, nursery=Nursery(["json"]) if sys.argv[1] == "forked" else None)
print(worker.ask(("pid",)), worker.ask(("child",)), flush=True)
{then}
"""


def parent(kind: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process with a worker that has a child; the numbers of both."""
    path = os.pathsep.join([str(Path(FILE).parent), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then), kind],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


@pytest.mark.parametrize("kind", ["started", "forked"])
@pytest.mark.parametrize("request_", ["time.sleep(100)", "worker.ask(('hang', True))"])
def test_workers_and_their_children_end_with_a_parent_that_is_killed(kind: str, request_: str) -> None:
    process, pids = parent(kind, request_)
    try:
        assert len(pids) == 2
        assert all(map(alive, pids))
        time.sleep(0.5)
        process.kill()
        assert gone(*pids)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", ["started", "forked"])
def test_ctrl_c_ends_a_request_and_its_worker(kind: str) -> None:
    process, pids = parent(kind, "worker.ask(('hang',))")
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in said
    assert "ResourceWarning" not in said
    assert gone(*pids)


@pytest.mark.parametrize("kind", ["started", "forked"])
def test_a_parent_that_forgets_its_worker_ends_in_peace(kind: str) -> None:
    process, pids = parent(kind, "worker.ask(('semaphore',))")
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "")
    assert gone(*pids)


def test_a_worker_ignores_ctrl_c(deadly: Worker) -> None:
    pid = deadly.ask(("pid",))
    deadly.ask(("interrupt",))
    assert deadly.ask(("pid",)) == pid


def test_semaphores_of_a_worker_that_is_killed_are_removed(deadly: Worker) -> None:
    name = deadly.ask(("semaphore",))
    place = Path("/dev/shm", f"sem.{name.lstrip('/')}")
    assert place.exists()
    died(deadly, "kill")
    assert not place.exists()


def test_nothing_is_leaked(capfd: pytest.CaptureFixture[str]) -> None:
    def held() -> tuple[list[str], list[str], int]:
        gc.collect()
        return sorted(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm")), threading.active_count()

    with Worker(services.deadly, limits=WorkerLimits(seconds=30)) as warm:
        warm.ask(("pid",))
    before = held()
    with Worker(services.echo, limits=WorkerLimits(seconds=30)) as worker:
        worker.ask(0)
        open_here, open_there = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{worker.pid}/fd"))
        for i in range(200):
            assert worker.ask(np.zeros(SMALL + i)).shape == (SMALL + i,)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == open_here
        assert len(os.listdir(f"/proc/{worker.pid}/fd")) <= open_there + 1
    with Worker(services.deadly, limits=WorkerLimits(seconds=30)) as worker:
        for _ in range(3):
            died(worker, "abort")
    assert held() == before
    assert capfd.readouterr() == ("", "")
