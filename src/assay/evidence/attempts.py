"""One attempt to run a model: what came out or where it failed, also when the process that tried it died."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any

import numpy as np

from assay.errors import AssayError
from assay.evidence.engines import Engine, ModelOnTarget, engine
from assay.evidence.peers import Model
from assay.evidence.reasons import summary

STATUS_OF_STAGE = {
    "import": "fail_import",
    "limits": "fail_import",
    "lower": "fail_lower",
    "verify": "fail_compile",
    "compile": "fail_compile",
    "load": "fail_compile",
    "feed": "fail_run",
    "lookup": "fail_run",
    "run": "fail_run",
}
"""The status word for a failure at each stage; `load` is all that a peer does before it runs."""


_UNSUPPORTED = ("NotImplemented", "NotImplementedError", "RuntimeImplementationError")
"""How peers call the errors that say that they do not have an op."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """`outputs` has one entry for each set of feeds; None if `status` says that it came to nothing.

    `fallbacks` are the nodes with floats that a target left to the oracle.
    """

    status: str
    stage: str
    reason: str
    seconds: float
    outputs: tuple[dict[str, Any], ...] | None = None
    fallbacks: tuple[str, ...] = ()


def attempt(who: Engine, model: Model, feeds: Sequence[Mapping[str, Any]]) -> Attempt:
    """Load the model and run it on every set of feeds; never raises. `seconds` counts both."""
    started = time.perf_counter()
    stage = "load"
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            ready = who.load(model)
            stage = "run"
            outputs = tuple(ready.run(each) for each in feeds)
            fallbacks = ready.fallbacks() if isinstance(ready, ModelOnTarget) else ()
    except Exception as error:
        return _failed(error, stage, time.perf_counter() - started)
    return Attempt("pass", "run", "", time.perf_counter() - started, outputs, fallbacks)


def _failed(error: Exception, stage: str, seconds: float) -> Attempt:
    if isinstance(error, AssayError):
        where = f" (at {error.where})" if error.where else ""
        return Attempt(STATUS_OF_STAGE[error.stage], error.stage, f"{error.message}{where}", seconds)
    kind = type(error).__name__
    status = "unsupported" if kind in _UNSUPPORTED else STATUS_OF_STAGE[stage]
    return Attempt(status, stage, summary(error), seconds)


def serve(spec: str, line: Connection) -> None:
    """Attempt whatever comes along `line` until it is closed."""
    who = engine(spec)
    line.send("ready")
    while True:
        try:
            model, feeds = line.recv()
        except EOFError:
            return
        line.send(attempt(who, model, feeds))


class Worker:
    """Attempts in a process of its own, which is started anew when it dies or takes too long."""

    def __init__(self, spec: str, timeout: float = 600.0, main: Callable[[str, Connection], None] = serve) -> None:
        """`main` is what the process runs."""
        self._spec, self._timeout, self._main = spec, timeout, main
        self._live: tuple[SpawnProcess, Connection] | None = None
        self._starting = False

    def attempt(self, model: Model, feeds: Sequence[Mapping[str, Any]]) -> Attempt:
        """As `attempt`, with `crash` and `timeout` as further ways to fail."""
        process, line = self._live or self._start()
        started = time.perf_counter()
        try:
            if self._starting:
                line.recv()  # it says when it is ready, so that its start is not counted
                self._starting, started = False, time.perf_counter()
            line.send((model, list(feeds)))
            if line.poll(self._timeout):
                return line.recv()
        except (EOFError, OSError):
            pass
        seconds = time.perf_counter() - started
        if seconds >= self._timeout:
            self.stop()
            return Attempt("timeout", "run", f"took longer than {self._timeout:g} s", seconds)
        process.join()
        self._live = None
        return Attempt("crash", "run", f"the process died with {exit_text(process.exitcode)}", seconds)

    def stop(self) -> None:
        """End the process; the next attempt starts another."""
        if self._live is not None:
            process, line = self._live
            self._live = None
            line.close()
            process.kill()
            process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _start(self) -> tuple[SpawnProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=self._main, args=(self._spec, theirs), daemon=True)
        process.start()
        theirs.close()
        self._live, self._starting = (process, ours), True
        return self._live


def exit_text(code: int | None) -> str:
    """How a process ended, in words."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
