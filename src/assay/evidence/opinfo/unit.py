"""A unit of the op database on every backend: in groups that compile as one function, alone where that fails.

What happens is told as it happens (`Begun`, `Settled` …), so that whoever listens knows what was under way when the
process dies.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.evidence.opinfo.cases import OpInfoSample, fresh, function_of, in_f64, samples, tolerance
from assay.evidence.opinfo.messages import (
    EAGER,
    Begun,
    Differentiable,
    GraphsCompiled,
    Message,
    SamplesMade,
    Settled,
    UnitJob,
)
from assay.evidence.opinfo.records import SELF, SampleResult
from assay.evidence.opinfo.verdicts import CallOutcome, difference, no_farther
from assay.frontends.torch.private.dynamo import BackendCompilerFailed, TorchDynamoException, Unsupported, counters
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import default_dtype
from assay.runtime.torch.graphs import CompiledGraph, recording

_torch: Any = torch
"""torch where its own annotations say too little."""
_GROUP = 32
_SEED = 7
_LIBC = ctypes.CDLL(None)
_M_PERTURB = -6


@dataclass(frozen=True)
class EagerSample:
    """A sample and what eager makes of it."""

    sample: OpInfoSample
    expected: CallOutcome
    steady: bool
    """Whether eager agrees with itself, also when memory that nobody wrote to holds something else."""
    draws: bool
    """Whether the call draws random numbers, which grouping would shift."""

    @property
    def index(self) -> int:
        """The sample's number in the database."""
        return self.sample.index


def run_unit(job: UnitJob) -> Iterator[Message]:
    """Run the job's samples on eager, on its peers and on Assay."""
    return _UnitRun(job).run()


