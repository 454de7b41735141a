"""Static inputs: what depends on parameters and buffers alone is computed once, and again when one has changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from assay.ir.dtypes import Array, is_array, read_only
from assay.runtime.session import Program

_SAMPLED = 4
"""Elements looked at along each axis, to notice writes through `.data`, which no version counter sees."""


class Prepared:
    """The results of a prelude, kept until one of the tensors it was computed from changes.

    A tensor counts as changed if its memory, its version counter or a sample of its elements did. Tensors made
    under `inference_mode` have no version counter: with one of those the prelude runs every time.
    """

    def __init__(self, prelude: Program, positions: Sequence[int]) -> None:
        """`positions` says which of the arguments the prelude reads."""
        self.prelude = prelude
        self._positions = tuple(positions)
        self._lock = threading.Lock()
        self._state: tuple[Any, ...] | None = None
        self._results: tuple[Array, ...] = ()

    def results(self, tensors: Sequence[torch.Tensor], arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The prelude's results for these arguments, computed now or before."""
        state = tuple(_fingerprint(tensors[at], arrays[at]) for at in self._positions)
        with self._lock:
            if self._state is None or state != self._state or None in state:
                made = self.prelude.run([arrays[at] for at in self._positions])
                self._results = tuple(read_only(result) if is_array(result) else result for result in made)
                self._state = state
            return self._results


def _fingerprint(tensor: torch.Tensor, array: Array) -> Any:
    if tensor.is_inference():
        return None
    sample = array[tuple(slice(None, None, max(1, size // _SAMPLED)) for size in array.shape)]
    return tensor.data_ptr(), tensor._version, sample.tobytes()  # pyright: ignore[reportPrivateUsage]
