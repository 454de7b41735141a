"""What eager runs in place of functions of which it has no opinion: control flow in plain Python for torch's
higher-order functions, and windows that are cut out for a pool whose gradient eager writes beyond its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from assay.frontends.torch.private.ops import pytree


def cond(predicate: Any, true: Callable[..., Any], false: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """`torch.cond` as an `if`."""
    return true(*operands) if bool(predicate) else false(*operands)


def while_loop(test: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Any]) -> Any:
    """torch's `while_loop` as a `while`."""
    state = tuple(carried)
    while bool(test(*state)):
        state = tuple(body(*state))
    return state


def map_(function: Callable[..., Any], rows: Any, *others: Any) -> Any:
    """torch's `map` as a loop over the first axis."""
    count = pytree.tree_leaves(rows)[0].shape[0]
    results = [function(_row(rows, 0, at), *others) for at in range(count)]
    return _stacked(results)


def scan(combine: Callable[..., Any], init: Any, rows: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """torch's `scan` as a loop along an axis."""
    count = pytree.tree_leaves(rows)[0].shape[dim]
    state, results = init, list[Any]()
    for at in reversed(range(count)) if reverse else range(count):
        state, result = combine(state, _row(rows, dim, at))
        results.append(result)
    return state, _stacked(results[::-1] if reverse else results)


def _row(rows: Any, dim: int, at: int) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda x: x.select(dim, at), rows)


def _stacked(results: Sequence[Any]) -> Any:
    return pytree.tree_map(lambda *parts: torch.stack(parts), *results)


def stepping_pool(x: torch.Tensor, dilation: int, stride: int) -> torch.Tensor:
    """A max pool of pairs of elements that are `dilation` apart, one of padding around x."""
    axes = x.dim() - 2
    pairs = torch.nn.functional.pad(x, [1] * (2 * axes), value=-float("inf"))
    for axis in range(2, 2 + axes):
        pairs = pairs.unfold(axis, dilation + 1, stride)[..., ::dilation].amax(-1)
    return pairs.contiguous()


PLAIN: dict[str, Any] = {
    "cond": cond,
    "while_loop": while_loop,
    "map_": map_,
    "scan": scan,
    "stepping_pool": stepping_pool,
}
"""By the names that programs call them."""

BEYOND_MEMORY: dict[str, Any] = {"stepping_pool": PLAIN["stepping_pool"]}
"""Those in whose place whoever calls eager's kernels would write beyond its memory."""
