"""Recordings: a run's dispatches in command buffers that can be handed in again, with barriers where data flows."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from assay.errors import LimitExceeded
from assay.ir.graph import Node
from assay.targets.shared.views import Storage
from assay.targets.vulkan.api import constant, flags
from assay.targets.vulkan.descriptors import DescriptorSets
from assay.targets.vulkan.device import Commands, VulkanDevice
from assay.targets.vulkan.memory import Span
from assay.targets.vulkan.pipelines import Pipeline, Pipelines
from assay.targets.vulkan.templates import Template

_TOGETHER, _BYTES = 16, 8 << 20
"""The most dispatches of a command buffer, and about how many bytes they touch: a run that may be stopped hands in one
after the other."""
_LEAST = 4
"""Bytes that a descriptor reaches at least, even those of tensors without elements."""


class StorageRange(NamedTuple):
    """Where a storage lies: the range of a buffer, and where the device sees its begin."""

    buffer: int
    begin: int
    end: int
    address: int

    def part(self, offset: int, size: int) -> StorageRange:
        """A part of it."""
        buffer, begin, _, address = self
        begin += offset
        return StorageRange(buffer, begin, begin + (size if size > _LEAST else _LEAST), address + offset)


def region(span: Span) -> StorageRange:
    """All of a span."""
    return StorageRange(span.buffer, span.offset, span.offset + span.size, span.address)


class KernelCall(NamedTuple):
    """A call of a kernel for given sizes, in so many workgroups; the last `writes` operands are written.

    An operand is a storage and its element that the operand begins with.
    """

    template: Template
    pipeline: Pipeline
    storages: tuple[Storage, ...]
    firsts: tuple[int, ...]
    numbers: tuple[int, ...]
    groups: int
    writes: int
    nodes: tuple[Node, ...]


class _Hazards:
    """What dispatches since the latest barrier read and write."""

    def __init__(self) -> None:
        self._touched: list[StorageRange] = []
        self._written: list[StorageRange] = []

    def note(self, regions: Sequence[StorageRange], writes: int) -> bool:
        """Note a dispatch, which writes its last regions; whether a barrier must come before it."""
        cut = len(regions) - writes
        read, written = regions[:cut], regions[cut:]
        waits = _meet(read, self._written) or _meet(written, self._touched)
        if waits:
            self._touched, self._written = [], []
        self._touched += regions
        self._written += written
        return waits


def _meet(ours: Sequence[StorageRange], theirs: Sequence[StorageRange]) -> bool:
    for buffer, begin, end, _ in theirs:
        for own in ours:
            if own[0] == buffer and own[1] < end and begin < own[2]:
                return True
    return False


class Recording:
    """Calls that were recorded for memory at given places. It does not keep that memory: who submits it does."""

    def __init__(
        self,
        device: VulkanDevice,
        pipelines: Pipelines,
        calls: Sequence[KernelCall],
        regions: Mapping[Storage, StorageRange],
        *,
        cleared: StorageRange | None = None,
        timed: bool = False,
        stoppable: bool = False,
    ) -> None:
        """`cleared` is set to 0 first. If `timed`, the time is noted before each dispatch and after the last. One that
        is `stoppable` can be handed in piece by piece."""
        self._device, self._calls = device, calls
        self._operands = [[regions[storage] for storage in call.storages] for call in calls]
        largest = max(each.end - each.begin for each in regions.values())
        self._pipelines = [call.pipeline for call in calls]
        if largest > device.profile.storage_range:
            self._pipelines = _far_reaching(device, pipelines, calls, self._operands)
        self._buffered = self._argument_buffer()
        self._bound = [at for at, each in enumerate(self._pipelines) if each.descriptors]
        self._sets = self._descriptors()
        self._queries = 0
        if timed:
            kind = constant("QUERY_TYPE_TIMESTAMP")
            self._queries = device.made("QueryPool", queryType=kind, queryCount=len(calls) + 1)
        self.barriers = 0
        self._starts = _starts(self._operands) if stoppable else [0]
        self.commands = self._recorded(cleared)
        self._used = [0]
        """The point of the latest run, shared with the finalizer."""
        weakref.finalize(self, _free, device, self.commands, self._sets, self._queries, self._used).atexit = False

    def submit(self, spans: Sequence[Span], before: Callable[[int], None] | None = None) -> int:
        """Run; `spans` are those that dispatches touch. The point on the timeline at which it is done.

        If there is `before`, it is called with the number of the next dispatch now and then, when those before have
        run. What it raises ends the run.
        """
        touched = spans if self._buffered is None else [*spans, self._buffered[0]]
        if before is None:
            self._used[0] = self._device.submit(self.commands, touched)
            return self._used[0]
        for first, commands in zip(self._starts, self.commands, strict=True):
            self._device.wait(self._used[0])
            before(first)
            self._used[0] = self._device.submit([commands], touched)
        return self._used[0]

    def seconds(self) -> list[float]:
        """How long each dispatch of the latest run took; waits for it."""
        count = len(self._calls) + 1
        ticks = (ctypes.c_uint64 * count)()
        wait = flags("QUERY_RESULT_64", "QUERY_RESULT_WAIT")
        device = self._device
        device.api.GetQueryPoolResults(device.handle, self._queries, 0, count, 8 * count, ctypes.byref(ticks), 8, wait)
        scale = device.profile.timestamp_ns * 1e-9
        return [(after - before) * scale for before, after in pairwise(ticks)]

    # --- what kernels are told

    def _told(self, at: int) -> bytes:
        call, arguments = self._calls[at], self._pipelines[at].arguments
        if not arguments.addresses:
            return arguments.packed(call.firsts, call.numbers)
        parts = zip(self._operands[at], call.firsts, call.template.operands, strict=True)
        places = [place.address + first * dtype.numpy.itemsize for place, first, dtype in parts]
        return arguments.packed(places, call.numbers)

    def _argument_buffer(self) -> tuple[Span, dict[int, int]] | None:
        """The arguments that are too long for push constants, and where those of each dispatch begin."""
        starts: dict[int, int] = {}
        data = bytearray()
        for at, pipeline in enumerate(self._pipelines):
            if not pipeline.arguments.direct:
                starts[at] = len(data)
                packed = self._told(at)
                data += packed + b"\0" * (-len(packed) % 256)
        if not data:
            return None
        span = self._device.shared.span(len(data))
        self._device.wait(span.used)
        ctypes.memmove(span.pointer, bytes(data), len(data))
        return span, starts

    def _descriptors(self) -> DescriptorSets | None:
        if not self._bound:
            return None
        reached = [self._operands[at] for at in self._bound]
        if self._buffered is not None:
            starts, whole = self._buffered[1], region(self._buffered[0])
            sizes = [each.arguments.size for each in self._pipelines]
            reached = [
                [*places, whole.part(starts[at], sizes[at])] if at in starts else places
                for places, at in zip(reached, self._bound, strict=True)
            ]
        bound = [self._pipelines[at] for at in self._bound]
        return DescriptorSets(self._device, bound, reached)

    # --- commands

    def _recorded(self, cleared: StorageRange | None) -> list[Commands]:
        """Command buffers that do all of it, one after the other."""
        hazards, made, count = _Hazards(), list[Commands](), len(self._calls)
        for first, end in pairwise((*self._starts, count)):

            def record(commands: Commands, first: int = first, end: int = end) -> None:
                if first == 0:
                    self._prepare(commands, cleared)
                self._dispatch(commands, first, end, hazards)
                if end == count:
                    self._stamp(commands, end)
                    self._device.reveal(commands)

            made.append(self._device.commands(record))
        return made

    def _prepare(self, commands: Commands, cleared: StorageRange | None) -> None:
        device, functions = self._device, self._device.api
        device.barrier(commands)
        if cleared is not None:
            functions.CmdFillBuffer(commands, cleared.buffer, cleared.begin, cleared.end - cleared.begin, 0)
            device.barrier(commands)
        if self._queries:
            functions.CmdResetQueryPool(commands, self._queries, 0, len(self._calls) + 1)

    def _stamp(self, commands: Commands, at: int) -> None:
        if self._queries:
            stage = flags("PIPELINE_STAGE_BOTTOM_OF_PIPE")
            self._device.api.CmdWriteTimestamp(commands, stage, self._queries, at)

    def _dispatch(self, commands: Commands, first: int, end: int, hazards: _Hazards) -> None:
        device, raw, sets = self._device, self._device.raw, self._sets
        compute, stage = constant("PIPELINE_BIND_POINT_COMPUTE"), flags("SHADER_STAGE_COMPUTE")
        bind, push, bind_sets, dispatch = (
            raw.CmdBindPipeline,
            raw.CmdPushConstants,
            raw.CmdBindDescriptorSets,
            raw.CmdDispatch,
        )
        number = {at: index for index, at in enumerate(self._bound)}
        latest: Pipeline | None = None
        for at in range(first, end):
            call, pipeline = self._calls[at], self._pipelines[at]
            if hazards.note(self._operands[at], call.writes):
                device.barrier(commands)
                self.barriers += 1
            if self._queries:
                self._stamp(commands, at)
            if pipeline is not latest:
                bind(commands, compute, pipeline.handle)
                latest = pipeline
            pushed = self._told(at) if pipeline.arguments.direct else self._told_where(at)
            if pushed:
                push(commands, pipeline.layout, stage, 0, len(pushed), pushed)
            if sets is not None and at in number:
                bind_sets(commands, compute, pipeline.layout, 0, 1, sets.reference(number[at]), 0, None)
            dispatch(commands, call.groups, 1, 1)

    def _told_where(self, at: int) -> bytes:
        """The address of the arguments in their buffer, if they are reached by address."""
        assert self._buffered is not None
        span, starts = self._buffered
        by_address = self._pipelines[at].arguments.addresses
        return (span.address + starts[at]).to_bytes(8, "little") if by_address else b""


def _starts(operands: Sequence[Sequence[StorageRange]]) -> list[int]:
    """The dispatches that command buffers begin with."""
    starts, touched = [0], 0
    for at, regions in enumerate(operands):
        if at - starts[-1] >= _TOGETHER or touched >= _BYTES:
            starts.append(at)
            touched = 0
        touched += sum(each.end - each.begin for each in regions)
    return starts


def _far_reaching(
    device: VulkanDevice, pipelines: Pipelines, calls: Sequence[KernelCall], operands: Sequence[Sequence[StorageRange]]
) -> list[Pipeline]:
    """The calls' pipelines, of those that reach memory by address where descriptors do not reach far enough."""
    reach = device.profile.storage_range
    largest = [max((each.end - each.begin for each in regions), default=0) for regions in operands]
    if max(largest) > reach and not device.profile.addresses_allowed:
        raise LimitExceeded(f"a tensor of {max(largest)} bytes is more than the device reaches at once ({reach})")
    return [
        pipelines.get(call.template, addresses=True) if size > reach else call.pipeline
        for call, size in zip(calls, largest, strict=True)
    ]


def _free(
    device: VulkanDevice, commands: Sequence[Commands], sets: DescriptorSets | None, queries: int, used: list[int]
) -> None:
    for each in commands:
        device.free_commands(each, used[0])
    if sets is not None:
        sets.free()
    if queries:
        device.api.DestroyQueryPool(device.handle, queries, None)
