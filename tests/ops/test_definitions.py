"""What every op definition promises, tested on its own samples: no op is named here unless it is an exception."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ops.cases import OPS, allowed, outcome, samples, told
from ops.knowledge import View, admits, holds, symbolic_views, views

from assay.evidence.compare.arrays import closeness, epsilon
from assay.ir.dtypes import DType, f32
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import OpDef, Sample, complete_attrs
from assay.targets.cpu.ops import CPU_OPS
from assay.targets.reference import ReferenceTarget
from assay.targets.reference.interpreter import Mode
from assay.targets.ttnn.ops import TTNN_OPS
from assay.targets.vulkan.ops import VULKAN_OPS

ROOT = Path(__file__).parent.parent.parent
OWNED = (*CPU_OPS, *TTNN_OPS, *VULKAN_OPS)
DEVICE_OPS = [definition for definition in OPS if not definition.host]
COMPOSITES = [definition for definition in OPS if not definition.is_milli]


def by_name(definition: OpDef) -> str:
    return definition.name


def by_element(definition: OpDef, sample: Sample) -> bool:
    """Whether an op makes of each f32, or of each pair of them, one, whatever stands beside it."""
    if "axis" in sample.attrs or not 1 <= len(sample.inputs) <= 2:
        return False
    if any(each is None or each.dtype != np.float32 for each in sample.inputs):
        return False
    line = [Fact(TensorType(f32, (64,)))] * len(sample.inputs)
    try:
        return list(definition.infer(line, complete_attrs(definition, sample.attrs))) == [TensorType(f32, (64,))]
    except ValueError:  # it wants more axes
        return False


# --- rules


@pytest.mark.parametrize("definition", OPS, ids=by_name)
def test_types_are_right_at_every_level_of_knowledge(definition: OpDef) -> None:
    for dtype, sample, rng in samples(definition):
        results = outcome(definition, sample)
        attrs = complete_attrs(definition, sample.attrs)
        for view in views(rng, definition, sample):
            types = definition.infer(view.facts, attrs)
            claim = f"{told(definition, dtype, sample)}, {view.level}: {[str(kind) for kind in types]}"
            assert len(types) == len(results), claim
            for kind, result in zip(types, results, strict=True):
                assert admits(kind, result, view.symbols), f"{claim}, really {result.dtype}{list(result.shape)}"


@pytest.mark.parametrize("definition", DEVICE_OPS, ids=by_name)
def test_shapes_are_numbers_where_all_values_are_known(definition: OpDef) -> None:
    for dtype, sample, rng in samples(definition):
        facts = next(views(rng, definition, sample)).facts
        for kind in definition.infer(facts, complete_attrs(definition, sample.attrs)):
            if isinstance(kind, TensorType):
                known = kind.shape is not None and all(isinstance(d, int) for d in kind.shape)
                assert known, f"{told(definition, dtype, sample)}: {kind}"


# --- contents


@pytest.mark.parametrize("definition", OPS, ids=by_name)
def test_contents_that_the_builder_knows_are_right(definition: OpDef) -> None:
    for dtype, sample, rng in samples(definition):
        results = outcome(definition, sample)
        for view in symbolic_views(rng, definition, sample):
            b = Builder()
            values = [None if fact is None else b.input(fact.type, fact.value) for fact in view.facts]
            facts = [b.fact(value) for value in b.emit(definition.name, *values, **sample.attrs)]
            for fact, result in zip(facts, results, strict=True):
                claim = f"{told(definition, dtype, sample)}, {view.level}: {fact.value}, really {result}"
                assert content_holds(fact, result, view), claim


def content_holds(fact: Fact, result: Any, view: View) -> bool:
    """Whether the known content of a value is that of the real result."""
    if fact.value is None:
        return True
    if fact.concrete is not None:
        return closeness(fact.concrete, result).ok
    pairs = zip(fact.value.reshape(-1).tolist(), result.reshape(-1).tolist(), strict=True)
    return fact.value.shape == result.shape and all(holds(claimed, int(real), view.symbols) for claimed, real in pairs)


# --- decompositions

NEED_FACTS: dict[str, str] = {
    **dict.fromkeys(("conv", "conv_transpose", "deform_conv", "squeeze"), "the exact shape of an input"),
    "cpu.conv_panels": "the exact shape of an input; the size of an axis that the kernel may not fit into",
    **dict.fromkeys(("rnn", "gru", "lstm"), "the hidden size"),
    "resize": "the size of an axis that is resized",
}
"""Composites that decompose only once shapes are numbers, with what they ask for; they are deferred until then."""


@pytest.mark.parametrize("definition", COMPOSITES, ids=by_name)
def test_decomposition_agrees_with_the_reference(definition: OpDef) -> None:
    """With numbers for shapes every composite falls apart into milli-ops alone."""
    for dtype, sample, rng in samples(definition):
        graph = decomposed(definition, sample, next(views(rng, definition, sample)))
        left = {node.op for node in graph.walk() if not CORE[node.op].is_milli or node.op == "deferred"}
        assert not left, f"{told(definition, dtype, sample)} leaves {left}"
        agree(definition, dtype, sample, graph)


@pytest.mark.parametrize("definition", COMPOSITES, ids=by_name)
def test_decomposition_works_when_dims_are_symbols(definition: OpDef) -> None:
    """With less known, nodes may wait until the program runs; the table above lists who waits for symbols."""
    waits: set[str] = set()
    one_of_each_kind = {dtype.kind: dtype for dtype in definition.main_dtypes}.values()
    for dtype, sample, rng in samples(definition):
        levels = {view.level: view for view in views(rng, definition, sample)}
        graph = decomposed(definition, sample, levels["symbols and fixed values"])
        waits.update(node.attrs["reason"] for node in graph.nodes if node.op == "deferred")
        agree(definition, dtype, sample, graph)
        for level in ("ranks", "dtypes") if dtype in one_of_each_kind else ():
            agree(definition, dtype, sample, decomposed(definition, sample, levels[level]))
    assert "; ".join(sorted(waits)) == NEED_FACTS.get(definition.name, "")


NUMBERS = np.array([-0.0, 0.0, -1, 1, -2, 2, -0.5, 0.5], np.float32)
PAIRS = np.stack(np.meshgrid(NUMBERS, NUMBERS)).reshape(2, -1)


def test_parts_give_zeros_the_signs_of_the_reference() -> None:
    tried, wrong = 0, dict[str, Any]()
    for definition in COMPOSITES:
        first = next((sample for dtype, sample, _ in samples(definition) if dtype is f32), None)
        if first is None or not by_element(definition, first):
            continue
        tried += 1
        given = tuple(PAIRS[: len(first.inputs)])
        b = Builder(decomposed=True)
        inputs = [b.input(TensorType(f32, each.shape)) for each in given]
        graph = b.finish(definition.name, inputs, b.emit(definition.name, *inputs, **first.attrs))
        (found,), (right,) = (
            ReferenceTarget().compile(graph).run(given),
            outcome(definition, Sample(given, first.attrs)),
        )
        places = (found == 0) & (right == 0) & (np.signbit(found) != np.signbit(right))
        if places.any():
            wrong[definition.name] = [each[places] for each in given]
    assert tried > 30
    assert not wrong, wrong


def decomposed(definition: OpDef, sample: Sample, view: View) -> Graph:
    """The op in milli-ops; inputs whose content is known are constants."""
    b = Builder(decomposed=True)
    values: list[Any] = []
    for index, fact in enumerate(view.facts):
        known = fact is not None and index in sample.fixed and fact.value is not None
        values.append(None if fact is None else b.constant(fact.value) if known else b.input(fact.type))
    results = b.emit(definition.name, *values, **sample.attrs)
    given = [value for value in values if value is not None and value not in b.constants]
    return b.finish(definition.name, given, results)


def agree(definition: OpDef, dtype: DType, sample: Sample, graph: Graph) -> None:
    """Assert that `graph` computes what the op's reference does, within the op's tolerance."""
    inputs = [value for value in sample.inputs if value is not None]
    if len(graph.inputs) < len(inputs):
        inputs = [value for index, value in enumerate(sample.inputs) if value is not None and index not in sample.fixed]
    actual = ReferenceTarget().compile(graph).run(inputs)
    expected = outcome(definition, sample)
    for got, wanted in zip(actual, expected, strict=True):
        found = closeness(got, wanted, **allowed(definition, sample, wanted))
        assert found.ok, f"{told(definition, dtype, sample)}: {found}\ngot {got}\nnot {wanted}"


# --- modes


@pytest.mark.parametrize("definition", OPS, ids=by_name)
def test_exact_mode_is_precise_mode_rounded(definition: OpDef) -> None:
    """A single op's inputs are the same in both modes, so its results differ by no more than one rounding.

    An op that is told by an attribute to compute in a narrower dtype differs by what it rounds there.
    """
    for dtype, sample, _ in samples(definition):
        exact, precise = (run_single(definition, sample, mode) for mode in ("exact", "precise"))
        for a, b in zip(exact, precise, strict=True):
            found = closeness(a, b, **stated(definition, sample, b))
            one_off = not found.difference and not found.nan and not found.inf and found.max_ulp <= 1
            assert found.ok or one_off, f"{told(definition, dtype, sample)}: {found}"


def stated(definition: OpDef, sample: Sample, wanted: Any) -> dict[str, Any]:
    """The op's tolerance in the coarsest dtype that its attributes name."""
    named = [attr for attr in sample.attrs.values() if isinstance(attr, DType) and attr.is_float]
    coarsest = max(named, key=epsilon, default=None)
    return {} if coarsest is None else allowed(definition, sample, wanted, coarsest)


