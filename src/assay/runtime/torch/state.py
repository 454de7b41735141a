"""What a program prepares of static inputs: computed once, and again when one of these has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, Protocol, TypeAlias

import torch

from assay.frontends.torch.private.ops import version_of
from assay.runtime.writes import WriteWatch, writes

GraphFunction: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""What gives the results of a graph for the arguments of a call."""

_places = torch.Tensor.data_ptr


class State(Protocol):
    """What static inputs were when something was made of them.

    Every call asks for it, of hundreds of tensors: these are gone through by functions that are not Python's own.
    """

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether these are the tensors, and nothing has changed."""
        ...


class CountedTensors:
    """Which tensors there were, where they lay, and how often torch had changed those that it counts for.

    Writes that no counter sees go unnoticed: who asks for this promises that there are none.
    """

    __slots__ = ("_counted", "_places", "_tensors", "_versions")

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors, self._places = tensors, list(map(_places, tensors))
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._versions = list(map(version_of, self._counted))

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether these are the tensors, and nothing has changed that is counted."""
        same = all(map(is_, tensors, self._tensors)) and list(map(_places, tensors)) == self._places
        return same and list(map(version_of, self._counted)) == self._versions


class WatchedTensors:
    """Where tensors lay, and a watch over the memory there.

    Which tensor it is does not matter: sizes and strides are guarded by dynamo.
    """

    __slots__ = ("_places", "_watch")

    def __init__(self, tensors: list[torch.Tensor], watch: WriteWatch) -> None:
        self._places, self._watch = list(map(_places, tensors)), watch

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether the tensors lie there and hold the same numbers."""
        return list(map(_places, tensors)) == self._places and not self._watch.changed()


def watched(tensors: list[torch.Tensor]) -> WatchedTensors | None:
    """The state of tensors under the eyes of the kernel; None if it cannot tell of all writes to them."""
    kernel = writes()
    watch = None if kernel is None else kernel.watch([_piece(tensor) for tensor in tensors])
    return None if watch is None else WatchedTensors(tensors, watch)


def _piece(tensor: torch.Tensor) -> tuple[int, int]:
    """The memory from the first to the last element."""
    start = tensor.data_ptr()
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + ((1 + sum(steps)) * tensor.element_size() if tensor.numel() else 0)


@dataclass(slots=True)
class Patience:
    """When it pays to prepare anew what was made of static inputs that changed.

    It does as long as they change once in `EACH` calls or less often; a few changes in a row are forgiven. Else what
    runs in the next calls keeps nothing: in `EACH` of them, and in twice as many each time that waiting was of no use.
    """

    EACH = 16
    _MOST = 3 * EACH
    _LONGEST = 1024

    credit: int = _MOST
    pause: int = EACH
    left: int = 0

    def served(self) -> None:
        """A call found what was prepared to be of use."""
        self.credit = min(self.credit + 1, self._MOST)
        if self.credit == self._MOST:
            self.pause = self.EACH

    def prepares(self) -> bool:
        """Whether a call that found a change should prepare anew."""
        if self.left:
            self.left -= 1
            return False
        self.credit -= self.EACH
        if self.credit >= 0:
            return True
        self.left, self.pause = self.pause - 1, min(2 * self.pause, self._LONGEST)
        self.credit = self.EACH
        return False


class Prepared:
    """A graph as two ways to run it: one bound to what was made of static inputs, and one that keeps nothing."""

    def __init__(
        self,
        reads: Sequence[int],
        look: Callable[[list[torch.Tensor]], State | None],
        prepare: Callable[[Sequence[Any]], GraphFunction],
        plain: Callable[[], GraphFunction] | None = None,
    ) -> None:
        """`reads` are the places of the static inputs that something is made of. `look` gives their state; None if
        they may change unseen. `prepare` is given the arguments of a call, makes it and gives what runs with it.
        `plain` gives what runs if they change unseen or too often; without it, all is made anew after every change."""
        self._reads, self._look, self._prepare, self._plain = reads, look, prepare, plain
        self._lock = threading.Lock()
        self._patience = Patience()
        self._seen: State | None = None
        self._bound: GraphFunction | None = None
        self._other: GraphFunction | None = None

    def run(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """The results for the arguments of a call."""
        return self._ready(arguments)(arguments)

    def _ready(self, arguments: Sequence[Any]) -> GraphFunction:
        tensors = [arguments[at] for at in self._reads]
        with self._lock:
            if self._seen is not None and self._bound is not None and self._seen.is_of(tensors):
                self._patience.served()
                return self._bound
            if self._plain is None or self._patience.prepares():
                state = self._look(tensors)  # before anything is made: a write from now on is seen by the next call
                if state is not None:
                    self._bound = None
                    self._bound, self._seen = self._prepare(arguments), state
                    return self._bound
            assert self._plain is not None
            self._seen = self._bound = None
            self._other = self._other or self._plain()
            return self._other
