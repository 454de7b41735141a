"""What a program prepares of static inputs: computed once, and again when one of these has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import torch

from assay.frontends.torch.private.ops import version_of
from assay.runtime.pipeline import Compiled
from assay.runtime.program import Program
from assay.runtime.torch.arguments import Arguments

_places = torch.Tensor.data_ptr


class Prepared:
    """A program bound to the results of its prelude, until one of the tensors that these were computed from changes.

    A tensor has changed if it is another object, lies elsewhere, or its version counter says so. Writes that no counter
    sees go unnoticed: who asks for this promises that there are none.
    """

    def __init__(self, compiled: Compiled, tell: Callable[[Sequence[Any]], object] = id) -> None:
        """`tell` is given what the prelude made, each time that it ran."""
        self._compiled, self._tell = compiled, tell
        self._lock = threading.Lock()
        self._seen: _State | None = None
        self._program = compiled.program

    def program(self, arguments: Sequence[Any], handed: Arguments) -> Program:
        """The program for what static inputs hold in these arguments, bound to it now or before."""
        tensors = [arguments[at] for at in self._compiled.reads]
        with self._lock:
            if self._seen is None or not self._seen.is_of(tensors):
                state = _State(tensors)
                given = handed.arrays(arguments)
                assert self._compiled.prelude is not None
                made = self._compiled.prelude.run([given[at] for at in self._compiled.reads])
                self._tell(made)
                self._program = self._compiled.bound(made)
                self._seen = state
            return self._program


class _State:
    """Which tensors there are, where they lie, and how often torch has changed those that it counts for.

    Every call asks for it, of hundreds of tensors: these are gone through by functions that are not Python's own.
    """

    __slots__ = ("counted", "places", "tensors", "versions")

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors, self.places = tensors, list(map(_places, tensors))
        self.counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self.versions = list(map(version_of, self.counted))

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether these are the tensors, and nothing has changed."""
        same = all(map(is_, tensors, self.tensors))
        return (
            same and list(map(_places, tensors)) == self.places and list(map(version_of, self.counted)) == self.versions
        )
