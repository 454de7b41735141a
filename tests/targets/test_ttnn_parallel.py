"""Several chips share a batch: inputs shared out, weights on each, results joined; all checked by the library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from assay.errors import NotFound
from assay.ir.dtypes import Array, f32
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.torch.backend import options_from
from assay.runtime.torch.watch import CallArguments, watching
from assay.targets.base import Event
from assay.targets.reference.interpreter import Interpreter
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.cards import ENVIRONMENT as CARD
from assay.targets.ttnn.device_model import ModelledExecutable
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.parallel import ENVIRONMENT, chosen_way, shared, sharing
from assay.targets.ttnn.probing import cases
from assay.targets.ttnn.shares import RULES, NotShared, shared_out
from assay.targets.ttnn.table import TABLE

OPTIONS = {"target": "ttnn,cpu", "frozen": True}
CHIPS = {"n300": 2, "t3000": 8}


@pytest.fixture(params=CHIPS)
def chips(request: pytest.FixtureRequest, library: Library, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv(CARD, request.param)
    monkeypatch.setenv(ENVIRONMENT, "data")
    return CHIPS[request.param]


def encoder(batch: int, width: int = 64) -> Graph:
    """A layer of a transformer with a first token of its own, as images have one."""
    b, rng = Builder(), np.random.default_rng(0)

    def weights(*shape: int) -> Array:
        return (rng.normal(size=shape) / 8).astype(np.float32)

    x = b.input(TensorType(f32, (batch, 15, width)))
    first = b.expand(b.constant(weights(1, 1, width)), [batch, 1, width])
    y = b.layer_norm(b.concat(first, x, axis=1))
    q, k, v = (heads(b, b.matmul(y, weights(width, width)), batch, width) for _ in range(3))
    joined = b.reshape(b.transpose(b.sdpa(q, k, v), perm=(0, 2, 1, 3)), [batch * 16, width])
    z = b.add(b.reshape(joined, [batch, 16, width]), y)
    return b.finish("encoder", [x], [b.gelu(z), b.reduce_mean(z, axes=(1,))])


def heads(b: Builder, x: Value, batch: int, width: int) -> Value:
    return b.transpose(b.reshape(x, [batch, 16, 2, width // 2]), perm=(0, 2, 1, 3))


def given(graph: Graph) -> Array:
    shape = tuple(d for d in getattr(graph.inputs[0].type, "shape", ()) if isinstance(d, int))
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def run(target: TtnnTarget, graph: Graph, x: Array, observer: Any = None) -> tuple[ModelledExecutable, list[Array]]:
    device = target.open()
    made = target.compile(graph, {})
    assert isinstance(made, ModelledExecutable)
    found, _ = made.submit([device.upload(x)], observer)
    return made, [device.download(each) for each in found]


def test_chips_give_what_one_gives(chips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = encoder(16), TtnnTarget("exact", DEFAULT)
    shared, found = run(target, graph, given(graph))
    assert shared.sharing.chips == chips
    assert {axis for axis in shared.sharing.given.values() if axis is not None} == {0}
    assert "chips share the batch" in shared.notes()[-1].text
    monkeypatch.setenv(ENVIRONMENT, "none")
    whole, right = run(target, graph, given(graph))
    assert whole.sharing.chips == 1
    for each, wanted in zip(found, right, strict=True):
        np.testing.assert_array_equal(each, wanted)
    (small, *_), (large, *_) = shared.taken.checked.memory, whole.taken.checked.memory
    assert small[0] < large[0], "a chip is given less"


def test_an_observer_sees_the_nodes_of_the_segment_with_whole_results(chips: int) -> None:
    graph, target = encoder(8), TtnnTarget("exact", DEFAULT)
    seen: list[Event] = []
    run(target, graph, given(graph), seen.append)
    assert [each.node for each in seen] == list(graph.nodes)
    for event in seen:
        shapes = [getattr(value.type, "shape", None) for value in event.node.outputs]
        assert [each.shape for each in event.results] == shapes


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 64), nn.Embedding(16, 64)
        self.layer = nn.TransformerEncoderLayer(64, 2, 128, batch_first=True, norm_first=True)
        self.out = nn.Linear(64, 7)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        return self.out(self.layer(x))


def test_a_compiled_module_is_shared_by_chips(chips: int) -> None:
    torch.manual_seed(0)
    model = Tagger().eval().requires_grad_(False)
    ids = torch.randint(0, 50, (8, 16))
    compiled = torch.compile(model, backend="assay", options=OPTIONS)
    found = compiled(ids)
    assert np.corrcoef(found.numpy().reshape(-1), model(ids).numpy().reshape(-1))[0, 1] > 0.999
    with watching(model, options=options_from(OPTIONS), dynamic=False, train=None, backward=False) as (seen, call):
        call(CallArguments((ids,), {}), fused=True)
    (graph,) = seen.graphs
    assert any(f"{chips} chips share the batch" in note.text for note in graph.program.notes())


def test_what_cannot_be_shared_says_why_and_every_chip_computes_it(chips: int) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (16, 32)))
    mixed = b.finish("mixed", [x], [b.sub(x, b.reduce_mean(x, axes=(0,), keepdims=True))])
    made, (found,) = run(TtnnTarget("exact", DEFAULT), mixed, given(mixed))
    assert made.sharing.chips == 1
    assert "reduce_mean" in made.sharing.reason
    assert "Every chip computes everything: reduce_mean" in made.notes()[-1].text
    assert found.mean() == pytest.approx(0, abs=0.01)
    odd = encoder(chips + 1)
    assert "cannot share" in sharing(odd, (), chips, "data").reason


def test_a_way_that_nobody_knows_is_an_error() -> None:
    assert chosen_way({}) == "none"
    with pytest.raises(NotFound, match="pipeline"):
        chosen_way({ENVIRONMENT: "pipeline"})


# --- the rules, by what the oracle says


def candidates(graph: Graph, chips: int) -> Iterator[dict[Value, int]]:
    """Each input, and all at once, shared out along each axis."""
    shapes = {value: getattr(value.type, "shape", ()) for value in graph.inputs}
    ways = [{value: axis} for value, shape in shapes.items() for axis, size in enumerate(shape) if size % chips == 0]
    together = [dict.fromkeys(shapes, axis) for axis in range(max(map(len, shapes.values()), default=0))]
    yield from ways
    yield from (way for way in together if all(_divides(shapes[v], axis, chips) for v, axis in way.items()))


def _divides(shape: Any, axis: int, chips: int) -> bool:
    return axis < len(shape) and shape[axis] > 0 and shape[axis] % chips == 0


@pytest.mark.parametrize("op", sorted(set(RULES) & set(TABLE.rows)))
def test_what_a_rule_allows_is_what_the_op_gives(op: str) -> None:
    """Of every sample of every op, shared out in every way that the rules allow among two and three chips."""
    rng = np.random.default_rng(0)
    for _, graph in cases(op):
        inputs = [_drawn(rng, value) for value in graph.inputs]
        right = Interpreter(graph, "exact", DEFAULT, {}).submit(inputs)[0]
        for chips in (2, 3):
            for way in candidates(graph, chips):
                try:
                    axes = shared_out(graph, way, chips)
                except NotShared:
                    continue
                _compare(graph, axes, chips, inputs, right)


def _compare(graph: Graph, axes: dict[Value, int], chips: int, inputs: list[Array], right: Any) -> None:
    found = shared(graph, axes, chips)
    oracle = Interpreter(found.graph, "exact", DEFAULT, {})
    parts = [found.shares(value, each) for value, each in zip(graph.inputs, inputs, strict=True)]
    made = [oracle.submit([each[chip] for each in parts])[0] for chip in range(chips)]
    for each, wanted in zip(found.joined(graph.outputs, made), right, strict=True):
        np.testing.assert_allclose(each.astype(np.complex128), wanted.astype(np.complex128), rtol=1e-4, atol=1e-5)


def _drawn(rng: np.random.Generator, value: Value) -> Array:
    assert isinstance(value.type, TensorType)
    shape = tuple(d for d in value.type.shape or () if isinstance(d, int))
    dtype = value.type.dtype.numpy
    if dtype.kind in "iu":
        return np.zeros(shape, dtype)
    return (rng.uniform(0.1, 0.9, shape) > 0.5 if dtype.kind == "b" else rng.uniform(0.1, 0.9, shape)).astype(dtype)
