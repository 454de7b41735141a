"""The Tenstorrent target as a whole: small models from first op to last, residency, forms, and what goes wrong."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from programs import compiled_on, placed_on
from torch import nn

import assay
from assay.errors import CompileFailed, NotFound, RunFailed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.graph import Graph, Node
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.session import Session, SessionOptions
from assay.runtime.targets import make_chain, probe_target
from assay.runtime.torch.graphs import recording
from assay.targets.base import Event, NodeRefused
from assay.targets.reference.interpreter import Interpreter
from assay.targets.shared.tensors import dtype_of
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn import device_model as modelled
from assay.targets.ttnn.formats import bfloat16
from assay.targets.ttnn.library import Checked, Library, TensorSpec
from assay.targets.ttnn.lowering import planned
from assay.targets.ttnn.plan import CHANNELS_LAST, ROWS, TILE, CallPlanner, Form, bytes_on_card
from assay.targets.ttnn.table import TABLE

CHAIN = "ttnn,cpu"


@pytest.fixture
def target(library: Library) -> TtnnTarget:
    return TtnnTarget("exact", DEFAULT)


# --- small models


def perceptron() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.Sequential(nn.Linear(100, 70), nn.ReLU(), nn.Linear(70, 10)), (torch.randn(3, 100),)


def convolutions() -> tuple[nn.Module, tuple[Any, ...]]:
    layers = [
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*layers), (torch.randn(2, 3, 32, 32),)


def pixels() -> tuple[nn.Module, tuple[Any, ...]]:
    """Transposed convolutions by one pixel, as the gradients of convolutions by one pixel are."""
    widened, spread = nn.ConvTranspose2d(64, 128, 1, bias=False), nn.ConvTranspose2d(128, 32, 1, stride=2)
    return nn.Sequential(widened, nn.ReLU(), spread), (torch.randn(2, 64, 8, 8),)


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        small: dict[str, Any] = {
            "hidden_size": 64,
            "num_attention_heads": 2,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
        }
        config = BertConfig(vocab_size=100, max_position_embeddings=20, **small)
        self.inner = BertModel(config, add_pooling_layer=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.inner(ids, attention_mask=mask).last_hidden_state


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    mask = torch.ones(2, 17, dtype=torch.long)
    mask[1, 9:] = 0
    return Bert(), (torch.randint(0, 100, (2, 17)), mask)


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        small: dict[str, Any] = {
            "n_embd": 64,
            "n_head": 2,
            "n_layer": 1,
            "n_positions": 64,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        self.inner = GPT2LMHeadModel(GPT2Config(vocab_size=100, use_cache=False, **small))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.inner(ids).logits


def gpt2() -> tuple[nn.Module, tuple[Any, ...]]:
    return Gpt2(), (torch.randint(0, 100, (2, 17)),)


MODELS: list[Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = [perceptron, convolutions, pixels, bert, gpt2]


def made(model: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    module, inputs = model()
    return module.eval(), inputs


def correlation(one: Any, other: Any) -> float:
    return float(np.corrcoef(np.ravel(one).astype(np.float64), np.ravel(other).astype(np.float64))[0, 1])


@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("model", MODELS)
def test_a_compiled_model_is_taken_from_the_first_op_to_the_last(target: TtnnTarget, model: Any) -> None:
    module, inputs = made(model)
    torch.compiler.reset()
    with recording() as graphs, torch.no_grad():
        compiled = torch.compile(module, backend="assay", options={"target": CHAIN, "frozen": True})
        right, found = module(*inputs), compiled(*inputs)
    assert len(graphs) == 1
    for each in graphs[0].placements:
        floats = any(dtype_of(value).is_float for value in each.node.outputs)
        assert each.target == ("ttnn" if floats else each.target), f"{each.node.op}: {each.refusals}"
    assert correlation(found, right) > 0.9999
    assert not torch.equal(found, right), "the numbers are those of bf16"


@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_moved_inside_a_model_and_weights_once(target: TtnnTarget, model: Any) -> None:
    module, inputs = made(model)
    session = assay.load(torch.export.export(module, inputs), assay.SessionOptions(target=CHAIN))
    feeds = {name: array.numpy() for name, array in zip(session.input_names, inputs, strict=True)}
    for _ in range(2):
        (found,) = session.run(feeds).values()
        with torch.no_grad():
            assert correlation(found, module(*inputs)) > 0.9999
        assert session.transfers is not None
        ways = Counter((each.source, each.destination) for each in session.transfers.entries)
        assert ways["ttnn", "host"] == 1, "one result is fetched"
        assert ways["host", "ttnn"] <= len(inputs) + 1, "and the inputs are moved, or what the host made of them"
    weights = sum(each.numel() for each in module.state_dict().values() if each.is_floating_point())
    assert session.resident is not None
    assert session.resident.bytes >= weights * 4 * 0.9


# --- forms


def test_images_stay_with_their_channels_last(target: TtnnTarget) -> None:
    b, rng = Builder(), np.random.default_rng(0)
    x = b.input(TensorType(dtypes.f32, (1, 32, 8, 8)))
    w = b.constant(rng.normal(size=(32, 32, 3, 3)).astype(np.float32))
    shape = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    once = b.relu(b.conv(x, w, **shape))
    twice = b.add(b.conv(once, w, **shape), once)
    program = planned(b.finish("g", [x], [b.reduce_mean(twice, axes=(2, 3))]))
    each_run = [each for each in program.conversions if not each.once]
    assert [(each.have.order, each.want.order) for each in each_run if each.have.order != each.want.order] == [
        ("plain", CHANNELS_LAST)
    ]
    assert len(each_run) == 1, "a small image comes in rows, and the mean reads what is last as it lies"


def test_a_value_is_converted_once_for_all_who_want_it(target: TtnnTarget) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (6, 6)))
    zero = b.constant(np.float32(0))
    pads = [b.pad(x, b.constant(np.array(counts)), zero) for counts in ([1, 0, 0, 1], [0, 1, 1, 0])]
    program = planned(b.finish("g", [x], [b.add(*pads)]))
    assert sum(each.value is x for each in program.conversions) == 1
    assert sum(each.want.layout == ROWS for each in program.conversions) == 1


# --- symbolic sizes


def test_symbolic_sizes_get_programs_of_their_own_few_where_padding_is_exact(
    target: TtnnTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Graph] = []
    compiled = TtnnTarget.compile

    def counted(self: TtnnTarget, segment: Graph, *rest: Any, **named: Any) -> Any:
        made.append(segment)
        return compiled(self, segment, *rest, **named)

    monkeypatch.setattr(TtnnTarget, "compile", counted)
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n", 1), 7)))
    weights = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    rows = b.softmax(b.matmul(x, b.constant(weights)), axis=1)
    graph = b.finish("g", [x], [rows], input_names=("x",), output_names=("y",))
    session = Session(graph, SessionOptions(target=CHAIN))
    for count in (3, 4, 5, 7, 8, 3):
        given = np.random.default_rng(count).normal(size=(count, 7)).astype(np.float32)
        (right,), _ = Interpreter(graph, "exact", DEFAULT, {}).submit([given])
        found = session.run({"x": given})["y"]
        np.testing.assert_allclose(found, right, atol=1e-2)
        assert {node.target for node in session.explain().nodes} == {"ttnn"}
    assert [tuple(each.inputs[0].type.shape) for each in made] == [(4, 7), (8, 7)]  # pyright: ignore


# --- numbers


def small(op: Callable[[Builder, Any], Any], shape: tuple[int, ...] = (5, 7)) -> Graph:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, shape))
    return b.finish("g", [x], [op(b, x)])


def test_numbers_are_those_of_the_device_model(target: TtnnTarget) -> None:
    graph = small(lambda b, x: b.softmax(b.matmul(b.tanh(x), b.constant(np.ones((7, 3), np.float32) / 3)), axis=1))
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    program = placed_on(target, graph)
    assert {each.target for each in program.plan.placements} == {"ttnn"}
    (found,) = program.run([x])
    (right,), _ = Interpreter(graph, "bf16", DEFAULT, {}).submit([x])
    np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(found, bfloat16(found))


def test_an_observer_is_told_of_every_node(target: TtnnTarget) -> None:
    graph = small(lambda b, x: b.exp(b.tanh(x)))
    events: list[Event] = []
    placed_on(target, graph).run([np.ones((5, 7), np.float32)], events.append)
    assert [event.node.op for event in events] == ["tanh", "exp"]


def test_rank_zero_and_odd_shapes(target: TtnnTarget) -> None:
    for shape in ((), (1,), (33,), (3, 1, 65), (2, 1, 3, 2, 5)):
        graph = small(lambda b, x: b.add(b.exp(x), b.constant(np.float32(1))), shape)
        program = placed_on(target, graph)
        assert {each.target for each in program.plan.placements} == {"ttnn"}, shape
        assert program.run([np.zeros(shape, np.float32)])[0].shape == shape


# --- memory


def test_peak_memory_is_what_the_library_counts(target: TtnnTarget) -> None:
    graph = small(lambda b, x: b.relu(b.add(b.tanh(x), x)), (1024, 1024))
    executable = target.compile(graph, {})
    _, run = executable.submit([modelled.ModelledCard().upload(np.ones((1024, 1024), np.float32))])
    one = 1024 * 1024 * 2
    assert run.peak_bytes is not None
    assert 2 * one <= run.peak_bytes < 2.2 * one


def test_what_does_not_fit_is_said_before_anything_runs(target: TtnnTarget) -> None:
    b = Builder()
    several = [b.input(TensorType(dtypes.f32, (1 << 16, 1 << 16))) for _ in range(2)]
    graph = b.finish("g", several, [b.add(*several)])
    with pytest.raises(CompileFailed, match=r"no room: weights and inputs take 16,384 MiB of its 12,\d\d\d MiB"):
        target.compile(graph, {})
    big = small(lambda b, x: b.exp(b.matmul(x, b.transpose(x, perm=(1, 0)))), (1 << 16, 64))
    with pytest.raises(CompileFailed, match=r"refuses exp: .*(Out of Memory|allocate)"):
        target.compile(big, {})


def test_explain_lists_conversions_with_reasons_and_the_memory_of_the_card(target: TtnnTarget) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (1, 32, 64, 64)))
    w = b.constant(np.ones((32, 32, 1, 1), np.float32))
    image = b.conv(x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))
    graph = b.finish("g", [x], [b.exp(image)], input_names=("x",), output_names=("y",))
    explained = Session(graph, SessionOptions(target=CHAIN)).explain()
    calls, memory, conversions = explained.notes
    assert re.fullmatch(r"g.ttnn: \d+ calls of the library in each run, \d+ once for all runs", calls.text)
    assert [tuple(row)[1:] for row in conversions.rows] == [
        ("tiles", "rows", "conv (built) takes bfloat16 rows, channels last"),
        ("plain", "channels last", "conv (built) takes bfloat16 rows, channels last"),
        ("tiles", "rows", "what follows the segment takes bfloat16 tiles"),
        ("channels last", "plain", "what follows the segment takes bfloat16 tiles"),
        ("rows", "tiles", "what follows the segment takes bfloat16 tiles"),
    ]
    dram, l1 = memory.rows
    assert (dram[0], l1[0]) == ("DRAM", "L1")
    given, most = float(dram[1]), float(dram[2])
    assert given >= 0.25, "the input alone"
    assert 2 * given <= most + 0.1 < 5 * given
    assert dram[3].startswith("12,")
    assert "what follows the segment takes" in str(explained)


@pytest.mark.parametrize("layout", [TILE, ROWS])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int32", "uint32"])
@pytest.mark.parametrize("shape", [(24, 320, 96), (320, 96, 3, 3)])
def test_the_bytes_of_a_tensor_are_those_that_the_library_takes(
    library: Library, shape: tuple[int, ...], dtype: str, layout: str
) -> None:
    """In whole pages for each of the memory's banks."""
    free = library.check([], [])
    taken = library.check([], [TensorSpec(1, shape, dtype, layout)])
    assert isinstance(free, Checked)
    assert isinstance(taken, Checked)
    found = taken.memory[0][0] - free.memory[0][0]
    assert bytes_on_card(shape, Form(dtype, layout)) == pytest.approx(found, rel=0.02)


