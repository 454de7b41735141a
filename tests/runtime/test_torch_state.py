"""State through `torch.compile(backend="assay")` as eager has it: parameters, buffers, aliases, layouts, seeds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import assay
from assay.runtime.torch.graphs import recording


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="assay", **how)


# --- parameters are prepared once and refreshed when they change


class Scaled(nn.Module):
    """Most of the work depends on the parameter alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight.exp() / self.weight.exp().sum(0)).bfloat16().float().t()


def _optimizer_step(model: Scaled) -> None:
    model.weight.grad = torch.randn(8, 8)
    torch.optim.SGD(model.parameters(), lr=0.5).step()


def _load(model: Scaled) -> None:
    model.load_state_dict({"weight": torch.randn(8, 8)})


def _edit(model: Scaled) -> None:
    with torch.no_grad():
        model.weight[3, 5] += 1.0


def _swap(model: Scaled) -> None:
    model.weight.data = torch.randn(8, 8)


def _through_data(model: Scaled) -> None:
    model.weight.data.mul_(0.5)


def _replace(model: Scaled) -> None:
    model.weight = nn.Parameter(torch.randn(8, 8))


@pytest.mark.parametrize("change", [_optimizer_step, _load, _edit, _swap, _through_data, _replace])
def test_a_changed_parameter_is_seen(change: Callable[[Scaled], None]) -> None:
    model, x = Scaled(), torch.randn(4, 8)
    fast = compiled(model)
    with torch.no_grad():
        before = model(x)
        torch.testing.assert_close(fast(x), before)
    change(model)
    with torch.no_grad():
        after = model(x)
        assert not torch.equal(before, after)
        torch.testing.assert_close(fast(x), after)


def test_what_depends_on_parameters_alone_runs_once() -> None:
    model, x = Scaled(), torch.randn(4, 8)
    with torch.no_grad(), recording() as graphs:
        fast = compiled(model, options={"frozen": True})
        fast(x)
        (graph,) = graphs
        assert graph.prelude is not None
        assert {"exp", "div", "cast"} <= {node.op for node in graph.prelude.plan.graph.nodes}
        assert [node.op for node in graph.program.plan.graph.nodes] == ["matmul"]
        runs: list[int] = []
        prelude_run = graph.prelude.run
        graph.prelude.run = lambda *given: runs.append(1) or prelude_run(*given)  # type: ignore[method-assign]
        for _ in range(3):
            fast(x)
        assert not runs
        model.weight += 1
        fast(x)
        assert len(runs) == 1


# --- buffers and in-place changes


def test_running_statistics_are_updated_as_eager_updates_them() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    ours = copy.deepcopy(model)
    fast = compiled(ours)
    for _ in range(3):
        x = torch.randn(2, 2, 6, 6)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    for (name, mine), (_, theirs) in zip(ours.named_buffers(), model.named_buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)


class Cache(nn.Module):
    """A static cache that is written at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 6, 4))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, at, x)
        return self.keys.sum((0, 2))


def test_a_cache_is_written_in_place() -> None:
    mine, theirs = Cache(), Cache()
    memory = mine.keys.data_ptr()
    fast = compiled(mine)
    with torch.no_grad():
        for at in range(4):
            x = torch.randn(1, 1, 4)
            torch.testing.assert_close(fast(x, torch.tensor([at])), theirs(x, torch.tensor([at])))
    assert torch.equal(mine.keys, theirs.keys)
    assert mine.keys.data_ptr() == memory


def test_an_argument_changed_in_place_is_changed() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[:, 0].mul_(y.sum())
        return x * 2

    x, y = torch.randn(3, 4), torch.randn(2)
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(compiled(function)(mine, y), function(theirs, y))
    torch.testing.assert_close(mine, theirs)


# --- memory


def test_results_alias_what_eagers_alias_and_nothing_else() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return x.view(-1), x.clone(), y, y.t(), y.clone(), (x * 1).reshape(-1), x.contiguous()

    x = torch.randn(3, 4)
    mine, theirs = compiled(function)(x), function(x)

    def shared(outputs: tuple[torch.Tensor, ...]) -> list[list[bool]]:
        memory = [t.untyped_storage().data_ptr() for t in (x, *outputs)]
        return [[a == b for a in memory] for b in memory]

    assert shared(mine) == shared(theirs)
    mine[1].zero_()
    mine[4].zero_()
    mine[5].zero_()
    for a, b in zip(mine, theirs, strict=True):
        if a is not mine[1] and a is not mine[4] and a is not mine[5]:
            torch.testing.assert_close(a, b)


def test_a_constant_cannot_be_changed_through_a_result() -> None:
    table = torch.arange(4.0)
    fast = compiled(lambda x: (x + 1, table.clone()))
    x = torch.ones(2)
    fast(x)[1].zero_()
    assert fast(x)[1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_lie_in_memory_as_eagers_do(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, x.permute(0, 2, 3, 1) + 1, x.contiguous(), x.transpose(1, 2).relu(), F.avg_pool2d(x, 2)

    for x in (torch.randn(2, 3, 4, 6).contiguous(memory_format=torch.channels_last), torch.randn(3, 5, 6, 4)):
        for mine, theirs in zip(compiled(function, dynamic=dynamic)(x), function(x), strict=True):
            torch.testing.assert_close(mine, theirs, check_stride=True)


def test_axes_of_one_element_have_eagers_strides() -> None:
    """Nothing reads them but guards, which would compile the next graph anew."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).transpose(1, 2)[:, :, :1] * 3

    x = torch.randn(4, 5, 3)
    assert torch.compile(function, backend="assay", dynamic=True)(x).stride() == function(x).stride()


