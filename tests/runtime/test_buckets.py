"""Size buckets: few programs serve all sizes where padding is exact, and sizes are kept where it is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay.errors import AssayError
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import boolean, f32, i64
from assay.ir.graph import Graph, Node
from assay.ir.types import TensorType, shape_at
from assay.ops.builder import Builder
from assay.ops.registry import CORE, OpDef
from assay.passes.padding import _RULES, padding_refusal
from assay.runtime import targets
from assay.runtime.buckets import Padding
from assay.runtime.session import Session, SessionOptions
from assay.targets.base import YES, Bodies, Buckets, Support, Traits
from assay.targets.reference import ReferenceTarget

N = symbol("n")
NONE: Bodies = {}
Make = Callable[[Builder], tuple[list[Any], list[Any]]]


class Fixed(ReferenceTarget):
    """A target that compiles for sizes that are numbers, and counts its programs."""

    name = "fixed"

    def __init__(self, buckets: Buckets | None, programs: int = 8) -> None:
        super().__init__()
        self.buckets, self.programs, self.made = buckets, programs, 0

    @property
    def traits(self) -> Traits:
        return Traits(sizes="specialised", buckets=self.buckets, programs=self.programs)

    def support(self, node: Node) -> Support:
        return YES

    def compile(self, segment: Graph, bodies: Bodies = NONE, disabled: Collection[str] = (), device: Any = None) -> Any:
        shapes = [value.type.shape for value in segment.inputs if isinstance(value.type, TensorType)]
        assert all(isinstance(dim, int) for shape in shapes for dim in shape or ())
        self.made += 1
        return super().compile(segment, bodies, disabled)


RNG = np.random.default_rng(7)
WEIGHT, SQUARE, TABLE = (RNG.normal(size=shape).astype(np.float32) for shape in ((6, 6), (4, 4), (9, 6)))
KERNEL = RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)


def rows(b: Builder) -> Any:
    return b.input(TensorType(f32, (N, 6)))


def linear(b: Builder) -> tuple[list[Any], list[Any]]:
    """Rows through a layer, a norm, a softmax over columns, a reshape and back."""
    x = rows(b)
    y = b.layer_norm(b.gelu(b.add(b.matmul(x, WEIGHT), WEIGHT[0])), axis=-1)
    y = b.softmax(b.transpose(b.reshape(y, [-1, 2, 3]), perm=(0, 2, 1)), axis=-1)
    return [x], [b.reshape(y, [-1, 6]), b.reduce_max(y, axes=(1, 2)), b.reshape(y, [-1])]


def images(b: Builder) -> tuple[list[Any], list[Any]]:
    x = b.input(TensorType(f32, (N, 2, 5, 5)))
    y = b.pad(x, [0, 0, 1, 1, 0, 0, 1, 1], np.float32(0))
    y = b.conv(y, KERNEL, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))
    y = b.max_pool(b.relu(y), kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1))
    return [x], [b.reduce_mean(y, axes=(2, 3))]


def running(b: Builder) -> tuple[list[Any], list[Any]]:
    """What looks back alone: running sums, slices from the front, a row in front."""
    x = rows(b)
    y = b.concat(b.constant(np.ones((1, 6), np.float32)), b.cum_sum(x, axis=0), axis=0)
    return [x], [b.slice(y, [1], [2**62], [1], axes=(0,)), b.slice(x, [0], [-1], [1], axes=(0,))]


def causal(b: Builder) -> tuple[list[Any], list[Any]]:
    q, k, v = (b.input(TensorType(f32, (2, N, 4))) for _ in range(3))
    return [q, k, v], [b.sdpa(q, k, v, causal=True)]


def masked(b: Builder) -> tuple[list[Any], list[Any]]:
    """Two layers of attention with a mask of 0 and 1, as language models take it."""
    x, given = b.input(TensorType(f32, (1, N, 4))), b.input(TensorType(i64, (N,)))
    mask, y = b.unsqueeze(b.ne(given, 0), axes=(0,)), x
    for _ in range(2):
        y = b.layer_norm(b.add(y, b.sdpa(y, b.matmul(y, SQUARE), b.tanh(y), mask)), axis=-1)
    return [x, given], [y]


def masked_by_hand(b: Builder) -> tuple[list[Any], list[Any]]:
    x, mask = b.input(TensorType(f32, (N, 4))), b.input(TensorType(boolean, (N,)))
    scores = b.where(mask, b.matmul(x, b.transpose(x, perm=(1, 0))), np.float32(-np.inf))
    return [x, mask], [b.matmul(b.softmax(scores, axis=-1), x)]


def embedded(b: Builder) -> tuple[list[Any], list[Any]]:
    """Ids to rows of a table, times their places."""
    ids = b.input(TensorType(i64, (N,)))
    places = b.cast(b.iota(b.reshape(b.shape_of(ids), [])), dtype=f32)
    return [ids], [b.mul(b.gather(TABLE, ids, axis=0), b.unsqueeze(places, axes=(1,)))]


EXACT: list[Make] = [linear, images, running, causal, masked, masked_by_hand, embedded]


def softmax(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    return [x], [b.softmax(x, axis=0)]


def mean(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    return [x], [b.sub(x, b.reduce_mean(x, axes=(0,)))]


def flip(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    return [x], [b.flip(x, axes=(0,))]


def last(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    return [x], [b.slice(x, [-1], [2**62], [1], axes=(0,))]


def size_as_data(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    return [x], [b.div(x, b.cast(b.slice(b.shape_of(x), [0], [1], [1], axes=(0,)), dtype=f32))]


def joined(b: Builder) -> tuple[list[Any], list[Any]]:
    x = b.input(TensorType(f32, (3, N)))
    return [x], [b.reshape(x, [-1])]


def followed(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    return [x], [b.concat(x, b.constant(np.ones((1, 6), np.float32)), axis=0)]


def gram(b: Builder) -> tuple[list[Any], list[Any]]:
    x = rows(b)
    y = b.add(x, 1.0)
    return [x], [b.matmul(b.transpose(y, perm=(1, 0)), y)]


def unmasked(b: Builder) -> tuple[list[Any], list[Any]]:
    x = b.input(TensorType(f32, (1, N, 4)))
    return [x], [b.sdpa(x, x, x)]


def divided(b: Builder) -> tuple[list[Any], list[Any]]:
    """The logarithm of filler is −∞, which a mask does not take away."""
    x, mask = b.input(TensorType(f32, (1, N, 4))), b.input(TensorType(boolean, (N,)))
    return [x, mask], [b.sdpa(x, x, b.log(b.abs(x)), b.unsqueeze(mask, axes=(0,)))]


MIXED: list[Make] = [softmax, mean, flip, last, size_as_data, joined, followed, gram, unmasked, divided]


def graph_of(make: Make) -> Graph:
    b = Builder()
    inputs, outputs = make(b)
    names = [f"y{at}" for at in range(len(outputs))]
    return b.finish("g", inputs, outputs, input_names=[f"x{at}" for at in range(len(inputs))], output_names=names)


def feeds_of(graph: Graph, length: int) -> dict[str, Any]:
    rng = np.random.default_rng(length)
    feeds: dict[str, Any] = {}
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        kind = value.type
        assert isinstance(kind, TensorType)
        shape: list[Any] = [length if dim == N else dim for dim in kind.shape or ()]
        feeds[name] = (
            rng.normal(size=shape).astype(np.float32)
            if kind.dtype is f32
            else rng.integers(0, 2, shape, kind.dtype.numpy)
        )
        if kind.dtype in (boolean, i64):
            feeds[name].reshape(-1)[0] = 1
    return feeds


def ready(graph: Graph, target: Fixed, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setitem(targets._OWN, "fixed", lambda *_: target)
    return Session(graph, SessionOptions(target="fixed"))


def check(session: Session, graph: Graph, length: int) -> None:
    feeds = feeds_of(graph, length)
    right = Session(graph, SessionOptions(target="reference")).run(feeds)
    found = session.run(feeds)
    for name, array in right.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    assert {row.target for row in session.explain().nodes if row.floats} == {"fixed"}


@pytest.mark.parametrize("buckets", [Buckets.powers_of_two(64), Buckets.multiples_of(16, 48)])
@pytest.mark.parametrize("make", EXACT)
def test_few_programs_serve_all_lengths(make: Make, buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = graph_of(make), Fixed(buckets)
    assert not padding_refusal(graph, {"n"})
    session = ready(graph, target, monkeypatch)
    before = target.made
    for length in range(1, 41):
        check(session, graph, length)
    assert target.made - before <= len(buckets.sizes)


@pytest.mark.parametrize("make", MIXED)
def test_a_graph_that_mixes_an_axis_is_not_padded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = graph_of(make), Fixed(Buckets.powers_of_two(64))
    assert padding_refusal(graph, {"n"})
    session = ready(graph, target, monkeypatch)
    for length in (3, 5, 6, 7):
        check(session, graph, length)
    assert target.made >= 4


def test_sizes_that_may_be_padded_are_padded_beside_those_that_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (symbol("batch"), N)))
    graph = b.finish("g", [x], [b.softmax(x, axis=1)], input_names=("x",), output_names=("y",))
    target = Fixed(Buckets.multiples_of(8, 32))
    session = ready(graph, target, monkeypatch)
    for batch in range(1, 20):
        given = {"x": RNG.normal(size=(batch, 5)).astype(np.float32)}
        right = Session(graph, SessionOptions(target="reference")).run(given)["y"]
        np.testing.assert_allclose(session.run(given)["y"], right, rtol=1e-6)
    assert target.made == 3
    session.run({"x": np.ones((3, 6), np.float32)})
    assert target.made == 4


def test_the_programs_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = graph_of(linear), Fixed(Buckets.multiples_of(8, 800), programs=2)
    session = ready(graph, target, monkeypatch)
    for length, made in ((5, 1), (12, 2), (6, 2), (20, 3), (7, 3), (11, 4)):
        check(session, graph, length)
        assert target.made == made
    for length in range(1, 800, 8):  # more than an unbounded number of sizes would get
        session.run(feeds_of(graph, length))
    assert {row.target for row in session.explain().nodes if row.floats} == {"fixed"}


def test_sizes_beyond_the_largest_bucket_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = graph_of(linear), Fixed(Buckets.powers_of_two(8))
    session = ready(graph, target, monkeypatch)
    for length in (9, 10, 9, 0):
        check(session, graph, length)
    assert target.made == 3


def test_a_bucket_that_the_model_cannot_take_falls_back_to_the_very_size(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = rows(b)
    cut = b.slice(TABLE, [0], b.slice(b.shape_of(x), [0], [1], [1], axes=(0,)), [1], axes=(0,))
    graph = b.finish("g", [x], [b.add(x, b.reshape(cut, b.shape_of(x)))], input_names=("x0",), output_names=("y",))
    target = Fixed(Buckets.powers_of_two(64))
    session = ready(graph, target, monkeypatch)
    for length in (3, 7, 9):  # the table has nine rows, the bucket of nine is sixteen
        check(session, graph, length)


def test_values_on_the_way_are_seen_in_their_true_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = rows(b)
    middle = b.exp(x)
    graph = b.finish("g", [x], [b.mul(b.mul(middle, middle), middle)], input_names=("x",), output_names=("y",))
    graph = replace(graph, names={**graph.names, "middle": middle})
    session = ready(graph, Fixed(Buckets.powers_of_two(64)), monkeypatch)
    given = {"x": np.ones((5, 6), np.float32)}
    np.testing.assert_allclose(session.observe(given, ["middle"])["middle"], np.exp(given["x"]), rtol=1e-6)
    run = session.submit(given)
    assert run.outputs()["y"].shape == (5, 6)


# --- every rule against the op's own samples


def symbolic_graphs(definition: OpDef) -> Iterator[tuple[Graph, list[Any]]]:
    """One node on each sample of an op, with axes of one size as a symbol: all of that size, or a single one."""
    for sample in definition.samples(np.random.default_rng(3), definition.main_dtypes[0]):
        arrays = {at: each for at, each in enumerate(sample.inputs) if at not in sample.fixed and each is not None}
        places = [(at, axis) for at, array in arrays.items() for axis in range(array.ndim) if array.shape[axis] > 1]
        groups = [[place] for place in places]
        groups += [
            [(a, x) for a, x in places if arrays[a].shape[x] == size]
            for size in {arrays[a].shape[x] for a, x in places}
        ]
        for group in groups:
            b = Builder()
            inputs: dict[int, Any] = {}
            for at, array in arrays.items():
                shape = [N if (at, axis) in group else size for axis, size in enumerate(array.shape)]
                inputs[at] = b.input(TensorType(dtypes.of(array), tuple(shape)))
            given = [inputs.get(at, each) for at, each in enumerate(sample.inputs)]
            try:
                made = b.emit(definition.name, *given, **sample.attrs)
            except (AssayError, TypeError, ValueError):
                continue  # these sizes must be numbers
            outputs = list(made) if isinstance(made, tuple | list) else [made]
            yield b.finish("g", list(inputs.values()), outputs), [arrays[at] for at in inputs]


@pytest.mark.parametrize("op", sorted(_RULES))
def test_what_a_rule_allows_is_exact(op: str) -> None:
    for graph, inputs in symbolic_graphs(CORE[op]):
        if padding_refusal(graph, {"n"}):
            continue
        padding = Padding(graph, Buckets.multiples_of(7, 700))
        assert padding.padded == {"n"}
        program = ReferenceTarget().compile(graph)
        padded, sizes = padding.padded_inputs(inputs), padding.sizes(inputs)
        assert any(mine.shape != array.shape for mine, array in zip(padded, inputs, strict=True)) or sizes["n"] % 7 == 0
        for value, right, found in zip(graph.outputs, program.run(inputs), program.run(padded), strict=True):
            shape = shape_at(value.type, sizes)
            assert shape is not None
            assert shape == right.shape
            corner = found[tuple(map(slice, shape))]
            if right.dtype.kind == "f":  # sums may be in another order
                np.testing.assert_allclose(corner, right, rtol=1e-12)
            else:
                np.testing.assert_array_equal(corner, right)


def test_rules_allow_something() -> None:
    """But for ops whose samples have no such axis: iota takes a number, and samples of pad put something everywhere."""
    never = {op for op in _RULES if all(padding_refusal(graph, {"n"}) for graph, _ in symbolic_graphs(CORE[op]))}
    assert never == {"iota", "pad"}


def test_buckets_are_the_next_larger_sizes() -> None:
    assert Buckets.powers_of_two(9).sizes == (1, 2, 4, 8)
    assert Buckets.multiples_of(32, 100).sizes == (32, 64, 96)
    assert [Buckets.multiples_of(4, 8).of(size) for size in range(11)] == [0, 4, 4, 4, 4, 8, 8, 8, 8, 9, 10]
