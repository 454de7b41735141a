"""One model on one target: built, run by torch, compiled, judged and timed. Runs in a process of its own."""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from torch import Tensor

from assay.evidence.machine import OutsideLoad, cpu_of, forget_peak
from assay.evidence.reasons import summary
from assay.evidence.records import Cause, Output, Record
from assay.evidence.records.diff import part_of_allowed
from assay.evidence.records.schema import Status
from assay.evidence.sweep.accounts import configurations, op_uses, transfers
from assay.evidence.sweep.attribution import first_wrong
from assay.evidence.sweep.draft import Draft
from assay.evidence.sweep.faults import options_for
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.kinks import Verdicts, is_coarse, reconsidered, verdicts
from assay.evidence.sweep.machine import peak_memory
from assay.evidence.sweep.subjects import Results, Subject, make_subject
from assay.frontends.torch.types import torch_dtype
from assay.limits import DEFAULT
from assay.runtime.targets import make_chain
from assay.runtime.torch.backend import Options
from assay.runtime.torch.explain import GraphBreak, explained
from assay.runtime.torch.watch import CallArguments, ModelCall, Watched, watching
from assay.targets.base import DEVICE_MODEL, Traits

_PATIENCE = 10.0
"""Seconds after which timed runs end, if there were enough of them."""
_LEAST_ROUNDS = 3
_REST = 0.05
"""Seconds before a timed run, in which the threads of the one before come to rest."""
_KEPT = 10
"""How many gradients a record keeps: those with the largest errors for what rounding explains."""


class Truth(NamedTuple):
    """What torch gives eagerly, and in f64; None where it cannot do that. For a target that rounds to a narrower dtype
    than the model states also what torch gives in that."""

    plain: Results
    exact: Results | None
    narrow: Results | None = None

    @property
    def noisy(self) -> list[Results]:
        """Runs that are off by as much as rounding explains, beside the plain one."""
        return [] if self.narrow is None else [self.narrow]


def measure(job: Job, send: Callable[[Record], None], make: Callable[[Job], Subject] = make_subject) -> Record:
    """The record of a job; `send` gets what is known at every stage. Never raises for what the case does."""
    draft = Draft(job, send)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _measured(draft, make)
    except Exception as error:
        return draft.failed(error)


def _measured(draft: Draft, make: Callable[[Job], Subject]) -> Record:
    with draft.timed("build", "build"):
        subject = make(draft.job)
    parameters = sum(each.numel() for each in subject.module.parameters())
    draft.known |= {"inputs": subject.types(), "parameters": parameters}
    draft.enter("baseline")
    traits = make_chain(draft.job.case.target, "exact", DEFAULT)[0].traits
    truth = _truth(draft, subject, traits)
    forget_peak()
    options = _options(draft)
    found = _cold(draft, subject, options)
    gc.collect()
    if traits.modelled:
        draft.note(DEVICE_MODEL)
        draft.speed.pop("first_run", None)
    elif draft.job.rounds:
        _steady(draft, subject, options)
    draft.speed["peak_memory"] = peak_memory()
    draft.enter("accuracy")
    return _judged(draft, subject, found, truth)


def _options(draft: Draft) -> Options:
    """How the model of a case is compiled; a fault may say more."""
    case = draft.job.case
    return Options(target=case.target, **options_for(case.fault))


def _truth(draft: Draft, subject: Subject, traits: Traits) -> Truth:
    plain = subject.run(subject.module)
    try:
        exact = subject.exact()
    except Exception as error:
        draft.note(f"torch cannot run it in f64, so no noise floor is known: {summary(error)}")
        return Truth(plain, None)
    if traits.rounds_to is None:
        return Truth(plain, exact)
    try:
        return Truth(plain, exact, subject.narrowed(torch_dtype(traits.rounds_to)))
    except Exception as error:
        draft.note(f"torch cannot run it in {traits.rounds_to}, so the noise floor is eager's: {summary(error)}")
        return Truth(plain, exact)


