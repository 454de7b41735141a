"""Feeding damaged models to the importer and a target, and seeing that each gives a result or a typed error.

Every mutant is loaded and, if it loads, run on small random inputs, in a worker process whose memory is limited.
A worker that dies or does not answer in time is replaced, and the mutant it had is a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.errors import AssayError, BadFeed
from assay.evidence.mutate.corpus import corpus
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
    workers: int = 2,
    seconds: float = 20.0,
    memory: int = 4 << 30,
    progress: Callable[[int], None] | None = None,
) -> HardeningReport:
    """Try `count` mutants on a chain of targets in `workers` processes; each may take `seconds` and `memory` bytes."""
    report = HardeningReport()
    models = _models()

    def made() -> Worker:
        return Worker(service, seed, target, limits=WorkerLimits(seconds=seconds, address_space=memory), pickled=True)

    for done in run_jobs(made, range(count), processes=workers):
        report.add(_failed(done.job, done.error, models, seed) if done.error else done.reply)
        if progress is not None:
            progress(1)
    return report


def _failed(index: int, error: WorkerFailed, models: list[bytes], seed: int) -> MutantOutcome:
    """A mutant that killed or stopped its process is a failure."""
    kind, _ = mutant(models, index, seed)
    return MutantOutcome(index, kind, "failed", error.reason)


def _models() -> list[bytes]:
    return [model.SerializeToString() for model in corpus().values()]


def service(seed: int, target: str) -> Handler:
    """What a worker process runs: it tries the mutant of an index."""
    models = _models()
    return lambda index, tell: attempt(index, *mutant(models, index, seed), target)


def table(report: HardeningReport) -> Mapping[str, Mapping[str, int]]:
    """Counts by kind of damage, then verdict."""
    kinds = sorted({kind for kind, _ in report.counts})
    return {kind: {v: report.counts[kind, v] for v in ("ran", "refused", "failed")} for kind in kinds}
