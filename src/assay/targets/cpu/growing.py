"""Caches that a segment continues: where they lie in a run, and which part of them must be moved there first."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from assay.ir.dims import Dim, evaluate
from assay.targets.grown import GrownTensor, Room

_SPARE = 256
"""Places that memory has at least behind what lies there, so that most runs find room."""


@dataclass(frozen=True)
class Extent:
    """What the sizes of a run are: places of the memory of caches, and how many of them are copied from inputs. `rooms`
    is where the caches lie already; None if they get new memory."""

    capacity: int
    moved: int
    used: int
    rooms: Sequence[Room] | None = None


class CachePlace(NamedTuple):
    """A cache by its number among inputs, outputs and pieces of memory for results."""

    input: int
    output: int
    block: int


@dataclass(frozen=True)
class CachePlaces:
    """The caches of a segment, all along axes of one size, `before`, to `after`: dims over the symbols of a run, whose
    names are listed in their order."""

    places: tuple[CachePlace, ...]
    symbols: tuple[str, ...]
    before: Dim
    after: Dim


class Growing:
    """The growth of a segment. Runs of several threads may want the same room: the first one gets it."""

    def __init__(self, caches: CachePlaces) -> None:
        self.places, self._caches = caches.places, caches
        self._lock = threading.Lock()

    def is_wanted(self, inputs: Sequence[Any]) -> bool:
        """Whether the caches are given such that they may be continued where they lie."""
        return all(isinstance(inputs[each.input], GrownTensor) for each in self.places)

    def dense(self, symbols: Sequence[int]) -> Extent:
        """Caches are copied to memory without room."""
        before, after = self._sizes(symbols)
        return Extent(after, before, after)

    def taken(self, inputs: Sequence[Any], symbols: Sequence[int]) -> Extent:
        """Caches stay where they lie if there is room behind all of them, which is taken now, else they move to memory
        that has some."""
        before, after = self._sizes(symbols)
        rooms = [inputs[each.input].room for each in self.places]
        with self._lock:
            if rooms[0] is not None and all(_fits(room, rooms[0].capacity, before, after) for room in rooms):
                for room in rooms:
                    room.used = after
                return Extent(rooms[0].capacity, 0, after, rooms)
        return Extent(after + max(after // 2, _SPARE), before, after)

    def _sizes(self, symbols: Sequence[int]) -> tuple[int, int]:
        known = dict(zip(self._caches.symbols, symbols, strict=True))
        before, after = evaluate(self._caches.before, known), evaluate(self._caches.after, known)
        assert before is not None
        assert after is not None
        return before, after


def _fits(room: Room | None, capacity: int, before: int, after: int) -> bool:
    return room is not None and room.capacity == capacity and room.used == before and after <= capacity
