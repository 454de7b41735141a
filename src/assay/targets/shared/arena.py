"""The arena: one piece of memory for all storages that are alive only for a while.

Targets that plan in Python use `lay_out`. The native machine does the same in C, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assay.targets.shared.views import Storage

LINE = 64
"""Bytes; storages begin at multiples of it."""


class Piece(NamedTuple):
    """A storage for one binding of the symbols: its bytes, and the first and the last step that touches it."""

    bytes: int
    first: int
    last: int


class Layout(NamedTuple):
    """Where pieces lie, and how many bytes that takes."""

    places: tuple[int, ...]
    bytes: int


def arena_storages(lives: Mapping[Storage, tuple[int, int]]) -> list[Storage]:
    """The storages that no caller provides, in the order of their first use."""
    return sorted((storage for storage in lives if not storage.given), key=lambda storage: lives[storage][0])


def lay_out(pieces: Sequence[Piece], line: int = LINE) -> Layout:
    """First fit, in the order of first use: each piece takes the lowest place where it is alone while it lives."""
    places = [0] * len(pieces)
    sizes = [-(-piece.bytes // line) * line for piece in pieces]
    alive: list[int] = []  # by place
    for index in sorted(range(len(pieces)), key=lambda index: pieces[index].first):
        alive = [other for other in alive if pieces[other].last >= pieces[index].first]
        at, places[index] = _gap(sizes[index], [(places[other], sizes[other]) for other in alive])
        alive.insert(at, index)
    return Layout(tuple(places), max((place + size for place, size in zip(places, sizes, strict=True)), default=0))


def _gap(size: int, taken: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Before which of the taken places, and at which place, there is room."""
    end = 0
    for at, (place, length) in enumerate(taken):
        if place - end >= size:
            return at, end
        end = max(end, place + length)
    return len(taken), end
