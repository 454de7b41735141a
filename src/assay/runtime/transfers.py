"""Transfers between the host and devices: counted and timed where they happen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from assay.ir.dtypes import Array
from assay.targets.base import Buffer, Device

HOST = "host"


class Transfer(NamedTuple):
    """One value that was moved: from where, to where, how many bytes of the host's, and how long it took."""

    source: str
    destination: str
    bytes: int
    seconds: float


@dataclass(slots=True)
class Ledger:
    """Transfers in order: those of one run, or those that a program made before its runs."""

    entries: list[Transfer] = field(default_factory=list[Transfer])

    def note(self, source: str, destination: str, count: int, seconds: float) -> None:
        """Add a transfer of `count` bytes."""
        self.entries.append(Transfer(source, destination, count, seconds))

    @property
    def bytes(self) -> int:
        """All bytes that were moved."""
        return sum(each.bytes for each in self.entries)

    @property
    def seconds(self) -> float:
        """What the transfers took."""
        return sum(each.seconds for each in self.entries)


class Metered:
    """The device of a target, whose transfers are noted in a ledger.

    If `damaged` is a list, what is uploaded is read back, and what did not arrive as it was is noted there.
    """

    def __init__(self, device: Device, target: str, ledger: Ledger, damaged: list[Transfer] | None = None) -> None:
        self.device, self._target, self._ledger, self._damaged = device, target, ledger, damaged

    def upload(self, array: Array) -> Buffer:
        """As the device does."""
        started = time.perf_counter()
        buffer = self.device.upload(array)
        self._ledger.note(HOST, self._target, array.nbytes, time.perf_counter() - started)
        if self._damaged is not None and self.device.download(buffer).tobytes() != array.tobytes():
            self._damaged.append(self._ledger.entries[-1])
        return buffer

    def download(self, buffer: Any) -> Array:
        """As the device does."""
        started = time.perf_counter()
        array = self.device.download(buffer)
        self._ledger.note(self._target, HOST, array.nbytes, time.perf_counter() - started)
        return array
