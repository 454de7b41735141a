"""How far a text is from what was said, counted in words."""

from __future__ import annotations

import re
from collections.abc import Sequence


def words(text: str) -> list[str]:
    """The words of an English text in lower case, without marks."""
    return re.findall(r"[a-z']+", text.lower())


def word_errors(expected: Sequence[str], found: Sequence[str]) -> int:
    """The fewest words that must be changed, added or left out."""
    row = list(range(len(found) + 1))
    for at, word in enumerate(expected, 1):
        before, row[0] = row[0], at
        for index, other in enumerate(found, 1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (word != other))
    return row[-1]
