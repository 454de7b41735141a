"""Indexing, sorting, scans, movement, creation, random numbers and sizes through `torch.compile`, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.utils import _pytree as pytree

import assay

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """`function` through Assay, in one graph without any op that torch runs."""
    options: dict[str, Any] = {"strict": True, "cache": False}
    return torch.compile(function, backend="assay", fullgraph=True, options=options, **how)


def agree(function: Callable[..., Any], *inputs: Any, **how: Any) -> None:
    """Compiled and eager give the same, dtypes and shapes included."""
    ours, theirs = compiled(function, **how)(*inputs), function(*inputs)
    for mine, expected in zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True):
        torch.testing.assert_close(mine, expected, equal_nan=True)


ties = torch.tensor([[3, 1, 3, 2], [0, 0, -1, 0], [5, 5, 5, 5]])
holes = torch.tensor([[1.0, NAN, 3.0, -INF], [NAN, NAN, NAN, NAN], [2.0, -0.0, 0.0, INF]])
floats = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
scalar = torch.tensor(2.5)
empty = torch.zeros(0, 4)

ALONG: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "sort": lambda x, d: torch.sort(x, dim=d, stable=True),
    "sort descending": lambda x, d: torch.sort(x, dim=d, stable=True, descending=True),
    "cumsum": lambda x, d: torch.cumsum(x, d),
    "cumprod": lambda x, d: torch.cumprod(x, d),
    "cummax": lambda x, d: torch.cummax(x, d),
    "cummin": lambda x, d: torch.cummin(x, d),
    "max": lambda x, d: torch.max(x, d),
    "min": lambda x, d: torch.min(x, d, keepdim=True),
    "argmax": lambda x, d: torch.argmax(x, d),
    "argmin": lambda x, d: torch.argmin(x, d, keepdim=True),
    "median value": lambda x, d: torch.median(x, d).values,
    "nanmedian value": lambda x, d: torch.nanmedian(x, d).values,
    "all and any": lambda x, d: (torch.all(x, d), torch.any(x, d)),
    "unbind": lambda x, d: torch.unbind(x, d) if x.dim() else x,
}


WHOLE_DIVISIONS: dict[str, Callable[..., Any]] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}


@pytest.mark.parametrize("divide", WHOLE_DIVISIONS.values(), ids=WHOLE_DIVISIONS)
def test_whole_numbers_divided_by_zero_are_eagers_error(divide: Callable[..., Any]) -> None:
    compiled = torch.compile(divide, backend="assay")
    x = torch.tensor([7, -7, 3])
    torch.testing.assert_close(compiled(x, torch.tensor([2, 2, -2])), divide(x, torch.tensor([2, 2, -2])))
    for run in (divide, compiled):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(x, torch.tensor([2, 0, 1]))


NOT_OF_BOOLS = ("argmax", "argmin", "median value", "nanmedian value")


@pytest.mark.parametrize("name", ALONG)
def test_along_an_axis(name: str) -> None:
    kinds = [ties, floats, scalar, ties.to(torch.uint8), floats.bfloat16()]
    kinds += [holes] if name in NOT_OF_BOOLS else [ties > 0, holes]
    for x in kinds:
        agree(lambda value: [ALONG[name](value, dim) for dim in (0, -1)], x)


def test_log_of_running_sums_of_exponentials() -> None:
    x = torch.tensor([[-800.0, 0.0, 800.0, 1.0], [-INF, -INF, 2.0, NAN], [INF, 1.0, -INF, 0.0]])
    agree(lambda value: (torch.logcumsumexp(value, 1), torch.logcumsumexp(value, 0)), x)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("own", [True, False])
def test_scatter_reduce(reduce: str, own: bool) -> None:
    index = torch.tensor([[0, 2, 0], [1, 1, 1]])

    def function(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, index, source, reduce, include_self=own)

    for source in (torch.randn(3, 4), torch.randint(-5, 5, (3, 4)), torch.randn(3, 4).bfloat16()):
        agree(function, torch.ones(3, 4, dtype=source.dtype) * 3, source)


def test_writing_at_positions() -> None:
    index, source = torch.tensor([2, 0]), torch.randn(2, 4)
    agree(lambda x, s: x.index_add(0, index, s, alpha=2), torch.randn(3, 4), source)
    agree(lambda x, s: x.index_copy(0, index, s), torch.randn(3, 4), source)
    agree(lambda x: x.index_fill(1, index, 7), torch.randn(3, 4))
    agree(lambda x, s: x.index_reduce(0, index, s, "mean", include_self=False), torch.randn(3, 4), source)
    agree(lambda x, m, s: x.masked_scatter(m, s), torch.randn(3, 4), torch.rand(3, 4) > 0.5, torch.randn(12))
    agree(lambda x, m, s: x.masked_scatter(m, s), torch.randn(3, 4), torch.zeros(4, dtype=torch.bool), torch.zeros(0))
    agree(lambda x, s: x.put(torch.tensor([[1, -1], [1, 0]]), s, accumulate=True), torch.randn(3, 4), torch.randn(2, 2))
    agree(lambda x, s: x.slice_scatter(s, 1, -3, 100, 2), torch.randn(3, 4), torch.randn(3, 2))
    agree(lambda x, s: x.select_scatter(s, -1, -2), torch.randn(3, 4), torch.randn(3))
    agree(lambda x, s: x.diagonal_scatter(s, 1, 2, 0), torch.randn(3, 2, 4), torch.randn(2, 2))
    agree(lambda x: x.scatter(0, torch.tensor(0), 4.0), scalar)
    agree(lambda x: torch.take(x, torch.tensor([[0, -1], [5, 2]])), torch.randn(3, 4))


def test_diagonals_windows_and_strides() -> None:
    x = torch.randn(3, 5, 4)
    agree(lambda v: [v.diagonal(o, a, b) for o, a, b in ((0, 0, 1), (-2, 1, 2), (9, 0, 2), (1, -1, 0))], x)
    agree(lambda v: [v.unfold(1, 3, 2), v.unfold(-1, 4, 1), v.unfold(0, 0, 1)], x)
    agree(lambda v: v.unfold(0, 1, 1), scalar)
    agree(lambda v: v.as_strided((2, 3), (1, 2), 1).clone(), torch.randn(4, 4))
    agree(lambda v: v.as_strided((2, 3), (1, 2), 1).clone(), torch.randn(4, 4).t())
    agree(lambda v, s: v.as_strided_scatter(s, (2, 3), (4, 1), 1), torch.randn(4, 4).t(), torch.randn(2, 3))


def test_strides_beyond_a_view() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        copied = torch.ops.aten.as_strided_copy(x[1:] * 1, (2,), (1,), 0)
        return copied + torch.ops.aten.as_strided_copy(x[1:], (2,), (1,), 0)

    agree(function, torch.randn(4))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.bfloat16, torch.int32, torch.float64, torch.int64])
def test_bits_read_as_another_dtype(dtype: torch.dtype) -> None:
    agree(lambda x: x.view(dtype), torch.randn(3, 8))
    agree(lambda x: x.view(dtype), torch.randint(-100, 100, (2, 16), dtype=torch.int8))


def test_searching_and_counting() -> None:
    edges, x = torch.tensor([-1.0, 0.0, 0.0, 2.0]), torch.tensor([[0.0, NAN, -5.0], [2.0, INF, 1.0]])
    rows = torch.tensor([[1.0, 3.0, 5.0], [-2.0, 0.0, 9.0]])
    agree(lambda e, v: [torch.searchsorted(e, v, right=r) for r in (False, True)], edges, x)
    agree(lambda e, v: torch.searchsorted(e, v, out_int32=True, side="right"), rows, x)
    agree(lambda e, v: torch.searchsorted(e, v, sorter=torch.tensor([2, 0, 1])), torch.tensor([4, 9, 1]), ties)
    agree(lambda v, e: torch.bucketize(v, e, right=True), ties, edges)
    agree(lambda e: torch.bucketize(3, e), torch.tensor([1, 3, 5]))
    agree(lambda v: [torch.histc(v, 4), torch.histc(v, 3, -1, 1), torch.histc(v, 5, 2, 2)], floats)
    agree(lambda v: torch.histogram(v, 4, density=True), floats)
    agree(lambda v: torch.histogram(v, torch.tensor([-1.0, 0.0, 0.5])), floats)
    agree(lambda v: torch.isin(v, torch.tensor([5, 0])), ties)


def test_statistics() -> None:
    for correction in (0, 1, 60, 2.5):
        agree(lambda x, c=correction: torch.var_mean(x, (0, 2), correction=c, keepdim=True), floats)
        agree(lambda x, c=correction: torch.std(x, correction=c), floats.bfloat16())
        torch._dynamo.reset()
    agree(lambda x: [torch.dist(x, x.flip(0), p) for p in (0, 1, 2, 3.5, INF)], floats)
    agree(lambda x: [torch.sum(x), torch.prod(x, 0), torch.sum(x, dtype=torch.float64), torch.count_nonzero(x)], ties)
    agree(lambda x: [torch.sum(x, 0), torch.prod(x, 0), torch.amax(x, 1), torch.all(x)], empty)
    agree(lambda x: [torch.quantile(x, 0.3), torch.nanmedian(x), torch.median(x), torch.aminmax(x, dim=0)], floats)


def test_new_tensors() -> None:
    agree(lambda x: [x.new_zeros(2, 3), x.new_ones(2), x.new_full((2,), 3), torch.full_like(x, 2)], ties)
    agree(lambda x: x + torch.eye(4, 4, dtype=x.dtype) if x.dim() == 3 else x, torch.randn(2, 4, 4))
    agree(lambda: [torch.arange(5), torch.arange(7, -3, -3), torch.arange(0.0, 1.0, 0.1), torch.arange(0)])
    agree(lambda: [torch.linspace(-1, 2, 7), torch.logspace(0, 2, 5), torch.linspace(3, 3, 1)])
    agree(lambda: [torch.tril_indices(3, 4, -1), torch.triu_indices(3, 2, 1), torch.tril(torch.ones(3, 3), 1)])
    agree(lambda x: torch.empty_like(x).fill_(4) + torch.empty(4).copy_(x[0]), floats[0][:, :4])


SPECIAL = [
    0.0,
    -0.0,
    1.7,
    -1.7,
    128.0,
    -129.0,
    300.7,
    65543.0,
    2.0**31,
    -(2.0**31) - 1,
    1e10,
    -1e10,
    9.3e18,
    INF,
    -INF,
    NAN,
]


@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_floats_become_integers_as_in_eager(source: torch.dtype) -> None:
    targets = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
    agree(lambda x: [x.to(target) for target in targets], torch.tensor(SPECIAL, dtype=torch.float64).to(source))


def test_imaginary_parts_are_dropped() -> None:
    x = torch.tensor([1.5 + 2j, 3j, 0j, -2.7 + 0j])
    agree(lambda value: [value.to(torch.float64), value.to(torch.int64), value.to(torch.bool)], x)


def test_arithmetic_of_odd_operands() -> None:
    x, y = torch.tensor([-7, 7, -7, 7, 0]), torch.tensor([2, -2, -2, 2, 5])
    agree(lambda a, b: [a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), a / b], x, y)
    agree(lambda a, b: [a // b, a % b, torch.fmod(a, b), torch.fmax(a, b), torch.fmin(a, b)], holes, holes.flip(1))
    agree(lambda a: [a.clamp(0, 2), a.clamp(min=torch.tensor([0.5])), a.clamp(torch.tensor(NAN))], holes)
    agree(lambda a: [a.clamp(1.5), torch.where(a > 1, a, 0.5), torch.where(a > 1, a, a.bool())], ties)
    agree(lambda a, b: [a + b, a * b, torch.maximum(a, b), a.clamp(b), a ^ b, torch.sign(a)], ties > 1, ties > 0)
    agree(lambda a, b: torch.pow(a, b), torch.tensor([1, -1, -1, 2, 0, 3]), torch.tensor([-3, -3, -2, 5, 0, 2]))


MOVING: dict[str, Callable[[torch.Tensor], Any]] = {
    "repeat": lambda x: x.repeat(2, 1, x.shape[0], 1),
    "tile": lambda x: torch.tile(x, (x.shape[1],)),
    "expand": lambda x: x[:, :1].expand(-1, x.shape[0] + 1, -1),
    "roll": lambda x: x.roll((1, x.shape[1] - 1), (0, 1)),
    "rot90": lambda x: torch.rot90(x, 1, (0, 1)),
    "diagonal": lambda x: x.diagonal(1, 0, 1),
    "unfold": lambda x: x.unfold(1, 2, 1).sum(-1),
    "tril": lambda x: torch.tril(x, x.shape[0] - 2),
    "narrow": lambda x: x.narrow(1, x.shape[1] - 2, 2),
    "slice": lambda x: x[:, 1 : x.shape[1] - 1],
    "select": lambda x: x[x.shape[0] - 1],
    "split": lambda x: x.split([1, x.shape[0] - 1]),
    "stack": lambda x: torch.stack([x, x], -1).flatten(1),
    "pad": lambda x: F.pad(x, (x.shape[0], 1)),
    "slice_scatter": lambda x: x.slice_scatter(x[1:] * 2, 0, 1, x.shape[0]),
    "select_scatter": lambda x: x.select_scatter(x[0] * 2, 0, x.shape[0] - 1),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x.diagonal(0, 0, 1) * 3, 0, 0, 1),
    "as_strided": lambda x: x.as_strided((x.shape[0], 2), (x.shape[1] * x.shape[2], 1)) * 1,
    "index": lambda x: x[torch.arange(x.shape[0]), :, 0],
    "scatter": lambda x: x.scatter(0, torch.zeros_like(x[:1], dtype=torch.long) + x.shape[0] - 1, 0.5),
    "index_add": lambda x: x.index_add(0, torch.arange(x.shape[0]).flip(0), x),
    "gather": lambda x: x.gather(1, torch.arange(x.shape[1]).reshape(1, -1, 1).expand_as(x).flip(1)),
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(x.shape[1] // 2, 1),
    "median": lambda x: x.median(0),
    "cummax": lambda x: x.cummax(1),
    "cumsum": lambda x: x.cumsum(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "searchsorted": lambda x: torch.searchsorted(x.sort(-1).values, x),
    "var": lambda x: x.var((0, 1)) + x.std(correction=0),
    "max": lambda x: x.max(1),
    "arange": lambda x: [torch.arange(x.shape[0], 3 * x.shape[0], 2), torch.arange(x.shape[1])],
    "new": lambda x: [x.new_zeros(x.shape[0] * 2), torch.ones(x.shape[1], 2), torch.eye(x.shape[0], x.shape[1])],
    "meshgrid": lambda x: torch.meshgrid(x[0, :, 0], x[:, 0, 0], indexing="ij"),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "mask": lambda x: x.masked_fill(torch.arange(x.shape[1])[:, None] > x.shape[0], 0.0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flip(0)),
    "sizes": lambda x: x * (x.shape[0] ** 2 % 5 + max(x.shape[0], x.shape[1]) // 2) / (x.shape[1] / 3),
    "roots": lambda x: x * x.shape[1] ** 0.5 + int(x.shape[0] / 2) + round(x.shape[1] / 4),
}


@pytest.mark.parametrize("name", MOVING)
def test_one_graph_serves_all_sizes(name: str) -> None:
    graphs: list[Any] = []

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return assay.backend(module, inputs, options={"strict": True, "cache": False})

    function = torch.compile(MOVING[name], backend=counting, dynamic=True, fullgraph=True)
    for shape in ((4, 6, 5), (3, 8, 5), (7, 9, 5), (5, 4, 5)):
        x = torch.randn(shape)
        for mine, expected in zip(pytree.tree_leaves(function(x)), pytree.tree_leaves(MOVING[name](x)), strict=True):
            torch.testing.assert_close(mine, expected)
    assert len(graphs) == 1


BY_DATA: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": lambda x: x.nonzero(),
    "argwhere": lambda x: torch.argwhere(x > 1) + 1,
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "mask": lambda x: x[x > 0] * 2,
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique along": lambda x: torch.unique(x, dim=1, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.flatten(), return_inverse=True, return_counts=True),
    "unique_consecutive along": lambda x: torch.unique_consecutive(x, dim=0),
    "unique_consecutive along the last": lambda x: torch.unique_consecutive(x[:, 1:], True, True, dim=-1),
    "bincount": lambda x: torch.bincount((x - x.min()).flatten(), minlength=3),
    "repeat_interleave": lambda x: x.repeat_interleave((x - x.min())[0], 1),
    "nonzero_static": lambda x: torch.nonzero_static(x, size=5, fill_value=-2),
    "item": lambda x: x + x[0, 0].item(),
}


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (1,)])
@pytest.mark.parametrize("axis", [0, -1])
def test_runs_along_axes_of_one_element(shape: tuple[int, ...], axis: int) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        agree(lambda x: torch.unique_consecutive(x, True, True, dim=axis), torch.ones(shape, dtype=torch.int64))


@pytest.mark.parametrize("name", BY_DATA)
def test_sizes_that_depend_on_data(name: str) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        agree(BY_DATA[name], ties)
        agree(BY_DATA[name], ties.roll(1) - 1)


def test_checks_stay_in_force() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        count = x.sum().item()
        torch._check(count < 100)
        return x * 2

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        checked = compiled(function)
        torch.testing.assert_close(checked(torch.tensor([1, 2])), torch.tensor([2, 4]))
        with pytest.raises(Exception, match="u0 <= 99"):
            checked(torch.tensor([99, 2]))


# --- random numbers

DRAWING: dict[str, Callable[[torch.Tensor], Any]] = {
    "rand": lambda x: torch.rand(3, 4) + torch.rand_like(x).sum() + torch.randn(2, 1, 1) * torch.randn_like(x),
    "integers": lambda x: torch.randint(0, 10, (5,)) + torch.randint_like(x, 3, 9)[0, 0] + torch.randperm(5),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) + torch.bernoulli(x, 0.3),
    "normal": lambda x: torch.normal(x, 2.0) + torch.normal(0.5, x.abs()) + torch.normal(x, x.abs()),
    "in place": lambda x: [torch.empty_like(x).uniform_(1, 2), x.clone().exponential_(), x.clone().geometric_(0.5)],
    "more in place": lambda x: [
        x.clone().cauchy_(),
        x.clone().log_normal_(),
        x.clone().normal_(),
        x.clone().random_(9),
    ],
    "counts": lambda x: [torch.multinomial(x.abs(), 2), torch.poisson(x.abs() * 4)],
    "dropout": lambda x: F.dropout(x, 0.3) + F.dropout1d(x, 0.5) + F.alpha_dropout(x, 0.2),
    "no dropout": lambda x: F.dropout(x, 0.3, training=False) + F.dropout(x, 1.0),
}


@pytest.mark.parametrize("name", DRAWING)
def test_random_numbers_are_eagers_under_the_same_seed(name: str) -> None:
    x = torch.randn(3, 4)
    torch.manual_seed(7)
    expected = (DRAWING[name](x), torch.rand(3))
    torch.manual_seed(7)
    ours = (torch.compile(DRAWING[name], backend="assay", options={"cache": False})(x), torch.rand(3))
    for mine, theirs in zip(pytree.tree_leaves(ours), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_random_numbers_come_in_the_order_of_eagers_memory() -> None:
    """The result of a convolution may lie in another order."""
    x, weight = torch.randn(4, 1, 5), torch.randn(2, 1, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(F.conv1d(x, weight))

    torch.manual_seed(7)
    expected = function(x)
    torch.manual_seed(7)
    ours = torch.compile(function, backend="assay", options={"target": "cpu", "cache": False})(x)
    assert torch.equal(ours, expected)


def test_what_draws_says_so() -> None:
    with pytest.raises(Exception, match="draws from torch's generator"):
        compiled(torch.rand_like)(torch.zeros(3))


def test_dropout_in_training() -> None:
    def gradient(function: Callable[..., Any]) -> torch.Tensor:
        x = torch.linspace(-1, 1, 20).requires_grad_()
        torch.manual_seed(3)
        F.gelu(function(x)).square().sum().backward()
        assert x.grad is not None
        return x.grad

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x * 2, 0.4), 0.1)

    torch.testing.assert_close(gradient(torch.compile(function, backend="assay")), gradient(function))


# --- lists of tensors


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, foreach=True),
        lambda p: torch.optim.Adam(p, 0.1, foreach=True),
        lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True, foreach=True),
        lambda p: torch.optim.RMSprop(p, 0.1, foreach=True),
    ],
)
def test_an_optimizers_step(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    def trained(wrap: Callable[[Any], Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        parameters = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True)]
        optimizer = make(parameters)
        step = wrap(optimizer.step)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach() * 2 + 1
            step()
        return parameters

    def through_assay(step: Any) -> Any:
        return torch.compile(lambda: step(), backend="assay", options={"strict": True, "cache": False})

    for mine, theirs in zip(trained(through_assay), trained(lambda step: step), strict=True):
        torch.testing.assert_close(mine, theirs)


TERMS: dict[str, Callable[..., Any]] = {
    "addcmul": lambda x, y, z: torch._foreach_addcmul([x, y], [y, x], [z, z], [2, 3]),  # pyright: ignore[reportPrivateImportUsage]
    "addcdiv": lambda x, y, z: torch._foreach_addcdiv([x, y], [y, x], [z, z], 2),  # pyright: ignore[reportPrivateImportUsage]
}


@pytest.mark.parametrize("name", TERMS)
def test_narrow_sums_of_terms_are_rounded_once(name: str) -> None:
    values = torch.randn(3, 4000).bfloat16()
    ours, theirs = compiled(TERMS[name])(*values), TERMS[name](*values)
    torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=0)  # at most the last bit differs


@pytest.mark.parametrize("name", TERMS)
def test_sums_of_terms(name: str) -> None:
    whole = [torch.int64] if name == "addcmul" else []
    for dtype in (torch.float32, torch.float64, torch.complex64, *whole):
        agree(TERMS[name], *(torch.randn(3, 4, 5) * 9).to(dtype))


@pytest.mark.parametrize("pick", [lambda x: torch.mode(x, 0), lambda x: torch.kthvalue(x, 2, 0)], ids=["mode", "kth"])
def test_what_points_among_equals_is_torchs(pick: Callable[..., Any]) -> None:
    x = torch.randint(0, 5, (3000,), generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(lambda value: tuple(pick(value)), backend="assay")
    assert all(map(torch.equal, compiled(x), pick(x)))
