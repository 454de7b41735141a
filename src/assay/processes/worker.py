"""A worker: requests go to a process of its own, and whatever happens to it is a typed error here."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from assay.errors import BadArgument
from assay.memory import stated
from assay.processes import wire
from assay.processes.endings import Ending, How, WorkerDied, WorkerRaised
from assay.processes.running import Handle, Launch, Nursery, Running, import_path, start

Tell: TypeAlias = Callable[[Any], None]
Handler: TypeAlias = Callable[[Any, Tell], Any]
"""Answers a request; messages on the way go to the function that it is given."""

_LOOK = 0.1
"""Seconds between two looks at a process that is silent."""
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What a worker may take; None is no limit. Its end comes up to a tenth of a second after it broke one."""

    start: float | None = 600.0
    """Seconds until it can be asked."""
    seconds: float | None = None
    """Seconds for a request."""
    silence: float | None = None
    """Seconds between two messages of a request."""
    resident: int | None = None
    """Bytes in memory."""
    address_space: int | None = None
    """Bytes of address space: what it asks for beyond them is a MemoryError there."""
    cpu: int | None = None
    """Seconds of CPU time of the process; then it dies of SIGXCPU."""


class Worker:
    """A service in a process of its own, which is started by the first request and again by the first after its death.

    `service` is called once in the process, with `arguments`, and gives the `Handler` of requests. It is a function of
    a module that the process can import, or `module:name`, or `file.py:name`.

    Values are plain data: None, bool, numbers, str, bytes, list, tuple, dict, and arrays of the dtypes in
    `wire.DTYPES`. With `pickled`, they are whatever pickle takes; that is for two processes of this interpreter.
    `python` is another interpreter, which need not have this package: then the service is a file. With a `nursery`, the
    process is forked from one that has imported what it needs.

    What the worker prints is kept for the error that tells of its death, or `shown` on standard error. It ignores
    Ctrl-C. It ends with this process, also if that is killed, and what it started in its session ends with it.

    One request runs at a time: threads wait for each other. `close` may be called by any thread.
    """

    def __init__(
        self,
        service: Callable[..., Handler] | str,
        *arguments: Any,
        limits: WorkerLimits | None = None,
        pickled: bool = False,
        python: str | Path = "",
        environment: Mapping[str, str] | None = None,
        nursery: Nursery | None = None,
        shown: bool = False,
    ) -> None:
        if python and (pickled or nursery is not None):
            raise BadArgument("pickles and forks are for this interpreter", hint="leave out `python`, or both of these")
        limits = limits or WorkerLimits()
        entry = service if isinstance(service, str) else _name(service)
        path = None if python else import_path()
        self._launch = Launch(entry, path, pickled, limits.address_space, limits.cpu, environment or {})
        self._arguments, self._limits, self._python = arguments, limits, str(python)
        self._nursery, self._shown = nursery, shown
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._live: _Live | None = None
        self._ends: weakref.finalize[..., Worker] | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        live = self._live
        return None if live is None else live.running.handle.pid

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closing.is_set()

    def start(self) -> None:
        """Start the process if there is none; a request does that too."""
        with self._lock:
            self._alive()

    def ask(
        self,
        request: Any,
        *,
        told: Tell = lambda message: None,
        watch: Callable[[], None] = lambda: None,
        what: str = "",
    ) -> Any:
        """The reply to a request. `told` is given each message that comes before it.

        `watch` is called several times a second; what it or `told` raises ends the worker and is raised. `what` names
        the request in errors. WorkerDied if the process ends or breaks a limit; WorkerRaised if the service raises.
        """
        name = what or _short(request)
        with self._lock:
            live = self._alive(watch)
            live.running.forget_output()
            live.patience.begin(self._limits.seconds, self._limits.silence, watch)
            return self._conversed(live, request, told, name)

    def stop(self, patience: float = 0.0) -> None:
        """End the process, by force unless it ends within some seconds; the next request starts another."""
        with self._lock:
            if self._ends is not None:
                self._ends.detach()
            live, self._live, self._ends = self._live, None, None
            if live is not None:
                live.running.end(patience)

    def close(self, patience: float = 0.0) -> None:
        """End the process for good. A request that is under way in another thread fails, and so does a later one."""
        self._closing.set()
        self.stop(patience)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _alive(self, watch: Callable[[], None] = lambda: None) -> _Live:
        """The live process, started if there is none."""
        if self._live is not None and self._live.running.handle.ended(0) is not None:
            self.stop()
        return self._live or self._started(watch)

    def _started(self, watch: Callable[[], None]) -> _Live:
        name = f"start of {self._launch.entry}"
        patience = _Patience(self._limits.resident, self._closing)
        patience.begin(self._limits.start, None, watch)
        try:
            running = start(self._launch, self._python, self._shown, self._nursery, patience.look)
        except _Broken as broken:
            raise WorkerDied(Ending(broken.how, broken.limit), name) from None
        running.line.settimeout(_LOOK)
        patience.handle = running.handle
        codec = wire.PICKLED if self._launch.pickled else wire.PLAIN
        self._live = live = _Live(running, patience, wire.Connection(running.line, codec, patience.idle))
        self._ends = weakref.finalize(self, running.end)
        self._conversed(live, self._arguments, lambda message: None, name)
        live.ready = True
        return live

    def _conversed(self, live: _Live, request: Any, told: Tell, name: str) -> Any:
        """What the process replies. It is ended unless it can be asked again."""
        reusable = False
        try:
            live.patience.look()
            live.line.send(wire.REQUEST, request)
            while True:
                kind, value = live.line.receive()
                if kind != wire.TOLD:
                    break
                told(value)
                live.patience.heard()
            raised = _raised(value, name) if kind == wire.FAILED else None
            if raised is None and kind != (wire.REPLY if live.ready else wire.READY):
                raise wire.BadFrame(f"a frame of kind {kind} is no reply")
            reusable = raised is None or live.ready
        except wire.CannotSend as error:
            reusable = live.ready
            raise BadArgument(f"this cannot be sent to a worker: {error}", where=name) from None
        except _Broken as broken:
            raise WorkerDied(live.running.ending(broken.how, broken.limit), name) from None
        except wire.BadFrame as error:
            raise WorkerDied(live.running.ending("protocol", detail=str(error)), name) from None
        except wire.Closed:
            raise WorkerDied(live.running.death(), name) from None
        finally:
            if not reusable:
                self.stop()
        if raised is not None:
            raise raised
        return value


