"""Feeding damaged models and other files to importers and a target: each must give a result or a typed error.

Every mutant is loaded and, if it loads, run on small random inputs, in a worker process whose memory is limited.
A worker that dies or does not answer in time is replaced, and the mutant it had is a failure. So is one that took more
time of the processor, or more memory, than the limits and its size explain; how busy the machine is does not count.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from assay.errors import AssayError, BadFeed
from assay.evidence.machine import forget_peak, memory_of
from assay.evidence.mutate.corpus import corpus
from assay.evidence.mutate.file_kinds import FILE_KINDS, MARK, refusal
from assay.evidence.mutate.mutations import mutant
from assay.frontends.onnx import load
from assay.ir.dims import UNKNOWN, Dim, evaluate, symbols
from assay.ir.graph import Graph
from assay.ir.types import OptionalType, SequenceType, TensorType, Type
from assay.limits import Limits
from assay.ops.samples import draw
from assay.processes import Handler, Worker, WorkerFailed, WorkerLimits, run_jobs
from assay.runtime.session import Session, SessionOptions

TIGHT = Limits(
    model_bytes=1 << 20,
    nodes=2_000,
    nesting=16,
    tensor_bytes=32 << 20,
    sequence_length=10_000,
    loop_iterations=2_000,
)
"""What the mutants may ask for."""


CPU_SECONDS = 10.0
"""Seconds of the processor that a mutant may take."""
MEMORY, TIMES = 3 * TIGHT.tensor_bytes, 64
"""How much more memory a mutant may take than there was before: so many bytes, and so many times its size."""

MODELS = "onnx"
"""The kind of file that a model of ONNX is."""
_Mutants: TypeAlias = Callable[[int], tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class MutantOutcome:
    """What became of one mutant. `verdict` is ran, refused (a typed error with a place) or failed."""

    index: int
    kind: str
    verdict: str
    detail: str = ""


@dataclass
class HardeningReport:
    """Counts by kind of damage and verdict, and every failure."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    failures: list[MutantOutcome] = field(default_factory=list[MutantOutcome])

    def add(self, outcome: MutantOutcome) -> None:
        """Count one mutant."""
        self.counts[outcome.kind, outcome.verdict] += 1
        if outcome.verdict == "failed":
            self.failures.append(outcome)

    @property
    def total(self) -> int:
        """How many mutants were tried."""
        return sum(self.counts.values())


def attempt(index: int, kind: str, data: bytes, target: str) -> MutantOutcome:
    """Load one mutant and run it on a chain of targets."""
    try:
        graph = load(data, TIGHT)
        session = Session(graph, SessionOptions(target=target, limits=TIGHT))
        session.run(random_feeds(graph, index))
    except AssayError as error:
        if isinstance(error, BadFeed) or (error.where and error.hint):
            return MutantOutcome(index, kind, "refused", type(error).__name__)
        return MutantOutcome(index, kind, "failed", f"{type(error).__name__} without a place or a hint: {error}")
    except Exception as error:
        return MutantOutcome(index, kind, "failed", f"{type(error).__name__}: {error}")
    return MutantOutcome(index, kind, "ran")


def attempt_file(index: int, kind: str, file_kind: str, data: bytes, target: str) -> MutantOutcome:
    """Read one damaged file, and use what is in it, in a folder of its own."""
    read = FILE_KINDS[file_kind]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        path = Path(folder) / read.file
        path.write_bytes(data)
        try:
            read.use(path, target, TIGHT)
        except AssayError as error:
            wrong = refusal(error)
            found = MutantOutcome(index, kind, "failed" if wrong else "refused", wrong or type(error).__name__)
        except Exception as error:
            found = MutantOutcome(index, kind, "failed", f"{type(error).__name__}: {error}")
        else:
            found = MutantOutcome(index, kind, "ran")
        return MutantOutcome(index, kind, "failed", "code was run") if (Path(folder) / MARK).exists() else found