def _cold(draft: Draft, subject: Subject, options: Options) -> Results:
    """The first results of the compiled model, what became of its ops, and the time of every stage."""
    with draft.compiling() as stages, _region(subject, options) as (seen, run):
        started = time.perf_counter()
        results = subject.run(_calling(subject, run))
        _note_stages(draft, stages, time.perf_counter() - started)
        if any(placed.node.op == "deferred" for graph in seen.graphs for placed in graph.placements):
            subject.step(_calling(subject, run, fused=False))  # nodes that are lowered only now must be seen one by one
    explanation = explained(seen)  # the region reports its graph breaks when it ends
    left = [f"torch left {each.left or 'a graph'} at {_place(each)}: {each.reason}" for each in explanation.breaks]
    left += [f"torch gave up compiling {each.function}" for each in explanation.recompiles if each.given_up]
    draft.note(*left)
    draft.known |= {
        "graphs": len(seen.graphs),
        "breaks": sum(each.count for each in explanation.breaks)
        + sum(each.given_up for each in explanation.recompiles),
        "ops": op_uses(explanation),
        "configurations": configurations(seen, explanation.nodes),
        "transfers": transfers(graph.program.plan for graph in seen.graphs),
    }
    return results


def _place(found: GraphBreak) -> str:
    return f"{Path(found.file).name}:{found.line} ({found.code})"


def _note_stages(draft: Draft, stages: Mapping[str, float], whole: float) -> None:
    names = {"importing": "import", "lowering": "lower", "compiling": "compile", "first_run": "run"}
    draft.speed |= {name: stages.get(stage, 0.0) for name, stage in names.items()}
    draft.speed["trace"] = whole - sum(draft.speed[name] for name in names)
    draft.speed["cold"] = whole - draft.speed["first_run"]


def _steady(draft: Draft, subject: Subject, options: Options) -> None:
    """Compile once more with filled caches; then time the model in turns with eager, and set both the task."""
    with _region(subject, options) as (_, run):
        with draft.compiling() as stages:
            started = time.perf_counter()
            subject.step(_calling(subject, run))
            draft.speed["warm"] = time.perf_counter() - started - stages.get("run", 0.0)
        draft.enter("run")  # from here on no stage is sent: sending takes time
        times: dict[str, list[float]] = {"eager_": [], "": []}
        watch = OutsideLoad([lambda: cpu_of("self")])
        until = time.perf_counter() + _PATIENCE
        for done in range(draft.job.rounds):
            if done >= _LEAST_ROUNDS and time.perf_counter() > until and not draft.job.last:
                break
            times["eager_"].append(_seconds(subject, subject.module))
            times[""].append(_seconds(subject, _calling(subject, run)))
        draft.speed["others"] = watch.others()
        found, eager = subject.metrics(_calling(subject, run)), subject.metrics(subject.module)
    draft.known["metrics"] = {**found, **{f"eager_{name}": value for name, value in eager.items()}}
    draft.speed["runs"] = len(times[""])
    for who, seconds in times.items():
        wanted = seconds[-1:] if draft.job.last else seconds
        draft.speed[f"{who}median"] = statistics.median(wanted)
        draft.speed[f"{who}p95"] = _p95(wanted)


def _seconds(subject: Subject, call: Callable[..., Any]) -> float:
    time.sleep(_REST)
    started = time.perf_counter()
    subject.step(call)
    return time.perf_counter() - started


def _p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]


def _region(subject: Subject, options: Options) -> AbstractContextManager[tuple[Watched, ModelCall]]:
    return watching(
        subject.compiled,
        options=options,
        dynamic=False if subject.inner is None else None,
        train=None,
        backward=subject.trains,
        differentiate=lambda outcome, wanted: outcome.backward(),
    )


def _calling(subject: Subject, run: ModelCall, *, fused: bool = True) -> Callable[..., Any]:
    """A watched call, which goes backward by itself, as one that gives plain results."""

    def call(*args: Any, **inputs: Any) -> Any:
        outcome = run(CallArguments(args, inputs), fused=fused)
        return outcome.detach() if isinstance(outcome, Tensor) else outcome

    return subject.through(call)


