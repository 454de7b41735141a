"""Device memory: few large blocks, of which tensors get spans. A span is free again when nobody refers to it."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import Any

from assay.errors import OutOfMemory
from assay.memory import check_room
from assay.targets.vulkan import api
from assay.targets.vulkan.api import Api, flags, struct

ALIGNMENT = 256
"""Bytes; spans begin at multiples of it, which every device takes as the begin of a storage buffer."""
BLOCK = 32 << 20
"""Bytes of a block; what is larger has a block of its own."""
_SPARE = 64
"""Bytes behind the last span of a block: some drivers read beyond the end."""
_KEPT = 256 << 20
"""Free blocks are kept up to so many bytes."""


_SERIALS = itertools.count()
"""Numbers of blocks: Vulkan may give the handle of a block that is gone to a new one."""


class Block:
    """An allocation of Vulkan's with one buffer over all of it, and its free ranges in order.

    The garbage collector lets spans go at any moment, also while a range is taken. So a span that goes is only noted in
    `returned`; whoever holds the memory's lock makes it a free range.
    """

    def __init__(self, memory: DeviceMemory, size: int) -> None:
        functions, device = memory.functions, memory.device
        self.size, self.serial = size, next(_SERIALS)
        info = struct("BufferCreateInfo", size=size, usage=memory.usage)
        self.buffer = api.created(functions.CreateBuffer, device, info)
        needs = struct("MemoryRequirements")
        functions.GetBufferMemoryRequirements(device, self.buffer, ctypes.byref(needs))
        extra = {}
        if memory.addressed:
            extra["pNext"] = struct("MemoryAllocateFlagsInfo", flags=flags("MEMORY_ALLOCATE_DEVICE_ADDRESS"))
        wanted = struct("MemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=memory.kind, **extra)
        try:
            self.memory = api.created(functions.AllocateMemory, device, wanted)
        except OutOfMemory:
            functions.DestroyBuffer(device, self.buffer, None)
            raise
        functions.BindBufferMemory(device, self.buffer, self.memory, 0)
        self.address = self.pointer = 0
        if memory.addressed:
            where = struct("BufferDeviceAddressInfo", buffer=self.buffer)
            self.address = functions.GetBufferDeviceAddress(device, ctypes.byref(where))
        if memory.mapped:
            place = ctypes.c_void_p()
            functions.MapMemory(device, self.memory, 0, (1 << 64) - 1, 0, ctypes.byref(place))
            self.pointer = place.value or 0
        self.free: list[tuple[int, int, int]] = [(0, size - _SPARE & -ALIGNMENT, 0)]
        """Begin, size, and the point in time after which nothing of the device touches it."""
        self.returned: deque[tuple[int, int, int]] = deque()
        """Such ranges, not yet among the free ones."""

    @property
    def is_free(self) -> bool:
        """Whether nothing lies in it."""
        self._collect()
        return len(self.free) == 1 and self.free[0][1] == self.size - _SPARE & -ALIGNMENT

    def take(self, size: int) -> tuple[int, int] | None:
        """The lowest place where there is room, and when it is no longer touched; None if there is none."""
        self._collect()
        for at, (begin, length, used) in enumerate(self.free):
            if length >= size:
                self.free[at : at + 1] = [(begin + size, length - size, used)] if length > size else []
                return begin, used
        return None

    def room(self) -> int:
        """The bytes of all free ranges."""
        self._collect()
        return sum(length for _, length, _ in self.free)

    def _collect(self) -> None:
        """What was returned is free again; neighbours are joined."""
        if not self.returned:
            return
        while self.returned:
            insort(self.free, self.returned.popleft())
        joined: list[tuple[int, int, int]] = []
        for start, length, until in self.free:
            if joined and joined[-1][0] + joined[-1][1] == start:
                first, before, earlier = joined[-1]
                joined[-1] = (first, before + length, max(earlier, until))
            else:
                joined.append((start, length, until))
        self.free = joined


class Span:
    """A range of a block. `used` is the point on the device's timeline after which nothing touches it any more."""

    __slots__ = ("__weakref__", "block", "offset", "size", "used")

    def __init__(self, block: Block, offset: int, size: int, used: int) -> None:
        self.block, self.offset, self.size, self.used = block, offset, size, used

    @property
    def buffer(self) -> int:
        """Vulkan's buffer that it lies in."""
        return self.block.buffer

    @property
    def address(self) -> int:
        """Where the device sees it; 0 if the device has no addresses."""
        return self.block.address + self.offset if self.block.address else 0

    @property
    def pointer(self) -> int:
        """Where the host sees it; 0 if it does not."""
        return self.block.pointer + self.offset if self.block.pointer else 0

    def __del__(self) -> None:
        self.block.returned.append((self.offset, self.size, self.used))


