"""What a model's file says of it, read one field at a time: of the right kind and within bounds, or an error."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from assay.errors import ImportFailed, hint_for

_LARGEST = 1 << 28
"""No size in a configuration is larger: a vocabulary of this size is a thousand times that of today's models."""
_DEEPEST = 4096
_SHOWN = 200


@dataclass(frozen=True)
class Fields:
    """Named values, such as those of a `config.json`; `where` says of which file. What is null is not there.

    ImportFailed names the file, the field, what it should be and what it is.
    """

    values: Mapping[str, Any]
    where: str

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return self.values.get(name) is not None

    def is_null(self, name: str) -> bool:
        """Whether a field is there and says null, which some families tell from one that is not there."""
        return name in self.values and self.values[name] is None

    def size(self, name: str, default: int | None = None) -> int:
        """An integer from 1 on."""
        return self._integer(name, default, 1)

    def layers(self, name: str, default: int | None = None) -> int:
        """How many layers there are."""
        return self._integer(name, default, 1, _DEEPEST)

    def count(self, name: str, default: int | None = None) -> int:
        """An integer from 0 on."""
        return self._integer(name, default, 0)

    def optional_size(self, name: str) -> int | None:
        """An integer from 1 on, or None if there is none."""
        return self.size(name) if self.has(name) else None

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(name, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            self._refuse(name, "a number", value)
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self.number(name, default)
        if value <= 0:
            self._refuse(name, "a number above zero", value)
        return value

    def optional_positive(self, name: str) -> float | None:
        """A finite number above zero, or None if there is none."""
        return self.positive(name) if self.has(name) else None

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(name, default)
        if type(value) is not bool:
            self._refuse(name, "true or false", value)
        return value

    def word(self, name: str, allowed: Collection[str], default: str | None = None) -> str:
        """One of some words."""
        value = self._value(name, default)
        if not isinstance(value, str) or value not in allowed:
            self._refuse(name, f"one of {', '.join(allowed)}", value)
        return value

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """So many finite numbers."""
        found = self._list(name, count, "number", (int, float))
        if not all(map(math.isfinite, found)):
            self._refuse(name, "a list of finite numbers", found)
        return tuple(map(float, found))

    def words(self, name: str, count: int, allowed: Collection[str]) -> tuple[str, ...]:
        """So many words, each one of some."""
        found = self._list(name, count, "word", (str,))
        if not set(found) <= set(allowed):
            self._refuse(name, f"words out of {', '.join(allowed)}", found)
        return tuple(found)

    def table(self, name: str) -> Fields | None:
        """The fields inside a field, or None if it is not there."""
        if not self.has(name):
            return None
        value = self.values[name]
        if not isinstance(value, dict):
            self._refuse(name, "a table", value)
        return Fields(cast(dict[str, Any], value), f"{self.where}: '{name}'")

    def divides(self, part: str, whole: str, smaller: int, larger: int) -> None:
        """Make sure that one size is a multiple of another; the names are those of the fields."""
        if larger % smaller:
            raise ImportFailed(f"'{whole}' is {larger}, which is no multiple of '{part}', {smaller}", where=self.where)

    def refuse(self, name: str, reason: str) -> NoReturn:
        """The error for a field that asks for what no recipe does."""
        raise ImportFailed(f"'{name}' is {_shown(self.values.get(name))}: {reason}", where=self.where)

    def _integer(self, name: str, default: int | None, least: int, most: int = _LARGEST) -> int:
        value = self._value(name, default)
        if type(value) is not int or not least <= value <= most:
            self._refuse(name, f"an integer from {least} to {most}", value)
        return value

    def _list(self, name: str, count: int, what: str, kinds: tuple[type, ...]) -> list[Any]:
        value = self._value(name, None)
        items = cast(list[Any], value) if isinstance(value, list) else []
        if len(items) != count or not all(type(each) in kinds for each in items):
            self._refuse(name, f"a list of {count} {what}s", value)
        return items

    def _value(self, name: str, default: Any) -> Any:
        if self.has(name):
            return self.values[name]
        if default is None:
            hint = hint_for(name, map(str, self.values))
            raise ImportFailed(f"'{name}' is missing", where=self.where, hint=hint)
        return default

    def _refuse(self, name: str, expected: str, found: Any) -> NoReturn:
        raise ImportFailed(f"'{name}' should be {expected}, and is {_shown(found)}", where=self.where)


def fields_below(facts: Mapping[str, Any], prefix: str, where: str) -> Fields:
    """Those of the facts of a checkpoint whose names begin with a prefix, by what follows it."""
    return Fields({name[len(prefix) :]: value for name, value in facts.items() if name.startswith(prefix)}, where)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
