"""What a program prepares of static inputs: computed once, and again when one of these has changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import is_
from typing import Any

import torch

from assay.ir.dtypes import Array, is_array, read_only
from assay.runtime.session import Program
from assay.runtime.torch_arguments import Arguments


class Prepared:
    """The results of a prelude, kept until one of the tensors that it was computed from changes.

    A tensor has changed if it is another object, lies elsewhere, or its version counter says so. Writes that no counter
    sees go unnoticed: who asks for this promises that there are none.
    """

    def __init__(self, prelude: Program, positions: Sequence[int]) -> None:
        """`positions` says which of the arguments the prelude reads."""
        self.prelude = prelude
        self._positions = tuple(positions)
        self._lock = threading.Lock()
        self._seen: tuple[list[Any], list[tuple[int, int]]] | None = None
        self._results: tuple[Array, ...] = ()

    def results(self, arguments: Sequence[Any], handed: Arguments) -> tuple[Array, ...]:
        """The prelude's results for these arguments, computed now or before."""
        tensors = [arguments[at] for at in self._positions]
        state = [_state(tensor) for tensor in tensors]
        with self._lock:
            if self._seen is None or state != self._seen[1] or not all(map(is_, tensors, self._seen[0])):
                given = handed.arrays(arguments)
                made = self.prelude.run([given[at] for at in self._positions])
                self._results = tuple(read_only(result) if is_array(result) else result for result in made)
                self._seen = tensors, state
            return self._results


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor lies, and how often torch has changed it; tensors of `inference_mode` are not counted."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version  # pyright: ignore[reportPrivateUsage]