@dataclass
class _UnitRun:
    job: UnitJob
    function: Callable[..., Any] = field(init=False)
    least: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        self.function = function_of(self.job.unit)
        self.least = tolerance(self.job.unit)

    def run(self) -> Iterator[Message]:
        chosen = samples(self.job.unit, self.job.limit)
        yield SamplesMade(len(chosen), self.least)
        for start in range(0, len(chosen), _GROUP):
            cases: list[EagerSample] = []
            for sample in chosen[start : start + _GROUP]:
                yield from self._eager(sample, cases)
            yield from self._backends(cases)

    def _backends(self, cases: Sequence[EagerSample]) -> Iterator[Message]:
        """All backends; of samples with gradients peers run those alone that Assay does not pass."""
        left = list(cases)
        if self.job.unit.grad:
            passed: set[int] = set()
            for message in self._backend(SELF, cases):
                if isinstance(message, Settled):
                    passed |= {index for index, verdict in message.verdicts.items() if verdict.status == "pass"}
                yield message
            left = [case for case in cases if case.index not in passed]
        for backend in self.job.peers if self.job.unit.grad else (*self.job.peers, SELF):
            yield from self._backend(backend, left)

    def _eager(self, sample: OpInfoSample, cases: list[EagerSample]) -> Iterator[Message]:
        """Append the case if there is something left to do and eager can run it."""
        backends = (*self.job.peers, SELF)
        if all((backend, sample.index) in self.job.known for backend in backends):
            return
        yield Begun(EAGER, (sample.index,))
        try:
            case = self._case(sample)
        except Exception as error:
            verdict = SampleResult("skipped", f"eager fails: {reason_of(error)}")
            for backend in backends:
                yield Settled(backend, {sample.index: verdict})
            return
        cases.append(case)
        if any(gradient is not None for gradient in case.expected.gradients):
            yield Differentiable(sample.index)

    def _case(self, sample: OpInfoSample) -> EagerSample:
        _torch.manual_seed(_SEED)
        before = torch.get_rng_state()
        with _unwritten_memory(0x00):
            expected = self._plain(sample, fresh)
        draws = not torch.equal(before, torch.get_rng_state())
        with _unwritten_memory(0x55):
            again = self._plain(sample, fresh)
        return EagerSample(sample, expected, difference(again, expected, self.least) is None, draws)

    def _plain(self, sample: OpInfoSample, copied: Callable[[Any], Any]) -> CallOutcome:
        return self._outcomes(_each(self.function), [sample], copied)[0]

    def _backend(self, backend: str, cases: Sequence[EagerSample]) -> Iterator[Message]:
        left = [case for case in cases if (backend, case.index) not in self.job.known]
        together = [case for case in left if self._may_be_grouped(case)]
        yield from self._settle(backend, together)
        for case in left:
            if case not in together:
                yield from self._settle_alone(backend, case)

    def _may_be_grouped(self, case: EagerSample) -> bool:
        tensors = any(isinstance(leaf, torch.Tensor) for leaf in case.expected.outputs)
        return tensors and not case.draws and case.index not in self.job.alone

    def _settle(self, backend: str, cases: Sequence[EagerSample]) -> Iterator[Message]:
        """Settle cases as one graph; in halves if that fails; those that differ, alone."""
        if len(cases) < 2:
            for case in cases:
                yield from self._settle_alone(backend, case)
            return
        yield Begun(backend, tuple(case.index for case in cases))
        try:
            ran = self._compiled(backend, cases, fullgraph=True)
        except Unsupported:
            good: dict[int, SampleResult] = {}
        except Exception:
            middle = len(cases) // 2
            yield from self._settle(backend, cases[:middle])
            yield from self._settle(backend, cases[middle:])
            return
        else:
            yield from ran.messages()
            judged = {case.index: self._first_look(case, got) for case, got in zip(cases, ran.outcomes, strict=True)}
            good = {index: verdict for index, verdict in judged.items() if verdict and ran.graphs}
        yield Settled(backend, good)
        for case in cases:
            if case.index not in good:
                yield from self._settle_alone(backend, case)

    def _settle_alone(self, backend: str, case: EagerSample) -> Iterator[Message]:
        yield Begun(backend, (case.index,))
        try:
            ran = self._alone(backend, case)
        except Exception as error:
            yield Settled(backend, {case.index: SampleResult("error", reason_of(error))})
            return
        yield from ran.messages()
        if not ran.graphs:
            verdict = SampleResult("no_graph", ran.why)
        else:
            verdict = self._verdict(case, ran.outcomes[0])
        yield Settled(backend, {case.index: SampleResult(verdict.status, verdict.reason, ran.breaks)})

    def _first_look(self, case: EagerSample, outcome: CallOutcome) -> SampleResult | None:
        """The verdict if all is well."""
        if difference(outcome, case.expected, self.least, values=case.steady) is not None:
            return None
        return SampleResult("pass" if case.steady else "nondeterministic")

    def _verdict(self, case: EagerSample, outcome: CallOutcome) -> SampleResult:
        good = self._first_look(case, outcome)
        if good is not None:
            return good
        reason = difference(outcome, case.expected, self.least) or ""
        return SampleResult("rounding" if self._is_rounding(case, outcome) else "wrong", reason)

    def _is_rounding(self, case: EagerSample, outcome: CallOutcome) -> bool:
        if not case.steady or self.job.unit.dtype == "f64":
            return False
        try:
            with default_dtype(_torch.float64):
                exact = self._plain(case.sample, in_f64)
        except Exception:
            return False
        return no_farther(outcome, case.expected, exact, self.least)

    def _alone(self, backend: str, case: EagerSample) -> _Ran:
        """As one graph if dynamo can do that, else with graph breaks."""
        try:
            return self._compiled(backend, [case], fullgraph=True)
        except BackendCompilerFailed:
            raise
        except TorchDynamoException:
            return self._compiled(backend, [case], fullgraph=False)

    def _compiled(self, backend: str, cases: Sequence[EagerSample], *, fullgraph: bool) -> _Ran:
        _torch.compiler.reset()
        counters.clear()
        options = {"target": self.job.target, "cache": False} if backend == SELF else None
        compiled = _torch.compile(_each(self.function), backend=backend, options=options, fullgraph=fullgraph)
        with recording() as graphs:
            outcomes = self._outcomes(compiled, [case.sample for case in cases], fresh)
        return _Ran(outcomes, counters["stats"]["unique_graphs"], counters["graph_break"], graphs)

    def _outcomes(
        self, function: Callable[..., Any], chosen: Sequence[OpInfoSample], copied: Callable[[Any], Any]
    ) -> list[CallOutcome]:
        copies = [copied(sample.inputs) for sample in chosen]
        _torch.manual_seed(_SEED)
        results = function(copies)
        gradients = self._gradients(chosen, copies, results) if self.job.unit.grad else [list[Any]() for _ in copies]
        return [
            CallOutcome(*pytree.tree_flatten(result), _tensors(given), found)
            for given, result, found in zip(copies, results, gradients, strict=True)
        ]

    def _gradients(
        self, chosen: Sequence[OpInfoSample], copies: Sequence[Any], results: Sequence[Any]
    ) -> list[list[Any]]:
        """For each sample the gradients of its inputs, for the same random directions whoever computed the results."""
        tops: list[torch.Tensor] = []
        for sample, result in zip(chosen, results, strict=True):
            tops += [leaf for leaf in _tensors(sample.processed(result)) if leaf.requires_grad]
        wanted = [[leaf for leaf in _tensors(given) if leaf.requires_grad] for given in copies]
        flat = [leaf for leaves in wanted for leaf in leaves]
        if not tops or not flat:
            return [[None] * len(leaves) for leaves in wanted]
        found = iter(torch.autograd.grad(tops, flat, [_direction(top) for top in tops], allow_unused=True))
        return [[next(found) for _ in leaves] for leaves in wanted]