def checked(attempted: Callable[[], MutantOutcome], size: int) -> MutantOutcome:
    """What became of a mutant of so many bytes; it failed if it took too much."""
    forget_peak()
    before, started = memory_of("self", "VmRSS") or 0, time.process_time()
    found = attempted()
    seconds, taken = time.process_time() - started, (memory_of("self", "VmHWM") or 0) - before
    if seconds > CPU_SECONDS:
        return replace(found, verdict="failed", detail=f"it took {seconds:.0f} s of the processor")
    if taken > MEMORY + TIMES * size:
        return replace(found, verdict="failed", detail=f"it took {taken >> 20} MiB; its file has {size} bytes")
    return found


def random_feeds(graph: Graph, seed: int) -> dict[str, Any]:
    """Small random inputs that fit the declared types; named dims are 3."""
    rng = np.random.default_rng(seed)
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return {name: _random(rng, value.type) for name, value in pairs}


def _random(rng: np.random.Generator, kind: Type) -> Any:
    if isinstance(kind, TensorType):
        return draw(rng, kind.dtype, [_small(dim) for dim in kind.shape or ()])
    if isinstance(kind, SequenceType):
        return [_random(rng, kind.elem)]
    return _random(rng, kind.elem) if isinstance(kind, OptionalType) else None


def _small(dim: Dim) -> int:
    """A declared size, or 3 for an open one; absurd sizes are cut, which makes a wrong feed and a clear refusal."""
    size = 3 if dim is UNKNOWN else evaluate(dim, dict.fromkeys(symbols(dim), 3))
    return min(3 if size is None else size, 64)


def run_mutations(
    count: int,
    seed: int = 0,
    *,
    target: str,
    file_kind: str = MODELS,
    workers: int = 2,
    seconds: float = 300.0,
    memory: int = 4 << 30,
    progress: Callable[[int], None] | None = None,
) -> HardeningReport:
    """Try `count` mutants on a chain of targets in `workers` processes; each may take `seconds` and `memory` bytes.
    `file_kind` is `onnx`, or one of `FILE_KINDS`."""
    report = HardeningReport()
    made_mutant = _mutants(file_kind, seed)
    _compile_kernels(file_kind, target)

    def made() -> Worker:
        limits = WorkerLimits(seconds=seconds, address_space=memory)
        return Worker(service, seed, target, file_kind, limits=limits, pickled=True)

    for done in run_jobs(made, range(count), processes=workers):
        report.add(_failed(done.job, done.error, made_mutant) if done.error else done.reply)
        if progress is not None:
            progress(1)
    return report


def _compile_kernels(file_kind: str, target: str) -> None:
    """Use the sound files of a kind, so that a target has compiled what they take before the time of mutants counts."""
    if file_kind in FILE_KINDS:
        for data in FILE_KINDS[file_kind].samples():
            attempt_file(0, "none", file_kind, data, target)


def _failed(index: int, error: WorkerFailed, made_mutant: _Mutants) -> MutantOutcome:
    """A mutant that killed or stopped its process is a failure."""
    kind, _ = made_mutant(index)
    return MutantOutcome(index, kind, "failed", error.reason)


def _mutants(file_kind: str, seed: int) -> _Mutants:
    """The mutants of a kind of file by their number: what was done to each, and its bytes."""
    if file_kind == MODELS:
        models = [model.SerializeToString() for model in corpus().values()]
        return lambda index: mutant(models, index, seed)
    kind = FILE_KINDS[file_kind]
    files = kind.samples()
    return lambda index: kind.mutant(files, index, seed)


def service(seed: int, target: str, file_kind: str = MODELS) -> Handler:
    """What a worker process runs: it tries the mutant of an index."""
    made = _mutants(file_kind, seed)

    def tried(index: int) -> MutantOutcome:
        damage, data = made(index)
        if file_kind == MODELS:
            return checked(lambda: attempt(index, damage, data, target), len(data))
        return checked(lambda: attempt_file(index, damage, file_kind, data, target), len(data))

    return lambda index, send: tried(index)


def table(report: HardeningReport) -> Mapping[str, Mapping[str, int]]:
    """Counts by kind of damage, then verdict."""
    kinds = sorted({kind for kind, _ in report.counts})
    return {kind: {v: report.counts[kind, v] for v in ("ran", "refused", "failed")} for kind in kinds}