class DeviceMemory:
    """Memory of a device, of one kind. Safe for threads."""

    def __init__(
        self,
        functions: Api,
        device: Any,
        kind: int,
        *,
        mapped: bool,
        addressed: bool,
        hosted: bool,
        largest: int,
        wait: Callable[[int], None],
    ) -> None:
        """`kind` is the memory type; `wait` waits for a point in time; one allocation has `largest` bytes at most.

        Memory that is `hosted` is taken from the host's.
        """
        self.functions, self.device, self.kind = functions, device, kind
        self.mapped, self.addressed, self._largest, self._wait = mapped, addressed, largest, wait
        self._hosted = hosted
        usage = flags("BUFFER_USAGE_STORAGE_BUFFER", "BUFFER_USAGE_TRANSFER_SRC", "BUFFER_USAGE_TRANSFER_DST")
        usage |= flags("BUFFER_USAGE_UNIFORM_TEXEL_BUFFER")
        self.usage = usage | (flags("BUFFER_USAGE_SHADER_DEVICE_ADDRESS") if addressed else 0)
        self._blocks: list[Block] = []
        self._lock = threading.RLock()
        weakref.finalize(self, _destroy, functions, device, self._blocks, os.getpid())

    @property
    def held(self) -> int:
        """The bytes of all blocks."""
        return sum(block.size for block in self._blocks)

    def span(self, size: int) -> Span:
        """Room for `size` bytes, at the lowest place where there is any; OutOfMemory if the device has none."""
        rounded = max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        with self._lock:
            for block in self._blocks:
                found = block.take(rounded)
                if found is not None:
                    return Span(block, found[0], rounded, found[1])
            block = self._more(rounded)
            found = block.take(rounded)
            assert found is not None
            return Span(block, found[0], rounded, found[1])

    def check(self, size: int) -> None:
        """OutOfMemory if a run that takes `size` bytes needs more than there is."""
        if self._hosted:
            with self._lock:
                room = sum(block.room() for block in self._blocks)
            check_room(size - room, "this run")

    def _more(self, size: int) -> Block:
        wanted = max(BLOCK, size + ALIGNMENT)
        if self._hosted:
            check_room(wanted, "this run")
        if wanted > self._largest:
            raise OutOfMemory(f"a piece of {size} bytes is more than the Vulkan device allocates at once")
        self._trim(_KEPT)
        try:
            block = Block(self, wanted)
        except OutOfMemory:
            self._trim(0)
            block = Block(self, size + ALIGNMENT)
        self._blocks.append(block)
        return block

    def _trim(self, kept: int) -> None:
        """Give blocks back that are free, but for so many bytes."""
        free = [block for block in self._blocks if block.is_free]
        while sum(block.size for block in free) > kept:
            block = free.pop()
            self._wait(block.free[0][2])
            self._blocks.remove(block)
            _destroy(self.functions, self.device, [block], os.getpid())


def _destroy(functions: Api, device: Any, blocks: list[Block], process: int) -> None:
    """Give blocks back; in a child of the process, which has not got the device, they are only forgotten."""
    if os.getpid() != process:
        return
    for block in blocks:
        functions.DestroyBuffer(device, block.buffer, None)
        functions.FreeMemory(device, block.memory, None)
