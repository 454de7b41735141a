"""Messages that say nearly the same, put together."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ALIKE = 0.6
"""From which part of shared words on two messages are taken for one."""


def clusters(messages: Iterable[str]) -> list[tuple[str, ...]]:
    """All messages in clusters: two are together if they share most words, directly or over others between them.

    Every message is in one cluster. The largest clusters come first; the order of what is given does not matter.
    """
    found: list[tuple[list[str], list[frozenset[str]]]] = []
    for message in sorted(set(messages)):
        words = frozenset(re.findall(r"\w+|#", message.lower()))
        near = [each for each in found if any(alike(words, other) for other in each[1])]
        joined = [message], [words]
        for each in near:
            joined = [*each[0], *joined[0]], [*each[1], *joined[1]]
        found = [*(each for each in found if each not in near), joined]
    return sorted((tuple(sorted(texts)) for texts, _ in found), key=lambda texts: (-len(texts), texts))


def alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """True if two messages share most of their words."""
    return one == other or len(one & other) >= _ALIKE * len(one | other)
