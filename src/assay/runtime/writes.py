"""Writes to memory as the kernel sees them: every one, whoever makes it and in whatever way.

Linux can tell, from 6.7 on, which pages were written since they were last protected (`writes.c`). Pages that a piece of
memory has for itself are watched in this way. What is left at its ends shares pages with other data, which may be
written all the time: that is compared with a copy, and so are pieces that are small.

Only memory of this process alone is watched: what others can write to, or a file, changes without a write of ours.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias
from weakref import WeakSet, finalize

import numpy as np

from assay.errors import CompileFailed
from assay.ir.dtypes import Array
from assay.targets.cpu.toolchain import shared_toolchain
from assay.targets.shared.artifacts import Kernel

MemoryRange: TypeAlias = tuple[int, int]
"""Memory: where it begins and where it ends."""

_PAGE = mmap.PAGESIZE
_SMALL = 4 * _PAGE
"""Pieces with less than this in whole pages are compared: that is as fast as to ask the kernel."""
_ROOM = 256
_OWN_MEMORY = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ...p \S+ \S+ 0 *(?:\[.*\])?$", re.MULTILINE)
"""A line of `/proc/self/maps` for private memory that is no file's: addresses, `p`, the inode 0."""


def writes() -> Writes | None:
    """What tells this process of writes; None where the kernel does not, or nothing can be compiled to ask it."""
    return _writes_of(os.getpid())


@cache
def _writes_of(process: int) -> Writes | None:
    """A process that was forked off has neither its parent's memory nor what watches that."""
    toolchain = shared_toolchain()
    if toolchain is None:
        return None
    with suppress(CompileFailed, OSError):
        source = Path(__file__).with_suffix(".c").read_text()
        (library,) = toolchain.load([Kernel(source, entry="writes_seen")])
        found = Writes(library, process)
        return found if _works(found) else None
    return None


def _works(found: Writes) -> bool:
    """Whether writes to a piece of memory are seen, and also that it was given back to the kernel."""
    with mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes([1]) * len(memory))
        start = np.frombuffer(memory, np.uint8).ctypes.data
        for change in (lambda: memory.__setitem__(_PAGE, 2), lambda: memory.madvise(mmap.MADV_DONTNEED)):
            watch = found.watch([(start, start + len(memory))])
            if watch is None or watch.changed():
                return False
            change()
            if not watch.changed():
                return False
    return True


class Writes:
    """The kernel's account of writes to the memory of a process. Threads may share it."""

    def __init__(self, library: ctypes.CDLL, process: int) -> None:
        """OSError if the kernel does not keep one."""
        number, pointer, count = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
        library.writes_register.argtypes = (number, count, count, number)
        library.writes_protect.argtypes = (number, count, count, pointer, number, pointer)
        library.writes_seen.argtypes = (number, pointer, count, pointer, count)
        self.library, self.process = library, process
        self.lock = threading.Lock()
        self._handle: int = library.writes_open()
        if self._handle < 0:
            raise OSError("userfaultfd")
        self.pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self._watches: WeakSet[WriteWatch] = WeakSet()
        self._given_up: deque[Array] = deque()

    def watch(self, pieces: Sequence[MemoryRange]) -> WriteWatch | None:
        """A watch over writes from now on; None if a piece is not memory of this process alone."""
        ranges = [pages for pages in map(_whole_pages, dict.fromkeys(pieces)) if pages is not None]
        if not _are_own(ranges):
            return None
        watch = WriteWatch(self, np.array(ranges, np.int64).reshape(-1, 2))
        finalize(watch, self.give_up, watch.ranges).atexit = False
        with self.lock:
            self._watches.add(watch)
            armed = all(self._arm(watch, start, end) for start, end in ranges)
        self.tidy()
        if not armed:
            return None
        watch.compare([edge for piece in dict.fromkeys(pieces) for edge in _edges(piece)])
        return watch

    def _arm(self, watch: WriteWatch, start: int, end: int) -> bool:
        """Protect pages. What was written to them before is news for others that watch them."""
        if self.library.writes_register(self._handle, start, end, 1):
            return False
        found = np.zeros((_ROOM, 3), np.int64)
        reached = ctypes.c_int64(start)
        while reached.value < end:
            count = self.library.writes_protect(
                self.pagemap, reached.value, end, found.ctypes.data, _ROOM, ctypes.byref(reached)
            )
            if count < 0:
                return False
            for other in self._watches:
                other.stale |= other is not watch and _meet(other.ranges, found[:count, :2])
        return True

    def give_up(self, ranges: Array) -> None:
        """Stop to watch pages that nobody else watches, now or when the kernel is free to be asked."""
        if os.getpid() == self.process:
            self._given_up.append(ranges)
            self.tidy()

    def tidy(self) -> None:
        """Do what is left to do for watches that are gone. These may go at any moment, also while the lock is held."""
        while self._given_up and self.lock.acquire(blocking=False):
            try:
                with suppress(IndexError):
                    ranges = self._given_up.popleft()
                    held = _joined((start, end) for each in self._watches for start, end in each.ranges.tolist())
                    for start, end in ranges.tolist():
                        for gap in _gaps(start, end, held):
                            self.library.writes_register(self._handle, *gap, 0)
            finally:
                self.lock.release()


