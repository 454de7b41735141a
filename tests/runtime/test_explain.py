"""`assay.explain`: its counts against torch's own graphs, its lines and reasons against known models."""

from __future__ import annotations

import inspect
import json
import operator
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx.experimental.proxy_tensor import make_fx

import assay
from assay.errors import BadFeed, LowerFailed
from assay.frontends.torch import registry
from assay.frontends.torch.decompositions import decompositions
from assay.ir import dtypes
from assay.ir.graph import Node
from assay.runtime import targets
from assay.runtime.torch.accounts import STATUSES
from assay.runtime.torch.explain import TorchExplanation
from assay.targets.base import YES, Support
from assay.targets.reference import ReferenceTarget

HERE = __file__


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def told(model: Callable[..., Any], *args: Any, **how: Any) -> TorchExplanation:
    return assay.explain(model, *args, quiet=True, **how)


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the one line of `function` that has `text` in it."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [at for at, line in enumerate(lines) if text in line]
    return first + found


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(x).relu())
        low, high = self.last(y).chunk(2, dim=-1)[0].aminmax(dim=-1)
        return torch.cat([low, high]).view(2, x.shape[0])


# --- counts


def counted(module: torch.fx.GraphModule) -> Counter[str]:
    """The ops of a graph by torch's own names."""
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    return Counter(str(node.target) for node in calls if node.target is not operator.getitem)


def graphs_of_torch(model: nn.Module, x: torch.Tensor) -> dict[str, Counter[str]]:
    """What AOTAutograd gives another backend."""
    found: dict[str, Counter[str]] = {}

    def taking(phase: str) -> Callable[..., Any]:
        def take(module: torch.fx.GraphModule, inputs: Any) -> Any:
            found[phase] = counted(module)
            return make_boxed_func(module.forward)

        return take

    backend = aot_autograd(
        fw_compiler=taking("forward"),
        bw_compiler=taking("backward"),
        inference_compiler=taking("inference"),
        decompositions=decompositions(),
    )
    outcome = torch.compile(model, backend=backend)(x)
    if outcome.requires_grad:
        outcome.sum().backward()
    return found


def counts_in(explanation: TorchExplanation, phase: str) -> Counter[str]:
    chosen = {graph.index for graph in explanation.graphs if graph.phase == phase}
    return Counter(node.op for node in explanation.nodes if node.graph in chosen)


def exact(explanation: TorchExplanation) -> None:
    """Every node has one status, and all sums agree."""
    for op in explanation.ops:
        assert op.count == op.converted + op.removed + op.opaque + op.fallback
        assert op.count == sum(node.op == op.op for node in explanation.nodes)
    for graph in explanation.graphs:
        assert graph.nodes == sum(node.graph == graph.index for node in explanation.nodes)
    assert sum(op.count for op in explanation.ops) == sum(graph.nodes for graph in explanation.graphs)


@pytest.mark.parametrize("train", [True, False])
def test_counts_are_those_of_the_graphs_that_aot_autograd_gives(train: bool) -> None:
    model, x = Small(), torch.randn(5, 4)
    with torch.set_grad_enabled(train):
        theirs = graphs_of_torch(model, x)
    explanation = told(model, x, train=train)
    exact(explanation)
    assert (
        {graph.phase for graph in explanation.graphs}
        == set(theirs)
        == ({"forward", "backward"} if train else {"inference"})
    )
    for phase, counts in theirs.items():
        assert counts_in(explanation, phase) == counts


def test_counts_are_those_of_make_fx() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(-1) @ x.mT).std(0).clamp(0, 1)

    x = torch.randn(3, 3)
    traced = make_fx(function, decomposition_table=decompositions())(x)
    explanation = told(function, x)
    exact(explanation)
    theirs = counted(traced)
    theirs.pop("aten.detach.default", None)  # make_fx's own
    assert counts_in(explanation, "inference") == theirs


