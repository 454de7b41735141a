"""Samples of ops as graphs of one node, and whether a target's results for them are right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from ops.cases import allowed, outcome, told
from ops.knowledge import View

from assay.evidence.compare.arrays import closeness, displacement, epsilon
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.ops.builder import Builder
from assay.ops.registry import OpDef, Sample
from assay.targets.base import Target
from assay.targets.reference import ReferenceTarget
from assay.targets.reference.interpreter import Mode

LEVELS = ("shapes", "symbols and fixed values")
"""What is known of the arguments where results are compared."""
_FLOORS = 4.0
"""An error of this many noise floors of a coarse target is noise."""


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


def given(sample: Sample, graph: Graph) -> list[Any]:
    """The arguments of the graph's inputs."""
    present = [index for index, value in enumerate(sample.inputs) if value is not None]
    free = [index for index in present if index not in sample.fixed]
    return [sample.inputs[index] for index in (free if len(graph.inputs) < len(present) else present)]


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


def complaints(
    target: Target, definition: OpDef, dtype: DType, sample: Sample, graph: Graph, results: tuple[Any, ...]
) -> list[str]:
    """What is wrong with a target's results: each farther from the reference than the op's tolerance, in units of its
    own dtype, of one that an attribute says to round to, or of the one that the target rounds to."""
    rounds_to = target.traits.rounds_to
    floors = _floors(graph, given(sample, graph), rounds_to)
    found: list[str] = []
    for got, wanted, floor in zip(results, outcome(definition, sample), floors, strict=True):
        bounds: dict[str, Any] = allowed(definition, sample, wanted, _coarsest(sample, wanted, rounds_to))
        where = None
        if floor is not None:
            bounds["absolute"] = bounds["absolute"] + _FLOORS * np.nan_to_num(floor, posinf=0.0)
            where = np.isfinite(floor)
        close = closeness(np.asarray(got), wanted, where=where, **bounds)
        if not close.ok:
            found.append(f"{told(definition, dtype, sample)}: {close}\ngot {got}\nnot {wanted}")
    return found


def _coarsest(sample: Sample, wanted: Any, rounds_to: DType | None) -> DType:
    """The dtype that limits how exact a result can be."""
    named = [attr for attr in sample.attrs.values() if isinstance(attr, DType) and attr.is_float]
    own = dtypes.of(wanted)
    coarse = [rounds_to] if rounds_to is not None and own.is_float else []
    return max([own, *named, *coarse], key=epsilon)


def _floors(graph: Graph, inputs: list[Any], rounds_to: DType | None) -> list[Any]:
    """For each result of a coarse target, how far rounding to its dtype moves each element; infinite where that makes
    another integer of it, or another kind of float."""
    if rounds_to is None:
        return [None] * len(graph.outputs)
    runs = [ReferenceTarget(mode).compile(graph).run(inputs) for mode in (cast(Mode, rounds_to.name), "exact")]
    return [displacement(rough, exact) for rough, exact in zip(*runs, strict=True)]
