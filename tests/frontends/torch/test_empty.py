"""Tensors without elements: for all of torch's ops, what eager refuses is refused, and what it gives has that shape."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

EXCUSED = {
    "MKL FFT error": "the library that eager calls has no transforms of nothing",
}
"""Errors of eager that say nothing about what an op means, or that are not raised here, and why."""
UNCLEAR = {
    "as_strided": "elements of memory that is not there",
    "as_strided_copy": "elements of memory that is not there",
}
"""Ops of which eager makes something that nobody asked for, and what it is asked."""
PEERS = ("aot_eager", "aot_eager_decomp_partition")


def seen(function: Callable[..., Any], arguments: Any, named: Any, backend: str = "") -> str:
    """The shapes and dtypes of results, or the error."""
    torch.compiler.reset()
    call: Any = torch.compile(lambda *a, **k: function(*a, **k), backend=backend) if backend else function
    try:
        found = call(*arguments, **named)
    except Exception as error:
        return f"error {error if not backend else ''}"
    return str(pytree.tree_map_only(torch.Tensor, lambda t: (tuple(t.shape), t.dtype), found))


def emptied() -> Iterator[tuple[str, Callable[..., Any], Any, Any]]:
    """The first sample of each op, one axis of its first tensor without elements."""
    for info in op_db:
        if torch.float32 not in info.dtypes or info.name in UNCLEAR:
            continue
        for sample in islice(info.sample_inputs("cpu", torch.float32), 1):
            x = sample.input
            axes = range(x.dim()) if isinstance(x, torch.Tensor) and x.layout is torch.strided else ()
            for axis in axes:
                arguments = (x.narrow(axis, 0, 0).contiguous(), *sample.args)
                yield f"{info.name} {info.variant_test_name} {axis}", info.op, arguments, sample.kwargs


@pytest.mark.slow
def test_ops_of_nothing_do_what_eager_does() -> None:
    tried, wrong = 0, list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function, arguments, named in emptied():
            tried += 1
            eager = seen(function, arguments, named)
            mine = seen(function, arguments, named, "assay")
            alike = mine == eager or (mine.startswith("error") and eager.startswith("error"))
            if alike or any(words in eager for words in EXCUSED):
                continue
            if mine not in [seen(function, arguments, named, peer) for peer in PEERS]:
                wrong.append(f"{name}: {mine} instead of {eager}")
    assert tried > 900
    assert wrong == []


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[int, ...]]] = {
    "a mean over no columns": (lambda x: F.adaptive_avg_pool1d(x, 3), (2, 4, 0)),
    "a mean over no rows": (lambda x: F.adaptive_avg_pool2d(x, 3), (2, 4, 0, 5)),
    "a mean over a volume without channels": (lambda x: F.adaptive_avg_pool3d(x, 3), (2, 0, 5, 5, 5)),
    "the largest of nothing": (torch.max, (3, 0)),
    "the least of nothing": (torch.min, (0,)),
    "the middle of no elements": (lambda x: torch.median(x, 1), (3, 0)),
    "the middle of no elements, of no lines": (lambda x: torch.nanmedian(x, 0)[0], (0, 0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(name: str, target_name: str) -> None:
    function, shape = REFUSED[name]
    x = torch.randn(shape)
    with pytest.raises((RuntimeError, IndexError)):
        function(x)
    torch.compiler.reset()
    with pytest.raises(Exception, match=r"non-zero size|numel\(\) == 0"):
        torch.compile(function, backend="assay", options={"target": target_name})(x)


def test_segments_make_up_the_whole_axis(target_name: str) -> None:
    def function(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, "sum", lengths=lengths)

    torch.compiler.reset()
    compiled = torch.compile(function, backend="assay", options={"target": target_name})
    x, right = torch.randn(6, 2), torch.tensor([2, 0, 4])
    torch.testing.assert_close(compiled(x, right), function(x, right))
    for wrong in ([2, 0, 3], [4, -1, 3], [3, 3, 3]):
        with pytest.raises(RuntimeError) as refused:
            function(x, torch.tensor(wrong))
        with pytest.raises(Exception, match=re.escape(str(refused.value).partition("\n")[0])):
            compiled(x, torch.tensor(wrong))


def test_images_may_be_without_channels(target_name: str) -> None:
    x = torch.randn(2, 0, 5, 5)
    found = torch.compile(lambda x: F.adaptive_avg_pool2d(x, 3), backend="assay", options={"target": target_name})(x)
    assert found.shape == F.adaptive_avg_pool2d(x, 3).shape
