"""Views of arguments as the view ops that a traced graph makes them by, so that autograd sees what it sees in eager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any, cast

import torch
from torch import fx

from assay.frontends.torch.numbers import Numbers, numbers_of
from assay.frontends.torch.private.ops import OpOverload, pytree

_BY_MEMORY = torch.ops.aten.as_strided.default


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a number that only a call tells: its place among the numbers of all calls."""

    number: int


@dataclass(frozen=True, slots=True)
class ViewCall:
    """A view op with what it is given besides the tensor, and which of its views is meant if it gives several."""

    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    part: int | None

    def of(self, tensor: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
        """The view of this tensor."""
        args, kwargs = pytree.tree_map_only(Slot, lambda slot: numbers[slot.number], (self.args, dict(self.kwargs)))
        made = self.op(tensor, *args, **kwargs)
        return made if self.part is None else made[self.part]


@dataclass(frozen=True, slots=True)
class ViewCalls:
    """View ops, one after the other, on an argument."""

    argument: int
    calls: tuple[ViewCall, ...]
    numbers: Numbers

    def of(self, arguments: Sequence[Any]) -> torch.Tensor | None:
        """The view; None where a number is not among what the arguments show."""
        known = self.numbers.of(arguments)
        if known is None:
            return None
        view = arguments[self.argument].detach()
        for call in self.calls:
            view = call.of(view, known)
        return view


def view_calls(node: fx.Node, positions: Mapping[fx.Node, int], inputs: Sequence[Any]) -> ViewCalls | None:
    """The ops that make a node of an argument; None if one of them is no view, or says where memory lies.

    `positions` are those of the arguments, `inputs` what they were traced with.
    """
    sizes: list[Any] = []
    calls: list[ViewCall] = []
    while node.op != "placeholder":
        part: Any = None
        if node.target is getitem:
            node, part = node.args  # pyright: ignore[reportAssignmentType]
        op: Any = node.target
        if not isinstance(op, OpOverload) or not op.is_view or op is _BY_MEMORY:
            return None
        source, *given = node.args
        if not isinstance(source, fx.Node):
            return None
        args, kwargs = pytree.tree_map_only(fx.Node, lambda size: _slot(size, sizes), (given, node.kwargs))
        calls.append(ViewCall(cast(Any, op), tuple(args), kwargs, part))
        node = source
    return ViewCalls(positions[node], tuple(reversed(calls)), numbers_of(sizes, inputs))


def _slot(size: fx.Node, sizes: list[Any]) -> Slot:
    sizes.append(size.meta["val"])
    return Slot(len(sizes) - 1)
