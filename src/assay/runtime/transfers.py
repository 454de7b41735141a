"""Transfers between the host and devices: counted and timed where they happen."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Transfer:
    """One value that was moved: from where, to where, how many bytes of the host's, and how long it took."""

    source: str
    destination: str
    bytes: int
    seconds: float


@dataclass(slots=True)
class Ledger:
    """The transfers of one run, in order."""

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
