"""Placement on a target that takes only some ops: what it refuses falls back with a reason, results stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.graph import Graph, Node
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.partition import partition, transferred_bytes
from assay.runtime.session import Program
from assay.targets.base import YES, Bodies, Executable, Observer, Probe, Support
from assay.targets.budget import Allowance
from assay.targets.reference import ReferenceTarget


class Counting:
    """Counts its runs and hands them to the oracle."""

    def __init__(self, inner: Executable) -> None:
        self.inner, self.runs = inner, 0

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        self.runs += 1
        return self.inner.run(inputs, observer, allowance)

    @property
    def peak_bytes(self) -> int | None:
        return self.inner.peak_bytes


class Picky:
    """Takes only the ops it is given."""

    name = "picky"

    def __init__(self, *ops: str) -> None:
        self.ops = ops
        self.made: list[Counting] = []

    def probe(self) -> Probe:
        return Probe(True)

    def support(self, node: Node) -> Support:
        return YES if node.op in self.ops else Support(False, f"no kernel for {node.op}")

    def compile(self, segment: Graph, bodies: Bodies) -> Executable:
        self.made.append(Counting(ReferenceTarget().compile(segment, bodies)))
        return self.made[-1]


def model() -> Graph:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (2, 3)))
    y = b.exp(b.sigmoid(b.mul(x, 2.0)))
    return b.finish("m", [x], [b.sin(y)], input_names=("x",), output_names=("y",))


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_refused_nodes_fall_back_with_their_reason() -> None:
    target, oracle = Picky("mul", "exp", "sigmoid"), ReferenceTarget()
    plan = partition(model(), target, oracle, DEFAULT)
    assert [(p.node.op, p.target, p.reason) for p in plan.placements] == [
        ("mul", "picky", ""),
        ("sigmoid", "picky", ""),
        ("exp", "picky", ""),
        ("sin", "reference", "no kernel for sin"),
    ]
    assert [s.target.name for s in plan.segments] == ["picky", "reference"]
    assert transferred_bytes(plan) == 24
    expected = oracle.compile(model()).run([X])[0]
    np.testing.assert_array_equal(Program(plan, ReferenceTarget()).run([X])[0], expected)
    assert [executable.runs for executable in target.made] == [1]


def test_a_refused_composite_is_decomposed_and_asked_again() -> None:
    target, oracle = Picky("mul", "neg", "abs", "exp", "add", "lt", "div", "where", "sin"), ReferenceTarget()
    plan = partition(model(), target, oracle, DEFAULT)
    assert {p.target for p in plan.placements} == {"picky"}
    assert "sigmoid" not in {p.node.op for p in plan.placements}
    expected = oracle.compile(model()).run([X])[0]
    np.testing.assert_allclose(Program(plan, ReferenceTarget()).run([X])[0], expected, rtol=3e-7)


def test_origins_survive_the_decomposition() -> None:
    plan = partition(model(), Picky("mul"), ReferenceTarget(), DEFAULT)
    assert all(p.node.origin.op for p in plan.placements)