def _judged(draft: Draft, subject: Subject, found: Results, truth: Truth) -> Record:
    judged = verdicts(found, truth.plain, truth.exact, truth.noisy)
    _keep(draft, judged)
    if truth.exact is not None and truth.narrow is None and (judged.wrong or is_coarse(judged, truth.plain)):
        judged = _reconsidered(draft, subject, found, truth.plain, truth.exact, judged)
        _keep(draft, judged)
    if judged.wrong:
        return _inaccurate(draft, subject, judged.wrong)
    nothing = _nothing(draft, subject, judged)
    if nothing:
        return draft.record("fail_accuracy", Cause("accuracy", "", "nothing to judge", nothing, detail=nothing))
    return draft.record(_passed(draft))


def _keep(draft: Draft, judged: Verdicts) -> None:
    worst = sorted(judged.gradients, key=lambda each: (each.ok, -_excess(each)))[:_KEPT]
    right = sum(each.ok for each in judged.gradients)
    draft.known |= {"outputs": judged.outputs, "gradients": tuple(worst)}
    draft.known |= {"gradient_count": len(judged.gradients), "gradients_right": right}


def _passed(draft: Draft) -> Status:
    elsewhere = draft.known["breaks"] or any(use.remaining for use in draft.known["ops"])
    return "pass_with_fallback" if elsewhere else "pass"


def _reconsidered(
    draft: Draft, subject: Subject, found: Results, plain: Results, exact: Results, judged: Verdicts
) -> Verdicts:
    """The results judged with the target's choices where rounding decides; what is known is told before, as that may
    take too long. Where nothing can be told, the verdict stays, and a note says so."""
    cause = _inaccuracy(judged.wrong) if judged.wrong else None
    draft.send(draft.record("fail_accuracy" if cause else _passed(draft), cause))
    try:
        again = reconsidered(subject, draft.job.case.target, found, plain, exact)
        if again.words.startswith("ill-conditioned") and (suspect := first_wrong(subject, _options(draft))):
            draft.note(f"{again.words}; but the first value that is off, {suspect.place}: {suspect.complaint}")
            return judged
    except Exception as failure:
        draft.note(f"whether rounding decides a choice is not known: {summary(failure)}")
        return judged
    draft.known["verdict"] = again.words
    return again.verdicts


def _nothing(draft: Draft, subject: Subject, judged: Verdicts) -> str:
    """Why a case without a wrong result is no pass either: what is missing for a verdict; empty if nothing is."""
    if not draft.known["graphs"]:
        return "torch compiled no graph of it"
    if not judged.outputs:
        return "it gives no tensor"
    return "no parameter has a gradient" if subject.trains and not judged.gradients else ""


def _excess(output: Output) -> float:
    """The error in parts of what rounding explains."""
    found = part_of_allowed(output)
    return float(not output.ok) if found is None else found


def _inaccuracy(wrong: Sequence[Output]) -> Cause:
    worst = max(wrong, key=_excess)
    error = "NaN" if worst.nan else "infinity" if worst.inf else "inaccurate" if worst.count else "shape or dtype"
    return Cause("accuracy", "", error, f"{error} results", detail=f"{worst.name}: {worst.complaint}")


def _inaccurate(draft: Draft, subject: Subject, wrong: Sequence[Output]) -> Record:
    """The record of wrong results. What is known is told before the first wrong op is looked for, as that may fail."""
    cause = _inaccuracy(wrong)
    draft.known["attribution"] = "not found: the search took too long or too much memory"
    draft.send(draft.record("fail_accuracy", cause))
    try:
        suspect = first_wrong(subject, _options(draft))
    except Exception as failure:
        draft.known["attribution"] = f"not found: {summary(failure)}"
        return draft.record("fail_accuracy", cause)
    if suspect is None:
        draft.known["attribution"] = "no value that the programs compute is wrong by itself"
        return draft.record("fail_accuracy", replace(cause, component="unknown"))
    draft.known["attribution"] = f"{suspect.place}: {suspect.complaint}"
    found = replace(cause, component=suspect.component, op=suspect.op, where=suspect.place)
    return draft.record("fail_accuracy", found)
