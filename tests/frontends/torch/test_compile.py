"""`torch.compile(backend="assay")` against eager: inference, training, symbolic sizes, what has no lowering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import assay
from assay.errors import BadFeed
from assay.frontends.torch import import_fx
from assay.ops.lowering import lower
from assay.runtime.torch.backend import Options, options_from


class Small(nn.Module):
    """Convolution, normalization, a matrix product and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.LayerNorm(10)
        self.linear = nn.Linear(4 * 10 * 10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.norm(self.linear(F.gelu(self.conv(x)).flatten(1))), -1)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_the_backend_is_found_by_name() -> None:
    assert "assay" in torch._dynamo.list_backends()


def test_inference_agrees_with_eager() -> None:
    model, x = Small().eval(), torch.randn(3, 1, 12, 12)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="assay")(x), model(x))


def test_gradients_agree_with_eagers_own_fresh_ones() -> None:
    model, x, labels = Small(), torch.randn(3, 1, 12, 12), torch.tensor([1, 5, 9])
    F.nll_loss(torch.compile(model, backend="assay")(x), labels).backward()
    ours = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    F.nll_loss(model(x), labels).backward()
    expected = [p.grad for p in model.parameters()]
    assert len(ours) == len(expected)
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_one_graph_serves_every_size() -> None:
    graphs: list[Any] = []

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return assay.backend(module, inputs)

    def function(x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(x.shape[0] * x.shape[1], -1)
        return torch.cat([rows, rows[:1].expand(x.shape[1], -1)]) * x.shape[0] + x.shape[2] // 2

    compiled = torch.compile(function, backend=counting, dynamic=True)
    for shape in ((3, 5, 4), (2, 7, 6), (9, 2, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x))
    assert len(graphs) == 1


def graph_of(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    exported = torch.export.export(_Function(function), inputs).run_decompositions()
    return lower(import_fx(exported.graph_module).graph)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@torch.library.custom_op("assay_tests::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    """An op that no front end can know."""
    return x * 3


@tripled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_op_without_a_lowering_runs_through_torch_and_says_so() -> None:
    x = torch.randn(4, 8)
    torch.testing.assert_close(torch.compile(lambda x: tripled(x).abs() + 1, backend="assay")(x), (x * 3).abs() + 1)
    graph = graph_of(lambda x: tripled(x).abs(), x)
    reasons = [node.attrs["reason"] for node in graph.nodes if node.op == "opaque"]
    assert reasons == ["aten.assay_tests.tripled.default has no lowering"]


def test_strict_makes_that_an_error_and_eager_still_works() -> None:
    compiled = torch.compile(lambda x: tripled(x), backend="assay", options={"strict": True})
    x = torch.ones(4)
    with pytest.raises(Exception, match="no lowering"):
        compiled(x)
    assert tripled(x).tolist() == [3.0] * 4


def test_an_unknown_option_names_the_close_one() -> None:
    assert options_from({"strict": True}) == Options(strict=True)
    with pytest.raises(BadFeed, match="did you mean 'target'"):
        options_from({"taget": "reference"})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32])
def test_promotion_follows_torch(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x + y, x * 2, x / 3, x + 1.5, x > y, x == 1, torch.where(x > 0, x, y), x // 2, x % 3]

    x, y = (torch.arange(-4, 4).to(dtype) for _ in range(2))
    for mine, theirs in zip(torch.compile(function, backend="assay")(x, y + 1), function(x, y + 1), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs)


ROWS, COLUMNS = torch.tensor([0, 2, 1]), torch.tensor([[1], [0]])
INDEXING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one axis": lambda x: x[:, ROWS],
    "two axes": lambda x: x[ROWS, COLUMNS],
    "axes apart": lambda x: x[ROWS, :, COLUMNS],
    "negative": lambda x: x[torch.tensor([-1, 0])],
    "mask": lambda x: x[x > 0],
    "rows by mask": lambda x: x[x.sum((1, 2)) > 0],
    "written": lambda x: x.index_put((ROWS,), x[:3] * 2),
    "added": lambda x: x.index_put((torch.tensor([1, 1, 0]), torch.tensor([2, 2, 0])), x[0, 0, 0], accumulate=True),
    "norm": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing_agrees_with_eager(name: str) -> None:
    function, x = INDEXING[name], torch.randn(4, 3, 5)
    compiled = torch.compile(function, backend="assay", options={"strict": True})
    torch.testing.assert_close(compiled(x), function(x))
