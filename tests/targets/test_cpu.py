"""Every op on the native target against its definition, for every dtype, with numbers and with symbols for sizes."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ops.cases import OPS, allowed, outcome, samples, told
from ops.knowledge import View, views

from assay.evidence.compare import closeness, epsilon
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.ops.registry import OpDef, Sample
from assay.runtime.session import place_program
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
            program = place_program(graph, TARGET, "exact", DEFAULT)
            actual = program.run(list(given(sample, graph)))
            for got, wanted in zip(actual, outcome(definition, sample), strict=True):
                bounds = allowed(definition, sample, wanted, coarsest(sample, wanted))
                found = closeness(np.asarray(got), wanted, **bounds)
                assert found.ok, f"{told(definition, dtype, sample)} ({level}): {found}\ngot {got}\nnot {wanted}"


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
