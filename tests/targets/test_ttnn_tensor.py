"""Several chips share linear layers: weights in parts, partial products added by an all-reduce, or put side by side by
an all-gather; all checked by the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from assay.errors import CompileFailed
from assay.ir.dtypes import Array, f32
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.ops.registry import OPS
from assay.runtime.torch.backend import options_from
from assay.runtime.torch.watch import CallArguments, watching
from assay.targets.base import Event
from assay.targets.reference.interpreter import Interpreter
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.card import CardExecutable
from assay.targets.ttnn.cards import CARDS
from assay.targets.ttnn.cards import ENVIRONMENT as CARD
from assay.targets.ttnn.device_model import ModelledExecutable
from assay.targets.ttnn.formats import ENVIRONMENT as WEIGHTS
from assay.targets.ttnn.library import Library, RefusedCall
from assay.targets.ttnn.numbers import ENVIRONMENT as NUMBERS
from assay.targets.ttnn.parallel import ENVIRONMENT
from assay.targets.ttnn.reports import ENVIRONMENT as REPORT
from assay.targets.ttnn.rows.collectives import COLLECTIVES
from assay.targets.ttnn.scripts import ENVIRONMENT as SCRIPTS
from assay.targets.ttnn.tensor import LayerSharing, layer_sharing
from assay.targets.ttnn.uncomputed import UncomputedExecutable

OPTIONS = {"target": "ttnn,cpu", "frozen": True}
TARGET = TtnnTarget("exact", DEFAULT)


@pytest.fixture(params=["n300", "t3000"])
def mesh(request: pytest.FixtureRequest, library: Library, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    monkeypatch.setenv(CARD, request.param)
    monkeypatch.setenv(ENVIRONMENT, "tensor")
    return CARDS[request.param].mesh


def weights(seed: int, *shape: int) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) / 16).astype(np.float32)


def linear(b: Builder, x: Any, *given: Any, activation: str = "", transposed: bool = False) -> Value:
    return b.emit("ttnn.linear", x, *given, activation=activation, transposed=transposed)[0]


def mlp(activation: str = "relu", last: str = "", hidden: int = 1024, width: int = 256) -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, (2, 16, width)))
    y = linear(b, x, weights(1, width, hidden), weights(2, hidden), activation=activation)
    z = linear(b, y, weights(3, width, hidden), weights(4, width), activation=last, transposed=True)
    return b.finish("mlp", [x], [z])


def gated(hidden: int = 1024, width: int = 256) -> Graph:
    """A gated layer, with a scale for each column on the way."""
    b = Builder()
    x = b.input(TensorType(f32, (2, 16, width)))
    gate = linear(b, x, weights(1, hidden, width), activation="silu", transposed=True)
    up = b.mul(b.matmul(x, weights(2, width, hidden)), weights(3, hidden))
    flat = b.reshape(b.mul(b.mul(gate, up), np.float32(2)), [32, hidden])
    return b.finish("gated", [x], [b.matmul(flat, weights(4, hidden, width))])


def given(graph: Graph) -> Array:
    shape = tuple(d for d in getattr(graph.inputs[0].type, "shape", ()) if isinstance(d, int))
    return np.random.default_rng(9).normal(size=shape).astype(np.float32)


def run(graph: Graph, x: Array, observer: Any = None) -> tuple[ModelledExecutable, list[Array]]:
    device = TARGET.open()
    made = TARGET.compile(graph, {}, device=device)
    assert isinstance(made, ModelledExecutable)
    found, _ = made.submit([device.upload(x)], observer)
    return made, [device.download(each) for each in found]


def calls(made: ModelledExecutable) -> list[str]:
    return [step.op for step in made.taken.program.steps]


def along(made: ModelledExecutable, op: str) -> list[int]:
    """The axes of the mesh along which chips exchange something."""
    return [step.kwargs["cluster_axis"] for step in made.taken.program.steps if step.op == op]


def near(found: Array, wanted: Array) -> None:
    """Equal but for some roundings to bfloat16."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2**-6 * float(np.abs(wanted).max()))
    assert np.corrcoef(found.reshape(-1), wanted.reshape(-1))[0, 1] > 0.9999


MODELS: Mapping[str, Callable[[], Graph]] = {
    "mlp": mlp,
    "a function behind it": lambda: mlp("silu", "gelu"),
    "gated": gated,
}


