"""What accompanies a run of the oracle: its observer, and what it may take in time and memory."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from numpy.lib.array_utils import byte_bounds

from assay.ir.dtypes import is_array
from assay.targets.base import Observer
from assay.targets.budget import Allowance

Env: TypeAlias = dict[Any, Any]


class Watch:
    """The observer of a run, and what the run may take."""

    __slots__ = ("_bytes", "allowance", "observer")

    def __init__(self, observer: Observer | None, allowance: Allowance | None) -> None:
        self.observer, self.allowance = observer, allowance
        self._bytes: dict[Any, int] = {}

    @property
    def counts(self) -> bool:
        """Whether the memory of the run is limited."""
        return self.allowance is not None and self.allowance.memory is not None

    def keep(self, key: Any, size: int) -> None:
        """Count `size` bytes for the value, or whatever it is, that is kept under `key`."""
        if self.allowance is not None:
            self.allowance.held += size - self._bytes.get(key, 0)
            self._bytes[key] = size

    def drop(self, key: Any) -> None:
        """Count nothing for `key` any more."""
        if self.allowance is not None:
            self.allowance.held -= self._bytes.pop(key, 0)


class Counted(dict[Any, Any]):
    """The values of a run that somebody watches: `bytes` is what the arrays among them take."""

    bytes = 0

    def __setitem__(self, key: Any, value: Any) -> None:
        self.bytes += _size(value) - _size(self.get(key))
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        self.bytes -= _size(self[key])
        super().__delitem__(key)

    def update(self, items: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set several; `dict` would do it past `__setitem__`."""
        for key, value in dict(items).items():
            self[key] = value


def values_for(watch: Watch | None) -> Env:
    """Where the values of a run are kept."""
    return {} if watch is None or watch.observer is None else Counted()


def span(value: Any) -> int:
    """The bytes between the first and the last one that a value lies in."""
    if isinstance(value, list | tuple):
        return sum(map(span, cast("list[Any]", value)))
    if not is_array(value) or not value.size:
        return 0
    first, last = byte_bounds(value)
    return last - first


def _size(value: Any) -> int:
    return value.nbytes if is_array(value) else 0
