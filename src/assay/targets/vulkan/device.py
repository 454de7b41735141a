"""An open device: its queue with a timeline, its memory, and transfers between that and the host."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.targets.vulkan import api
from assay.targets.vulkan.api import constant, flags, struct
from assay.targets.vulkan.instance import DEVICE, Features, Instance, Physical, choose, memory_type, open_instance
from assay.targets.vulkan.memory import DeviceMemory, Span
from assay.targets.vulkan.profile import Profile, restriction

Commands: TypeAlias = "ctypes.c_void_p"
"""A command buffer."""
_FOREVER = (1 << 64) - 1
_LARGEST = (1 << 32) - (1 << 16)
_HOSTED = ("cpu", "integrated")
"""Kinds of devices whose memory is the host's."""
_HOST = ("MEMORY_PROPERTY_HOST_VISIBLE", "MEMORY_PROPERTY_HOST_COHERENT")


@dataclass(slots=True)
class VulkanBuffer:
    """A tensor in device memory, in row-major order without gaps."""

    span: Span
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.numpy.itemsize


class VulkanDevice:
    """A device that commands are given to, one after the other: each has a point on the timeline when it is done."""

    def __init__(self, instance: Instance, physical: Physical, profile: Profile) -> None:
        self.profile, self.instance = profile, instance
        self.handle = _opened(instance, physical, profile)
        self.api = api.device_api(instance.library, self.handle)
        self.raw = api.RawApi(self.api)
        """The functions that record commands."""
        queue = ctypes.c_void_p()
        self.api.GetDeviceQueue(self.handle, physical.queue_family, 0, ctypes.byref(queue))
        self._queue = queue
        self.lock = threading.RLock()
        """Held while commands are recorded or handed in."""
        self._pool = self.made(
            "CommandPool",
            flags=flags("COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER"),
            queueFamilyIndex=physical.queue_family,
        )
        kind = struct("SemaphoreTypeCreateInfo", semaphoreType=constant("SEMAPHORE_TYPE_TIMELINE"))
        self._timeline = self.made("Semaphore", pNext=kind)
        self._now = self._done = 0
        self._submission = _Submission(self._timeline)
        self._memories(physical)

    def _memories(self, physical: Physical) -> None:
        local = "MEMORY_PROPERTY_DEVICE_LOCAL"
        both, addressed = not self.profile.staged, self.profile.addresses_allowed
        wanted = flags(local, *_HOST) if both else flags(local)
        kind = memory_type(physical.memory, wanted, flags("MEMORY_PROPERTY_HOST_CACHED") if both else 0)
        host = memory_type(physical.memory, flags(*_HOST), flags("MEMORY_PROPERTY_HOST_CACHED"))
        assert kind is not None
        assert host is not None
        common: dict[str, Any] = {"addressed": addressed, "largest": _LARGEST, "wait": self.wait}
        hosted = self.profile.kind in _HOSTED
        self.memory = DeviceMemory(self.api, self.handle, kind, mapped=both, hosted=hosted, **common)
        self.shared = (
            self.memory if both else DeviceMemory(self.api, self.handle, host, mapped=True, hosted=True, **common)
        )
        """Memory that the host reaches too."""

    def made(self, kind: str, **fields: Any) -> int:
        """A new object of Vulkan's."""
        return api.created(getattr(self.api, f"Create{kind}"), self.handle, struct(f"{kind}CreateInfo", **fields))

    # --- commands

    def commands(self, record: Callable[[Commands], None], *, once: bool = False) -> Commands:
        """A command buffer with what `record` puts into it; it may be handed in again and again unless `once`."""
        with self.lock:
            made = ctypes.c_void_p()
            wanted = struct("CommandBufferAllocateInfo", commandPool=self._pool, commandBufferCount=1)
            self.api.AllocateCommandBuffers(self.handle, ctypes.byref(wanted), ctypes.byref(made))
            use = "COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT" if once else "COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE"
            begin = struct("CommandBufferBeginInfo", flags=flags(use))
            self.api.BeginCommandBuffer(made, ctypes.byref(begin))
            record(made)
            self.api.EndCommandBuffer(made)
            return made

    def free_commands(self, commands: Commands, used: int) -> None:
        """Give a command buffer back, after the point `used`; one of a lost device is gone with it."""
        try:
            self.wait(used)
        except api.VulkanFailed:
            return
        with self.lock:
            self.api.FreeCommandBuffers(self.handle, self._pool, 1, ctypes.byref(commands))

    def submit(self, commands: Sequence[Commands], spans: Sequence[Span] = ()) -> int:
        """Hand command buffers in, which touch `spans`; the point on the timeline at which they are done."""
        with self.lock:
            point = self._now + 1
            self.api.QueueSubmit(self._queue, 1, self._submission.of(commands, point), 0)
            self._now = point
            for span in spans:
                span.used = point
            return point

    def wait(self, point: int) -> None:
        """Wait until all that was handed in up to a point is done."""
        if point <= self._done:
            return
        values, timeline = api.array("u64", [point]), api.array("u64", [self._timeline])
        info = struct("SemaphoreWaitInfo", semaphoreCount=1, pSemaphores=timeline, pValues=values)
        self.api.WaitSemaphores(self.handle, ctypes.byref(info), _FOREVER)
        self._done = max(self._done, point)

    def barrier(self, commands: Commands) -> None:
        """All that follows in a command buffer sees what was written before."""
        self.raw.CmdPipelineBarrier(commands, *_FLOW)

    def reveal(self, commands: Commands) -> None:
        """The host sees what was written before, once it has waited."""
        self.raw.CmdPipelineBarrier(commands, *_REVEAL)

    # --- transfers

    def upload(self, array: Array) -> VulkanBuffer:
        """A copy of an array on the device."""
        dense = np.ascontiguousarray(array)
        span = self.memory.span(dense.nbytes)
        made = VulkanBuffer(span, dtypes.of(dense), np.shape(array))
        if dense.nbytes == 0:
            return made
        if span.pointer:
            self._write(span, dense)
            return made
        staging = self.shared.span(dense.nbytes)
        self._write(staging, dense)
        self._copy(staging, span, dense.nbytes)
        return made

    def download(self, buffer: Any) -> Array:
        """A copy of a `VulkanBuffer`'s content for the caller."""
        size, span = buffer.nbytes, buffer.span
        made = np.empty(buffer.shape, buffer.dtype.numpy)
        if size == 0:
            return made
        if not span.pointer:
            span = self.shared.span(size)
            self._copy(buffer.span, span, size)
        self.wait(span.used)
        ctypes.memmove(made.ctypes.data, span.pointer, size)
        return made

    def _write(self, span: Span, dense: Array) -> None:
        self.wait(span.used)
        ctypes.memmove(span.pointer, dense.ctypes.data, dense.nbytes)

    def _copy(self, source: Span, target: Span, size: int) -> None:
        piece = struct("BufferCopy", srcOffset=source.offset, dstOffset=target.offset, size=size)

        def record(commands: Commands) -> None:
            self.barrier(commands)
            self.api.CmdCopyBuffer(commands, source.buffer, target.buffer, 1, ctypes.byref(piece))
            self.reveal(commands)

        commands = self.commands(record, once=True)
        self.free_commands(commands, self.submit([commands], [source, target]))