def test_statuses() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        folded = torch.arange(3.0) * 2
        twice = x.sin() + x.sin()
        return twice.view(3) + folded, x.contiguous().detach()

    explanation = told(function, torch.randn(3))
    exact(explanation)
    by_name = {node.name: node for node in explanation.nodes}
    assert by_name["sin"].status == "converted"
    assert (by_name["sin"].core, by_name["sin"].targets) == (("sin",), ("reference",))
    assert (by_name["arange"].status, by_name["arange"].reason) == ("removed", "nothing that runs needs it")
    assert (by_name["mul"].status, by_name["mul"].reason) == ("removed", "a constant")
    assert (by_name["alias"].status, by_name["alias"].reason) == ("removed", "the input arg0_1")
    assert (by_name["sin_1"].status, by_name["sin_1"].reason) == ("removed", "the same as sin")
    assert (by_name["view"].status, by_name["view"].reason) == ("removed", "the same as add")
    assert by_name["add"].line == line_of(function, "x.sin() + x.sin()")
    assert by_name["add"].file == HERE


# --- what is not converted


@pytest.fixture
def library() -> Generator[Any]:
    with torch.library._scoped_library("assay_test", "FRAGMENT") as found:
        yield found


def own_op(library: Any, name: str, function: Callable[..., Any]) -> Any:
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, function, "CPU")
    library.impl(name, torch.empty_like, "Meta")
    return getattr(torch.ops.assay_test, name)


def test_an_op_without_a_lowering_is_opaque(library: Any) -> None:
    mystery = own_op(library, "mystery", lambda x: x * 3)
    explanation = told(lambda x: mystery(x) + 1, torch.ones(2))
    exact(explanation)
    (op,) = [op for op in explanation.ops if "mystery" in op.op]
    assert (op.count, op.opaque, op.core) == (1, 1, ("opaque",))
    assert op.reasons == (f"opaque: {op.op} has no lowering",)
    assert f"{op.op} has no lowering" in str(explanation)


def test_strict_is_an_error_of_assay(library: Any) -> None:
    mystery = own_op(library, "mystery", lambda x: x * 3)
    with pytest.raises(LowerFailed, match="has no lowering"):
        told(lambda x: mystery(x) + 1, torch.ones(2), options={"strict": True})


def test_an_op_that_turns_out_opaque_when_it_runs(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    late = own_op(library, "late", lambda x: x * 3)

    def lowering(b: Any, n: Any, x: Any) -> Any:
        b.ints(b.cast(x, dtype=dtypes.i64), "the content")
        raise TypeError("not this one")

    monkeypatch.setitem(registry._TABLE, "aten.assay_test.late.default", lowering)
    explanation = told(lambda x: late(x) + 1, torch.ones(2), options={"cache": False})
    exact(explanation)
    (node,) = [node for node in explanation.nodes if "late" in node.op]
    assert node.status == "opaque"
    assert "not this one" in node.reason


class Picky(ReferenceTarget):
    """Takes all ops but one."""

    name = "picky"

    def support(self, node: Node) -> Support:
        return YES if node.op != "sin" else Support(False, "no kernel for sin")


def test_what_runs_elsewhere_is_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets._OWN, "picky", lambda mode, limits, threads: Picky())
    explanation = told(lambda x: x.cos().sin(), torch.ones(2), options=assay.Options(target="picky"))
    exact(explanation)
    by_name = {node.name: node for node in explanation.nodes}
    assert (by_name["cos"].status, by_name["cos"].targets) == ("converted", ("picky",))
    assert (by_name["sin"].status, by_name["sin"].targets) == ("fallback", ("reference",))
    assert by_name["sin"].reason == "sin: no kernel for sin"
    assert explanation.graphs[0].segments == 2


# --- graph breaks, recompiles, symbols


class Breaking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("here")
        z = y * y.sum().item()
        if z.sum() > 0:
            z = z - 1
        return z


def test_graph_breaks_have_their_lines_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    explanation = told(Breaking(), torch.ones(3))
    exact(explanation)
    forward = Breaking.forward
    lines = {found.line: found for found in explanation.breaks}
    assert all(found.file == HERE for found in explanation.breaks)
    assert set(lines) == {line_of(forward, text) for text in ("print(", ".item()", "if z")}
    assert "print" in lines[line_of(forward, "print(")].reason
    item = lines[line_of(forward, ".item()")]
    assert item.code == "z = y * y.sum().item()"
    assert "Tensor.item()" in item.reason
    assert any("capture_scalar_outputs" in hint for hint in item.hints)
    assert lines[line_of(forward, "if z")].reason == "a branch depends on the content of a tensor"
    assert capsys.readouterr().out == "here\n"


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(4, 4), nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.first(x))[0]


