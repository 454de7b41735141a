"""The signs of zeros: those of eager, on every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.exc import Unsupported
from torch.nn import functional as F  # noqa: N812
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from assay.runtime.targets import probe_target

NUMBERS = torch.tensor([-0.0, 0.0, -1.0, 1.0, -2.0, 2.0, -0.5, 0.5])
PAIRS = torch.cartesian_prod(NUMBERS, NUMBERS)

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
FURTHER: dict[str, Function] = {
    "clamp_min": lambda x, y: x.clamp(min=0.0),
    "clamp_max": lambda x, y: x.clamp(max=0.0),
    "hardtanh": lambda x, y: F.hardtanh(x, 0.0, 1.0),
    "sum": lambda x, y: torch.stack([x, y], 1).sum(1),
    "sum of one": lambda x, y: x[:, None].sum(1),
    "mean": lambda x, y: torch.stack([x, y], 1).mean(1),
    "prod": lambda x, y: torch.stack([x, y], 1).prod(1),
    "cumsum": lambda x, y: torch.stack([x, y], 1).cumsum(1),
    "cumprod": lambda x, y: torch.stack([x, y], 1).cumprod(1),
    "cummax": lambda x, y: torch.stack([x, y], 1).cummax(1)[0],
    "dot": lambda x, y: torch.stack([x, y], 1)[:, None] @ torch.stack([y, x], 1)[:, :, None],
    "avg_pool": lambda x, y: F.avg_pool1d(torch.stack([x, y], 1)[:, None], 2),
    "adaptive_avg_pool": lambda x, y: F.adaptive_avg_pool1d(torch.stack([x, y], 1)[:, None], 1),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
    "prelu": lambda x, y: F.prelu(x, torch.tensor(0.25)),
    "where": lambda x, y: torch.where(x > y, x, y),
    "diff": lambda x, y: torch.stack([x, y], 1).diff(dim=1),
    "trapezoid": lambda x, y: torch.trapezoid(torch.stack([x, y], 1), dim=1),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}
"""What torch's lists of ops of one and of two tensors lack. The largest and the smallest of several elements are left
out: which of equal zeros that is, eager decides by how many there are."""


def single_argument(op: Callable[..., torch.Tensor], options: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return op(x, **options)


def functions() -> dict[str, Function]:
    """Torch's ops of one and of two tensors that give floats for floats, element by element."""
    taken = [op for op in op_db if "jiterator" not in op.name and op.supports_dtype(torch.float32, "cpu")]
    single: dict[str, Function] = {
        f"{op.name} {op.variant_test_name}": partial(
            single_argument, op.op, op.sample_kwargs("cpu", torch.float32, NUMBERS)[0]
        )
        for op in taken
        if isinstance(op, UnaryUfuncInfo)
    }
    double: dict[str, Function] = {
        f"{op.name} {op.variant_test_name}": op.op for op in taken if isinstance(op, BinaryUfuncInfo)
    }
    return {
        name: function
        for name, function in {**single, **double}.items()
        if getattr(function(*PAIRS.T), "dtype", None) == torch.float32
    }


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with gaps between them: eager's vector loops do not take them."""
    return torch.stack([tensor, tensor], 1)[:, 0]


def places_with_other_signs(asked: Mapping[str, Function], target_name: str) -> dict[str, list[Any]]:
    """Where zeros have other signs than eager's. Where eager's vector loops and what they leave over give different
    signs, either is right."""

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [each(x, y) for each in asked.values()]

    torch.compiler.reset()
    x, y = PAIRS.T.contiguous()
    options = {"target": target_name, "cache": False}
    found = torch.compile(function, backend="assay", options=options, fullgraph=True)(x, y)
    return {
        name: list(zip(x[places].tolist(), y[places].tolist(), strict=True))
        for name, mine, plain, gapped in zip(asked, found, function(x, y), function(apart(x), apart(y)), strict=True)
        if len(places := torch.nonzero(signs_differ(mine, plain) & signs_differ(mine, gapped)).flatten() % len(x))
    }


def test_zeros_have_the_signs_of_eager(target_name: str) -> None:
    wrong = places_with_other_signs(FURTHER, target_name)
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize("target", ["reference", "cpu", "vulkan"])
def test_zeros_of_all_functions_have_the_signs_of_eager(target: str) -> None:
    if not (probe := probe_target(target)).present:
        pytest.skip(probe.reason)
    tried, wrong = 0, dict[str, Any]()
    for name, function in functions().items():
        with suppress(Unsupported):
            wrong |= places_with_other_signs({name: function}, target)
            tried += 1
    assert tried > 120
    assert not wrong, wrong


def signs_differ(mine: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    return ((mine == 0) & (eager == 0) & (mine.signbit() != eager.signbit())).reshape(-1)


def test_a_constant_zero_is_a_number_like_others(target_name: str) -> None:
    """Compilers like to take x · 0 for 0 and x + 0 for x, which NaN, infinities and −0 are not."""
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 0.0, x * -0.0, x + 0.0, x - 0.0, 0.0 - x, x + -0.0, x * 1.0, 0.0 / x]

    x = torch.tensor([-0.0, 0.0, torch.nan, torch.inf, -torch.inf, -3.0])
    found = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})(x)
    for at, (mine, eager) in enumerate(zip(found, function(x), strict=True)):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, equal_nan=True, msg=f"statement {at}")
        assert not signs_differ(mine, eager).any(), (at, mine, eager)
