"""What a run is given: arrays, or tensors of which only the address in memory is read."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from assay.ir.dtypes import address

_is_contiguous, _data_ptr = methodcaller("is_contiguous"), methodcaller("data_ptr")


class _Kinds(NamedTuple):
    """The types of inputs, and which of them are arrays and which are tensors."""

    types: list[type]
    arrays: list[int]
    tensors: list[int]


class Inputs:
    """Inputs in row-major order without gaps, and where they lie. That is asked in every run: a tensor keeps neither
    its memory nor its strides.

    There may be hundreds of them, so tensors are asked by functions that are not Python's own.
    """

    def __init__(self) -> None:
        self._latest = _Kinds([], [], [])

    def dense(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs; copies of those that lie otherwise."""
        given, kinds = list(inputs), self._kinds(inputs)
        for at in kinds.arrays:
            if not given[at].flags.c_contiguous:
                given[at] = np.ascontiguousarray(given[at])
        if kinds.tensors and not all(map(_is_contiguous, [given[at] for at in kinds.tensors])):
            for at in kinds.tensors:
                given[at] = given[at].contiguous()
        return given

    def addresses(self, inputs: Sequence[Any]) -> list[int]:
        """The addresses of dense inputs."""
        kinds = self._kinds(inputs)
        if not kinds.tensors:
            return [address(array) if array.size else 0 for array in inputs]
        addresses = [0] * len(inputs)
        for at in kinds.arrays:
            if inputs[at].size:
                addresses[at] = address(inputs[at])
        for at, pointer in zip(kinds.tensors, map(_data_ptr, [inputs[at] for at in kinds.tensors]), strict=True):
            addresses[at] = pointer
        return addresses

    def _kinds(self, inputs: Sequence[Any]) -> _Kinds:
        """What the inputs are; from call to call, as a rule, the same."""
        kinds, types = self._latest, list(map(type, inputs))
        if types != kinds.types:
            arrays = [at for at, each in enumerate(types) if issubclass(each, np.ndarray)]
            self._latest = kinds = _Kinds(types, arrays, sorted({*range(len(types))}.difference(arrays)))
        return kinds
