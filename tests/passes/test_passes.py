"""Each pass does what its docstring says, keeps results and leaves a valid graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ops.cases import allowed, outcome, samples, told
from ops.knowledge import views
from suites.op_cases import given, single

from assay.evidence.compare.arrays import closeness
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.graph import Graph, Node, Origin, fresh_ids
from assay.ir.types import TensorType
from assay.ir.verify import verify
from assay.limits import DEFAULT
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.levels import core_level
from assay.ops.registry import Effect, effect_of
from assay.passes import STANDARD, apply
from assay.passes.cse import cse
from assay.passes.dce import dce
from assay.passes.decompose import decompose
from assay.passes.fold import fold
from assay.passes.hoist import hoist
from assay.passes.invariants import invariants
from assay.passes.simplify import simplify
from assay.targets.reference import ReferenceTarget

X = TensorType(dtypes.f32, (symbol("n"), 4))


def build(body: Callable[[Builder, Any], Any]) -> Graph:
    """A graph of one input; `body` gives its outputs."""
    b = Builder()
    x = b.input(X)
    outputs = body(b, x)
    return b.finish("g", [x], outputs if isinstance(outputs, list) else [outputs], names={"x": x})


def run(graph: Graph) -> tuple[Any, ...]:
    array = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    return ReferenceTarget().compile(graph).run([array])


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def twice(b: Builder, x: Any) -> Any:
    return b.add(b.exp(x), b.exp(x))


def unused(b: Builder, x: Any) -> Any:
    b.log(b.exp(x))
    return b.neg(x)


def weights_only(b: Builder, x: Any) -> Any:
    w = b.transpose(b.constant(np.arange(8, dtype=np.float32).reshape(2, 4)), perm=(1, 0))
    return b.matmul(x, b.mul(w, 2.0))


def no_ops(b: Builder, x: Any) -> Any:
    same = b.sub(b.mul(b.div(x, 1.0), b.constant(np.ones(4, np.float32))), 0.0)
    turned = b.transpose(b.transpose(same, perm=(1, 0)), perm=(1, 0))
    return b.cast(b.pad(b.concat(turned, axis=0), [0, 0, 0, 0], 0.0), dtype=dtypes.f32)


def reshaped_twice(b: Builder, x: Any) -> Any:
    return b.reshape(b.reshape(x, [-1]), [2, -1])


def body_reads_outer(b: Builder, x: Any) -> Any:
    outer = b.exp(x)
    then, other = b.child(), b.child()
    regions = (
        then.finish("then", [], [then.add(then.exp(x), outer)]),
        other.finish("else", [], [other.neg(outer)]),
    )
    condition = b.lt(b.reduce_sum(x), 1.0)
    return b.emit("branch", condition, regions=regions)[0]


def weights_handed_through(b: Builder, x: Any) -> Any:
    """A loop that carries a weight and a bias unchanged, of which the weight is read behind it, around another one."""
    weight, bias = b.constant(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)), b.exp(x)

    def body(inner: bool, builder: Builder) -> Graph:
        kinds = (TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ()), X, weight.type, bias.type)
        c = builder.child()
        count, go, state, w, plus = (c.input(kind) for kind in kinds)
        after = c.tanh(c.add(c.matmul(state, w), plus))
        if inner:
            after, *_ = c.emit("loop", c.constant(2), None, after, w, plus, regions=(body(False, c),))
        return c.finish("body", [count, go, state, w, plus], [c.constant(np.True_), after, w, plus, w])

    last, w, plus, rows = b.emit("loop", b.constant(3), None, x, weight, bias, regions=(body(True, b),))
    return [last, w, plus, rows]


@pytest.mark.parametrize(
    ("make", "each", "left"),
    [
        (twice, cse, ["exp", "add"]),
        (unused, dce, ["neg"]),
        (weights_only, fold, ["matmul"]),
        (no_ops, simplify, []),
        (reshaped_twice, lambda g: dce(simplify(g)), ["reshape"]),
    ],
)
def test_a_pass_leaves_just_these_ops(
    make: Callable[[Builder, Any], Any], each: Callable[[Graph], Graph], left: list[str]
) -> None:
    graph = build(make)
    better = dce(each(graph))
    verify(better)
    assert ops(better) == left
    np.testing.assert_array_equal(run(better)[0], run(graph)[0])


@pytest.mark.parametrize(
    "make", [twice, unused, weights_only, no_ops, reshaped_twice, body_reads_outer, weights_handed_through]
)
def test_all_passes_keep_results_and_validity(make: Callable[[Builder, Any], Any]) -> None:
    graph = build(make)
    better = apply(graph, STANDARD, verify)
    assert len(better.nodes) <= len(graph.nodes)
    np.testing.assert_array_equal(run(better)[0], run(graph)[0])


def test_a_body_reuses_what_the_outer_graph_computed() -> None:
    better = cse(build(body_reads_outer))
    branch = next(node for node in better.nodes if node.op == "branch")
    assert ops(branch.regions[0]) == ["add"]


def test_a_merged_node_keeps_the_origins_of_all() -> None:
    def several(b: Builder, x: Any) -> Any:
        made: list[Any] = []
        for name in ("first", "second", "third", "second"):
            with b.origin(Origin("made", name)):
                made.append(b.exp(x))
        return made

    (node,) = cse(build(several)).nodes
    assert node.origin.name == "first"
    assert [origin.name for origin in node.origin.merged] == ["second", "third"]


def test_loops_carry_only_what_changes() -> None:
    graph = build(weights_handed_through)
    lean = invariants(graph)
    verify(lean, core_level)
    outer = next(node for node in lean.nodes if node.op == "loop")
    inner = next(node for node in outer.regions[0].nodes if node.op == "loop")
    for node, collected in ((outer, 1), (inner, 1)):
        assert len(node.inputs) == 2 + 1
        assert len(node.outputs) == 1 + collected
        assert len(node.regions[0].inputs) == 2 + 1
    makers = {value: node.op for node in lean.nodes for value in node.outputs}
    assert lean.outputs[1] in lean.constants
    assert makers[lean.outputs[2]] == "exp"
    for found, wanted in zip(run(lean), run(graph), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_states_that_change_places_stay() -> None:
    def swapped(b: Builder, x: Any) -> Any:
        c = b.child()
        kinds = (TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ()), X, X)
        count, go, one, other = (c.input(kind) for kind in kinds)
        body = c.finish("body", [count, go, one, other], [c.constant(np.True_), other, one])
        return list(b.emit("loop", b.constant(3), None, x, b.exp(x), regions=(body,)))

    graph = build(swapped)
    assert len(invariants(graph).nodes[-1].outputs) == 2
    for found, wanted in zip(run(apply(graph, STANDARD)), run(graph), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_zero_and_minus_zero_are_not_the_same_constant() -> None:
    def signs(b: Builder, x: Any) -> Any:
        return [b.div(x, 0.0), b.div(x, -0.0)]

    graph = build(signs)
    better = apply(graph, STANDARD, verify)
    for ours, expected in zip(run(better), run(graph), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_adding_zero_stays_because_of_minus_zero() -> None:
    def plus_zero(b: Builder, x: Any) -> Any:
        return b.add(x, 0.0)

    assert ops(apply(build(plus_zero), STANDARD, verify)) == ["add"]


def test_random_numbers_are_neither_merged_nor_folded_away() -> None:
    def draws(b: Builder, x: Any) -> Any:
        return b.add(b.random_uniform([4], 1, dtype=dtypes.f32), b.random_uniform([4], 2, dtype=dtypes.f32))

    graph = build(draws)
    np.testing.assert_array_equal(run(apply(graph, STANDARD, verify))[0], run(graph)[0])
    assert not np.array_equal(
        *(
            ReferenceTarget()
            .compile(build(lambda b, x, s=s: b.random_uniform([4], s, dtype=dtypes.f32)))
            .run([np.zeros((1, 4), np.float32)])[0]
            for s in (1, 2)
        )
    )


def test_what_acts_is_never_dropped() -> None:
    def checked(b: Builder, x: Any) -> Any:
        b.require(b.lt(x, 9.0), message="too large")
        b.opaque(
            target="aten.rand.default", args=((2,),), kwargs=(), kinds=("f32[2]",), reason="draws", effect="observable"
        )
        b.opaque(target="aten.ones.default", args=((2,),), kwargs=(), kinds=("f32[2]",), reason="no lowering")
        return b.neg(x)

    left = dce(build(checked))
    assert ops(left) == ["lt", "require", "opaque", "neg"]


def test_a_check_in_a_body_is_never_dropped() -> None:
    def checked(b: Builder, x: Any) -> Any:
        then, other = b.child(), b.child()
        small = then.require(then.lt(x, 9.0), message="too large")
        regions = then.finish("then", [], [small]), other.finish("else", [], [other.lt(x, 9.0)])
        b.emit("branch", b.lt(b.reduce_sum(x), 1.0), regions=regions)
        assert effect_of(b.nodes[-1]) is Effect.OBSERVABLE
        return b.neg(x)

    graph = build(checked)
    assert ops(dce(graph)) == ops(graph)
    assert "require" in [node.op for node in dce(graph).walk()]


@pytest.mark.parametrize(
    ("make", "effect"),
    [
        (lambda b, x: b.exp(x), Effect.PURE),
        (lambda b, x: b.gcd(b.cast(x, dtype=dtypes.i64), 2), Effect.PURE),
        (lambda b, x: b.fresh_seed(), Effect.ORDERED),
        (lambda b, x: b.opaque(x, **OPAQUE), Effect.ORDERED),
        (lambda b, x: b.opaque(x, **OPAQUE, effect="observable"), Effect.OBSERVABLE),
        (lambda b, x: b.require(b.lt(x, 1.0), message=""), Effect.OBSERVABLE),
        (body_reads_outer, Effect.PURE),
    ],
)
def test_the_effect_of_a_node_is_one_of_three(make: Callable[[Builder, Any], Any], effect: Effect) -> None:
    assert max((effect_of(node) for node in build(make).nodes), key=list(Effect).index) is effect


OPAQUE: dict[str, Any] = {"target": "aten.neg", "args": ("%0",), "kwargs": (), "kinds": ("f32[2]",), "reason": ""}


def test_an_op_that_is_not_known_yet_is_ordered() -> None:
    assert effect_of(Node("aten.rand.default", (), (), Origin("o"))) is Effect.ORDERED


def test_hoisting_cuts_off_what_static_inputs_determine() -> None:
    b = Builder()
    x, w = b.input(X), b.input(TensorType(dtypes.f32, (4, 4)))
    turned = b.exp(b.transpose(w, perm=(1, 0)))
    graph = b.finish("g", [x, w], [b.matmul(x, turned), b.expand(turned, [2, 4, 4])])
    prelude, rest = hoist(graph, {w})
    verify(prelude)
    verify(rest)
    assert ops(prelude) == ["transpose", "exp"]
    assert ops(rest) == ["matmul", "expand"]
    weights, array = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4), np.ones((3, 4), np.float32)
    early = ReferenceTarget().compile(prelude).run([weights])
    whole = ReferenceTarget().compile(graph).run([array, weights])
    for mine, expected in zip(ReferenceTarget().compile(rest).run([array, weights, *early]), whole, strict=True):
        np.testing.assert_array_equal(mine, expected)


# --- origins say which passes touched a node


@pytest.mark.parametrize(
    ("make", "each", "passes"),
    [
        (twice, cse, {"exp": (), "add": ("cse",)}),
        (reshaped_twice, simplify, {"reshape": ("simplify",)}),
        (unused, dce, {"neg": ()}),
    ],
)
def test_a_changed_node_names_the_pass_once(
    make: Callable[[Builder, Any], Any], each: Callable[[Graph], Graph], passes: dict[str, tuple[str, ...]]
) -> None:
    assert {node.op: node.origin.passes for node in dce(apply(build(make), [each])).nodes} == passes


@pytest.mark.parametrize("op", ["rnn", "gru", "lstm", "batch_norm", "softmax", "max_pool", "dynamic_quantize"])
def test_decompose_puts_milli_ops_in_the_place_of_a_composite(op: str) -> None:
    """Also where two results are one value of the parts, or a result is an argument: a layer over no steps."""
    for dtype, sample, rng in samples(CORE[op]):
        if dtype is not dtypes.f32:
            continue
        graph = single(CORE[op], sample, next(view for view in views(rng, CORE[op], sample) if view.level == "shapes"))
        parts = decompose(graph, lambda node: False, fresh_ids(graph), DEFAULT)
        verify(parts, core_level)
        assert all(CORE[node.op].is_milli for node in parts.walk()), told(CORE[op], dtype, sample)
        assert (parts.inputs, parts.outputs) == (graph.inputs, graph.outputs)
        results = ReferenceTarget().compile(parts).run(list(given(sample, graph)))
        for got, wanted in zip(results, outcome(CORE[op], sample), strict=True):
            found = closeness(got, wanted, **allowed(CORE[op], sample, wanted))
            assert found.ok, f"{told(CORE[op], dtype, sample)}: {found}"
