"""Processes that run units of the op database: when one dies or hangs, the sample that did it is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from types import TracebackType

from assay.evidence.opinfo.messages import (
    EAGER,
    Begun,
    Differentiable,
    GraphsCompiled,
    Message,
    SamplesMade,
    Settled,
    UnitFailed,
    UnitJob,
)
from assay.evidence.opinfo.records import SELF, OpUnit, SampleResult, UnitResults
from assay.processes import Handler, Tell, Worker, WorkerDied, WorkerLimits

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
class OpInfoSettings:
    """How every unit is run. `timeout` is in seconds, for samples that run together or alone."""

    target: str = "reference"
    peers: tuple[str, ...] = ()
    limit: int | None = None
    timeout: float = 300.0

    @property
    def backends(self) -> tuple[str, ...]:
        """All that are tested."""
        return (*self.peers, SELF)


def service() -> Handler:
    """What a process runs: it tells what happens to the samples of a job."""
    from assay.evidence.opinfo.unit import prepare_process, reason_of, run_unit

    def run(job: UnitJob, tell: Tell) -> UnitFailed | None:
        try:
            for message in run_unit(job):
                tell(message)
        except Exception as error:
            return UnitFailed(reason_of(error))
        return None

    prepare_process()
    return run


class UnitRunner:
    """Runs units in a process of its own, which is started anew when it dies or takes too long."""

    def __init__(self, settings: OpInfoSettings, service: Callable[[], Handler] = service) -> None:
        self._settings, self._units = settings, 0
        limits = WorkerLimits(silence=settings.timeout)
        self._worker = Worker(service, limits=limits, pickled=True, environment=_ENVIRONMENT)

    def run(self, unit: OpUnit) -> UnitResults:
        """All about a unit; never raises for what its samples do."""
        started = time.perf_counter()
        finding = UnitResults(unit, verdicts={backend: {} for backend in self._settings.backends})
        alone: set[int] = set()
        while (ended := self._converse(finding, alone)) is not None:
            before = finding.judged_count + len(alone)
            if ended.begun is not None and len(ended.begun.samples) > 1:
                alone.update(ended.begun.samples)
            elif ended.begun is not None:
                self._blame(finding, ended.begun, ended.verdict)
            if finding.judged_count + len(alone) == before:  # another attempt would end in the same way
                finding.failure = f"{ended.verdict.status} outside of any sample: {ended.verdict.reason}"
                break
        finding.seconds = time.perf_counter() - started
        self._units += 1
        if self._units % _UNITS_PER_PROCESS == 0:
            self._worker.stop(_PATIENCE)
        return finding

    def close(self) -> None:
        """End the process for good; a unit that is under way in another thread fails."""
        self._worker.close(_PATIENCE)

    def __enter__(self) -> UnitRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _blame(self, finding: UnitResults, begun: Begun, verdict: SampleResult) -> None:
        """Settle the one sample that was under way; what eager does to the process is nobody else's fault."""
        if begun.backend == EAGER:
            verdict = SampleResult("skipped", f"eager fails: {verdict.reason}")
        for backend in self._settings.backends if begun.backend == EAGER else (begun.backend,):
            finding.verdicts[backend].setdefault(begun.samples[0], verdict)

    def _converse(self, finding: UnitResults, alone: Set[int]) -> _Ended | None:
        """Have the process run what has no result yet and note what it says; None if it came to the end."""
        settings = self._settings
        known = frozenset((backend, i) for backend, verdicts in finding.verdicts.items() for i in verdicts)
        job = UnitJob(finding.unit, settings.target, settings.peers, settings.limit, known, frozenset(alone))
        begun: Begun | None = None

        def note(message: Message) -> None:
            nonlocal begun
            begun = message if isinstance(message, Begun) else begun
            _note(finding, message)

        self._worker.start()  # one that cannot start is no finding
        try:
            failed: UnitFailed | None = self._worker.ask(job, told=note, what=str(finding.unit))
        except WorkerDied as death:
            if death.ending.how == "stopped":
                raise
            return _Ended(begun, SampleResult("timeout" if death.ending.how == "time" else "crash", death.reason))
        return None if failed is None else _Ended(begun, SampleResult("error", failed.reason))


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a conversation broke off, and what was under way then."""

    begun: Begun | None
    verdict: SampleResult


def _note(finding: UnitResults, message: Message) -> None:
    match message:
        case SamplesMade():
            finding.samples, finding.tolerance = message.samples, message.tolerance
        case Settled():
            for index, verdict in message.verdicts.items():
                finding.verdicts[message.backend].setdefault(index, verdict)
        case Differentiable():
            finding.differentiable.add(message.sample)
        case GraphsCompiled():
            for phase, count in message.graphs.items():
                finding.graphs[phase] = finding.graphs.get(phase, 0) + count
            for phase, reasons in message.opaque.items():
                finding.opaque.setdefault(phase, {}).update(reasons)
        case Begun():
            pass