def test_arguments_may_lie_anyhow() -> None:
    base = torch.randn(6, 8)
    arguments = (base[::2, 1::3], base.t()[2:5], base.flip(0)[:3], base.expand(2, 6, 8)[:, :3])
    fast = compiled(lambda a, b, c, d: (a @ a.t(), b.sum(0), c.softmax(-1), d * 2))
    a, b, c, d = arguments
    for mine, theirs in zip(fast(*arguments), (a @ a.t(), b.sum(0), c.softmax(-1), d * 2), strict=True):
        torch.testing.assert_close(mine, theirs)


# --- modes


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes(mode: Callable[[], Any]) -> None:
    model, x = Scaled(), torch.randn(4, 8)
    fast = compiled(model)
    with mode():
        for _ in range(2):
            mine, theirs = fast(x), model(x)
            torch.testing.assert_close(mine, theirs)
            assert mine.requires_grad == theirs.requires_grad
            assert mine.is_inference() == theirs.is_inference()


def test_an_inference_tensor_changed_in_place_is_seen() -> None:
    with torch.inference_mode():
        model, x = Scaled(), torch.randn(4, 8)
        fast = compiled(model)
        fast(x)
        model.weight[3, 5] += 1.0
        torch.testing.assert_close(fast(x), model(x))


def test_autocast() -> None:
    model, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)), torch.randn(5, 16)
    fast = compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mine, theirs = fast(x), model(x)
    assert mine.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
    mine.float().sum().backward()
    ours = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    theirs.float().sum().backward()
    for a, b in zip(ours, [p.grad for p in model.parameters()], strict=True):
        torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-2)


# --- random numbers


