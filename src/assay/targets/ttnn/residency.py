"""What stays on the card for all runs: one tensor for each weight and form of it, however many programs read it.

A weight is told by where it lies in the host's memory, not by what it holds: to compare gigabytes takes long, and
programs of one model read the same memory. Programs hold on to their tensors; what no program holds any more is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from assay.ir.dtypes import is_array


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Resident:
    """A tensor that stays on the card: whole on every chip, or the part that each has along an `axis`. It holds on to
    the `owner` of its content, so that no other thing can lie there."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    layout: str
    owner: Any
    axis: int | None = None


class Residents:
    """The tensors that stay on one card, and the buffers of the host's that stand for weights. Threads may share it."""

    def __init__(self) -> None:
        self._tensors: WeakValueDictionary[Hashable, Resident] = WeakValueDictionary()
        self._buffers: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        self._sources: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._numbers = count(1)
        self._lock = threading.Lock()

    def tensor(self, owner: Any, shape: tuple[int, ...], dtype: str, layout: str, axis: int | None = None) -> Resident:
        """The tensor of an array of the host's, or of a buffer, in a form; the parts of it that chips have along an
        axis, if one is said."""
        key = place_of(owner), shape, dtype, layout, axis
        with self._lock:
            found = self._tensors.get(key)
            if found is None:
                found = self._tensors[key] = Resident(next(self._numbers), shape, dtype, layout, owner, axis)
            return found

    def buffer(self, kind: Hashable, array: Any, upload: Callable[[Any], Any]) -> Any:
        """What stands for a constant on the card, uploaded now if no program of that kind has it."""
        key = kind, place_of(array)
        with self._lock:
            found = self._buffers.get(key)
            if found is None:
                found = self._buffers[key] = upload(array)
                self._sources[found] = array
            return found

    def live(self) -> list[Resident]:
        """The tensors that some program holds, in the order in which they came."""
        with self._lock:
            return sorted(self._tensors.values(), key=lambda each: each.number)


def place_of(owner: Any) -> Hashable:
    """Where something lies: an array's elements in memory, or the thing itself. It is the thing's own while that is
    there."""
    if not is_array(owner):
        return id(owner)
    return owner.__array_interface__["data"][0], owner.shape, owner.strides, owner.dtype.str
