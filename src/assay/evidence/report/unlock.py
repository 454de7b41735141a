"""Which causes block which models, and which few fixes free most of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

C = TypeVar("C", bound=Hashable)
Group: TypeAlias = tuple[int, int]
"""Causes as bits, and the number of models that they and no others block."""

BUDGET = 20_000
"""How many partial plans an exact search may look at."""

_DEEPEST = 300
"""How many fixes an exact plan may have."""


@dataclass(frozen=True, slots=True)
class Fixes(Generic[C]):
    """So many fixes, and the models that they free together."""

    fixes: tuple[C, ...]
    models: tuple[str, ...]
    exact: bool
    """True if no other choice of as many fixes frees more."""


def freed(blocked: Mapping[str, frozenset[C]], fixes: frozenset[C]) -> tuple[str, ...]:
    """The models that nothing blocks any more when `fixes` are made."""
    return tuple(sorted(model for model, causes in blocked.items() if causes <= fixes))


def shortest_fixes(blocked: Mapping[str, frozenset[C]], budget: int = BUDGET) -> list[Fixes[C]]:
    """For every number of fixes that frees more models than one less: the most models, and fixes that free them.

    Exact as long as the search stays within its budget; beyond that the plan grows greedily from the last exact one,
    always by the group of models that needs the fewest further fixes for each model.
    """
    order = sorted({cause for causes in blocked.values() for cause in causes}, key=str)
    bits = {cause: 1 << place for place, cause in enumerate(order)}
    groups = Counter(sum(bits[cause] for cause in causes) for causes in blocked.values())
    steps: list[Fixes[C]] = []
    search = _Search([(mask, count) for mask, count in sorted(groups.items()) if mask], budget)
    found = best = 0
    for size in range(1, len(order) + 1):
        if best == len(blocked):
            break
        mask, exact = search.best(size, found)
        count = search.worth(mask)
        if count <= best:
            continue
        found, best = mask, count
        fixes = tuple(cause for cause in order if mask & bits[cause])
        steps.append(Fixes(fixes, freed(blocked, frozenset(fixes)), exact))
    return steps


class _Search:
    """Branch and bound over groups of models that the same set of causes (a bit mask) blocks."""

    def __init__(self, groups: Sequence[Group], budget: int) -> None:
        self._groups = groups
        self._left = budget
        self._best = self._worth = 0

    def worth(self, mask: int) -> int:
        """How many models some fixes free."""
        return sum(count for group, count in self._groups if not group & ~mask)

    def best(self, size: int, start: int) -> tuple[int, bool]:
        """The best fixes of at most this size, and whether they are known to be the best; never worse than `start`."""
        guess = self._grown(start, size)
        if self._left <= 0 or size > _DEEPEST:
            return guess, False
        self._best, self._worth = guess, self.worth(guess)
        self._branch(self._groups, 0, 0, size)
        return self._best, self._left > 0

    def _grown(self, mask: int, size: int) -> int:
        """`mask` with more fixes, always for the group that asks for the fewest for each of its models."""
        while True:
            room = size - mask.bit_count()
            near = [
                (need / count, group)
                for group, count in self._groups
                if 0 < (need := (group & ~mask).bit_count()) <= room
            ]
            if not near:
                return mask
            mask |= min(near)[1]

    def _branch(self, groups: Sequence[Group], mask: int, worth: int, size: int) -> None:
        """Look at all plans that hold `mask` and free any of `groups`; `worth` is what the mask frees besides them."""
        while True:
            self._left -= 1
            room = size - mask.bit_count()
            needs = [((group & ~mask), group, count) for group, count in groups]
            worth += sum(count for need, _, count in needs if not need)
            if worth > self._worth:
                self._best, self._worth = mask, worth
            within = [each for each in needs if 0 < each[0].bit_count() <= room]
            if self._left <= 0 or worth + _bound(within, room) <= self._worth:
                return
            within.sort(key=lambda each: (each[0].bit_count() / each[2], each[1]))
            rest = [(group, count) for _, group, count in within]
            self._branch(rest, mask | rest[0][0], worth, size)
            groups = rest[1:]


def _bound(within: Sequence[tuple[int, int, int]], room: int) -> int:
    """No `room` fixes free more: each model counts for every fix that it needs in equal parts."""
    scores: dict[int, float] = {}
    for need, _, count in within:
        part, left = count / need.bit_count(), need
        while left:
            bit = left & -left
            scores[bit] = scores.get(bit, 0.0) + part
            left ^= bit
    return math.floor(sum(sorted(scores.values(), reverse=True)[:room]) + 1e-6)
