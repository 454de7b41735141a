"""Processes that run units of the op database: when one dies or hangs, the sample that did it is known."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType

from assay.errors import RunFailed
from assay.evidence.attempts import exit_text
from assay.evidence.opinfo.messages import EAGER, Begun, Compiled, Differentiable, Failed, Job, Loaded, Message, Settled
from assay.evidence.opinfo.records import SELF, Finding, Unit, Verdict

_ENVIRONMENT = {
    # oneDNN's AMX kernels end eager's bf16 products with an illegal instruction where the kernel denies the tile state.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
    # There are as many processes as cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_UNITS_PER_PROCESS = 300
"""After so many a new process is started: what dynamo keeps makes the old one large and slow."""

_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How every unit is run. `timeout` is in seconds, for samples that run together or alone."""

    target: str = "reference"
    peers: tuple[str, ...] = ()
    limit: int | None = None
    timeout: float = 300.0

    @property
    def backends(self) -> tuple[str, ...]:
        """All that are tested."""
        return (*self.peers, SELF)


def serve(line: Connection) -> None:
    """Run the jobs that come along `line` and tell what happens, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    os.environ.update(_ENVIRONMENT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch's C++ warnings know no other way
    from assay.evidence.opinfo.unit import prepare_process, reason_of, run_unit

    prepare_process()
    line.send("ready")
    while True:
        try:
            job = line.recv()
        except EOFError:
            return
        try:
            for message in run_unit(job):
                line.send(message)
        except Exception as error:
            line.send(Failed(reason_of(error)))
        else:
            line.send(None)


class Worker:
    """Runs units in a process of its own, which is started anew when it dies or takes too long."""

    def __init__(self, settings: Settings, main: Callable[[Connection], None] = serve) -> None:
        """`main` is what the process runs."""
        self._settings, self._main = settings, main
        self._live: tuple[SpawnProcess, Connection] | None = None
        self._units = 0
        self._busy = self._closed = False

    def run(self, unit: Unit) -> Finding:
        """All about a unit; never raises for what its samples do."""
        self._busy = True
        try:
            return self._found(unit)
        finally:
            self._busy = False

    def _found(self, unit: Unit) -> Finding:
        started = time.perf_counter()
        finding = Finding(unit, verdicts={backend: {} for backend in self._settings.backends})
        alone: set[int] = set()
        while (ended := self._converse(finding, alone)) is not None:
            before = finding.settled + len(alone)
            if ended.begun is not None and len(ended.begun.samples) > 1:
                alone.update(ended.begun.samples)
            elif ended.begun is not None:
                self._blame(finding, ended.begun, ended.verdict)
            if finding.settled + len(alone) == before:  # another attempt would end in the same way
                finding.failure = f"{ended.verdict.status} outside of any sample: {ended.verdict.reason}"
                break
        finding.seconds = time.perf_counter() - started
        self._units += 1
        if self._units % _UNITS_PER_PROCESS == 0:
            self._stop(patience=_PATIENCE)
        return finding

    def close(self) -> None:
        """End the process for good; a unit that is under way in another thread fails."""
        self._closed = True
        if self._busy and self._live is not None:
            self._live[0].kill()  # the other thread sees that and cleans up
        else:
            self._stop(patience=_PATIENCE)

    def _stop(self, patience: float = 0.0) -> None:
        """End the process, by force if it does not end in so many seconds; the next unit starts another."""
        live, self._live = self._live, None
        if live is not None:
            process, line = live
            line.close()
            process.join(patience)
            process.kill()
            process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _blame(self, finding: Finding, begun: Begun, verdict: Verdict) -> None:
        """Settle the one sample that was under way; what eager does to the process is nobody else's fault."""
        if begun.backend == EAGER:
            verdict = Verdict("skipped", f"eager fails: {verdict.reason}")
        for backend in self._settings.backends if begun.backend == EAGER else (begun.backend,):
            finding.verdicts[backend].setdefault(begun.samples[0], verdict)

    def _converse(self, finding: Finding, alone: Set[int]) -> _Ended | None:
        """Have the process run what is not settled yet and note what it says; None if it came to the end."""
        settings = self._settings
        known = frozenset((backend, i) for backend, verdicts in finding.verdicts.items() for i in verdicts)
        job = Job(finding.unit, settings.target, settings.peers, settings.limit, known, frozenset(alone))
        process, line = self._live or self._start()
        begun: Begun | None = None
        try:
            line.send(job)
            while line.poll(settings.timeout):
                message = line.recv()
                if message is None:
                    return None
                if isinstance(message, Failed):
                    return _Ended(begun, Verdict("error", message.reason))
                begun = message if isinstance(message, Begun) else begun
                _note(finding, message)
        except (EOFError, OSError):
            process.join()
            self._live = None
            return _Ended(begun, Verdict("crash", f"the process died with {exit_text(process.exitcode)}"))
        self._stop()
        return _Ended(begun, Verdict("timeout", f"took longer than {settings.timeout:g} s"))

    def _start(self) -> tuple[SpawnProcess, Connection]:
        if self._closed:
            raise RunFailed("the worker was closed")
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=self._main, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        try:
            ours.recv()  # it says when it is ready
        except EOFError:
            process.join()
            raise RunFailed(f"a worker process cannot start: {exit_text(process.exitcode)}") from None
        self._live = (process, ours)
        return self._live


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a conversation broke off, and what was under way then."""

    begun: Begun | None
    verdict: Verdict


def _note(finding: Finding, message: Message) -> None:
    match message:
        case Loaded():
            finding.samples, finding.tolerance = message.samples, message.tolerance
        case Settled():
            for index, verdict in message.verdicts.items():
                finding.verdicts[message.backend].setdefault(index, verdict)
        case Differentiable():
            finding.differentiable.add(message.sample)
        case Compiled():
            for phase, count in message.graphs.items():
                finding.graphs[phase] = finding.graphs.get(phase, 0) + count
            for phase, reasons in message.opaque.items():
                finding.opaque.setdefault(phase, {}).update(reasons)
        case Begun():
            pass
