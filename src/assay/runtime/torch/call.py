"""Results as torch takes them: the tensors and numbers that eager would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from assay.errors import RunFailed
from assay.frontends.torch.returned import Place, Returned
from assay.frontends.torch.types import in_order, lent_tensor, to_array, to_tensor, torch_dtype
from assay.ir import dtypes
from assay.ir.dtypes import Array, address, is_array
from assay.runtime.torch.layout import spread_tensors

_Give: TypeAlias = Callable[[Sequence[Any], Sequence[Any], dict[int, int]], Any]
"""What gives an entry, of results and arguments, with an account of the memory that was handed out."""


class ResultsForTorch:
    """What a graph returns, as torch takes it. What torch takes for new memory shares none with anything else."""

    def __init__(self, returned: Sequence[Returned]) -> None:
        self._returned = returned
        self._entries = [_giver(entry) for entry in returned]
        self._has_spread = any(entry.spread for entry in returned)

    def of(self, results: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The entries for the results of a run with these arguments."""
        handed_out: dict[int, int] = {}
        if not self._has_spread:
            return [give(results, arguments, handed_out) for give in self._entries]
        spread = spread_tensors(self._returned, results, arguments)
        return [
            give(results, arguments, handed_out) if entry.output not in spread else spread[entry.output]
            for give, entry in zip(self._entries, self._returned, strict=True)
        ]


def _giver(entry: Returned) -> _Give:
    argument, output = entry.argument, entry.output
    if argument is not None:
        return lambda results, arguments, handed_out: arguments[argument]
    if output is None:
        return lambda results, arguments, handed_out: entry.constant
    if entry.number:
        return lambda results, arguments, handed_out: results[output].item()
    given = _lent if entry.borrowed else _new
    return lambda results, arguments, handed_out: given(entry, results[output], arguments, handed_out)


def _lent(entry: Returned, result: Any, arguments: Sequence[Any], handed_out: dict[int, int]) -> Any:
    """A result in the memory of an argument."""
    if not is_array(result):
        return result
    return lent_tensor(result) if entry.place is None else _view(entry.place, result, arguments)


def _new(entry: Returned, result: Any, arguments: Sequence[Any], handed_out: dict[int, int]) -> Any:
    """A result in memory of its own."""
    if not is_array(result):
        return result
    strides = None if entry.strides is None else entry.strides.of(arguments)
    if not result.size:
        return _empty(result, entry.order, strides)
    tensor = to_tensor(in_order(_own(result, entry.memory, handed_out), entry.order))
    return tensor if strides is None else _with_ones_laid_out(tensor, strides[:-1])


def _empty(result: Array, order: tuple[int, ...] | None, strides: list[int] | None) -> torch.Tensor:
    """A result without elements, whose strides NumPy does not keep."""
    dtype = torch_dtype(dtypes.of(result))
    if strides is None:
        return torch.empty_permuted(result.shape, order or tuple(range(result.ndim)), dtype=dtype)
    return torch.empty_strided(result.shape, strides[:-1], dtype=dtype)


def _with_ones_laid_out(tensor: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """The tensor with these strides on axes of size 1; any would do, but what eager has is what guards ask for."""
    own = list(tensor.stride())
    if own == strides:
        return tensor
    wanted = [stride if size == 1 else mine for size, mine, stride in zip(tensor.shape, own, strides, strict=True)]
    if wanted == own:
        return tensor
    return tensor.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, wanted)


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
    offset = base.storage_offset() + (address(result) - base.data_ptr()) // size
    return base.as_strided(result.shape, [stride // size for stride in result.strides], offset)


def _own(array: Array, memory: int, handed_out: dict[int, int]) -> Array:
    """The array, or a copy if its memory is the program's, or was given out as another piece of memory before."""
    free = array.flags.writeable and handed_out.setdefault(_memory_of(array), memory) == memory
    return array if free else array.copy()


def _memory_of(array: Array) -> int:
    """What tells the piece of memory that an array lies in from all others."""
    while is_array(array.base):
        array = array.base
    lender = array.base
    return lender.untyped_storage().data_ptr() if isinstance(lender, torch.Tensor) else id(array)
