"""What must hold of sizes for an op to make sense. A shape rule asks here; what only a run can tell is noted, so that a
target that plans without knowing the sizes can check it when they are known."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from assay.ir.dims import Dim, dim_max, dim_min, eq, le


@dataclass(frozen=True, slots=True)
class Condition:
    """`size` must be `least` or more; `text` says so in the words of what it was made of."""

    size: Dim
    least: int
    text: str


_NOTES: ContextVar[list[Condition] | None] = ContextVar("notes", default=None)


@contextmanager
def noting() -> Generator[list[Condition]]:
    """Collects the conditions that cannot be decided meanwhile."""
    notes: list[Condition] = []
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def differ(a: Dim, b: Dim) -> bool:
    """True if two sizes that must be equal surely are not."""
    known = eq(a, b)
    if known is None:
        _note(*equal(a, b))
    return known is False


def falls_short(size: Dim, least: int) -> bool:
    """True if a size that must be `least` or more surely is not."""
    known = le(least, size)
    if known is None:
        _note(at_least(size, least))
    return known is False


def equal(a: Dim, b: Dim) -> tuple[Condition, Condition]:
    """The conditions under which two sizes are equal."""
    text = f"the sizes {a} and {b} must be equal"
    return Condition(a - b, 0, text), Condition(b - a, 0, text)


def broadcasts(a: Dim, b: Dim) -> Condition:
    """The condition under which two aligned sizes broadcast: they are equal, or one of them is 1."""
    apart = _is_other(a, b) * _is_other(a, 1) * _is_other(b, 1)
    return Condition(1 - apart, 1, f"the sizes {a} and {b} must be equal, or one of them 1")


def must_broadcast(a: Dim, b: Dim) -> None:
    """Note that two aligned sizes must broadcast."""
    _note(broadcasts(a, b))


def _is_other(a: Dim, b: Dim) -> Dim:
    """0 if two sizes are equal, else 1."""
    return dim_min(dim_max(a - b, b - a), 1)


def at_least(size: Dim, least: int) -> Condition:
    """The condition under which a size is as large as it must be."""
    return Condition(size, least, f"the size {size} must be {least} or more")


def _note(*conditions: Condition) -> None:
    notes = _NOTES.get()
    if notes is not None:
        notes.extend(conditions)


def fitting_attrs(rule: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What `fitting` must be told of an op: its name, which of its inputs are given, its attributes."""
    places = tuple(index for index, given in enumerate(inputs) if given is not None)
    return {"rule": rule, "places": places, "attrs": tuple(attrs.items())}