class _Submission:
    """What is handed in: command buffers, then a point on the timeline. One thread at a time may use it."""

    def __init__(self, timeline: int) -> None:
        self._point = api.array("u64", [0])
        times = struct("TimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._point)
        semaphores = api.array("u64", [timeline])
        self._info = struct("SubmitInfo", pNext=times, signalSemaphoreCount=1, pSignalSemaphores=semaphores)
        self._handles: Any = None

    def of(self, commands: Sequence[Commands], point: int) -> Any:
        """A pointer to it."""
        self._point[0] = point
        self._handles = (ctypes.c_void_p * len(commands))(*commands)
        self._info.commandBufferCount, self._info.pCommandBuffers = len(commands), ctypes.addressof(self._handles)
        return ctypes.byref(self._info)


def _barrier(before: int, after: int, source: int, target: int) -> tuple[Any, ...]:
    """A barrier as its command is told of it."""
    info = struct("MemoryBarrier", srcAccessMask=source, dstAccessMask=target)
    return before, after, 0, 1, ctypes.byref(info), 0, None, 0, None


_STAGES = flags("PIPELINE_STAGE_COMPUTE_SHADER", "PIPELINE_STAGE_TRANSFER")
_READS = flags("ACCESS_SHADER_READ", "ACCESS_TRANSFER_READ")
_WRITES = flags("ACCESS_SHADER_WRITE", "ACCESS_TRANSFER_WRITE")
_FLOW = _barrier(_STAGES, _STAGES, _WRITES, _READS | _WRITES)
_REVEAL = _barrier(_STAGES, flags("PIPELINE_STAGE_HOST"), _WRITES, flags("ACCESS_HOST_READ"))


def _opened(instance: Instance, physical: Physical, profile: Profile) -> int:
    features = Features()
    supported = Features.of(instance.api, physical.handle)
    features.turn_on(frozenset(name for name in _wanted(profile) if supported[name]))
    queue = struct(
        "DeviceQueueCreateInfo",
        queueFamilyIndex=physical.queue_family,
        queueCount=1,
        pQueuePriorities=api.array("f32", [1.0]),
    )
    info = struct("DeviceCreateInfo", pNext=features.whole, queueCreateInfoCount=1, pQueueCreateInfos=queue)
    return api.created(instance.api.CreateDevice, physical.handle, info, "ptr")


def _wanted(profile: Profile) -> frozenset[str]:
    """The features to turn on: those of the profile, so that nothing else works by accident."""
    by_need = {
        "shaderFloat64": profile.f64,
        "shaderInt64": profile.i64 or profile.addresses_allowed,
        "storageBuffer8BitAccess": profile.bytes8,
        "shaderInt8": profile.bytes8,
        "storageBuffer16BitAccess": profile.bytes16,
        "shaderInt16": profile.bytes16,
        "bufferDeviceAddress": profile.addresses_allowed,
        "shaderSubgroupExtendedTypes": profile.subgroup_shuffle,
        "timelineSemaphore": True,
        "subgroupSizeControl": profile.subgroup_sized,
    }
    return frozenset(name for name, needed in by_need.items() if needed)


def chosen_profile() -> Profile:
    """What the device that the environment chooses can do, as far as it is not restricted; Absent without one."""
    return _chosen(os.environ.get(DEVICE, ""), restriction())[1]


def open_device() -> VulkanDevice:
    """The device that the environment chooses, opened once in a process, again if it was lost; Absent without one."""
    name, words = os.environ.get(DEVICE, ""), restriction()
    if _open(name, words).api.lost:
        _open.cache_clear()
    return _open(name, words)


@cache
def _chosen(name: str, words: str) -> tuple[Physical, Profile]:
    physical = choose(open_instance().devices, name)
    return physical, physical.profile.restricted(words)


@cache
def _open(name: str, words: str) -> VulkanDevice:
    return VulkanDevice(open_instance(), *_chosen(name, words))


def _forget() -> None:
    """A child of this process has none of the driver's threads: it opens the device anew."""
    for each in (open_instance, _chosen, _open):
        each.cache_clear()


os.register_at_fork(after_in_child=_forget)
