"""Chains of targets: who gets a node, what is decomposed for whom, and which islands are worth their transfers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest

from assay.errors import BadArgument, NotFound
from assay.evidence.compare.models import Judge, compare_models
from assay.ir.dims import symbol
from assay.ir.dtypes import bf16, f32
from assay.ir.graph import Graph, Node
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime import targets
from assay.runtime.partition import partition
from assay.runtime.pipeline import compiled
from assay.runtime.session import Session, SessionOptions
from assay.runtime.settings import Interface, Settings
from assay.targets.base import YES, Bodies, NamedPass, NodeRefused, Support, Traits, TransferCost
from assay.targets.cpu import CpuTarget
from assay.targets.reference import ReferenceTarget

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
NONE: Bodies = {}


class Device(ReferenceTarget):
    """Takes some ops, or all but some; with the traits it is given."""

    def __init__(self, name: str, ops: Collection[str], traits: Traits | None = None) -> None:
        super().__init__()
        self.name, self._ops, self._traits = name, ops, traits or Traits()

    @property
    def traits(self) -> Traits:
        return self._traits

    def support(self, node: Node) -> Support:
        return YES if node.op in self._ops else Support(False, f"{self.name} has no {node.op}")


PARTS = ("neg", "abs", "exp", "add", "lt", "div", "where", "mul")
"""What a sigmoid is made of, and mul."""


def model() -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    return b.finish("m", [x], [b.mul(b.sigmoid(b.mul(x, 2.0)), 3.0)], input_names=("x",), output_names=("y",))


def placed(*chain: ReferenceTarget, graph: Graph | None = None) -> list[tuple[str, str]]:
    plan = partition(graph or model(), (*chain, ReferenceTarget()), DEFAULT)
    return [(each.node.op, each.target) for each in plan.placements]


def test_a_composite_that_a_later_target_takes_whole_stays_whole() -> None:
    first, second = Device("first", ("mul", "exp")), Device("second", ("sigmoid",))
    assert placed(first, second) == [("mul", "first"), ("sigmoid", "second"), ("mul", "first")]


def test_a_composite_whose_parts_an_earlier_target_takes_all_is_decomposed_for_it() -> None:
    found = placed(Device("first", PARTS), Device("second", ("sigmoid",)))
    assert {target for _, target in found} == {"first"}
    assert "sigmoid" not in {op for op, _ in found}


def test_a_composite_that_only_the_oracle_takes_is_decomposed() -> None:
    found = placed(Device("first", ("mul",)), Device("second", ("exp",)))
    assert ("exp", "second") in found
    assert "sigmoid" not in {op for op, _ in found}


# --- islands


def chained(op: str) -> Graph:
    """exp, then one op, then exp."""
    b = Builder()
    x = b.input(TensorType(f32, (64, 64)))
    middle = b.exp(x)
    middle = b.matmul(middle, middle) if op == "matmul" else b.mul(middle, middle)
    return b.finish("m", [x], [b.exp(middle)], input_names=("x",), output_names=("y",))


@pytest.mark.parametrize(
    ("op", "seconds", "target"),
    [("mul", 1e-4, "host"), ("matmul", 1e-4, "device"), ("matmul", 1.0, "host"), ("mul", 0.0, "device")],
)
def test_an_island_stays_if_it_is_worth_its_transfers(op: str, seconds: float, target: str) -> None:
    cost = TransferCost(seconds, 1e9 if seconds else 1e15)
    device = Device("device", ("mul", "matmul"), Traits(cost, operations_per_second=1e12))
    host = Device("host", ("mul", "matmul", "exp"), Traits(operations_per_second=1e8))
    plan = partition(chained(op), (device, host, ReferenceTarget()), DEFAULT)
    found = {each.node.op: each for each in plan.placements}
    assert found[op].target == target
    assert found["exp"].target == "host"
    if target == "host":
        assert found[op].reason.startswith("not worth its transfers: ")


def test_what_stands_at_an_end_is_no_island() -> None:
    """Inputs and results of the program have to be moved anyway: who asks for the device gets it."""
    device = Device("device", ("mul",), Traits(TransferCost(1.0, 1e3)))
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    graph = b.finish("m", [x], [b.exp(b.mul(x, x))], input_names=("x",), output_names=("y",))
    assert placed(device, Device("host", ("exp", "mul")), graph=graph) == [("mul", "device"), ("exp", "host")]


# --- names


def test_a_chain_is_written_with_commas_and_ends_at_the_oracle() -> None:
    for text in ("cpu", "cpu,reference", " cpu , cpu ", "cpu,reference,cpu"):
        assert [each.name for each in targets.make_chain(text, "exact", DEFAULT)] == ["cpu", "reference"]
    assert [each.name for each in targets.make_chain("reference,cpu", "exact", DEFAULT)] == ["reference"]


@pytest.mark.parametrize("text", ["cpu,gpu", "", "cpu,,reference", ","])
def test_unknown_targets_are_told(text: str) -> None:
    with pytest.raises(NotFound, match="there is no target"):
        targets.make_chain(text, "exact", DEFAULT)


# --- passes by name


class Rewriting(ReferenceTarget):
    """Has a pass that can be switched off and one that cannot."""

    name = "rewriting"

    def passes(self) -> tuple[NamedPass, ...]:
        return (NamedPass("twice", lambda graph, *_: graph), NamedPass("needed", lambda graph, *_: graph, True))


@pytest.mark.parametrize(
    ("name", "words"), [("twise", "there is no pass 'twise'"), ("needed", "the pass 'needed' cannot be switched off")]
)
def test_passes_that_cannot_be_switched_off_are_told(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets._OWN, "rewriting", lambda *_: Rewriting())
    Session(model(), SessionOptions(target="rewriting", disabled_passes=("twice", "fold")))
    with pytest.raises(BadArgument, match=words):
        Session(model(), SessionOptions(target="rewriting", disabled_passes=(name,)))


def test_passes_are_switched_off_one_by_one() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (4, 8)))
    w = b.constant(np.ones((8, 3), np.float32))
    graph = b.finish("m", [x], [b.relu(b.matmul(x, w))], input_names=("x",), output_names=("y",))
    ops: Callable[[Session], list[str]] = lambda session: [node.op for node in session.graph.nodes]  # noqa: E731
    whole = Session(graph, SessionOptions(target="cpu"))
    without = Session(graph, SessionOptions(target="cpu", disabled_passes=("panels",)))
    assert "cpu.matmul_panels" in ops(whole)
    assert "panels" in next(n.origin.passes for n in whole.graph.nodes if n.op == "cpu.matmul_panels")
    assert ops(without) == ["matmul", "relu"]
    feed = {"x": np.ones((4, 8), np.float32)}
    np.testing.assert_array_equal(whole.run(feed)["y"], without.run(feed)["y"])


class Refusing(CpuTarget):
    """The native target without a kernel for one composite, which is then decomposed while it is placed."""

    def support(self, node: Node) -> Support:
        return Support(False, "refused") if node.op == "sigmoid" else super().support(node)


@pytest.mark.parametrize("target", [CpuTarget, Refusing])
def test_static_inputs_are_prepared_whatever_placing_makes_of_the_graph(target: type[CpuTarget]) -> None:
    b = Builder()
    x, w = b.input(TensorType(f32, (4, 8))), b.input(TensorType(f32, (8, 3)))
    graph = b.finish("m", [x, w], [b.sigmoid(b.matmul(x, w))], input_names=("x", "w"), output_names=("y",))
    made = compiled(graph, Settings((target("exact", DEFAULT), ReferenceTarget())), Interface(static=(1,)))
    assert made.prelude is not None
    assert [node.op for node in made.prelude.plan.graph.nodes] == ["cpu.pack_panels"]
    assert made.reads == (1,)
    feeds = [np.ones((4, 8), np.float32), np.full((8, 3), 0.1, np.float32)]
    (found,) = made.bound(made.prelude.run(feeds[1:])).run(feeds)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-feeds[0] @ feeds[1])), rtol=1e-6)


# --- sizes that must be known, numerics


def open_model() -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, (symbol("n"), 3)))
    return b.finish("m", [x], [b.mul(b.exp(x), 2.0)], input_names=("x",), output_names=("y",))


def test_a_target_that_wants_sizes_gets_a_program_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    make = lambda *_: Device("fixed", ("exp", "mul"), Traits(sizes="specialised"))  # noqa: E731
    monkeypatch.setitem(targets._OWN, "fixed", make)
    session = Session(open_model(), SessionOptions(target="fixed,cpu"))
    assert {node.target for node in session.explain().nodes} == {"cpu"}
    for rows in (2, 5, 2):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x) * 2, rtol=1e-6)
        assert {node.target for node in session.explain().nodes} == {"fixed"}


class Coarse(ReferenceTarget):
    """Computes in bf16, whatever a model states; or wrongly."""

    def __init__(self, name: str, *, tells: bool = True, wrong: bool = False) -> None:
        super().__init__("bf16")
        self.name, self._tells, self._wrong = name, tells, wrong

    @property
    def traits(self) -> Traits:
        return Traits(rounds_to=bf16 if self._tells else None)

    def compile(self, segment: Graph, bodies: Bodies = NONE, disabled: Collection[str] = (), device: Any = None) -> Any:
        if self._wrong:
            nodes = tuple(Node("cos", n.inputs, n.outputs, n.origin) if n.op == "exp" else n for n in segment.nodes)
            segment = Graph(segment.name, segment.inputs, segment.outputs, nodes, segment.constants)
        return super().compile(segment, bodies, disabled)


@pytest.mark.parametrize(("settings", "agrees"), [({}, True), ({"tells": False}, False), ({"wrong": True}, False)])
def test_a_coarse_target_is_judged_by_its_own_noise_floor(
    settings: dict[str, Any], agrees: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("MatMul", ["e", "e"], ["y"])]
    kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [16, 16]) for name in ("x", "y")]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", kinds[:1], kinds[1:])), path)
    monkeypatch.setitem(targets._OWN, "coarse", lambda *_: Coarse("coarse", **settings))
    x = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
    found = compare_models(path, "coarse", "reference", {"x": x}, Judge())
    assert not found.diverged if agrees else found.diverged


class Choosy(Device):
    """Takes all, but compiles no segment with certain ops in it."""

    def __init__(self, refused: Collection[str]) -> None:
        super().__init__("choosy", ("neg", "abs", "exp", "add", "mul"))
        self._refused = refused

    def compile(self, segment: Graph, bodies: Bodies = NONE, disabled: Collection[str] = (), device: Any = None) -> Any:
        for node in segment.nodes:
            if node.op in self._refused:
                raise NodeRefused(f"{node.op} cannot be compiled", node)
        return super().compile(segment, bodies, disabled)


def test_a_node_that_cannot_be_compiled_leaves_the_rest_of_its_segment_where_it_is() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    early = b.exp(x)
    graph = b.finish("m", [x], [b.mul(b.exp(b.abs(early)), b.neg(x)), early])
    with pytest.warns(RuntimeWarning, match="exp of m.choosy runs on the target 'reference'"):
        program = compiled(graph, Settings((Choosy({"exp"}), ReferenceTarget()), optimize=False)).program
    assert {each.node.op: each.target for each in program.plan.placements} == {
        "exp": "reference",
        "abs": "choosy",
        "neg": "choosy",
        "mul": "choosy",
    }
    assert {each.reason for each in program.plan.placements} == {"", "compile: exp cannot be compiled"}
    found, first = program.run([X])
    np.testing.assert_allclose(first, np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(found, np.exp(np.abs(np.exp(X))) * -X, rtol=1e-6)


def test_a_target_that_refuses_very_many_nodes_gives_the_segment_up() -> None:
    b = Builder()
    x = y = b.input(TensorType(f32, (2, 3)))
    for _ in range(70):
        y = b.abs(b.neg(y))
    graph = b.finish("m", [x], [y])
    with pytest.warns(RuntimeWarning):
        program = compiled(graph, Settings((Choosy({"neg"}), ReferenceTarget()), optimize=False)).program
    places = [each.target for each in program.plan.placements]
    assert places.count("choosy") == 64 - 1
    np.testing.assert_array_equal(program.run([X])[0], np.abs(X))