def test_a_buffer_is_as_large_as_on_the_card() -> None:
    card = modelled.ModelledCard()
    assert card.upload(np.ones((3, 33, 5), np.float32)).nbytes == 3 * 64 * 32 * 2
    assert card.upload(np.ones((7,), np.int64)).nbytes == 32, "words of 32 bytes"
    assert card.upload(np.ones((64, 32, 3, 3), np.float32)).nbytes == 64 * 32 * 3 * 32, "rows"


def test_weights_of_convolutions_are_not_filled_up_to_tiles(target: TtnnTarget) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (1, 256, 64, 64)))
    w = b.input(TensorType(dtypes.f32, (256, 256, 3, 3)))
    image = b.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1))
    program = planned(b.finish("g", [x, w], [image]))
    forms = {each.value: each.form for each in program.given}
    assert forms[x] == Form("bfloat16"), "an image of 64 × 64 is no larger in tiles"
    assert forms[w] == Form("bfloat16", ROWS)
    assert program.given_bytes == (256 * 64 * 64 * 2) + (256 * 256 * 3 * 32)


# --- what is refused, and what goes wrong


def test_support_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Any:
        raise AssertionError("the library is asked while nodes are placed")

    monkeypatch.setattr("assay.targets.ttnn.open_library", nobody)
    asked = TtnnTarget("exact", DEFAULT)
    reasons = {
        "f32, bf16 and bool": ("add", [dtypes.f64, dtypes.f64], (2, 2)),
        "does not take integers": ("pow", [dtypes.i64, dtypes.i64], (2, 2)),
        "empty": ("exp", [dtypes.f32], (0, 2)),
        "sizes that are numbers": ("exp", [dtypes.f32], (symbol("n", 1), 2)),
        "no call": ("det", [dtypes.f32], (3, 3)),
    }
    for reason, (op, kinds, shape) in reasons.items():
        b = Builder()
        values = [b.input(TensorType(kind, shape)) for kind in kinds]
        graph = b.finish("g", values, b.emit(op, *values))
        assert reason in asked.support(graph.nodes[0]).reason
    assert TtnnTarget("precise", DEFAULT).support(small(lambda b, x: b.exp(x)).nodes[0]).reason


