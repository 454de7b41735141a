"""Arguments that do not fit each other: for all of torch's ops, what eager refuses is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from frontends.torch.test_empty import EXCUSED as EMPTY_EXCUSED
from frontends.torch.test_empty import seen
from torch.testing._internal.common_methods_invocations import op_db

EXCUSED = {**EMPTY_EXCUSED, "pivots passed to lu_unpack": "eager reads exchanges beyond those that it is given"}
"""Errors of eager that are not raised here, and why."""


def changed() -> Iterator[tuple[str, Callable[..., Any], Any, Any]]:
    """The first sample of each op, one axis of one tensor longer or shorter by an element."""
    for info in op_db:
        if torch.float32 not in info.dtypes:
            continue
        for sample in islice(info.sample_inputs("cpu", torch.float32), 1):
            given = (sample.input, *sample.args)
            for place, x in enumerate(given):
                if isinstance(x, torch.Tensor) and x.layout is torch.strided:
                    for axis, other in _resized(x):
                        name = f"{info.name} {info.variant_test_name} {place} {axis} {other.shape[axis]}"
                        yield name, info.op, (*given[:place], other, *given[place + 1 :]), sample.kwargs


def _resized(x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for axis, size in enumerate(x.shape):
        if size:
            yield axis, torch.cat([x, x.narrow(axis, 0, 1)], axis)
        if size > 1:
            yield axis, x.narrow(axis, 0, size - 1).contiguous()


@pytest.mark.slow
def test_what_eager_refuses_is_refused() -> None:
    tried, missed = 0, list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function, arguments, named in changed():
            eager, tried = seen(function, arguments, named), tried + 1
            if not eager.startswith("error") or any(words in eager for words in EXCUSED):
                continue
            if seen(function, arguments, named, "assay").startswith("error"):
                continue
            if seen(function, arguments, named, "aot_eager_decomp_partition").startswith("error"):
                missed.append(f"{name}: nothing instead of {eager}")
    assert tried > 2000
    assert missed == []


@pytest.mark.parametrize("pivots", [[4, 1, 1], [0, 1, 2], [-1, 2, 3]])
def test_rows_that_are_not_there_are_not_exchanged(pivots: list[int]) -> None:
    compiled = torch.compile(torch.lu_unpack, backend="assay")
    arguments = torch.randn(3, 3), torch.tensor(pivots, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="between 1 and"):
        torch.lu_unpack(*arguments)
    with pytest.raises(Exception, match="3 rows are not exchanged"):
        compiled(*arguments)


def test_reflections_are_as_many_as_there_are_columns() -> None:
    arguments = torch.randn(5, 5), torch.randn(4), torch.randn(5, 5)
    with pytest.raises(RuntimeError, match="tau"):
        torch.ormqr(*arguments)
    with pytest.raises(Exception, match="tau"):
        torch.compile(torch.ormqr, backend="assay")(*arguments)
