"""Arguments whose shapes do not fit each other: what the reference cannot compute, the shape rule refuses.

Targets refuse by the rule alone, before and during a run. What it lets through, a kernel reads: beyond the end, if the
rule forgot a size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ops.cases import OPS, samples, told
from ops.knowledge import admits, views

from assay.ir.dims import evaluate as evaluate_dim
from assay.ops.conditions import noting
from assay.ops.registry import OpDef, Sample, carrier, complete_attrs, evaluate

DEVICE_OPS = [definition for definition in OPS if not definition.host]


def misfits(sample: Sample) -> Iterator[Sample]:
    """The sample with one argument of other sizes or of another rank."""
    for index, given in enumerate(sample.inputs):
        if isinstance(given, np.ndarray):
            for other in (*_resized(given), *_reranked(given)):
                yield sample._replace(inputs=(*sample.inputs[:index], other, *sample.inputs[index + 1 :]))


def _resized(array: Any) -> Iterator[Any]:
    """One axis shorter or longer by one element, twice as long, or empty."""
    for axis, size in enumerate(array.shape):
        for wanted in sorted({0, size - 1, size + 1, 2 * size} - {size, -1}):
            places = np.arange(wanted) % max(size, 1)
            yield np.take(array, places, axis) if size or not wanted else np.zeros_like(array)


def _reranked(array: Any) -> Iterator[Any]:
    """All axes as one, one axis more on either side, and a single element without axes."""
    if array.ndim != 1:
        yield array.reshape(-1)
    yield array[None]
    yield array[..., None]
    if array.ndim and array.size:
        yield array.reshape(-1)[:1].reshape(())
    if array.ndim != 1:
        yield array.reshape(-1)[:0]


CHOOSING = {
    **dict.fromkeys(
        ("gather", "gather_nd", "gather_elements", "scatter_nd", "scatter_elements", "roi_align", "tree_leaves"),
        "positions are content: kernels look at each of them",
    ),
    **dict.fromkeys(("arg_max", "arg_min"), "there may be no elements where a body never runs: a run tells"),
    "topk": "how many are wanted is content: a run compares it with how many there are",
}
"""Ops that choose elements of their first input, and why a rule lets those through that are not there."""


def _plain(definition: OpDef, sample: Sample) -> Sample | None:
    """The sample with zeros for integers that may be any: what is wrong with it still, is its shapes. None if the op
    chooses out of nothing."""
    chooses = definition.name in CHOOSING
    if chooses and not np.size(sample.inputs[0]):
        return None
    inputs = [
        np.zeros_like(x) if np.asarray(x).dtype.kind in "iu" and (chooses or i not in sample.fixed) else x
        for i, x in enumerate(sample.inputs)
    ]
    return sample._replace(inputs=tuple(inputs))


def complaint(definition: OpDef, sample: Sample | None) -> str:
    """What the rule should have refused as a ValueError; empty if it did, or if there is nothing to refuse."""
    if sample is None:
        return ""
    attrs = complete_attrs(definition, sample.attrs)
    levels = {view.level: view for view in views(np.random.default_rng(0), definition, sample)}
    try:
        kinds = definition.infer(levels["fixed values"].facts, attrs)
    except ValueError:
        return ""
    except Exception as error:
        return f"the rule raises {error!r}"
    try:
        with np.errstate(all="ignore"):
            results = evaluate(definition, sample.inputs, attrs, [carrier(kind) for kind in kinds])
    except Exception as error:
        return repr(error)
    wrong = [kind for kind, result in zip(kinds, results, strict=True) if not admits(kind, result, {})]
    return f"a result is not {wrong[0]}" if wrong else ""


def unchecked(definition: OpDef, sample: Sample) -> str:
    """Why the rule refuses a sample, though it would neither do so if the sizes of what is no constant were symbols nor
    note what must hold."""
    attrs = complete_attrs(definition, sample.attrs)
    levels = {view.level: view for view in views(np.random.default_rng(0), definition, sample)}
    try:
        definition.infer(levels["shapes"].facts, attrs)
    except ValueError as error:
        pairs = zip(levels["shapes"].facts, levels["symbols"].facts, strict=True)
        facts = [number if index in sample.fixed else symbol for index, (number, symbol) in enumerate(pairs)]
        try:
            with noting() as conditions:
                definition.infer(facts, attrs)
        except ValueError:
            return ""
        sizes = [evaluate_dim(condition.size, levels["symbols"].symbols) for condition in conditions]
        broken = any(size is not None and size < c.least for size, c in zip(sizes, conditions, strict=True))
        return "" if broken else repr(error)
    return ""


@pytest.mark.parametrize("definition", DEVICE_OPS, ids=lambda definition: definition.name)
def test_the_rule_refuses_shapes_that_the_reference_cannot_compute(definition: OpDef) -> None:
    missed: list[str] = []
    for text, other in _every_misfit(definition):
        wrong = complaint(definition, other) and complaint(definition, _plain(definition, other))
        missed += [f"{text}: {wrong}"] if wrong else []
    assert not missed, "\n".join(missed[:8])


@pytest.mark.parametrize("definition", DEVICE_OPS, ids=lambda definition: definition.name)
def test_what_is_refused_is_noted_for_runs_where_sizes_are_symbols(definition: OpDef) -> None:
    missed = [f"{text}: {why}" for text, other in _every_misfit(definition) if (why := unchecked(definition, other))]
    assert not missed, "\n".join(missed[:8])


def _every_misfit(definition: OpDef) -> Iterator[tuple[str, Sample]]:
    """What does not fit, made of the samples of the first dtype that has them; and the same in words."""
    seen: set[str] = set()
    for dtype, sample, _ in samples(definition):
        kind = told(definition, dtype, sample).replace(str(dtype), "")
        if kind not in seen:
            seen.add(kind)
            for other in misfits(sample):
                yield told(definition, dtype, other), other
