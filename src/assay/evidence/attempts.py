"""One attempt to run a model: what came out or where it failed, also when the process that tried it died."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import numpy as np

from assay.errors import AssayError
from assay.evidence.engines import Engine, engine
from assay.evidence.peers import Model

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


@dataclass(frozen=True, slots=True)
class Attempt:
    """`outputs` has one entry for each set of feeds; None if `status` says that it came to nothing."""

    status: str
    stage: str
    reason: str
    seconds: float
    outputs: tuple[dict[str, Any], ...] | None = None


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
    except Exception as error:
        return _failed(error, stage, time.perf_counter() - started)
    return Attempt("pass", "run", "", time.perf_counter() - started, outputs)


def _failed(error: Exception, stage: str, seconds: float) -> Attempt:
    if isinstance(error, AssayError):
        where = f" (at {error.where})" if error.where else ""
        return Attempt(STATUS_OF_STAGE[error.stage], error.stage, f"{error.message}{where}", seconds)
    kind = type(error).__name__
    status = "unsupported" if kind in ("NotImplemented", "NotImplementedError") else STATUS_OF_STAGE[stage]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return Attempt(status, stage, f"{kind}: {lines[0] if lines else ''}", seconds)


class Worker:
    """Attempts in a process of its own, which is started anew when it dies or takes too long."""

    def __init__(self, spec: str, timeout: float = 120.0) -> None:
        self._spec, self._timeout = spec, timeout
        self._process: Any = None
        self._line: Any = None

    def attempt(self, model: Model, feeds: Sequence[Mapping[str, Any]]) -> Attempt:
        """As `attempt`, with `crash` and `timeout` as further ways to fail."""
        if self._process is None:
            self._start()
        started = time.perf_counter()
        try:
            self._line.send((model, list(feeds)))
            if self._line.poll(self._timeout):
                return self._line.recv()
        except (EOFError, OSError):
            pass
        seconds = time.perf_counter() - started
        if seconds >= self._timeout:
            self._stop()
            return Attempt("timeout", "run", f"took longer than {self._timeout:g} s", seconds)
        self._process.join()
        code = self._process.exitcode
        self._stop()
        return Attempt("crash", "run", f"the process died with {_exit(code)}", seconds)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._spec, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._line.recv()  # it says when it is ready, so that its start is not counted

    def _stop(self) -> None:
        if self._process is not None:
            self._line.close()
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(spec: str, line: Connection) -> None:
    who = engine(spec)
    line.send("ready")
    while True:
        try:
            model, feeds = line.recv()
        except EOFError:
            return
        line.send(attempt(who, model, feeds))


def _exit(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
