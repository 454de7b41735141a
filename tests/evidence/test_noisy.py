"""Eager with noise in every op: what flips a choice is named, and what is clear never flips."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from assay.evidence.compare.noisy import EdgeCall, NoisyArithmetic, Seeing, flips


def calls(x: Tensor, seed: int | None) -> list[EdgeCall]:
    """The calls with an edge in a run whose second relu has what is left of `x` after 3 · x / 3 is taken away."""
    noise = nullcontext() if seed is None else NoisyArithmetic(seed)
    with Seeing() as seeing, noise:
        torch.relu(torch.relu(x) * 3.0 / 3.0 - x)
    return seeing.calls


def test_the_op_whose_choice_noise_flips_is_named() -> None:
    x = torch.rand(64, generator=torch.Generator().manual_seed(0)) + 1.0
    plain, noisy = calls(x, None), [calls(x, seed) for seed in range(6)]
    assert [call.op for call in plain] == ["relu", "relu"]
    assert set(flips(plain, noisy)) == {"relu"}
    first = [each[:1] for each in noisy]
    assert flips(plain[:1], first) == [""] * 6, "the operand of the first relu is clear of zero"


def test_an_op_that_one_run_alone_comes_to_is_named() -> None:
    plain = calls(torch.ones(2), None)
    more = [*plain, EdgeCall("sort", {"self": plain[0].arguments["self"]})]
    assert flips(plain, [plain, more, plain[:1]]) == ["", "sort", "relu"]