@pytest.mark.parametrize("model", MODELS)
def test_chips_have_parts_of_weights_and_give_what_one_gives(
    mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    graph, chips = MODELS[model](), mesh[0] * mesh[1]
    shared, (found,) = run(graph, given(graph))
    assert shared.sharing.chips == chips
    assert along(shared, "all_reduce") == [axis for axis in (1, 0) if mesh[axis] > 1]
    assert "all_gather" not in calls(shared)
    assert f"{chips} chips share linear layers" in shared.notes()[-1].text
    (small, *_), specs = shared.taken.checked.memory, shared.taken.given
    monkeypatch.setenv(ENVIRONMENT, "none")
    whole, (right,) = run(graph, given(graph))
    near(found, right)
    near(found, Interpreter(graph, "exact", DEFAULT, {}).submit([given(graph)])[0][0])
    parts = sum(np.prod(spec.shape) for spec in specs if spec.axis is not None)
    matrices = [each for each in graph.constants.values() if each.ndim == 2]
    assert parts >= sum(each.size for each in matrices) // chips
    saved = sum(each.size for each in matrices) * 2 * (chips - 1) // chips
    (large, *_) = whole.taken.checked.memory
    assert large[0] - small[0] == pytest.approx(saved, rel=0.1), "bytes of DRAM of one chip"


# --- the numbers, by hand


def rounded(x: Any) -> Array:
    return np.asarray(x, np.float64).astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def test_parts_are_rounded_on_each_chip_before_they_are_added(mesh: tuple[int, int]) -> None:
    graph, chips = mlp(), mesh[0] * mesh[1]
    _, (found,) = run(graph, given(graph))
    first, row, last, bias = (
        rounded(each) for each in (weights(1, 256, 1024), weights(2, 1024), weights(3, 256, 1024), weights(4, 256))
    )
    x, size = rounded(given(graph)), 1024 // chips
    parts: list[Array] = []
    for chip in range(chips):
        own = slice(chip * size, (chip + 1) * size)
        hidden = rounded(np.maximum(x @ first[:, own] + row[own], 0))
        parts.append(rounded(hidden @ last[:, own].T))
    lines = [rounded(sum(parts[at : at + mesh[1]])) for at in range(0, chips, mesh[1])]
    right = rounded(rounded(sum(lines)) + bias)
    np.testing.assert_array_equal(found, right)
    at_once = rounded(rounded(np.maximum(x @ first + row, 0)) @ last.T + bias)
    assert (found != at_once).mean() > 0.1, "chips round what one chip does not"


@pytest.mark.parametrize(("value", "right"), [(3, 3), (-3, 0)])
def test_what_is_added_to_each_row_is_added_once_and_before_the_function(
    mesh: tuple[int, int], value: int, right: int
) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (4, 64)))
    y = linear(b, x, weights(1, 64, 512))
    bias = np.full((1, 64), value, np.float32)
    graph = b.finish("once", [x], [linear(b, y, np.zeros((512, 64), np.float32), bias, activation="relu")])
    made, (found,) = run(graph, given(graph))
    assert "all_reduce" in calls(made)
    np.testing.assert_array_equal(found, np.full((4, 64), right))


def test_other_layers_are_shared_by_columns_and_put_side_by_side(
    mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (3, 5, 64)))
    made, row = weights(1, 64, 512), weights(2, 512)
    graph = b.finish("alone", [x], [b.softmax(linear(b, x, made, row, activation="gelu"), axis=-1)])
    shared, (found,) = run(graph, given(graph))
    assert along(shared, "all_gather") == [axis for axis in (1, 0) if mesh[axis] > 1]
    assert "columns, side by side" in [row[-1] for row in shared.notes()[-1].rows]
    monkeypatch.setenv(ENVIRONMENT, "none")
    np.testing.assert_array_equal(found, run(graph, given(graph))[1][0])


