"""One attempt to run a model: what came out or where it failed, also when the process that tried it died."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from assay.errors import AssayError
from assay.evidence.engines import Engine, ModelOnTarget, engine
from assay.evidence.peers import ModelSource
from assay.evidence.reasons import summary
from assay.processes import Handler, Worker, WorkerDied, WorkerFailed, WorkerLimits

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


def attempt(who: Engine, model: ModelSource, feeds: Sequence[Mapping[str, Any]]) -> Attempt:
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


def service(spec: str) -> Handler:
    """What the process of an engine runs."""
    who = engine(spec)
    return lambda request, tell: attempt(who, *request)


class IsolatedAttempts:
    """Attempts by an engine in a process of its own, which is started anew when it dies or takes too long."""

    def __init__(self, spec: str, timeout: float = 600.0, service: Callable[[str], Handler] = service) -> None:
        self._worker = Worker(service, spec, limits=WorkerLimits(seconds=timeout), pickled=True)

    def attempt(self, model: ModelSource, feeds: Sequence[Mapping[str, Any]]) -> Attempt:
        """As `attempt`, with `crash` and `timeout` as further ways to fail."""
        started = time.perf_counter()
        try:
            self._worker.start()
            started = time.perf_counter()  # the start of the process is not counted
            return self._worker.ask((model, list(feeds)), what="an attempt")
        except WorkerFailed as error:
            late = isinstance(error, WorkerDied) and error.ending.how == "time"
            return Attempt("timeout" if late else "crash", "run", error.reason, time.perf_counter() - started)

    def __enter__(self) -> IsolatedAttempts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._worker.close()
