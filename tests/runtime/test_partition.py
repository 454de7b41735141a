"""Placement on a target that takes only some ops: what it refuses falls back with a reason, results stay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay.errors import CompileFailed
from assay.evidence.compare.noise import noise_of
from assay.evidence.fuzz.graph_cases import GraphCase
from assay.evidence.fuzz.graph_run import make_case
from assay.ir import dtypes
from assay.ir.dims import floordiv, symbol
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.ops.lowering import lower
from assay.runtime.partition import partition, transferred_bytes
from assay.runtime.program import compile_plan
from assay.targets.base import YES, Bodies, Executable, Observer, Run, Support
from assay.targets.budget import Allowance
from assay.targets.reference import ReferenceTarget

NONE: Bodies = {}


class Counting:
    """Counts its runs and hands them to the oracle."""

    def __init__(self, inner: Executable) -> None:
        self.inner, self.runs = inner, 0
        self.addressed = inner.addressed

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        return Counting(self.inner.bind(statics))

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        self.runs += 1
        return self.inner.submit(inputs, observer, allowance)


class Picky(ReferenceTarget):
    """Takes only the ops it is given."""

    name = "picky"

    def __init__(self, *ops: str) -> None:
        super().__init__()
        self.ops = ops
        self.made: list[Counting] = []

    def support(self, node: Node) -> Support:
        return YES if node.op in self.ops else Support(False, f"no kernel for {node.op}")

    def compile(self, segment: Graph, bodies: Bodies = NONE, disabled: Collection[str] = (), device: Any = None) -> Any:
        self.made.append(Counting(super().compile(segment, bodies)))
        return self.made[-1]


def model() -> Graph:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (2, 3)))
    y = b.exp(b.sigmoid(b.mul(x, 2.0)))
    return b.finish("m", [x], [b.sin(y)], input_names=("x",), output_names=("y",))


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_refused_nodes_fall_back_with_their_reason() -> None:
    target, oracle = Picky("mul", "exp", "sigmoid"), ReferenceTarget()
    plan = partition(model(), (target, oracle), DEFAULT)
    assert [(p.node.op, p.target, p.reason) for p in plan.placements] == [
        ("mul", "picky", ""),
        ("sigmoid", "picky", ""),
        ("exp", "picky", ""),
        ("sin", "reference", "no kernel for sin"),
    ]
    assert [s.target.name for s in plan.segments] == ["picky", "reference"]
    assert transferred_bytes(plan) == 24
    expected = oracle.compile(model()).run([X])[0]
    np.testing.assert_array_equal(compile_plan(plan, ReferenceTarget()).run([X])[0], expected)
    assert [executable.runs for executable in target.made] == [1]


def test_a_refused_composite_is_decomposed_and_asked_again() -> None:
    target, oracle = Picky("mul", "neg", "abs", "exp", "add", "lt", "div", "where", "sin"), ReferenceTarget()
    plan = partition(model(), (target, oracle), DEFAULT)
    assert {p.target for p in plan.placements} == {"picky"}
    assert "sigmoid" not in {p.node.op for p in plan.placements}
    expected = oracle.compile(model()).run([X])[0]
    np.testing.assert_allclose(compile_plan(plan, ReferenceTarget()).run([X])[0], expected, rtol=3e-7)


def test_origins_survive_the_decomposition() -> None:
    plan = partition(model(), (Picky("mul"), ReferenceTarget()), DEFAULT)
    assert all(p.node.origin.op for p in plan.placements)


# --- order


def segments_of(host: Callable[[Builder, Value], Value]) -> list[str]:
    """Where parts run if `host`, which gives its input again, feeds a device op that feeds it, and once more apart."""
    b = Builder()
    x, y = b.input(WHOLE), b.input(WHOLE)
    graph = b.finish("m", [x, y], [host(b, b.neg(host(b, x))), b.neg(host(b, y))])
    plan = partition(graph, (Picky("neg"), ReferenceTarget()), DEFAULT)
    for found in compile_plan(plan, ReferenceTarget()).run([np.array([1, 2]), np.array([1, 2])]):
        np.testing.assert_array_equal(np.abs(found), [1, 2])
    return [segment.target.name for segment in plan.segments]


WHOLE = TensorType(dtypes.i64, (2,))


def divisor(b: Builder, x: Value) -> Value:
    """By a host op that reads nothing but its inputs."""
    return b.gcd(x, 0)


def checked(b: Builder, x: Value) -> Value:
    """By a host op that may raise."""
    return b.where(b.require(b.lt(x, 9), message="too large"), x, 0)


def test_host_ops_without_effects_run_when_they_can() -> None:
    assert segments_of(divisor) == ["reference", "picky", "reference"]


def test_host_ops_with_effects_keep_their_order() -> None:
    assert segments_of(checked) == ["reference", "picky", "reference", "picky"]


# --- nothing is dropped


def symbolic(case: GraphCase) -> Graph:
    """The case's graph with a symbol for every size of its inputs."""

    def kind(index: int, value: Value) -> TensorType:
        assert isinstance(value.type, TensorType)
        return TensorType(value.type.dtype, tuple(symbol(f"d{index}_{i}") for i in range(len(value.type.shape or ()))))

    return lower(case.graph, [Fact(kind(i, value)) for i, value in enumerate(case.graph.inputs)])


