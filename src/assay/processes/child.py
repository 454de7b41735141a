"""What runs in a worker process: it sets itself up, finds its service, and answers requests until the line is closed.

The file is run by its path, with the standard library alone, also by another Python (3.8 or later). Its only argument
is a JSON object, see `Launch` in worker.py. With `preload` it becomes a nursery: it imports modules once and forks a
worker from itself whenever it is told to.
"""

from __future__ import annotations

import array
import contextlib
import faulthandler
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SHOW_STACK = signal.SIGUSR1
"""Makes a worker write the Python stacks of its threads to its stack file."""
STATUS = struct.Struct("<i")
"""How a nursery tells a process id, and how a process ended."""
DESCRIPTORS = ("line", "lifeline", "stack")
"""What a worker is given beside its standard streams."""
_GRACE = 0.5
_LONGEST_ORDER = 1 << 18


def main(given: dict[str, Any]) -> None:
    """Be a worker or a nursery."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    if given["path"] is not None:
        sys.path[:] = given["path"]
    for name in DESCRIPTORS:
        os.set_inheritable(given[name], False)
    if given["preload"] is None:
        _work(given)
        return
    die_with(given["lifeline"], os.getpid())
    order = _nurse(socket.socket(fileno=given["line"]), given["preload"])
    if order is not None:
        os.close(given["lifeline"])
        os.close(given["stack"])
        os.setsid()
        os.environ.update(order["environment"])
        _work(order)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # what the nursery registered to run at exit is for its own exit


# --- a worker


def _work(given: dict[str, Any]) -> None:
    """Serve until the line is closed."""
    die_with(given["lifeline"], -os.getpgrp())
    faulthandler.enable(given["stack"])
    faulthandler.register(SHOW_STACK, given["stack"])
    _limit(given["memory"], given["cpu"])
    wire = _wire(given["path"] is not None)
    line = wire.Connection(socket.socket(fileno=given["line"]), wire.PICKLED if given["pickled"] else wire.PLAIN)
    _, arguments = line.receive()
    try:
        handle = _entry_point(given["entry"])(*arguments)
    except Exception as error:
        line.send(wire.FAILED, _described(error), wire.PLAIN)
        return
    line.send(wire.READY, None)
    while _answered(wire, line, handle):
        pass


def _answered(wire: Any, line: Any, handle: Callable[[Any, Callable[[Any], None]], Any]) -> bool:
    """Answer one request; False if there will be none."""
    try:
        _, request = line.receive()
    except wire.Closed:
        return False
    try:
        line.send(wire.REPLY, handle(request, lambda message: line.send(wire.TOLD, message)))
    except Exception as error:
        line.send(wire.FAILED, _described(error), wire.PLAIN)
    return True


def _described(error: Exception) -> dict[str, str]:
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def _wire(of_package: bool) -> Any:
    """The module wire.py: of the package, or as `assay_wire` where there is no such package."""
    if of_package:
        return importlib.import_module("assay.processes.wire")
    del sys.path[0]  # the folder of this file, which is no place to import from
    return _loaded("assay_wire", Path(__file__).with_name("wire.py"))


def _entry_point(entry: str) -> Any:
    """What `module:name` or `file.py:name` names."""
    place, _, name = entry.rpartition(":")
    found: Any = _loaded(Path(place).stem, Path(place)) if place.endswith(".py") else importlib.import_module(place)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def die_with(lifeline: int, whom: int) -> None:
    """Kill a process, or a group (as a negative number), when nobody holds the other end of a pipe any more.

    On Linux the kernel does it, also to a process that hangs inside C code; elsewhere a thread.
    """
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(target=_kill_at_end, args=(lifeline, whom), daemon=True).start()
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, whom)
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if readable(lifeline, 0):  # it was closed before the kernel was told
        os._exit(1)


def readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the other end is closed, within some seconds."""
    return bool(_ready([descriptor], seconds))


def _ready(descriptors: list[int], seconds: float | None = None) -> list[int]:
    watched = select.poll()  # select itself takes small descriptors alone
    for each in descriptors:
        watched.register(each, select.POLLIN)
    return [found for found, _ in watched.poll(None if seconds is None else seconds * 1000)]


def _kill_at_end(lifeline: int, whom: int) -> None:
    os.read(lifeline, 1)
    os.kill(whom, signal.SIGKILL)


def _limit(memory: int | None, cpu: int | None) -> None:
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if cpu is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))  # SIGXCPU at the first


# --- the end of a worker, seen by who started it


def end_session(leader: int) -> None:
    """Kill what a worker that has died started; its own process is not reaped yet.

    Python's resource tracker is given a moment: it removes semaphores and shared memory that the worker left behind.
    """
    until = time.monotonic() + _GRACE
    while any(_members(leader)) and time.monotonic() < until:
        time.sleep(0.01)
    for each in _members(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)  # where there is no /proc


def _members(session: int) -> Iterator[int]:
    """The live processes of a session, without its leader."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX" and int(fields[3]) == session != int(place.name):
            yield int(place.name)


# --- a nursery


def _nurse(control: socket.socket, preload: list[str]) -> dict[str, Any] | None:
    """Fork a worker for each order and tell how each ends. In a worker: its order. In the nursery, at the end: None."""
    for name in preload:
        importlib.import_module(name)
    gc.freeze()
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in _ready([control.fileno(), *running]):
            if ready in running:
                _bury(ready, *running.pop(ready))
                continue
            data, descriptors = received(control)
            if not data:
                return None
            order: dict[str, Any] = json.loads(data)
            *given, output, status = descriptors
            worker = os.fork()
            if worker == 0:
                control.close()
                for pidfd, (_, other) in running.items():
                    os.close(pidfd)
                    os.close(other)
                for stream in (1, 2):
                    os.dup2(output, stream)
                os.close(output)
                os.close(status)
                return {**order, **{name: given[i] for i, name in enumerate(DESCRIPTORS)}}
            for each in (*given, output):
                os.close(each)
            os.write(status, STATUS.pack(worker))
            running[os.pidfd_open(worker)] = worker, status


def _bury(pidfd: int, worker: int, status: int) -> None:
    """Tell how a worker that has died ended."""
    os.close(pidfd)
    end_session(worker)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        os.write(status, STATUS.pack(code))
    os.close(status)


def received(control: socket.socket) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it."""
    found = array.array("i")
    data, extra, _, _ = control.recvmsg(_LONGEST_ORDER, socket.CMSG_SPACE(8 * found.itemsize), socket.MSG_CMSG_CLOEXEC)
    for _, _, each in extra:
        found.frombytes(each[: len(each) - len(each) % found.itemsize])
    return data, list(found)


if __name__ == "__main__":
    main(json.loads(sys.argv.pop()))
