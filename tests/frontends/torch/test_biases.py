"""What is added to a product has its shape or one that repeats: where eager raises, Assay does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

X, W = torch.rand(9, 5), torch.rand(5, 16)
CALLS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "addmm": (lambda s: torch.addmm(s, X, W), (9, 16)),
    "addmv": (lambda s: torch.addmv(s, X, W[:, 0]), (9,)),
    "addr": (lambda s: torch.addr(s, X[:, 0], W[0]), (9, 16)),
    "addbmm": (lambda s: torch.addbmm(s, X[None], W[None]), (9, 16)),
    "baddbmm": (lambda s: torch.baddbmm(s, X[None], W[None]), (1, 9, 16)),
    "linear": (lambda s: F.linear(X, W.T, s), (16,)),
    "linear of a batch": (lambda s: F.linear(X[None], W.T, s), (16,)),
}
"""Calls with what they add, and a shape that fits."""


def variants(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shape, one that repeats, others that do not fit, and some with an axis more."""
    return [shape, (1,) * len(shape), (4, *shape[1:]), (*shape[:-1], 3), (1, *shape), (2, *shape), (1, 1, *shape)]


def outcome(call: Callable[[torch.Tensor], torch.Tensor], bias: torch.Tensor) -> tuple[int, ...] | None:
    try:
        return tuple(call(bias).shape)
    except Exception:
        return None


@pytest.mark.parametrize("name", CALLS)
def test_a_bias_fits_or_is_refused(name: str) -> None:
    call, fitting = CALLS[name]
    for shape in variants(fitting):
        torch._dynamo.reset()
        bias = torch.rand(shape)
        compiled = torch.compile(call, backend="assay", options={"target": "reference"})
        assert outcome(compiled, bias) == outcome(call, bias), shape