def _raised(told: Any, name: str) -> WorkerRaised:
    """The error that a worker tells of."""
    try:
        return WorkerRaised(str(told["kind"]), str(told["message"]), str(told["traceback"]), name)
    except (KeyError, TypeError) as error:
        raise wire.BadFrame("an error was told that is none") from error


class _Broken(Exception):
    """A limit was broken, or nobody wants the reply any more."""

    def __init__(self, how: How, limit: float = 0) -> None:
        self.how: How = how
        self.limit = limit


class _Patience:
    """How long a reply is waited for, and what is looked at meanwhile."""

    def __init__(self, resident: int | None, closing: threading.Event) -> None:
        self._resident, self._closing = resident, closing
        self.handle: Handle | None = None

    def begin(self, seconds: float | None, silence: float | None, watch: Callable[[], None]) -> None:
        self._seconds, self._silence, self._watch = seconds, silence, watch
        self._begun = self._heard = time.monotonic()

    def heard(self) -> None:
        """A message came and was taken."""
        self._heard = time.monotonic()
        self.look()

    def look(self) -> None:
        """Raise what there is to be raised."""
        if self._closing.is_set():
            raise _Broken("stopped")
        self._watch()
        now = time.monotonic()
        for limit, since in ((self._seconds, self._begun), (self._silence, self._heard)):
            if limit is not None and now - since > limit:
                raise _Broken("time", limit)
        if self._resident is not None and self._memory() > self._resident:
            raise _Broken("memory", self._resident)

    def idle(self) -> None:
        """As `look`, when nothing came for a while: the process may be dead, and a fork of it hold its line."""
        self.look()
        if self.handle is not None and self.handle.ended(0) is not None:
            raise wire.Closed

    def _memory(self) -> int:
        return 0 if self.handle is None else stated(f"/proc/{self.handle.pid}/status", "VmRSS") or 0


@dataclass(slots=True)
class _Live:
    """A process, its line, and whether it is set up."""

    running: Running
    patience: _Patience
    line: wire.Connection
    ready: bool = False


def _name(service: Callable[..., Handler]) -> str:
    """How a worker finds a function."""
    if service.__module__ == "__main__" or "<" in service.__qualname__:
        raise BadArgument(f"a worker cannot import {service!r}", hint="define it at the top of a module")
    return f"{service.__module__}:{service.__qualname__}"


def _short(request: Any) -> str:
    text = repr(request) if isinstance(request, str | int | float) else type(request).__name__
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]} …"
