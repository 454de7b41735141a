"""A worker process as its parent holds it: how it is started, how it is seen to end, how it is ended."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from assay.processes import child
from assay.processes.endings import Ending, How, WorkerDied

_TAIL = 4096
_LINES = 20
"""What is kept of what a worker printed."""
_WAIT, _LOOK = 0.01, 0.1
_PATIENCE_FOR_STACK = 1.0
_PATIENCE_FOR_DEATH = 10.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What a process gets when it starts. `path` is None for another interpreter than this one."""

    entry: str = ""
    path: Sequence[str] | None = None
    pickled: bool = False
    memory: int | None = None
    cpu: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    preload: Sequence[str] | None = None

    def text(self, **descriptors: int) -> str:
        """The launch as JSON; a nursery fills in the descriptors."""
        names = ("entry", "path", "pickled", "memory", "cpu", "preload")
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        return json.dumps({**fields, "environment": dict(self.environment), **descriptors})


def import_path() -> list[str]:
    """Where this process imports from."""
    return [str(each) for each in sys.path]


class Handle(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def ended(self, seconds: float) -> int | None:
        """The exit code (the negative number of a signal) if it ends within some seconds. What it started ends too."""
        ...


class _Spawned:
    """A child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid
        self._code: int | None = None

    def ended(self, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while self._code is None:
            if self._dead():
                child.end_session(self.pid)  # before it is reaped: so long nobody else can have its number
                self._code = self._process.wait()
            elif time.monotonic() >= until:
                break
            else:
                time.sleep(_WAIT)
        return self._code

    def _dead(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True


class _Forked:
    """A child of a nursery, which writes to a pipe how it ended."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self._status = pid, status
        self._code: int | None = None

    def ended(self, seconds: float) -> int | None:
        if self._code is None and child.readable(self._status, seconds):
            status = os.read(self._status, child.STATUS.size)
            self._code = child.STATUS.unpack(status)[0] if status else self._orphaned()
            os.close(self._status)
        return self._code

    def _orphaned(self) -> int:
        """The nursery died, so nobody knows any more."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return -signal.SIGKILL


@dataclass(slots=True)
class Running:
    """A process, the pipe whose end is its end, and the files that it prints to and shows its stack in."""

    handle: Handle
    line: socket.socket
    lifeline: int
    output: IO[bytes] | None
    stack: IO[bytes]
    owner: int = field(default_factory=os.getpid)

    def forget_output(self) -> None:
        """What was printed before does not matter any more."""
        if self.output is not None:
            os.ftruncate(self.output.fileno(), 0)

    def ending(self, how: How, number: float = 0, detail: str = "") -> Ending:
        """The ending of this process for a reason of ours; of one that is late or too large its stack is asked for."""
        if how in ("time", "memory"):
            self._ask_for_stack()
        return Ending(how, number, _last_lines(self.output), _read(self.stack), detail)

    def death(self) -> Ending:
        """How it ended, now that it does not answer any more."""
        code = self.handle.ended(_PATIENCE_FOR_DEATH)
        if code is None:
            return self.ending("protocol", detail="it closed its line and went on")
        return self.ending("signal", -code) if code < 0 else self.ending("exit", code)

    def end(self, patience: float = 0.0) -> None:
        """End the process and what it started, by force if it does not end by itself within some seconds."""
        if os.getpid() != self.owner:  # in a fork of the parent: it is not ours
            return
        with suppress(OSError):
            self.line.shutdown(socket.SHUT_WR)
        if self.handle.ended(patience) is None:
            with suppress(ProcessLookupError):
                os.kill(self.handle.pid, signal.SIGKILL)
            self.handle.ended(_PATIENCE_FOR_DEATH)
        self.line.close()
        os.close(self.lifeline)
        self.stack.close()
        if self.output is not None:
            self.output.close()

    def _ask_for_stack(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.handle.pid, child.SHOW_STACK)
        until, before = time.monotonic() + _PATIENCE_FOR_STACK, ""
        while time.monotonic() < until:
            time.sleep(5 * _WAIT)
            now = _read(self.stack)
            if now and now == before:
                return
            before = now


def start(
    launch: Launch, python: str, shown: bool, nursery: Nursery | None, waiting: Callable[[], None] = lambda: None
) -> Running:
    """A new process, in a session of its own. `waiting` is called now and then; what it raises is raised."""
    ours, theirs = socket.socketpair()
    kept, lifeline = os.pipe()
    output, stack = None if shown else _file(), _file()
    given = (theirs.fileno(), kept, stack.fileno())
    try:
        if nursery is None:
            handle: Handle = _Spawned(_spawn(launch, python, given, output, new_session=True))
        else:
            handle = nursery.fork(launch, (*given, 2 if output is None else output.fileno()), waiting)
    except BaseException:
        ours.close()
        stack.close()
        os.close(lifeline)
        if output is not None:
            output.close()
        raise
    finally:
        theirs.close()
        os.close(kept)
    return Running(handle, ours, lifeline, output, stack)


def _spawn(
    launch: Launch, python: str, given: Sequence[int], output: IO[bytes] | None, new_session: bool
) -> subprocess.Popen[bytes]:
    """Start child.py. Standard output goes where standard error goes: a worker never prints between our lines."""
    text = launch.text(**{name: given[i] for i, name in enumerate(child.DESCRIPTORS)})
    inherited = dict(os.environ)
    if launch.path is None:  # what was set for this Python is not for another one
        inherited = {name: value for name, value in inherited.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.Popen(
        [python or sys.executable, child.__file__, text],
        stdin=subprocess.DEVNULL,
        stdout=2 if output is None else output,
        stderr=None if output is None else output,
        env={**inherited, **launch.environment},
        pass_fds=given,
        start_new_session=new_session,
    )


class Nursery:
    """A process that has imported modules, so that workers which need them are forked from it at once.

    It starts with its first worker and ends with `close` or with this process. Its workers see what those modules did
    to the environment. Safe for several threads.
    """

    def __init__(self, preload: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._launch = Launch(path=import_path(), preload=tuple(preload), environment=environment or {})
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._ends: weakref.finalize[..., Nursery] | None = None

    @staticmethod
    def possible() -> bool:
        """Whether this system can have one; Linux can."""
        return hasattr(os, "pidfd_open")

    def fork(self, launch: Launch, descriptors: Sequence[int], waiting: Callable[[], None]) -> Handle:
        """A new worker; WorkerDied if the modules cannot be imported."""
        with self._lock:
            running = self._running = self._alive() or self._start()
            heard, written = os.pipe()
            try:
                order = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*descriptors, written]))]
                with suppress(OSError):  # a nursery that is dead says nothing below
                    running.line.sendmsg([launch.text().encode()], order)
                os.close(written)
                while not child.readable(heard, _LOOK):
                    waiting()
                pid = os.read(heard, child.STATUS.size)
            except BaseException:
                os.close(heard)
                raise
            if pid:
                return _Forked(child.STATUS.unpack(pid)[0], heard)
            os.close(heard)
            ending = running.death()
            self._end()
            raise WorkerDied(ending, f"import of {', '.join(self._launch.preload or ())}")

    def close(self) -> None:
        """End the process; its workers live on."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._ends is not None:
            self._ends()
        self._running = self._ends = None

    def _alive(self) -> Running | None:
        if self._running is not None and self._running.handle.ended(0) is not None:
            self._end()
        return self._running

    def _start(self) -> Running:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept, lifeline = os.pipe()
        output, stack = _file(), _file()
        given = (theirs.fileno(), kept, stack.fileno())
        try:
            process = _spawn(self._launch, "", given, output, new_session=False)
        finally:
            theirs.close()
            os.close(kept)
        running = Running(_Spawned(process), ours, lifeline, output, stack)
        self._ends = weakref.finalize(self, running.end)
        return running


def _file() -> IO[bytes]:
    """A file without a name. Writers append, so that it can be cut while they write."""
    with tempfile.NamedTemporaryFile(prefix="assay-") as named:
        return Path(named.name).open("a+b", buffering=0)


def _read(file: IO[bytes]) -> str:
    """The end of a file; the place where others write does not move."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), 16 * _TAIL, max(0, size - 16 * _TAIL)).decode(errors="replace")


def _last_lines(file: IO[bytes] | None) -> str:
    return "\n".join(_read(file)[-_TAIL:].rstrip().splitlines()[-_LINES:]) if file is not None else ""