@dataclass(frozen=True)
class _Ran:
    outcomes: Sequence[CallOutcome]
    graphs: int
    broken: Counter[str]
    recorded: Sequence[CompiledGraph]

    @property
    def breaks(self) -> int:
        return sum(self.broken.values())

    @property
    def why(self) -> str:
        """Why there was no graph, as dynamo says it."""
        return next((_first_line(reason) for reason in self.broken), "the call holds no tensor op")

    def messages(self) -> Iterator[Message]:
        if not self.recorded:
            return
        opaque: dict[str, dict[str, str]] = {}
        for graph in self.recorded:
            for node in graph.lowered.walk():
                if node.op == "opaque":
                    opaque.setdefault(graph.phase, {})[node.attrs["target"]] = node.attrs["reason"]
        yield GraphsCompiled(Counter(graph.phase for graph in self.recorded), opaque)


def _each(function: Callable[..., Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """What is compiled: the op on the inputs of one sample or of many."""

    def each(calls: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        for first, args, kwargs in calls:
            results.append(function(first, *args, **kwargs))
        return results

    return each


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _direction(top: torch.Tensor) -> torch.Tensor:
    """A random tensor like `top`, the same for the same shape."""
    generator = torch.Generator().manual_seed(_SEED)
    wide = torch.randn(top.shape, generator=generator, dtype=torch.complex128 if top.is_complex() else torch.float64)
    return wide.to(top.dtype)


@contextmanager
def _unwritten_memory(byte: int) -> Generator[None]:
    """Inside, memory that was allocated and not written holds this byte, where the C library can do that."""
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_M_PERTURB, 0xFF - byte)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)


def reason_of(error: BaseException) -> str:
    """The error that is behind an error of dynamo's, in one line."""
    inner = getattr(error, "inner_exception", None) or error
    return f"{type(inner).__name__}: {_first_line(str(inner))}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else ""


def prepare_process() -> None:
    """Make this process fit for a run: one thread, no warnings, a collector that leaves the database alone."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