def test_dropout_draws_what_eager_draws() -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.1))
    x = torch.randn(16, 8)
    results = []
    for run in (compiled(model), model):
        model.zero_grad()
        torch.manual_seed(7)
        first, second = run(x), run(x)
        (first + second).sum().backward()
        assert not torch.equal(first, second)
        results.append([first, second, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        following = torch.rand(3)
        results[-1].append(following)
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_draws_follow_torchs_generator_in_eagers_order() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(3) + torch.randint(0, 9, (3,)) + torch.rand_like(x)

    x = torch.zeros(3)
    torch.manual_seed(3)
    mine = compiled(function)(x), torch.rand(2)
    torch.manual_seed(3)
    theirs = function(x), torch.rand(2)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


# --- options and bad input


def test_observe_sees_every_value_of_the_aten_graph() -> None:
    seen: dict[str, Any] = {}
    sources: set[str] = set()

    def observe(name: str, origin: Any, array: Any) -> None:
        seen[name] = array
        sources.add(origin.op)

    x = torch.randn(3, 4)
    fast = compiled(lambda x: (x.exp() + 1).sum(-1), options={"observe": observe})
    torch.testing.assert_close(fast(x), (x.exp() + 1).sum(-1))
    assert {"aten.exp.default", "aten.add.Tensor", "aten.sum.dim_IntList"} <= sources
    torch.testing.assert_close(torch.from_numpy(seen["exp"]), x.exp())


def test_options_may_be_an_object() -> None:
    fast = torch.compile(torch.sin, backend=assay.backend, options=assay.Options(strict=True))  # type: ignore[arg-type]
    torch.testing.assert_close(fast(torch.ones(2)), torch.ones(2).sin())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpu9"}, "gpu9"),
        ({"strict": "yes"}, "strict"),
        ({"observe": 3}, "observe"),
        ({"chache": True}, "did you mean 'cache'"),
    ],
)
def test_bad_options_are_one_clear_error_and_eager_still_works(options: dict[str, Any], message: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with pytest.raises(Exception, match=message):
        compiled(function, options=options)(torch.ones(2))
    assert function(torch.ones(2)).tolist() == [2, 2]


def test_another_device_is_one_clear_error_and_eager_still_works() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with pytest.raises(Exception, match=r"is on the device 'meta'.*\n?.*CPU"):
        compiled(function)(torch.ones(2, device="meta"))
    assert function(torch.ones(2)).tolist() == [2, 2]
    torch._dynamo.reset()
    assert compiled(function)(torch.ones(2)).tolist() == [2, 2]


def test_a_subclass_is_refused_with_its_name() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = TwoTensor(torch.ones(2), torch.ones(2))
    with pytest.raises(Exception, match="TwoTensor, a tensor subclass"):
        compiled(function)(x)
    assert isinstance(function(x), TwoTensor)


def test_another_dtype_compiles_anew_and_is_right() -> None:
    fast = compiled(lambda x: x * 2 + 1)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
        x = torch.ones(3, dtype=dtype)
        torch.testing.assert_close(fast(x), x * 2 + 1)


def test_what_no_array_carries_goes_through_torch() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = x.to(torch.complex32) * 2
        return half, half.to(torch.complex64) + 1

    x = torch.randn(3, dtype=torch.complex64)
    for mine, theirs in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(mine.to(torch.complex64), theirs.to(torch.complex64))


# --- numbers


def test_sizes_come_back_as_numbers_and_one_graph_serves_all() -> None:
    def function(x: torch.Tensor, k: int) -> tuple[Any, ...]:
        return x.sum(), x.shape[0] * 2 + k, x.shape[1] // 2, x.shape[0] / 4

    with recording() as graphs:
        fast = compiled(function, dynamic=True)
        for shape, k in (((3, 4), 5), ((7, 9), 2), ((12, 5), 8)):
            x = torch.randn(shape)
            mine, theirs = fast(x, k), function(x, k)
            assert mine[1:] == theirs[1:]
            assert [type(part) for part in mine[1:]] == [int, int, float]
            torch.testing.assert_close(mine[0], theirs[0])
    assert len(graphs) == 1


def test_unbacked_symbols() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> tuple[Any, ...]:
        size = n.sum().item()
        torch._check(size >= 2)
        torch._check(size <= 100)
        found = torch.nonzero(x)
        return (
            torch.ones(size).cumsum(0),
            found,
            found.shape[0] + size,
            torch.arange(size).reshape(1, -1).expand(2, size),
        )

    captured = torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
    with captured, recording() as graphs:
        fast = compiled(function, fullgraph=True)
        for x, n in ((torch.tensor([1, 0, 2]), 3), (torch.tensor([0, 0, 2]), 7), (torch.tensor([4, 1, 2]), 2)):
            for mine, theirs in zip(fast(x, torch.tensor(n)), function(x, torch.tensor(n)), strict=True):
                torch.testing.assert_close(mine, theirs)
        assert len(graphs) == 1
        with pytest.raises(Exception, match="u0 >= 2"):
            fast(x, torch.tensor(1))


@pytest.mark.parametrize("size", [2, 0])
def test_a_view_at_a_place_that_data_gives(target_name: str, size: int) -> None:
    def function(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.narrow(x, 1, at, size)

    with torch._dynamo.config.patch(capture_scalar_outputs=True), recording() as graphs:
        fast = compiled(function, options={"target": target_name})
        x = torch.arange(15.0).reshape(3, 5)
        for at in (1, 3, 0):
            mine, theirs = fast(x, torch.tensor(at)), function(x, torch.tensor(at))
            assert torch.equal(mine, theirs)
            assert mine.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr()
            assert not size or mine.data_ptr() == theirs.data_ptr()
    placements = [placement for graph in graphs for placement in graph.placements]
    assert placements
    assert all("data says" in placement.reason for placement in placements)


def test_a_product_with_a_bias_rounds_once(target_name: str) -> None:
    draw = torch.Generator().manual_seed(3)
    bias, x, y = (torch.randn(s, generator=draw).bfloat16() for s in ((40,), (30, 64), (64, 40)))
    exact = bias.double() + x.double() @ y.double()
    mine = compiled(torch.addmm, options={"target": target_name})(bias, x, y)
    assert (mine != exact.bfloat16()).sum() <= 2
