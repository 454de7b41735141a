"""Memory that is left: weights are kept in another form beside their own only where there is room for both."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_PART = 0.5
"""How much of the memory that is left other forms of weights may take; the rest is for what runs."""


def free_memory() -> int | None:
    """Bytes that may still be taken, of the machine and of the container that this runs in; None where none tells."""
    left = [each for each in (_of_machine(), _of_container()) if each is not None]
    return min(left, default=None)


def with_room(sizes: Mapping[int, int], free: int | None) -> list[int]:
    """The keys of what may be kept twice if `free` bytes are left, the smallest first; in the given order."""
    if free is None:
        return list(sizes)
    chosen: set[int] = set()
    taken = 0
    for key, size in sorted(sizes.items(), key=lambda item: item[1]):
        taken += size
        if taken > free * _PART:
            break
        chosen.add(key)
    return [key for key in sizes if key in chosen]


def stated(path: str, name: str) -> int | None:
    """The bytes that a file of Linux's states in kB under a name; None where it does not."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _of_machine() -> int | None:
    return stated("/proc/meminfo", "MemAvailable")


def _of_container() -> int | None:
    """What a control group leaves; one without a limit says `max`, which is no number."""
    with suppress(OSError, ValueError):
        most, now = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        return max(most - now, 0)
    return None
