"""Every op on every target against its definition, for every dtype, with numbers and with symbols for sizes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from ops.cases import OPS, outcome, samples, spread_samples, told
from ops.knowledge import views
from programs import settings_for
from suites.op_cases import LEVELS, complaints, given, resized, single

from assay.errors import AssayError
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.ops.registry import OpDef, Sample, complete_attrs
from assay.runtime.partition import partition
from assay.runtime.pipeline import placed
from assay.runtime.program import Program
from assay.targets.base import Target

DEVICE_OPS = [definition for definition in OPS if not definition.host]


def by_name(definition: OpDef) -> str:
    return definition.name


def program_on(target: Target, graph: Graph) -> Program | None:
    """The graph as it is, on the target; None if the target takes nothing of it."""
    settings = settings_for(target)
    plan = partition(graph, settings.chain, settings.limits)
    return placed(graph, settings) if any(each.target == target.name for each in plan.placements) else None


@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("definition", DEVICE_OPS, ids=by_name)
def test_results_are_those_of_the_reference(definition: OpDef, target: Target) -> None:
    compare(definition, target, spread_samples(definition))


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("definition", DEVICE_OPS, ids=by_name)
def test_results_of_the_other_samples_are_those_of_the_reference(definition: OpDef, target: Target) -> None:
    compare(definition, target, spread_samples(definition, rest=True))


def compare(definition: OpDef, target: Target, chosen: Iterable[tuple[DType, Sample, np.random.Generator]]) -> None:
    """See that a target gives what the reference gives."""
    for dtype, sample, rng in chosen:
        levels = {view.level: view for view in views(rng, definition, sample)}
        for level in LEVELS:
            graph = single(definition, sample, levels[level])
            program = program_on(target, graph)
            if program is not None:
                results = program.run(given(sample, graph))
                wrong = complaints(target, definition, dtype, sample, graph, results)
                assert not wrong, f"({level}) " + "\n".join(wrong)


@pytest.mark.parametrize("definition", DEVICE_OPS, ids=by_name)
def test_sizes_that_do_not_fit_are_an_error(definition: OpDef, target: Target) -> None:
    """A program for all sizes takes those that the definition takes, and no others: nothing is read beyond its end."""
    seen: set[str] = set()
    for dtype, sample, rng in samples(definition):
        kind = told(definition, dtype, sample).replace(str(dtype), "")
        if kind in seen:
            continue
        seen.add(kind)
        view = next(view for view in views(rng, definition, sample) if view.level == LEVELS[1])
        graph = single(definition, sample, view)
        program = program_on(target, graph)
        if program is None:
            continue
        for other in resized(sample):
            _agree(definition, program, other, given(other, graph), told(definition, dtype, other))


def _agree(definition: OpDef, program: Program, sample: Sample, arguments: list[Any], message: str) -> None:
    facts = next(views(np.random.default_rng(0), definition, sample)).facts
    try:
        definition.infer(facts, complete_attrs(definition, sample.attrs))
        outcome(definition, sample)
    except Exception as error:  # a rule tells of sizes, a reference of content too
        with pytest.raises(AssayError):
            pytest.fail(f"{message}: {program.run(arguments)} instead of {error!r}")
    else:
        with suppress(AssayError):  # a program for all sizes may have a limit that the definition has not
            program.run(arguments)