@pytest.mark.parametrize("form", ["bfloat8_b", "bfloat4_b"])
def test_narrow_weights_are_shared_too(mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv(WEIGHTS, form)
    graph = mlp()
    shared, (found,) = run(graph, given(graph))
    assert {spec.dtype for spec in shared.taken.given if spec.axis is not None and len(spec.shape) > 1} == {form}
    monkeypatch.setenv(ENVIRONMENT, "none")
    near(found, run(graph, given(graph))[1][0])


# --- what is told


def test_an_observer_sees_the_nodes_of_the_segment_with_whole_results(
    mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = gated()
    seen: list[Event] = []
    run(graph, given(graph), seen.append)
    assert [each.node for each in seen] == list(graph.nodes)
    right: list[Event] = []
    monkeypatch.setenv(ENVIRONMENT, "none")
    run(graph, given(graph), right.append)
    for event, wanted in zip(seen, right, strict=True):
        near(event.results[0], wanted.results[0])


def graph_of(build: Callable[[Builder, Value], Any]) -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, (4, 512)))
    return b.finish("not shared", [x], [build(b, x)])


NOT_SHARED: Mapping[str, tuple[Callable[[Builder, Value], Any], str]] = {
    "no layer": (lambda b, x: b.relu(x), "there is no linear layer"),
    "narrow": (lambda b, x: linear(b, x, weights(1, 512, 80)), "chips cannot share 80 in whole tiles"),
    "no layer before": (lambda b, x: b.matmul(x, weights(1, 512, 48)), "no linear layer leads to it alone"),
    "mixed before": (
        lambda b, x: b.matmul(b.softmax(x, axis=-1), weights(1, 512, 48)),
        "softmax before it is not known to keep columns apart; by columns, ",
    ),
    "computed weights": (lambda b, x: b.matmul(x, b.exp(b.transpose(x, perm=(1, 0)))), "its weights are computed"),
    "other columns": (
        lambda b, x: b.matmul(b.reshape(b.matmul(x, weights(1, 512, 48)), [8, 24]), weights(2, 24, 48)),
        "cannot share",
    ),
}


@pytest.mark.parametrize("case", NOT_SHARED)
def test_what_cannot_be_shared_says_why_and_every_chip_computes_it(mesh: tuple[int, int], case: str) -> None:
    build, reason = NOT_SHARED[case]
    graph = graph_of(build)
    made, (found,) = run(graph, given(graph))
    assert made.sharing.chips == 1
    assert reason in made.sharing.reason
    assert f"Every chip computes everything: {made.sharing.reason}" in made.notes()[-1].text
    near(found, Interpreter(graph, "exact", DEFAULT, {}).submit([given(graph)])[0][0])


def test_a_pair_is_none_if_others_read_what_is_between(mesh: tuple[int, int]) -> None:
    """Both are shared by columns then, each for itself."""

    def build(b: Builder, x: Value) -> Value:
        y = b.matmul(x, weights(1, 512, 512))
        return b.concat(b.relu(y), b.matmul(y, weights(2, 512, 512)), axis=-1)

    shared = layer_sharing(graph_of(build), mesh)
    assert isinstance(shared, LayerSharing)
    assert [*shared.layers.ways.values()] == ["columns, side by side"] * 2


def test_a_weight_that_is_an_output_or_read_elsewhere_stays_whole(mesh: tuple[int, int]) -> None:
    b = Builder()
    x, w = b.input(TensorType(f32, (4, 64))), b.input(TensorType(f32, (64, 512)))
    graph = b.finish("tied", [x, w], [b.matmul(x, w), b.relu(w)])
    assert "others read its weights" in layer_sharing(graph, mesh).reason
    b = Builder()
    x, w = b.input(TensorType(f32, (4, 64))), b.input(TensorType(f32, (64, 512)))
    assert "others read its weights" in layer_sharing(b.finish("given back", [x, w], [b.matmul(x, w), w]), mesh).reason


def test_a_matrix_that_both_layers_of_a_pair_read_is_shared_if_by_the_same_axis(mesh: tuple[int, int]) -> None:
    tied = weights(1, 512, 512)
    for transposed, chips in ((True, mesh[0] * mesh[1]), (False, 1)):
        b = Builder()
        x, w = b.input(TensorType(f32, (4, 512))), b.constant(tied)
        graph = b.finish("tied", [x], [linear(b, b.relu(linear(b, x, w)), w, transposed=transposed)])
        made, (found,) = run(graph, given(graph))
        assert made.sharing.chips == layer_sharing(graph, mesh).chips == chips
        near(found, Interpreter(graph, "exact", DEFAULT, {}).submit([given(graph)])[0][0])


