"""The rules of the IR: random graphs keep them, also once they went through text; every rule is noticed when broken."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from assay.errors import VerifyFailed
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, dim_max, symbol
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.parser import parse_graph
from assay.ir.printer import INLINE, print_graph
from assay.ir.types import MapType, OptionalType, SequenceType, TensorType, Type, UnknownType
from assay.ir.verify import verify

# ---- the same graph ------------------------------------------------------------------------------------------


def assert_same(a: Graph, b: Graph) -> None:
    """`a` and `b` are the same but for the identity of their values."""
    assert [a.name, a.level, a.input_names, a.output_names] == [b.name, b.level, b.input_names, b.output_names]
    for x, y in ((a.inputs, b.inputs), (a.outputs, b.outputs), (tuple(a.constants), tuple(b.constants))):
        assert [facts(v) for v in x] == [facts(v) for v in y]
    for x, y in zip(a.constants.values(), b.constants.values(), strict=True):
        assert_same_attr(x, y)
    assert [(k, facts(v)) for k, v in a.names.items()] == [(k, facts(v)) for k, v in b.names.items()]
    for m, n in zip(a.nodes, b.nodes, strict=True):
        assert (m.op, m.origin) == (n.op, n.origin)
        assert [v and facts(v) for v in m.inputs] == [v and facts(v) for v in n.inputs]
        assert [facts(v) for v in m.outputs] == [facts(v) for v in n.outputs]
        assert list(m.attrs) == list(n.attrs)
        for key in m.attrs:
            assert_same_attr(m.attrs[key], n.attrs[key])
        for r, s in zip(m.regions, n.regions, strict=True):
            assert_same(r, s)


def facts(value: Value) -> tuple[int, Type]:
    return value.id, value.type


def assert_same_attr(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, tuple):
        for x, y in zip(cast(tuple[Any, ...], a), b, strict=True):
            assert_same_attr(x, y)
    elif isinstance(a, np.ndarray):
        array = cast(Array, a)
        assert (array.dtype, array.shape) == (b.dtype, b.shape)
        assert (array.tolist() == b.tolist()) if array.dtype == object else (array.tobytes() == b.tobytes())
    elif isinstance(a, float):
        assert repr(a) == repr(b)
    else:
        assert a == b


# ---- random graphs -------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(["x", "_", "none", "a.b", "return"])
symbols = st.builds(symbol, texts.filter(bool), st.integers(0, 2), st.none() | st.integers(2, 9))


def compound(a: Expr, b: Expr, n: int) -> Dim:
    return dim_max(a * n + b, b // 3)


compounds = st.builds(compound, symbols, symbols, st.integers(-2, 3))
dims = st.integers(0, 9) | symbols | st.just(UNKNOWN) | compounds
tensor_types = st.builds(TensorType, st.sampled_from(dtypes.ALL), st.none() | st.lists(dims, max_size=3).map(tuple))
types = st.recursive(
    tensor_types | st.just(UnknownType()),
    lambda inner: st.one_of(
        inner.map(SequenceType), inner.map(OptionalType), st.builds(MapType, st.sampled_from(dtypes.ALL), inner)
    ),
    max_leaves=3,
)
ops = texts.filter(bool)
few_texts = st.lists(texts, max_size=2).map(tuple)
origins = st.recursive(
    st.builds(Origin, ops),
    lambda inner: st.builds(
        Origin, ops, texts, texts, texts, st.integers(0, 99), few_texts, st.lists(inner, max_size=2).map(tuple)
    ),
    max_leaves=4,
)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """A tensor of any dtype and any bits, often just too large for literals."""
    dtype = draw(st.sampled_from(dtypes.ALL))
    shape = draw(st.sampled_from([(), (0,), (1,), (2, 3), (INLINE,), (INLINE + 1,), (3, 0, 2)]))
    count = math.prod(shape)
    if dtype is dtypes.string:
        items = draw(st.lists(texts, min_size=count, max_size=count))
        return np.array(items, object).reshape(shape)
    if dtype.is_float and draw(st.booleans()):
        numbers = draw(st.lists(st.floats(width=16), min_size=count, max_size=count))
        return np.array(numbers, np.float64).astype(dtype.numpy).reshape(shape)
    size = count * dtype.numpy.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    return np.frombuffer(bytearray(data), dtype.numpy).reshape(shape) if size else np.zeros(shape, dtype.numpy)


numbers = st.none() | st.booleans() | st.integers() | st.floats()
attrs = st.recursive(
    numbers | texts | st.binary(max_size=4) | st.sampled_from(dtypes.ALL) | arrays(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    return draw_graph(draw, itertools.count(draw(st.integers(0, 9))), (), 0, draw(texts))


def names_for(values: tuple[Value, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.just(()) | st.tuples(*[texts] * len(values))


def draw_graph(draw: st.DrawFn, ids: Iterator[int], outer: tuple[Value, ...], depth: int, level: str) -> Graph:
    inputs = tuple(Value(next(ids), draw(types)) for _ in range(draw(st.integers(0, 2))))
    contents = draw(st.lists(arrays(), max_size=2))
    constants = {Value(next(ids), TensorType(dtypes.of(a), a.shape)): a for a in contents}
    seen, nodes = [*outer, *inputs, *constants], list[Node]()
    for _ in range(draw(st.integers(0, 3 - depth))):
        node = draw_node(draw, ids, tuple(seen), depth, level)
        nodes.append(node)
        seen.extend(node.outputs)
    some = st.lists(st.sampled_from(seen), max_size=3) if seen else st.just(list[Value]())
    outputs = tuple(draw(some))
    names = dict(zip(draw(st.lists(texts, unique=True, min_size=3, max_size=3)), draw(some), strict=False))
    return Graph(
        name=draw(texts),
        inputs=inputs,
        outputs=outputs,
        nodes=tuple(nodes),
        constants=constants,
        names=names,
        input_names=draw(names_for(inputs)),
        output_names=draw(names_for(outputs)),
        level=level,
    )


def draw_node(draw: st.DrawFn, ids: Iterator[int], seen: tuple[Value, ...], depth: int, level: str) -> Node:
    scopes = {level: (ids, seen)}  # a region of another level has ids of its own and captures nothing
    levels = draw(st.lists(st.just(level) | texts, max_size=2)) if depth < 2 else []
    regions = [draw_graph(draw, *scopes.get(at, (itertools.count(), ())), depth + 1, at) for at in levels]
    return Node(
        op=draw(texts),
        inputs=tuple(draw(st.lists(st.sampled_from([None, *seen]), max_size=3))),
        outputs=tuple(Value(next(ids), draw(types)) for _ in range(draw(st.integers(0, 2)))),
        origin=draw(origins),
        attrs=draw(st.dictionaries(texts, attrs, max_size=2)),
        regions=tuple(regions),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graphs())
def test_any_graph_reads_back(graph: Graph) -> None:
    verify(graph)
    text = print_graph(graph)
    back = parse_graph(text)
    assert print_graph(back) == text
    assert_same(graph, back)
    verify(back)


# ---- broken rules --------------------------------------------------------------------------------------------

SCALAR, PAIR = TensorType(dtypes.f32, ()), TensorType(dtypes.f32, (2,))
BASE = """
graph "g" core (%0 "x": f32[]) {
  const %1: f32[2] = [1.0, 2.0]
  %2: f32[] = first(%0, _) {k = 1} [
    graph "r" core (%3: f32[]) {
      %4: f32[] = inner(%3, %0) from "src.inner" "deep"
      name "i" = %4
      return %4
    }
  ] from "src.first" "one" in "m" at "f.py":3
  %5: f32[] = second(%2, %1) from "src.second"
  name "two" = %5
  return %5 "y"
}
"""
NEW, UNTYPED = Value(99, SCALAR), Value(99, cast(Any, "f32"))


class Parts:
    """The base graph, freshly read, and its pieces by name."""

    def __init__(self) -> None:
        self.graph = parse_graph(BASE)
        self.first, self.second = self.graph.nodes
        (self.region,) = self.first.regions
        (self.inner,) = self.region.nodes
        self.x, self.const = self.graph.inputs[0], next(iter(self.graph.constants))
        (self.two,), (self.arg,) = self.first.outputs, self.region.inputs
        (self.deep,), (self.last,) = self.inner.outputs, self.second.outputs

    def change_first(self, **changes: Any) -> Graph:
        return replace(self.graph, nodes=(replace(self.first, **changes), self.second))

    def change_second(self, **changes: Any) -> Graph:
        return replace(self.graph, nodes=(self.first, replace(self.second, **changes)))

    def change_region(self, **changes: Any) -> Graph:
        return self.change_first(regions=(replace(self.region, **changes),))

    def change_inner(self, **changes: Any) -> Graph:
        return self.change_region(nodes=(replace(self.inner, **changes),))

    def change_const(self, array: Any) -> Graph:
        return replace(self.graph, constants={self.const: array})


Broken = tuple[Callable[[Parts], Graph], str, str]
FIRST, SECOND, INNER, MAIN, REGION = "from src.first 'one' in m at f.py:3", "src.second", "src.inner", "'g'", "'r'"
BROKEN: dict[str, Broken] = {
    # every value is defined once
    "an input twice": (lambda p: replace(p.graph, inputs=(p.x, p.x), input_names=()), "%0 is defined twice", MAIN),
    "an input and constant": (lambda p: replace(p.graph, inputs=(p.const,)), "%1 is defined twice", MAIN),
    "an output of two nodes": (lambda p: p.change_second(outputs=(p.last, p.two)), "%2 is defined twice", SECOND),
    "in a region and around it": (lambda p: p.change_inner(outputs=(p.deep, p.x)), "%0 is defined twice", INNER),
    "in a region and later": (lambda p: p.change_second(outputs=(p.last, p.deep)), "%4 is defined twice", SECOND),
    "one region in two places": (lambda p: p.change_first(regions=(p.region,) * 2), "%3 is defined twice", REGION),
    # ids are unique
    "an id twice": (lambda p: p.change_second(outputs=(p.last, Value(0, SCALAR))), "%0 has the id of another", SECOND),
    "an id twice, inside": (lambda p: p.change_inner(outputs=(p.deep, Value(3, SCALAR))), "%3 has the id", INNER),
    "an id again, outside": (lambda p: p.change_second(outputs=(p.last, Value(3, SCALAR))), "%3 has the id", SECOND),
    # values are defined before they are used
    "an unknown input": (lambda p: p.change_second(inputs=(NEW,)), "the input %99 is not defined", SECOND),
    "an input that looks known": (lambda p: p.change_second(inputs=(Value(0, SCALAR),)), "%0 is not defined", SECOND),
    "a later input": (lambda p: p.change_first(inputs=(p.last,)), "the input %5 is not defined", FIRST),
    "its own output": (lambda p: p.change_first(inputs=(p.two,)), "the input %2 is not defined", FIRST),
    "an unknown output": (lambda p: replace(p.graph, outputs=(NEW,)), "the output %99 is not defined", MAIN),
    # regions see what comes before them around them, and nobody sees into them
    "a capture of a later value": (lambda p: p.change_inner(inputs=(p.last,)), "%5 is not defined", INNER),
    "a capture of the holder": (lambda p: p.change_inner(inputs=(p.two,)), "%2 is not defined", INNER),
    "a result of the holder": (lambda p: p.change_region(outputs=(p.two,)), "output %2 is not defined", REGION),
    "a use of what is inside": (lambda p: p.change_second(inputs=(p.deep,)), "%4 belongs to a region", SECOND),
    "an output from inside": (lambda p: replace(p.graph, outputs=(p.deep,)), "output %4 belongs to a region", MAIN),
    "a capture at another level": (lambda p: p.change_region(level="l"), "the input %0 is not defined", INNER),
    # names
    "a name for nothing": (lambda p: replace(p.graph, names={"n": NEW}), "the name 'n' %99 is not defined", MAIN),
    "a name for what is inside": (lambda p: replace(p.graph, names={"n": p.deep}), "name 'n' %4 belongs to", MAIN),
    "a name for what comes later": (lambda p: p.change_region(names={"n": p.last}), "'n' %5 is not defined", REGION),
    "too many input names": (lambda p: replace(p.graph, input_names=("a", "b")), "2 names for 1 inputs", MAIN),
    "too many output names": (lambda p: replace(p.graph, output_names=("a", "b")), "2 names for 1 outputs", MAIN),
    # constants
    "another dtype": (
        lambda p: p.change_const(np.zeros(2)),
        r"%1 has the type f32\[2\] and the content f64\[2\]",
        MAIN,
    ),
    "another shape": (lambda p: p.change_const(np.zeros((2, 1), np.float32)), r"the content f32\[2, 1\]", MAIN),
    "another byte order": (lambda p: p.change_const(np.zeros(2, ">f4")), "an array of NumPy's >f4", MAIN),
    "not an array": (lambda p: p.change_const([1.0, 2.0]), "constant %1 is of type list", MAIN),
    "an open shape": (lambda p: constant(TensorType(dtypes.f32), np.zeros(2, np.float32)), "has the type", MAIN),
    "a sequence": (lambda p: constant(SequenceType(PAIR), np.zeros(2, np.float32)), "has the type seq", MAIN),
    "bytes as strings": (
        lambda p: constant(TensorType(dtypes.string, (1,)), np.array([b"a"], object)),
        "not all",
        MAIN,
    ),
    # nodes
    "no origin": (lambda p: p.change_first(origin=Origin("")), "the origin of the node names no op", "first"),
    "an input that is no value": (lambda p: p.change_second(inputs=("x",)), "'x' is no value of the graph", SECOND),
    "an input of the graph": (lambda p: replace(p.graph, inputs=(p.x, 1), input_names=()), "1 is no value", MAIN),
    "an output that is no value": (lambda p: p.change_second(outputs=(None,)), "None is no value", SECOND),
    "a value without a type": (
        lambda p: replace(p.graph, inputs=(p.x, UNTYPED), input_names=()),
        "has no type",
        MAIN,
    ),
    "an attribute of NumPy's": (lambda p: p.change_first(attrs={"k": np.float64(1)}), "'k' is of type float64", FIRST),
    "a list as attribute": (lambda p: p.change_inner(attrs={"k": (1, [2])}), "'k' is of type list", INNER),
    "odd arrays as attribute": (lambda p: p.change_first(attrs={"k": np.array(["a"])}), "array of NumPy's <U1", FIRST),
}


def constant(kind: Type, array: Array) -> Graph:
    return Graph("g", (), (), (), {Value(0, kind): array})


def test_the_base_graph_keeps_the_rules() -> None:
    verify(Parts().graph)


@pytest.mark.parametrize(("broken", "message", "place"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_noticed(broken: Callable[[Parts], Graph], message: str, place: str) -> None:
    with pytest.raises(VerifyFailed, match=message) as caught:
        verify(broken(Parts()))
    assert place in caught.value.where


def test_a_node_is_named_by_what_it_is_and_where_it_comes_from() -> None:
    with pytest.raises(VerifyFailed) as caught:
        verify(Parts().change_first(inputs=(NEW, None)))
    assert caught.value.where == "%2 = first(%99, None) from src.first 'one' in m at f.py:3"


def test_a_region_of_another_level_has_ids_and_rules_of_its_own() -> None:
    p = Parts()
    inner = Node("inner", (p.x,), (p.two,), Origin("o"))
    graph = p.change_region(level="l", inputs=(p.x,), nodes=(inner,), outputs=(p.two,), names={})
    verify(graph, lambda node: "is not of my level" if node.op == "inner" else None)


def test_a_level_adds_its_own_rules() -> None:
    asked: list[str] = []

    def check(node: Node) -> str | None:
        asked.append(node.op)
        return "wants a hat" if node.op == "second" else None

    with pytest.raises(VerifyFailed, match="verify: wants a hat") as caught:
        verify(Parts().graph, check)
    assert "src.second" in caught.value.where
    assert asked == ["inner", "first", "second"]


def test_a_large_graph_takes_linear_time() -> None:
    """Each of many nodes holds a region with captures: copying what is visible would take minutes."""
    x = Value(0, SCALAR)
    nodes: list[Node] = []
    for number in range(1, 80_000, 2):
        used = nodes[-1].outputs[0] if nodes else x
        inner = Node("f", (x, used), (Value(number, SCALAR),), Origin("f"))
        region = Graph("r", (), (inner.outputs[0], x), (inner,))
        nodes.append(Node("if", (), (Value(number + 1, SCALAR),), Origin("if"), {}, (region,)))
    start = time.process_time()
    verify(Graph("g", (x,), nodes[-1].outputs, tuple(nodes)))
    assert time.process_time() - start < 4