def test_a_node_that_the_library_refuses_goes_to_the_oracle_in_its_own_words_and_the_rest_stays(
    target: TtnnTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def squared(p: CallPlanner, node: Node) -> None:
        p.give(node.outputs[0], p.call("matmul", p.take(node.inputs[0]), p.take(node.inputs[0])))

    monkeypatch.setitem(TABLE.rows, "tanh", replace(TABLE.rows["tanh"], emit=squared))
    graph = small(lambda b, x: b.add(b.exp(b.tanh(b.neg(b.tanh(b.abs(x))))), b.sqrt(b.abs(x))))
    with pytest.warns(RuntimeWarning, match="tanh of .* runs on .*The width of the first tensor must be equal"):
        program = placed_on(target, graph)
    for each in program.plan.placements:
        assert each.target == ("reference" if each.node.op == "tanh" else "ttnn")
        assert ("the library refuses matmul" in each.reason) == (each.node.op == "tanh")
    assert [each.target.name for each in program.plan.segments] == ["ttnn", "reference", "ttnn", "reference", "ttnn"]
    x = np.linspace(0.5, 1.5, 35, dtype=np.float32).reshape(5, 7)
    (right,), _ = Interpreter(graph, "exact", DEFAULT, {}).submit([x])
    np.testing.assert_allclose(program.run([x])[0], right, rtol=2e-2)
    watching = program.observing([graph.nodes[1].outputs[0]])
    np.testing.assert_allclose(watching.run([x])[1], np.tanh(x), rtol=2e-2)


def test_a_row_that_is_wrong_about_the_result_is_found_out(target: TtnnTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(p: CallPlanner, node: Node) -> None:
        p.give(node.outputs[0], p.call("tanh", p.take(node.inputs[0])), Form("bfloat16", ROWS))

    monkeypatch.setitem(TABLE.rows, "tanh", replace(TABLE.rows["tanh"], emit=wrong))
    with pytest.raises(CompileFailed, match=r"gives BFLOAT16.*TILE where the table says BFLOAT16.*ROW_MAJOR"):
        target.compile(small(lambda b, x: b.tanh(x)), {})


def test_an_abort_of_the_library_names_the_call_and_the_next_segment_compiles(
    target: TtnnTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(p: CallPlanner, node: Node) -> None:
        p.give(node.outputs[0], p.call("Tensor", np.zeros((2, 2)), None))

    monkeypatch.setitem(TABLE.rows, "tanh", replace(TABLE.rows["tanh"], emit=deadly))
    graph = small(lambda b, x: b.exp(b.tanh(x)))
    with pytest.raises(NodeRefused, match="failed in Tensor") as caught:
        target.compile(graph, {})
    assert caught.value.node is graph.nodes[0]
    target.compile(small(lambda b, x: b.exp(x)), {})


def test_integers_beyond_32_bits_are_an_error() -> None:
    with pytest.raises(RunFailed, match="32 bits"):
        modelled.ModelledCard().upload(np.array([1 << 31]))
    modelled.ModelledCard().upload(np.array([(1 << 31) - 1]))


def test_integers_that_grow_beyond_32_bits_on_the_card_are_an_error(target: TtnnTarget) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.i64, (4,)))
    graph = b.finish("g", [x], [b.lt(b.mul(x, x), b.constant(np.array(9)))])
    program = placed_on(target, graph)
    assert [each.target for each in program.plan.placements] == ["ttnn", "ttnn"]
    assert program.run([np.array([-3, 2, -46340, 46340])])[0].tolist() == [False, True, False, False]
    with pytest.raises(RunFailed, match="mul: an integer does not fit the card's 32 bits"):
        program.run([np.array([0, 0, 0, 46341])])


@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
def test_a_choice_between_two_floats_that_integers_decide_is_of_floats(target: TtnnTarget) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.i64, (4, 5)))
    floats = [b.constant(np.float32(each)) for each in (0.0, -np.inf)]
    graph = b.finish("g", [x], [b.where(b.lt(x, b.constant(np.array(3))), *floats)])
    (found,) = placed_on(target, graph).run([np.arange(20).reshape(4, 5)])
    assert (found == 0).sum() == 3
    assert np.isneginf(found).sum() == 17


