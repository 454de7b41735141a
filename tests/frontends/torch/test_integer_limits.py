"""Arithmetic of integers at the ends of their range, for all of torch's ops of one or two tensors, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

DTYPES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
UNDEFINED = {
    "gcd": "eager takes the opposite of the least integer",
    "lcm": "eager takes the opposite of the least integer",
    "bitwise_left_shift": "C does not say what a shift by more than the width gives",
    "bitwise_right_shift": "C does not say what a shift by more than the width gives",
    "__rlshift__": "C does not say what a shift by more than the width gives",
    "__rrshift__": "C does not say what a shift by more than the width gives",
    "pow": "eager takes powers of negative exponents for an error, of each tensor as a whole",
    "__rpow__": "eager takes powers of negative exponents for an error, of each tensor as a whole",
}
"""Ops that say nothing of such integers, and why."""
ROUNDED = {f"div {mode}": partial(torch.div, rounding_mode=mode) for mode in ("floor", "trunc")}


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Both ends of the range and what is near them, and small numbers."""
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    near = {least, least + 1, least + 2, least // 2, most // 3, most - 1, most, 0, 1, 2, 3, 7}
    return torch.tensor(sorted(near | ({-1, -2, -7} if least < 0 else set())), dtype=dtype)


def divisors(dtype: torch.dtype) -> torch.Tensor:
    """The same without 0, by which nothing is divided, and −1, by which the least integer cannot be."""
    found = numbers(dtype)
    return found[(found != 0) & ((found != -1) if torch.iinfo(dtype).min < 0 else True)]


def calls(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]]:
    """The ops that eager computes for this dtype and gives integers or truths for: name and call."""
    every, others = numbers(dtype)[:, None], divisors(dtype)
    for info in op_db:
        special = info.name.startswith("special.")  # these give floats, some after as many rounds as a number says
        if info.name in UNDEFINED or special or not isinstance(info, UnaryUfuncInfo | BinaryUfuncInfo):
            continue
        function = info.op
        call = function if isinstance(info, BinaryUfuncInfo) else lambda x, _y, op=function: op(x)
        try:
            found = call(every, others)
        except (RuntimeError, TypeError, AssertionError):  # not of integers, of more tensors, or of CUDA
            continue
        if not found.is_floating_point() and not found.is_complex():
            yield info.name, call
    yield from ROUNDED.items()


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ops_hold_at_the_ends_of_the_range(dtype: torch.dtype, target: str) -> None:
    named = list(calls(dtype))
    assert {"floor_divide", "remainder", "fmod", "add", "mul", "clamp_max", *ROUNDED} <= {name for name, _ in named}

    def all_of_them(x: torch.Tensor, y: torch.Tensor) -> list[Any]:
        return [call(x, y) for _, call in named]

    given = numbers(dtype)[:, None], divisors(dtype)
    compiled = torch.compile(all_of_them, backend="assay", options={"target": target, "strict": True})
    wrong = [
        name
        for (name, _), mine, theirs in zip(named, compiled(*given), all_of_them(*given), strict=True)
        if mine.dtype != theirs.dtype or not torch.equal(mine, theirs)
    ]
    assert wrong == []