def test_what_comes_between_two_layers_must_keep_columns_apart(mesh: tuple[int, int]) -> None:
    graph = graph_of(
        lambda b, x: b.matmul(b.reshape(b.matmul(x, weights(1, 512, 1024)), [8, 512]), weights(2, 512, 48))
    )
    made, (found,) = run(graph, given(graph))
    assert "reshape before it mixes columns" in made.notes()[-1].rows[-1][-1]
    near(found, Interpreter(graph, "exact", DEFAULT, {}).submit([given(graph)])[0][0])


def test_what_is_added_has_no_more_axes_than_the_result(mesh: tuple[int, int]) -> None:
    deep = graph_of(
        lambda b, x: linear(b, b.matmul(x, weights(1, 512, 512)), weights(2, 512, 48), weights(3, 1, 1, 48))
    )
    shared = layer_sharing(deep, mesh)
    assert isinstance(shared, LayerSharing)
    assert "more axes than the result" in shared.layers.whole[deep.nodes[-1]]


@pytest.mark.parametrize("bound", [True, False])
def test_weights_that_are_given_are_shared_too(mesh: tuple[int, int], bound: bool) -> None:
    """For all runs, as frozen modules have them, or with each."""
    b = Builder()
    shapes = ((4, 512), (512, 1024), (1024,), (512, 1024), (512,))
    x, *layers = (b.input(TensorType(f32, shape)) for shape in shapes)
    graph = b.finish("given", [x, *layers], [linear(b, linear(b, x, *layers[:2]), *layers[2:], transposed=True)])
    arrays, device = [weights(at, *shape) for at, shape in enumerate(shapes)], TARGET.open()
    buffers = [device.upload(each) for each in arrays]
    made = TARGET.compile(graph, {}, device=device)
    made = made.bind(dict(enumerate(buffers[1:], 1))) if bound else made
    assert isinstance(made, ModelledExecutable)
    (found,), _ = made.submit(buffers[:1] if bound else buffers)
    near(device.download(found), Interpreter(graph, "exact", DEFAULT, {}).submit(arrays)[0][0])
    parts = [each for each in made.taken.given if each.axis is not None]
    assert sorted(each.axis or 0 for each in parts) == [0, 1, 1]
    assert all((each.resident is not None) == bound for each in parts)
    assert "all_reduce" in calls(made)


def test_the_middle_of_three_layers_belongs_to_one_pair(mesh: tuple[int, int]) -> None:
    graph = graph_of(
        lambda b, x: b.matmul(b.matmul(b.matmul(x, weights(1, 512, 512)), weights(2, 512, 512)), weights(3, 512, 512))
    )
    shared, (found,) = run(graph, given(graph))
    assert isinstance(shared.sharing, LayerSharing)
    assert [*shared.sharing.layers.ways.values()] == ["columns", "rows, added up", "columns, side by side"]
    near(found, Interpreter(graph, "exact", DEFAULT, {}).submit([given(graph)])[0][0])


