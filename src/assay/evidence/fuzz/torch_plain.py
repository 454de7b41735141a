"""Control flow in plain Python: what eager runs in place of torch's higher-order functions, as a second opinion."""

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


PLAIN: dict[str, Any] = {"cond": cond, "while_loop": while_loop, "map_": map_, "scan": scan}
"""By the names that programs call them."""
