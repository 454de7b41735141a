"""Results that lie in memory as eager's do: with gaps, repetitions, or as views of one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from assay.frontends.torch.returned import Returned
from assay.frontends.torch.types import lent_tensor
from assay.ir.dtypes import is_array


def spread_tensors(
    returned: Sequence[Returned], results: Sequence[Any], arguments: Sequence[Any]
) -> dict[int, torch.Tensor]:
    """By number of the output, those results that are `spread`, in new memory; entries of one memory share it.

    Left out are those of which the arguments do not tell where they lie.
    """
    groups: dict[int, list[tuple[int, torch.Tensor, list[int]]]] = {}
    for entry in returned:
        if not entry.spread or entry.output is None or entry.strides is None or not is_array(results[entry.output]):
            continue
        numbers = entry.strides.of(arguments)
        if numbers is not None:
            groups.setdefault(entry.memory, []).append((entry.output, lent_tensor(results[entry.output]), numbers))
    return {output: tensor for members in groups.values() for output, tensor in _placed(members)}


def _placed(members: Sequence[tuple[int, torch.Tensor, list[int]]]) -> list[tuple[int, torch.Tensor]]:
    """Results at their places in one piece of memory. They may have several dtypes, as complex numbers and their parts
    have; places count elements."""
    widest = max(tensor.element_size() for _, tensor, _ in members)
    start = min(offset * tensor.element_size() for _, tensor, (*_, offset) in members) // widest * widest
    end = max((offset + _reach(tensor, strides)) * tensor.element_size() for _, tensor, (*strides, offset) in members)
    memory = torch.zeros(end - start, dtype=torch.uint8).untyped_storage()
    placed: list[tuple[int, torch.Tensor]] = []
    for output, tensor, (*strides, offset) in members:
        view = tensor.new_empty(0).set_(memory, offset - start // tensor.element_size(), tensor.shape, strides)
        _fill(view, tensor)
        placed.append((output, view))
    return placed


def _reach(tensor: torch.Tensor, strides: Sequence[int]) -> int:
    """How many elements of memory a tensor of this shape and these strides spans."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    return 1 + sum(steps) if tensor.numel() else 0


def _fill(view: torch.Tensor, content: torch.Tensor) -> None:
    """Write a tensor, of whose repeated elements one is as good as another."""
    first = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in view.stride())
    view[first].copy_(content[first])
