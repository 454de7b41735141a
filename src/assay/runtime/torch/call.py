"""Results as torch takes them: the tensors and numbers that eager would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from assay.errors import RunFailed
from assay.frontends.torch.returned import Place, Returned
from assay.frontends.torch.types import in_order, lent_tensor, to_array, to_tensor
from assay.ir.dtypes import Array, is_array
from assay.runtime.torch.layout import spread_tensors


def returned_to_torch(results: Sequence[Any], returned: Sequence[Returned], arguments: Sequence[Any]) -> list[Any]:
    """What a graph returns, as torch takes it. What torch takes for new memory shares none with anything else."""
    handed_out: dict[int, int] = {}
    spread = spread_tensors(returned, results, arguments)
    return [
        _entry(entry, results, arguments, handed_out) if entry.output not in spread else spread[entry.output]
        for entry in returned
    ]


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
    """The array, or a copy if its memory is the program's, or was given out as another piece of memory before."""
    free = array.flags.writeable and handed_out.setdefault(_place_of(array), memory) == memory
    return array if free else array.copy()


def _place_of(array: Array) -> int:
    """Where the piece of memory begins that an array lies in."""
    while is_array(array.base):
        array = array.base
    lender = array.base
    return lender.untyped_storage().data_ptr() if isinstance(lender, torch.Tensor) else array.ctypes.data
