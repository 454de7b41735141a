"""Results that are an argument itself, or a view of one, are so in compiled functions too, for all of torch's ops."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

LOOKED_AT = 8
"""Samples of an op that eager computes, to see which share memory."""


def tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among values that have memory of their own kind."""
    found = (each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor))
    return [each for each in found if each.layout is torch.strided]


def shared(results: Any, arguments: Any) -> frozenset[tuple[int, int, str]]:
    """Which results are which arguments, or lie in their memory."""
    return frozenset(
        (at, place, "itself" if found is given else "memory")
        for at, found in enumerate(tensors(results))
        for place, given in enumerate(tensors(arguments))
        if found is given
        or (found.numel() and found.untyped_storage().data_ptr() == given.untyped_storage().data_ptr())
    )


def sharing(info: OpInfo) -> dict[frozenset[tuple[int, int, str]], SampleInput]:
    """Samples of an op whose results share memory with arguments in eager, one for each way."""
    ways: dict[frozenset[tuple[int, int, str]], SampleInput] = {}
    for sample in islice(info.sample_inputs("cpu", torch.float32), LOOKED_AT):
        arguments = (sample.input, *sample.args)
        try:
            found = shared(info.op(*arguments, **sample.kwargs), (arguments, sample.kwargs))
        except (RuntimeError, AssertionError):  # not on this processor
            break
        if found:
            ways.setdefault(found, sample)
    return ways


def test_ops_share_memory_as_in_eager() -> None:
    tried, wrong = 0, list[str]()
    for info in op_db:
        if torch.float32 not in info.dtypes:
            continue
        for expected, sample in sharing(info).items():
            torch.compiler.reset()
            arguments, tried = (sample.input, *sample.args), tried + 1
            found = torch.compile(lambda *a, op=info.op, **k: op(*a, **k), backend="assay")(*arguments, **sample.kwargs)
            if shared(found, (arguments, sample.kwargs)) != expected:
                wrong.append(f"{info.name} {info.variant_test_name}")
    assert tried > 60
    assert wrong == []


@pytest.mark.parametrize(("p", "train", "size"), [(0.0, True, 3), (0.5, False, 3), (1.0, False, 3), (1.0, True, 0)])
def test_what_is_written_after_a_dropout_that_drops_nothing_is_seen_in_it(p: float, train: bool, size: int) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        kept = F.dropout(x, p, train)
        x.add_(1)
        return kept

    x, y = torch.zeros(size), torch.zeros(size)
    expected, found = call(x), torch.compile(call, backend="assay")(y)
    torch.testing.assert_close(found, expected)
    assert expected is x
    assert found is y
