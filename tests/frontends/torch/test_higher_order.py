"""Control flow, checkpoints and views through strides: as eager has them, compiled, left to torch, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from assay.evidence.fuzz.torch_plain import PLAIN
from assay.frontends.torch import registry
from assay.runtime.torch.graphs import recording

REAL: dict[str, Any] = {"cond": torch.cond, "while_loop": while_loop, "map_": map_, "scan": scan}

Ops = dict[str, Callable[..., Any]]


def count() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


def nested(o: Ops, x: torch.Tensor) -> Any:
    return o["cond"](x.sum() > 0, lambda a: o["cond"](a.max() > 1, torch.sin, torch.neg, (a,)), torch.cos, (x,))


FLOWS: dict[str, Callable[[Ops, torch.Tensor], Any]] = {
    "cond": lambda o, x: o["cond"](x.sum() > 0, lambda a: a.sin() + 1, lambda a: a.cos(), (x,)),
    "two results": lambda o, x: o["cond"](x.max() > 1, lambda a: (a * 2, a.sum()), lambda a: (-a, a.mean()), (x,)),
    "nested": nested,
    "two operands": lambda o, x: o["cond"](x.sum() > 0, lambda a, c: a * c, lambda a, c: a - c, (x, x.exp())),
    "while": lambda o, x: o["while_loop"](lambda i, a: i < 3, lambda i, a: (i + 1, a.sin() * 2), (count(), x)),
    "while data": lambda o, x: o["while_loop"](
        lambda i, a: (i < 9) & (a.sum() < 30), lambda i, a: (i + 1, a.abs() + 1), (count(), x)
    ),
    "map": lambda o, x: o["map_"](lambda row: row.sin() * 2, x),
    "scan": lambda o, x: o["scan"](lambda c, row: (c + row, c * row), torch.zeros(3), x),
    "scan back": lambda o, x: o["scan"](lambda c, row: (c + row, c.sin()), torch.ones(3), x, reverse=True),
}
"""Programs over functions of control flow: torch's, or plain Python."""

SMOOTH = [name for name in FLOWS if not name.startswith("while")]
"""Those that torch itself can differentiate: a loop whose count data decides it leaves to eager."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Callable[..., Any], target: str, dynamic: bool | None = None) -> Callable[..., Any]:
    return torch.compile(function, backend="assay", options={"target": target, "cache": False}, dynamic=dynamic)


def results(function: Callable[..., Any], x: torch.Tensor, grad: bool) -> list[torch.Tensor]:
    """Outputs and, if asked for, the gradient of their sum."""
    given = x.clone().requires_grad_(grad)
    outcome = function(given)
    outputs = list(outcome) if isinstance(outcome, tuple) else [outcome]
    tops = [each for each in outputs if each.requires_grad]
    if tops:
        torch.autograd.backward(tops, [torch.ones_like(top) for top in tops])
        outputs.append(given.grad)
    return outputs


def agree(mine: Callable[..., Any], theirs: Callable[..., Any], x: torch.Tensor, grad: bool) -> None:
    for a, b in zip(results(mine, x, grad), results(theirs, x, grad), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("name", "grad"), [*((name, False) for name in FLOWS), *((name, True) for name in SMOOTH)])
def test_control_flow_is_as_in_plain_python(name: str, grad: bool, target_name: str) -> None:
    flow = FLOWS[name]
    function = compiled(lambda x: flow(REAL, x), target_name, dynamic=True)
    with recording() as graphs:
        for rows, shift in ((4, -1.0), (6, 1.0)):
            agree(function, lambda x: flow(PLAIN, x), torch.randn(rows, 3) + shift, grad)
    ops = {node.op for graph in graphs for node in graph.lowered.walk()}
    assert ops & {"branch", "loop"}
    assert "opaque" not in ops


@pytest.mark.parametrize("name", FLOWS)
def test_what_has_no_lowering_torch_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies go along to torch with the op that has them."""
    for op in [op for op in registry.entered() if op.startswith("aten.higher_order.")]:
        monkeypatch.delitem(registry._TABLE, op)
    flow = FLOWS[name]
    function = compiled(lambda x: flow(REAL, x), "reference")
    with recording() as graphs:
        agree(function, lambda x: flow(PLAIN, x), torch.randn(4, 3), grad=False)
    reasons = [node.attrs["reason"] for graph in graphs for node in graph.lowered.walk() if node.op == "opaque"]
    assert any("has no lowering" in reason for reason in reasons)


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("share", [None, 0.5])
def test_checkpoints_compute_again_what_was_drawn(share: float | None, grad: bool, target_name: str) -> None:
    """Dropout inside draws the same mask when it is computed again, and leaves the generator where eager does."""

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if share is None else F.dropout(x.sin(), share) * 2

    def model(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inner, x * 2, use_reentrant=False).exp()

    def seeded(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: torch.Tensor) -> Any:
            torch.manual_seed(5)
            return function(x), torch.rand(3)

        return run

    function = compiled(model, target_name)
    for _ in range(2):
        agree(seeded(function), seeded(model), torch.randn(4, 5), grad)


