"""Memory that is left: what is asked for beyond it is an error, and not the end of the process.

Linux hands out memory that it does not have, and kills who then touches it. So large pieces are asked for only after a
look at what is left. Weights are kept in another form beside their own only where there is room for both.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from assay.errors import OutOfMemory
from assay.units import size as as_size

LARGE = 64 << 20
"""Bytes from which on it is looked whether they are there; less than that is always there or soon will not be."""
_GROUP = Path("/sys/fs/cgroup")
_PART = 0.5
"""How much of the memory that is left copies and other forms of weights may take; the rest is for what runs."""


_lasting: ContextVar[bool] = ContextVar("lasting", default=False)


@contextmanager
def lasting_results() -> Generator[None]:
    """Inside, all results of a run last equally long, as packed weights do: they may share a piece of memory."""
    token = _lasting.set(True)
    try:
        yield
    finally:
        _lasting.reset(token)


def are_lasting() -> bool:
    """Whether the results of the run that is under way all last equally long."""
    return _lasting.get()


def free_memory() -> int | None:
    """Bytes that may still be taken, of the machine and of the container that this runs in; None where none tells."""
    left = [each for each in (_of_machine(), _of_container()) if each is not None]
    return min(left, default=None)


def check_room(needed: int, what: str, where: str = "") -> None:
    """OutOfMemory if that many bytes for `what` would be more than there are."""
    if needed < LARGE:
        return
    free = free_memory()
    if free is not None and needed > free + (stated("/proc/meminfo", "SwapFree") or 0):
        raise OutOfMemory(f"{what} needs {as_size(needed)} of memory, {as_size(free)} are left", where=where)


def has_room(size: int) -> bool:
    """Whether what may as well be left where it lies can be kept in memory too: it takes no more than a part of it."""
    free = free_memory()
    return free is None or size <= free * _PART


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
    """What a control group leaves; one without a limit says `max`, which is no number.

    Copies of files that it holds in memory are given up when memory is asked for.
    """
    with suppress(OSError, ValueError):
        most, now = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        return max(most - now + _copies_of_files(), 0)
    return None


def _copies_of_files() -> int:
    with suppress(OSError, ValueError):
        rows = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        return sum(int(rows.get(name, 0)) for name in ("active_file", "inactive_file"))
    return 0