class WriteWatch:
    """Pieces of memory since a moment: whether they hold the same bytes still."""

    def __init__(self, owner: Writes, ranges: Array) -> None:
        self._owner, self.ranges = owner, ranges
        self.stale = False
        """Whether pages were written and then protected again for another watch."""
        self._copied = np.zeros(0, np.uint8)
        self._copies = np.zeros((0, 3), np.int64)
        self._places = (ranges.ctypes.data, len(ranges), 0, 0)

    def compare(self, edges: Sequence[MemoryRange]) -> None:
        """Copy these, to be compared from now on."""
        sizes = [end - start for start, end in edges]
        starts = np.cumsum([0, *sizes])
        self._copied = np.empty(starts[-1], np.uint8)
        place = self._copied.ctypes.data
        self._copies = np.array(
            [(start, place + at, size) for (start, _), at, size in zip(edges, starts, sizes, strict=False)], np.int64
        ).reshape(-1, 3)
        for now, then, size in self._copies.tolist():
            ctypes.memmove(then, now, size)
        self._places = (*self._places[:2], self._copies.ctypes.data, len(self._copies))

    def changed(self) -> bool:
        """Whether there was a write, or the memory is another one. A child process always hears yes."""
        owner = self._owner
        if os.getpid() != owner.process:
            return True
        with owner.lock:
            found = self.stale or bool(owner.library.writes_seen(owner.pagemap, *self._places))
        owner.tidy()
        return found


# --- pieces and pages


def _whole_pages(piece: MemoryRange) -> MemoryRange | None:
    """The pages that a piece has for itself; None if it is too small to ask for them."""
    start, end = -(-piece[0] // _PAGE) * _PAGE, piece[1] // _PAGE * _PAGE
    return (start, end) if end - start >= _SMALL else None


def _edges(piece: MemoryRange) -> list[MemoryRange]:
    """What is left of a piece beside its whole pages: all of a small one."""
    pages = _whole_pages(piece)
    parts = [piece] if pages is None else [(piece[0], pages[0]), (pages[1], piece[1])]
    return [(start, end) for start, end in parts if start < end]


def _are_own(ranges: Sequence[MemoryRange]) -> bool:
    """Whether all of these lie in private memory that is no file's."""
    if not ranges:
        return True
    lines = _OWN_MEMORY.findall(Path("/proc/self/maps").read_text())
    own = _joined((int(start, 16), int(end, 16)) for start, end in lines)
    return not any(True for start, end in ranges for _ in _gaps(start, end, own))


def _joined(pieces: Iterable[MemoryRange]) -> list[MemoryRange]:
    """The same memory in pieces that do not touch, in order."""
    joined: list[MemoryRange] = []
    for start, end in sorted(pieces):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _gaps(start: int, end: int, held: Sequence[MemoryRange]) -> Iterator[MemoryRange]:
    """What a stretch has that none of `held`, which are joined, has."""
    for first, last in held[bisect_right(held, start, key=itemgetter(1)) :]:
        if first >= end:
            break
        if start < first:
            yield start, first
        start = last
    if start < end:
        yield start, end


def _meet(some: Array, others: Array) -> bool:
    """Whether two lists of stretches have a byte in common."""
    return bool(((some[:, None, 0] < others[None, :, 1]) & (others[None, :, 0] < some[:, None, 1])).any())