def test_a_constant_beyond_32_bits_leaves_its_reader_to_the_oracle(target: TtnnTarget) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.i64, (4, 2)))
    wide = b.constant(np.array([1 << 40, 1]))
    graph = b.finish("g", [x], [b.neg(b.min(x, wide))])
    with pytest.warns(RuntimeWarning, match="min of .* does not fit the card's 32 bits"):
        program = placed_on(target, graph)
    assert [each.target for each in program.plan.placements] == ["reference", "ttnn"]


@pytest.mark.parametrize("known", [True, False])
def test_positions_count_from_the_end_if_they_are_negative(target: TtnnTarget, known: bool) -> None:
    b = Builder()
    table = b.input(TensorType(dtypes.f32, (5, 3)))
    places = np.array([-1, 0, -5, 2])
    positions = b.constant(places) if known else b.input(TensorType(dtypes.i64, (4,)))
    graph = b.finish("g", [table] if known else [table, positions], [b.gather(table, positions, axis=0)])
    calls = [step.op for step in planned(graph).steps]
    assert ("remainder" in calls) == (not known)
    content = np.arange(15, dtype=np.float32).reshape(5, 3)
    (found,) = placed_on(target, graph).run([content] if known else [content, places])
    np.testing.assert_array_equal(found, content[places])


