"""The arguments of torch's calls as programs read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from assay.errors import BadFeed
from assay.frontends.torch.returned import axis_order
from assay.frontends.torch.types import has_array, to_array
from assay.ir.dtypes import is_array, read_only


@dataclass(frozen=True, slots=True)
class Arguments:
    """How arguments are handed to a program.

    `turned` ones lie in memory with their axes in another order than the usual one, in which the program takes them.
    Of all but the `converted` ones it needs nothing but where they lie, and is given the tensors themselves.
    """

    turned: Mapping[int, tuple[int, ...]]
    converted: Sequence[int]

    def given(self, arguments: Sequence[Any]) -> list[Any]:
        """What the program reads of a call's arguments."""
        values = list(arguments)
        for index, order in self.turned.items():
            values[index] = values[index].permute(order)
        for index in self.converted:
            values[index] = _array(values[index])
        return values

    def arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """The same as arrays throughout, for who looks at their content."""
        return [_array(value) for value in self.given(arguments)]


def arguments_of(
    module: fx.GraphModule, addressed: Collection[int], turned: Mapping[int, tuple[int, ...]]
) -> Arguments:
    """How the arguments of an FX module are handed to a program that reads the `addressed` ones by address alone."""
    metas = _metas(module)
    converted = [index for index, meta in enumerate(metas) if index not in addressed or not _is_plain(meta)]
    return Arguments(turned, converted)


def memory_orders(module: fx.GraphModule) -> dict[int, tuple[int, ...]]:
    """The arguments of an FX module that are dense with their axes in another order than the usual one: that order."""
    tensors = {at: meta for at, meta in enumerate(_metas(module)) if isinstance(meta, torch.Tensor) and has_array(meta)}
    orders = {at: axis_order(meta) for at, meta in tensors.items() if not meta.is_contiguous()}
    return {at: order for at, order in orders.items() if order is not None}


def check_devices(values: Sequence[tuple[str, Any]]) -> None:
    """BadFeed if a named tensor lies elsewhere than in the CPU's memory."""
    for name, value in values:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise BadFeed(
                f"'{name}' is on the device '{value.device}'",
                hint="move the model and its inputs to the CPU: Assay's targets take them from there",
            )


def _metas(module: fx.GraphModule) -> list[Any]:
    return [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]


def _is_plain(meta: Any) -> bool:
    """Whether a tensor is what its memory holds: it has no bit that says that it means something else."""
    return isinstance(meta, torch.Tensor) and has_array(meta) and not meta.is_complex() and not meta.is_neg()


def _array(argument: Any) -> Any:
    if is_array(argument):
        return argument
    if not isinstance(argument, torch.Tensor):
        return np.asarray(argument)
    if argument.device.type != "cpu":
        check_devices([("an input", argument)])
    return read_only(to_array(argument)) if has_array(argument) else argument