def test_functions_that_torch_does_not_compile_at_all_are_told() -> None:
    """Dynamo leaves whatever calls a recurrent layer to eager, and counts no graph break."""
    explanation = told(Recurrent(), torch.randn(2, 3, 4))
    assert explanation.graphs == ()
    (found,) = explanation.breaks
    assert (found.file, found.line) == (HERE, line_of(Recurrent.forward, "self.layer(self.first"))
    assert (found.left, found.count) == ("Recurrent.forward", 1)
    assert "LSTM" in found.reason
    assert any("allow_rnn" in hint for hint in found.hints)
    assert "Recurrent.forward runs eagerly as a whole" in str(explanation)


def test_functions_are_told_that_were_left_before() -> None:
    """Dynamo remembers for everybody what it leaves to eager."""
    model, x = Recurrent(), torch.randn(2, 3, 4)
    torch.compile(model, backend="assay")(x)
    first = told(model, x)
    assert [each.left for each in first.breaks] == ["Recurrent.forward"]
    assert told(model, x) == first


def test_functions_that_were_told_to_be_left_can_be_compiled() -> None:
    model, x = Recurrent(), torch.randn(2, 3, 4)
    assert told(model, x).graphs == ()
    graphs: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    with dynamo_config.patch(allow_rnn=True):
        torch.compile(model, backend=keep)(x)
    assert graphs


def test_a_layer_by_itself_is_told_once() -> None:
    (found,) = told(nn.GRU(4, 4), torch.randn(2, 3, 4)).breaks
    assert found.left


def test_no_break_is_reported_where_there_is_none() -> None:
    explanation = told(Small(), torch.randn(2, 4))
    assert (explanation.breaks, explanation.recompiles) == ((), ())


RECOMPILED = {
    "size": ((torch.ones(3, 4),), (torch.ones(5, 4),), "x has size 5 in dim 0; it was compiled for 3"),
    "rank": ((torch.ones(3, 4),), (torch.ones(2, 3, 4),), "x has 3 dims; it was compiled for 2"),
    "dtype": (
        (torch.ones(3),),
        (torch.ones(3, dtype=torch.float64),),
        "x is of dtype Double; it was compiled for Float",
    ),
    "gradient": (
        (torch.ones(3),),
        (torch.ones(3, requires_grad=True),),
        "x requires a gradient now; it was compiled without",
    ),
    "number": ((torch.ones(3), 2), (torch.ones(3), 5), "n was 2 when it was compiled"),
    "word": ((torch.ones(3), 2, "a"), (torch.ones(3), 2, "b"), "how was 'a' when it was compiled"),
}


@pytest.mark.parametrize(("first", "second", "reason"), RECOMPILED.values(), ids=RECOMPILED.keys())
def test_recompiles_in_plain_words(first: Any, second: Any, reason: str) -> None:
    def function(x: torch.Tensor, n: int = 1, how: str = "a") -> torch.Tensor:
        return x * n if how == "a" else x + n

    explanation = told(function, calls=[first, first, second])
    (recompile,) = explanation.recompiles
    assert (recompile.call, recompile.function, recompile.given_up) == (2, "function", False)
    assert (recompile.file, recompile.line) == (HERE, line_of(function, "def function"))
    assert recompile.reasons == (reason,)
    assert len(recompile.guards) == 1
    assert reason in str(explanation)
    assert [graph.call for graph in explanation.graphs if graph.phase != "backward"] == [0, 2]


def test_a_function_that_torch_gives_up() -> None:
    def function(x: torch.Tensor, how: str) -> torch.Tensor:
        return x * len(how)

    with torch._dynamo.config.patch(recompile_limit=2):
        explanation = told(function, calls=[(torch.ones(2), how) for how in ("a", "b", "c")])
        assert [recompile.given_up for recompile in explanation.recompiles] == [False, True]
        assert "given up, it runs eagerly" in str(explanation)
    theirs = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(theirs(torch.ones(2), "dd"), torch.full((2,), 2.0))


def test_symbols_and_what_they_are_in_the_model() -> None:
    explanation = told(Small(), torch.randn(5, 4), dynamic=True, train=True)
    exact(explanation)
    for graph in explanation.graphs:
        symbol, *others = graph.sizes
        assert symbol.source == "x.size()[0]"
        assert f"{symbol.symbol} = x.size()[0]" in str(explanation)
        assert all(symbol.symbol in other.symbol and not other.source for other in others)