def test_without_the_library_the_target_is_absent_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_TTNN_PYTHON", "/bin/false")
    probe = probe_target("ttnn")
    assert not probe.present
    assert probe.reason == "ASSAY_TTNN_PYTHON: /bin/false cannot be run (it ended with 1)"
    with pytest.raises(NotFound, match="cannot be used here"):
        make_chain(CHAIN, "exact", DEFAULT)


@pytest.mark.parametrize("variable", ["CARD", "NUMBERS", "WEIGHTS", "PARALLEL"])
def test_the_probe_tells_which_variable_says_what_cannot_be(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(f"ASSAY_TTNN_{variable}", "xyz")
    probe = probe_target("ttnn")
    assert not probe.present
    assert "'xyz'" in probe.reason
    assert f"(ASSAY_TTNN_{variable}); choose from" in probe.reason


def test_the_probe_tells_the_card_and_where_numbers_come_from(target: TtnnTarget) -> None:
    probe = target.probe()
    assert probe.present
    assert probe.details["card"] == "mock n150 (1 × WORMHOLE_B0, 8×8 cores)"
    assert probe.details["numbers"] == "device model"


def test_the_weights_of_a_segment_can_be_read_with_every_run(target: TtnnTarget) -> None:
    graph = small(lambda b, x: b.matmul(x, b.constant(np.ones((7, 3), np.float32))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = compiled_on(target, graph)
    assert program.resident is not None
    assert len(program.resident.entries) == 1