STRIDED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a slice": lambda x: x[1:].as_strided((2, 2), (1, 2), 1) * 2,
    "where it begins": lambda x: x[1:].as_strided((2, 2), (1, 2)) * 2,
    "of a result": lambda x: (x * 2)[1:].as_strided((2, 2), (1, 2), 1),
    "a column": lambda x: x[:, 1].as_strided((3, 2), (1, 3), 0) + 1,
    "overlapping": lambda x: x.t()[1:].as_strided((3, 3), (2, 1), 2).sum(0),
    "turned": lambda x: x.t().as_strided((2, 3), (3, 1), 0) * 2,
    "written": lambda x: _written(x * 1),
}


def _written(x: torch.Tensor) -> torch.Tensor:
    x.as_strided((2, 2), (1, 2), 1).add_(1)
    return x


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("name", STRIDED)
def test_strides_read_the_memory_behind_a_view(name: str, grad: bool, target_name: str) -> None:
    agree(compiled(STRIDED[name], target_name), STRIDED[name], torch.randn(4, 3), grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", ["a slice", "a column", "overlapping", "where it begins"])
def test_strides_read_memory_around_an_argument(name: str, dtype: torch.dtype, target_name: str) -> None:
    """An argument that is itself a part of a larger tensor."""
    whole = torch.arange(60).reshape(6, 10).to(dtype)
    part = whole[1:5, 2:8:2]
    torch.testing.assert_close(compiled(STRIDED[name], target_name)(part), STRIDED[name](part))


def test_the_gradient_of_a_mean_in_a_branch_knows_all_sizes(target_name: str) -> None:
    """torch writes the product of three sizes as one call; its own backends read two of them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.isnan().any(), lambda a: a.sum(), lambda a: a.mean() * 2, (x,))

    given = torch.randn(4, 2, 5, requires_grad=True)
    compiled = torch.compile(function, backend="assay", options={"target": target_name}, dynamic=True)
    compiled(given).backward()
    torch.testing.assert_close(given.grad, torch.full_like(given, 2 / 40))


# --- ops of functions that Assay knows nothing of

BIAS = torch.randn(16, 16)
MASK = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 16, 16, device="cpu")


region: Any = torch.compiler.nested_compile_region(lambda x: x.sin() * 2)


UNKNOWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scores that a function changes": lambda x: flex_attention(
        x, x * 2, x + 1, score_mod=lambda s, b, h, i, j: s + i - j
    ),
    "scores and a tensor": lambda x: flex_attention(x, x * 2, x + 1, score_mod=lambda s, b, h, i, j: s + BIAS[i, j]),
    "a mask of blocks": lambda x: flex_attention(x, x * 2, x + 1, block_mask=MASK),
    "a region compiled once": lambda x: region(x) + region(x + 1),
    "an associative scan": lambda x: associative_scan(lambda a, b: a * b + b, x, 0, combine_mode="generic"),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_torch_runs_what_takes_functions(name: str, dynamic: bool | None, target_name: str) -> None:
    """A missing lowering is never a crash: these take bodies, tuples and mappings as arguments."""
    given = torch.randn(1, 2, 16, 16)
    found = compiled(UNKNOWN[name], target_name, dynamic)(given)
    torch.testing.assert_close(found, UNKNOWN[name](given))
