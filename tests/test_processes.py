"""Worker processes: whatever happens to one is a typed error, and nothing of it stays behind."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import process_services as services
import pytest

from assay.errors import AssayError, BadArgument
from assay.ir import dtypes
from assay.ops.samples import draw
from assay.processes import Nursery, Worker, WorkerDied, WorkerLimits, WorkerRaised, run_jobs, wire

FILE = services.__file__
SMALL = wire.SHARED // 8  # f64 elements from which on an array travels in shared memory


@pytest.fixture
def deadly() -> Iterator[Worker]:
    with Worker(services.deadly, limits=WorkerLimits(seconds=30)) as worker:
        yield worker


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(["numpy"])
    yield nursery
    nursery.close()


def interpreters() -> list[str]:
    """Other Pythons on this machine, one of each version."""
    found: dict[str, str] = {}
    for minor in (8, 9, 10, 12, 13, 14):
        ours = map(str, Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python3"))
        for path in filter(None, (*ours, shutil.which(f"python3.{minor}"))):
            told = subprocess.run(
                [path, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True
            )
            if told.stdout.strip() == str(minor):
                found.setdefault(f"3.{minor}", path)
    return list(found.values())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(*pids: int, seconds: float = 10.0) -> bool:
    """Whether all processes end within some seconds."""
    return eventually(lambda: not any(map(alive, pids)), seconds)


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return False


def died(worker: Worker, *request: Any) -> WorkerDied:
    with pytest.raises(WorkerDied) as caught:
        worker.ask(request, what=str(request[0]))
    return caught.value


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


# --- the wire

PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**200),
    1.5,
    float("inf"),
    -0.0,
    1 - 2j,
    "",
    "héllo \ud800",
    b"",
    b"\x00\xff",
    b"x" * (2 * wire.SHARED),
    [],
    (),
    {},
    [1, [2.0, ["three"]], (4, None)],
    {"a": 1, 2: (3, {b"k": False})},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:30])
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    body, buffers = wire.encode(value)
    found = wire.decode(memoryview(body), buffers)
    assert repr(found) == repr(value)


def test_a_nan_comes_back() -> None:
    body, buffers = wire.encode(float("nan"))
    assert np.isnan(wire.decode(memoryview(body), buffers))


def test_the_encoding_has_every_dtype() -> None:
    assert {each.numpy.name for each in dtypes.ALL} == {*wire.DTYPES, "object"}


SHAPES = [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]


@pytest.fixture(scope="module")
def echo() -> Iterator[Worker]:
    with Worker(services.echo, limits=WorkerLimits(seconds=60)) as worker:
        yield worker


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_arrays_of_every_dtype(dtype: dtypes.DType, echo: Worker) -> None:
    rng = np.random.default_rng(0)
    arrays = [draw(rng, dtype, shape) for shape in SHAPES]
    arrays += [draw(rng, dtype, (4, 6)).T, draw(rng, dtype, (6, 6))[::2, ::-1]]
    for array, found in zip(arrays, echo.ask(arrays), strict=True):
        same(array, found)


def same(array: Any, found: Any) -> None:
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tolist() == array.tolist() if array.dtype == object else found.tobytes() == array.tobytes()
    assert found.flags.writeable
    assert found.flags.c_contiguous
    assert found.flags.aligned


def test_large_arrays(echo: Worker) -> None:
    rng = np.random.default_rng(0)
    sizes = (SMALL - 1, SMALL, 3 * SMALL + 5)
    arrays = [rng.random(size) for size in sizes] + [
        rng.random((3000, 1000)).T[::2],
        np.ones(8 << 20, ml_dtypes.bfloat16),
    ]
    found = echo.ask({"arrays": arrays, "small": np.arange(3)})
    for array, other in zip(arrays, found["arrays"], strict=True):
        same(array, other)
        other[...] = 0  # it is ours: what was sent stays
    assert arrays[1].any()
    same(np.arange(3), found["small"])


def test_scalars_and_other_byte_orders(echo: Worker) -> None:
    found = echo.ask((np.float32(2.5), np.arange(3, dtype=">i4"), ml_dtypes.bfloat16(3)))
    assert type(found[0]) is np.float32
    assert found[1].tolist() == [0, 1, 2]
    assert found[1].dtype == np.dtype("i4")
    assert found[2] == 3


def test_arrays_are_copied_where_descriptors_run_out(monkeypatch: pytest.MonkeyPatch, echo: Worker) -> None:
    def mappings() -> list[str]:
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:assay " in f"{line} "]

    kept = echo.ask(np.ones(SMALL))
    assert mappings()
    del kept
    gc.collect()
    monkeypatch.setattr(wire.resource, "getrlimit", lambda kind: (8, 8))
    kept = echo.ask(np.ones(SMALL))
    assert not mappings()
    assert kept.sum() == SMALL
    assert kept.flags.writeable


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, np.array([object()]), np.zeros(2, "M8[s]"), np.zeros(2, "U3"), [[{"a": (1).__add__}]]]
)
def test_what_is_no_plain_data_is_refused(value: Any, echo: Worker) -> None:
    echo.start()
    before = echo.pid
    with pytest.raises(BadArgument, match="no plain data") as caught:
        echo.ask(value, what="this one")
    assert caught.value.where == "this one"
    assert (echo.ask(1), echo.pid) == (1, before)


def test_what_contains_itself_is_refused(echo: Worker) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BadArgument, match="nested too deeply"):
        echo.ask(value)


def frame(body: bytes, *, magic: bytes = b"AsW1", kind: int = wire.REPLY, codec: int = 0, count: int = 0) -> bytes:
    return struct.pack("<4sBBHIQ", magic, kind, codec, 0, count, len(body)) + body


MALFORMED = {
    "other": b"HTTP/1.1 200 OK\r\n\r\n........",
    "magic": frame(b"n", magic=b"AsW0"),
    "kind": frame(b"n", kind=9),
    "no error": frame(b"n", kind=wire.FAILED),
    "no reply": frame(b"n", kind=wire.READY),
    "codec": frame(b"N.", codec=1),
    "no codec": frame(b"N.", codec=7),
    "many buffers": frame(b"", count=1 << 30),
    "long": struct.pack("<4sBBHIQ", b"AsW1", 3, 0, 0, 0, 1 << 60),
    "no tag": frame(b"\xff"),
    "empty": frame(b""),
    "short": frame(b"i\x00"),
    "text": frame(b"s" + struct.pack("<Q", 100) + b"abc"),
    "bytes": frame(b"s" + struct.pack("<Q", 1) + b"\xff"),
    "count": frame(b"l" + struct.pack("<Q", 1 << 62)),
    "after": frame(b"nn"),
    "key": frame(b"m" + struct.pack("<Q", 1) + b"l" + struct.pack("<Q", 0) + b"n"),
    "no buffer": frame(b"a" + struct.pack("<Q", 5)),
    "deep": frame((b"l" + struct.pack("<Q", 1)) * 100_000),
    "outside": frame(struct.pack("<Qq", 100, 0) + b"n", count=1).replace(
        struct.pack("<Q", 17), struct.pack("<Q", 1), 1
    ),
    "inline too large": struct.pack("<4sBBHIQ", b"AsW1", 3, 0, 0, 1, 1) + struct.pack("<Qq", 1 << 40, -1) + b"n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frames_are_typed_errors(data: bytes, deadly: Worker) -> None:
    started = time.monotonic()
    error = died(deadly, "write", data, True)
    assert error.ending.how == "protocol"
    assert time.monotonic() - started < 15
    assert deadly.ask(("garbage",)) == "fine"


def test_half_a_frame_is_no_hang() -> None:
    with Worker(services.deadly, limits=WorkerLimits(seconds=0.5)) as worker:
        assert died(worker, "write", frame(b"nnnn")[:-2], True).ending.how == "time"


def test_random_bodies_are_typed_errors() -> None:
    rng = np.random.default_rng(0)
    right = bytes(wire.encode([1, "two", {"three": (4.0, b"five")}, np.arange(6)])[0])
    for _ in range(2000):
        body = bytearray(right)
        for at in rng.integers(0, len(body), 3):
            body[at] = rng.integers(0, 256)
        with suppress(wire.BadFrame):
            wire.decode(memoryview(body), [memoryview(bytearray(48))])


def test_what_a_worker_prints_does_not_disturb(deadly: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    assert deadly.ask(("garbage",)) == "fine"
    assert capfd.readouterr() == ("", "")
    with Worker(services.deadly, shown=True) as shown:
        assert shown.ask(("garbage",)) == "fine"
    out, err = capfd.readouterr()
    assert out == ""
    assert "garbage" in err


def test_pickles_where_both_ends_agree() -> None:
    value = {"a": frozenset({1}), "b": np.arange(SMALL * 2.0), "c": Path("x")}
    with Worker(services.echo, pickled=True) as worker:
        found = worker.ask(value)
    assert (found["a"], found["c"]) == (value["a"], value["c"])
    same(value["b"], found["b"])


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
