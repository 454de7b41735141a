"""Every op on the native target against its definition, for every dtype, with numbers and with symbols for sizes."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ops.cases import OPS, allowed, outcome, samples, told
from ops.knowledge import View, views
from programs import placed_on

from assay.errors import AssayError
from assay.evidence.compare.arrays import closeness, epsilon
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.ops.registry import OpDef, Sample, complete_attrs
from assay.targets.cpu import CpuTarget

ROOT = Path(__file__).parent.parent.parent
LEVELS = ("shapes", "symbols and fixed values")
TARGET = CpuTarget("exact", DEFAULT)


@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("definition", [d for d in OPS if not d.host], ids=lambda definition: definition.name)
def test_results_are_those_of_the_reference(definition: OpDef) -> None:
    for dtype, sample, rng in samples(definition):
        levels = {view.level: view for view in views(rng, definition, sample)}
        for level in LEVELS:
            graph = single(definition, sample, levels[level])
            program = placed_on(TARGET, graph)
            actual = program.run(list(given(sample, graph)))
            for got, wanted in zip(actual, outcome(definition, sample), strict=True):
                bounds = allowed(definition, sample, wanted, coarsest(sample, wanted))
                found = closeness(np.asarray(got), wanted, **bounds)
                assert found.ok, f"{told(definition, dtype, sample)} ({level}): {found}\ngot {got}\nnot {wanted}"


@pytest.mark.parametrize("definition", [d for d in OPS if not d.host], ids=lambda definition: definition.name)
def test_sizes_that_do_not_fit_are_an_error(definition: OpDef) -> None:
    """A program for all sizes takes those that the definition takes, and no others: nothing is read beyond its end."""
    seen: set[str] = set()
    for dtype, sample, rng in samples(definition):
        kind = told(definition, dtype, sample).replace(str(dtype), "")
        if kind in seen:
            continue
        seen.add(kind)
        view = next(view for view in views(rng, definition, sample) if view.level == LEVELS[1])
        graph = single(definition, sample, view)
        program = placed_on(TARGET, graph)
        if all(node.op != definition.name for node in program.plan.graph.nodes):
            continue  # its parts are other ops
        for other in resized(sample):
            _agree(definition, program, other, list(given(other, graph)), told(definition, dtype, other))


def _agree(definition: OpDef, program: Any, sample: Sample, arguments: list[Any], message: str) -> None:
    facts = next(views(np.random.default_rng(0), definition, sample)).facts
    try:
        definition.infer(facts, complete_attrs(definition, sample.attrs))
    except ValueError as error:
        with pytest.raises(AssayError):
            pytest.fail(f"{message}: {program.run(arguments)} instead of {error!r}")
    else:
        with suppress(AssayError):  # what no rule forbids, a reference still may
            program.run(arguments)


def resized(sample: Sample) -> Iterator[Sample]:
    """The sample with one axis of one argument shorter or longer by one element, or empty."""
    free = [i for i, x in enumerate(sample.inputs) if isinstance(x, np.ndarray) and i not in sample.fixed]
    for index in free:
        array = np.asarray(sample.inputs[index])
        for axis, size in enumerate(array.shape):
            for wanted in sorted({0, size - 1, size + 1} - {size, -1}):
                places = np.arange(wanted) % size if size else np.zeros(0, np.int64)
                other = np.take(array, places, axis) if size else np.zeros_like(array)
                yield sample._replace(inputs=(*sample.inputs[:index], other, *sample.inputs[index + 1 :]))


def coarsest(sample: Sample, wanted: Any) -> DType:
    """The dtype that limits how exact a result can be: its own, or one that an attribute says to round to."""
    named = [attr for attr in sample.attrs.values() if isinstance(attr, DType) and attr.is_float]
    return max([dtypes.of(wanted), *named], key=epsilon)


def single(definition: OpDef, sample: Sample, view: View) -> Graph:
    """A graph of one node; inputs whose content an op must know are constants."""
    b = Builder()
    values: list[Any] = []
    for index, fact in enumerate(view.facts):
        known = fact is not None and index in sample.fixed
        values.append(None if fact is None else b.constant(sample.inputs[index]) if known else b.input(fact.type))
    results = b.emit(definition.name, *values, **sample.attrs)
    inputs = [value for value in values if value is not None and value not in b.constants]
    return b.finish(definition.name, inputs, results)


def given(sample: Sample, graph: Graph) -> Iterator[Any]:
    """The arguments of the graph's inputs."""
    present = [index for index, value in enumerate(sample.inputs) if value is not None]
    free = [index for index in present if index not in sample.fixed]
    return (sample.inputs[index] for index in (free if len(graph.inputs) < len(present) else present))


def test_the_list_of_native_ops_in_the_docs_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "nativetable.py"))
    assert (ROOT / "docs" / "native-ops.md").read_text() == tool["table"](), "run python tools/nativetable.py"