def test_if_the_library_refuses_what_chips_exchange_every_chip_computes_everything(
    mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Library.check

    def refusing(self: Library, steps: Any, *rest: Any) -> Any:
        at = next((at for at, step in enumerate(steps) if step["op"] == "all_reduce"), None)
        return check(self, steps, *rest) if at is None else RefusedCall("no way between chips", at)

    monkeypatch.setattr(Library, "check", refusing)
    graph = mlp()
    made, (found,) = run(graph, given(graph))
    assert "no way between chips" in made.sharing.reason
    assert "Every chip computes everything: the library refuses all_reduce" in made.notes()[-1].text
    near(found, Interpreter(graph, "exact", DEFAULT, {}).submit([given(graph)])[0][0])


def test_a_card_refuses_it(mesh: tuple[int, int]) -> None:
    made, _ = run(graph := mlp(), given(graph))
    with pytest.raises(CompileFailed, match="do not share linear layers yet"):
        CardExecutable(made.setting, made.taken, {})


def test_one_chip_shares_nothing() -> None:
    shared = layer_sharing(mlp(), (1, 1))
    assert (shared.chips, shared.reason, shared.graph) == (1, "", shared.segment)


def test_layers_that_stay_whole_beside_others_say_why(mesh: tuple[int, int]) -> None:
    graph = graph_of(lambda b, x: b.matmul(b.softmax(b.matmul(x, weights(1, 512, 512)), axis=-1), weights(2, 512, 48)))
    made, _ = run(graph, given(graph))
    (_, first), (_, last) = made.notes()[-1].rows
    assert first == "columns, side by side"
    assert last.startswith("not shared: softmax before it is not known")


def test_a_report_has_what_chips_exchange_and_scripts_leave_it_out(
    mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(REPORT, str(tmp_path / "reports"))
    monkeypatch.setenv(SCRIPTS, str(tmp_path / "scripts"))
    run(graph := mlp(), given(graph))
    assert "all_reduce" in (tmp_path / "reports" / "mlp-1" / "graph.dot").read_text()
    names = sorted(path.stem for path in (tmp_path / "scripts" / "mlp").glob("*.py"))
    assert names == ["0001_ttnn_linear", "0002_ttnn_linear", "0003_add"]


def test_the_library_is_asked_without_numbers_too(mesh: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NUMBERS, "none")
    graph, device = mlp(), TARGET.open()
    made = TARGET.compile(graph, {}, device=device)
    assert isinstance(made, UncomputedExecutable)
    (found,), _ = made.submit([device.upload(given(graph))])
    assert device.download(found).shape == (2, 16, 256)
    assert f"{mesh[0] * mesh[1]} chips share linear layers" in made.notes()[-1].text


def test_programs_share_the_parts_of_weights(mesh: tuple[int, int]) -> None:
    graph = mlp()
    (one, _), (two, _) = (run(graph, given(graph)) for _ in range(2))
    assert [each.resident for each in one.taken.given] == [each.resident for each in two.taken.given]
    assert two.taken.checked.others <= one.taken.checked.others, "the first has nothing beside what both read"


# --- models


class Tagger(nn.Module):
    """A layer of a transformer between an embedding and a small layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 256), nn.Linear(256, 7)
        self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(2))
        self.query, self.key, self.value, self.join = (nn.Linear(256, 256) for _ in range(4))
        self.wide, self.narrow = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        y = self.norms[0](x)
        q, k, v = (each(y).unflatten(-1, (4, 64)).transpose(1, 2) for each in (self.query, self.key, self.value))
        x = x + self.join(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return self.out(x + self.narrow(functional.gelu(self.wide(self.norms[1](x)))))


def test_a_compiled_transformer_layer_is_shared_by_chips(mesh: tuple[int, int]) -> None:
    torch.manual_seed(0)
    model = Tagger().eval().requires_grad_(False)
    ids = torch.randint(0, 50, (3, 16))
    found = torch.compile(model, backend="assay", options=OPTIONS)(ids)
    assert np.corrcoef(found.numpy().reshape(-1), model(ids).numpy().reshape(-1))[0, 1] > 0.999
    with watching(model, options=options_from(OPTIONS), dynamic=False, train=None, backward=False) as (seen, call):
        call(CallArguments((ids,), {}), fused=True)
    (graph,) = seen.graphs
    (note,) = [note for note in graph.program.notes() if "chips share linear layers" in note.text]
    ways = [row[-1].partition(":")[0] for row in note.rows]
    assert ways == [*["columns, side by side"] * 4, "columns", "rows, added up", "not shared"]


# --- what chips exchange


@pytest.mark.parametrize("op", COLLECTIVES.rows)
def test_collectives_are_what_they_are_made_of(op: str) -> None:
    definition, rng = OPS[op], np.random.default_rng(0)
    assert definition.parts is not None
    for sample in definition.samples(rng, f32):
        right = definition.reference(*sample.inputs, **sample.attrs)
        b = Builder()
        inputs = [b.input(TensorType(f32, each.shape)) for each in sample.inputs]
        (kind,) = definition.infer([b.fact(each) for each in inputs], sample.attrs)
        assert kind == TensorType(f32, right.shape)
        graph = b.finish(op, inputs, [definition.parts(b, *inputs, **sample.attrs)])
        (found,), _ = Interpreter(graph, "exact", DEFAULT, {}).submit(list(sample.inputs))
        np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", COLLECTIVES.rows)
def test_parts_that_are_not_those_of_all_chips_are_an_error(op: str) -> None:
    b = Builder()
    parts = [b.input(TensorType(f32, (4, 32))) for _ in range(3)]
    with pytest.raises(ValueError, match="3 parts are not those of 2 chips"):
        b.emit(op, *parts, chips=2, axis=1)
    with pytest.raises(ValueError, match="differ"):
        b.emit(op, parts[0], b.input(TensorType(f32, (4, 64))), chips=2, axis=1)