def test_static_graphs_have_no_symbols() -> None:
    explanation = told(Small(), calls=[(torch.randn(n, 4),) for n in (5, 6)], dynamic=False)
    assert [graph.sizes for graph in explanation.graphs] == [()] * 4
    assert len(explanation.recompiles) == 1


# --- the result and what is left behind


def test_it_prints_and_returns_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    explanation = assay.explain(Small(), torch.randn(2, 4))
    assert capsys.readouterr().out == f"{explanation}\n"
    assert json.loads(json.dumps(explanation.to_json()))["graphs"][0]["phase"] == "forward"


def test_the_text_has_totals_and_a_summary_by_reason() -> None:
    def strange(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).real + x.sum()

    explanation = told(strange, torch.randn(3, 3), options={"target": "cpu"})
    text = str(explanation)
    (total,) = [line.split() for line in text.splitlines() if line.startswith("total ")]
    statuses = Counter(node.status for node in explanation.nodes)
    assert list(map(int, total[1:])) == [len(explanation.nodes), *(statuses[s] for s in STATUSES)]
    away = [node for node in explanation.nodes if node.status in ("opaque", "fallback")]
    assert away
    assert all(node.reason for node in away)
    table = text.split("\nWhy\n")[1].splitlines()
    assert table[0].split() == ["nodes", "status", "reason", "aten", "ops"]
    assert sum(int(line.split()[0]) for line in table[1:]) == len(
        [node for node in explanation.nodes if node.reason and node.status != "removed"]
    )


@dataclass
class Output:
    loss: torch.Tensor
    other: dict[str, Any]


@pytest.mark.parametrize(
    "nest",
    [
        lambda y: Output(y.sum(), {"y": y}),
        lambda y: {"deep": [y, (y.sum(), None)]},
        lambda y: torch.view_as_complex(y.view(2, 2)),
    ],
)
def test_outputs_of_any_nesting_are_differentiated(nest: Callable[..., Any]) -> None:
    explanation = told(lambda x: nest(x.exp()), torch.ones(4, requires_grad=True))
    assert "backward" in {graph.phase for graph in explanation.graphs}


def test_arguments_are_given_in_one_way() -> None:
    with pytest.raises(BadFeed, match="both"):
        told(Small(), torch.ones(2, 4), calls=[(torch.ones(2, 4),)])
    with pytest.raises(BadFeed, match="empty"):
        told(Small(), calls=[])
    with pytest.raises(BadFeed, match="no option 'tarjet'"):
        told(Small(), torch.ones(2, 4), options={"tarjet": "cpu"})


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model[2].eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    explanation = told(model, torch.randn(6, 4), train=True)
    assert "backward" in {graph.phase for graph in explanation.graphs}
    assert [part.training for part in model.modules()] == [True, True, True, False]
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_random_numbers_are_left_as_they_were() -> None:
    x = torch.randn(6, 4)
    before = torch.get_rng_state()
    told(lambda x: nn.functional.dropout(x) + torch.rand_like(x), x)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("used_before", [True, False])
def test_other_compiled_code_is_left_as_it_was(used_before: bool) -> None:
    model, x = Breaking(), torch.ones(3)
    compiled: list[int] = []

    def theirs(module: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(len(inputs))
        return module.forward

    mine = torch.compile(model, backend=theirs)
    if used_before:
        mine(x)
    before, reasons = len(compiled), list(dynamo_utils.graph_break_reasons)
    told(model, calls=[(x,), (torch.ones(4),), (torch.ones(5, 5),)])
    assert dynamo_utils.graph_break_reasons == reasons
    mine(x)
    first = len(compiled)
    assert (first == before) is used_before
    mine(torch.ones(4))  # sizes that changed in the explained calls are no news of this model
    mine(torch.ones(6))
    once = len(compiled)
    assert once > first
    mine(torch.ones(7))
    assert len(compiled) == once


def test_explaining_again_tells_the_same() -> None:
    model, x = Breaking(), torch.ones(3)
    first = told(model, calls=[(x,), (torch.ones(4),)])
    second = told(model, calls=[(x,), (torch.ones(4),)])
    assert second == first


def test_errors_of_the_model_are_its_own() -> None:
    class Wrong(Exception):
        pass

    def function(x: torch.Tensor) -> torch.Tensor:
        raise Wrong("as it is")

    with pytest.raises(Wrong, match="as it is"):
        told(function, torch.ones(2))
    exact(told(Small(), torch.ones(2, 4)))
