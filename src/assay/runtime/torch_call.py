"""The boundary to torch: arguments become arrays, results become the tensors and numbers that eager would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from assay.errors import BadFeed, RunFailed
from assay.frontends.torch.returned import Place, Returned
from assay.frontends.torch.types import has_array, in_order, lent_tensor, read_only, to_array, to_tensor
from assay.ir.dtypes import Array, is_array
from assay.runtime.torch_layout import spread_tensors

Compute = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
"""From the arguments, as torch gives them and as arrays, to the graph's outputs."""


def call(compute: Compute, returned: Sequence[Returned], arguments: Sequence[Any]) -> list[Any]:
    """Run a compiled graph as torch calls it. What torch takes for new memory shares none with anything else."""
    results = compute(arguments, [_given(argument) for argument in arguments])
    handed_out: dict[int, int] = {}
    spread = spread_tensors(returned, results, arguments)
    return [
        _entry(entry, results, arguments, handed_out) if entry.output not in spread else spread[entry.output]
        for entry in returned
    ]


def check_devices(values: Sequence[tuple[str, Any]]) -> None:
    """BadFeed if a named tensor lies elsewhere than in the CPU's memory."""
    for name, value in values:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise BadFeed(
                f"'{name}' is on the device '{value.device}'",
                hint="move the model and its inputs to the CPU: Assay's targets take them from there",
            )


def _given(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return np.asarray(argument)
    if argument.device.type != "cpu":
        check_devices([("an input", argument)])
    return read_only(to_array(argument)) if has_array(argument) else argument


def _entry(entry: Returned, results: Sequence[Any], arguments: Sequence[Any], handed_out: dict[int, int]) -> Any:
    if entry.argument is not None:
        return arguments[entry.argument]
    if entry.output is None:
        return entry.constant
    result = results[entry.output]
    if entry.number:
        return result.item()
    if not is_array(result):
        return result
    if entry.borrowed:
        return lent_tensor(result) if entry.place is None else _view(entry.place, result, arguments)
    tensor = to_tensor(in_order(_own(result, entry.memory, handed_out), entry.order))
    if entry.strides is not None:
        _lay_out_ones(tensor, entry.strides.of(arguments))
    return tensor


def _lay_out_ones(tensor: torch.Tensor, strides: Sequence[int] | None) -> None:
    """Give axes of size 1 these strides; any would do, but what eager has is what guards ask for."""
    if strides is None:
        return
    wanted = [
        stride if size == 1 else own for size, own, stride in zip(tensor.shape, tensor.stride(), strides, strict=False)
    ]
    if wanted != list(tensor.stride()):
        tensor.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, wanted)


def _view(place: Place, result: Array, arguments: Sequence[Any]) -> torch.Tensor:
    """The result as a view of the argument that it lies in, at the place that the trace or its address says."""
    found = place.of(result.shape, arguments)
    if found is not None:
        return found
    base = arguments[place.argument].detach()
    if not result.size:
        return base.as_strided(result.shape, [0] * result.ndim, base.storage_offset())
    if not np.may_share_memory(result, to_array(base)):
        raise RunFailed("where a result lies in the memory of an input depends on data, and it was copied on the way")
    size = base.element_size()
    offset = base.storage_offset() + (result.ctypes.data - base.data_ptr()) // size
    return base.as_strided(result.shape, [stride // size for stride in result.strides], offset)


def _own(array: Array, memory: int, handed_out: dict[int, int]) -> Array:
    """The array, or a copy if its memory was given out as another piece of memory before."""
    owner = array
    while is_array(owner.base):
        owner = owner.base
    return array if handed_out.setdefault(id(owner), memory) == memory else array.copy()