def run_single(definition: OpDef, sample: Sample, mode: Mode) -> tuple[Any, ...]:
    b = Builder()
    facts = next(views(np.random.default_rng(0), definition, sample)).facts
    types = definition.infer(facts, complete_attrs(definition, sample.attrs))
    values = tuple(None if fact is None else b.input(fact.type) for fact in facts)
    outputs = tuple(b.fresh(kind) for kind in types)
    node = Node(definition.name, values, outputs, Origin("test"), complete_attrs(definition, sample.attrs))
    graph = Graph(definition.name, tuple(value for value in values if value is not None), outputs, (node,))
    return ReferenceTarget(mode).compile(graph).run([value for value in sample.inputs if value is not None])


# --- completeness


@pytest.mark.parametrize("definition", OPS, ids=by_name)
def test_every_dtype_has_a_sample(definition: OpDef) -> None:
    sampled = {dtype for dtype, _, _ in samples(definition)}
    assert sampled == set(definition.main_dtypes)


def test_every_op_is_documented() -> None:
    assert [definition.name for definition in (*CORE, *OWNED) if not definition.doc.strip()] == []


def test_the_milli_ops_are_few() -> None:
    """They are what a target must have to run everything: a closed set, host ops aside."""
    assert len([definition for definition in CORE if definition.is_milli and not definition.host]) <= 60


def test_targets_own_ops_that_fall_apart_into_core_ops() -> None:
    """None is among the core ops, and nobody needs the target to run them: a reference and parts are there."""
    assert [definition.name for definition in CORE if "." in definition.name] == []
    assert [definition.name for definition in OWNED if definition.is_milli or definition.host] == []
    assert all(each.name.startswith(f"{owned.owner}.") for owned in (CPU_OPS, TTNN_OPS, VULKAN_OPS) for each in owned)


def test_the_signatures_of_the_builder_are_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "corestub.py"))
    found = (ROOT / "src" / "assay" / "ops" / "core_ops.pyi").read_text()
    assert found == tool["stub"](), "run python tools/corestub.py"


def test_the_op_table_in_the_docs_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "optable.py"))
    assert (ROOT / "docs" / "ops.md").read_text() == tool["table"](), "run python tools/optable.py"