@pytest.mark.parametrize("index", range(30))
def test_every_node_runs_once_whatever_a_target_takes(index: int) -> None:
    """Random graphs with symbolic sizes, cut up for a target that takes a random share of the ops."""
    case, rng = make_case(13, index), np.random.default_rng([13, index])
    graph, noise = symbolic(case), noise_of(case.graph, case.values, index)
    ops = sorted({node.op for node in graph.nodes})
    for share in (0.2, 0.5, 0.8):
        taken = [op for op in ops if rng.random() < share]
        plan = partition(graph, (Picky(*taken), ReferenceTarget()), DEFAULT)
        ran = [node for segment in plan.segments for node in segment.graph.nodes]
        assert sorted(map(id, ran)) == sorted(id(node) for node in plan.graph.nodes)
        results = compile_plan(plan, ReferenceTarget()).run(case.inputs)
        for value, result in zip(case.graph.outputs, results, strict=True):
            assert value not in noise or noise[value].judge(result, case.values[value]).ok


def test_a_symbol_that_only_a_later_value_tells() -> None:
    """What the fallback runs waits for no symbols, so that it can be what makes the value that tells them."""
    b = Builder()
    size = symbol("s")
    half = b.input(TensorType(dtypes.f32, (floordiv(size, 2),)))
    b.concat(b.sin(half), b.cos(half), axis=0)
    told = b.fresh(TensorType(dtypes.f32, (size,)))
    nodes = (*b.nodes[:-1], replace(b.nodes[-1], outputs=(told,)))
    graph = Graph("g", (half,), (told,), nodes)
    plan = partition(graph, (Picky("sin", "cos", "concat"), ReferenceTarget()), DEFAULT)
    assert [p.reason for p in plan.placements] == ["nothing tells the size s"] * 3
    x = np.arange(3, dtype=np.float32)
    assert compile_plan(plan, ReferenceTarget()).run([x])[0].shape == (6,)


def test_nodes_that_wait_for_each_other_are_named() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (2,)))
    y = b.fresh(TensorType(dtypes.f32, (2,)))
    first = Node("add", (x, y), (b.fresh(y.type),), Origin("first"))
    second = Node("exp", first.outputs, (y,), Origin("second"))
    graph = Graph("g", (x,), (y,), (first, second))
    with pytest.raises(CompileFailed, match=r"wait for each other: add \(first\), exp \(second\)"):
        partition(graph, (Picky("add"), ReferenceTarget()), DEFAULT)
