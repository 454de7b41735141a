"""Recordings: a run's dispatches in command buffers that can be handed in again, with barriers where data flows."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from assay.errors import LimitExceeded
from assay.targets.vulkan import api
from assay.targets.vulkan.api import constant, flags, struct
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.memory import Span
from assay.targets.vulkan.pipelines import Pipeline, Pipelines
from assay.targets.vulkan.templates import Template

_TOGETHER, _BYTES = 16, 8 << 20
"""The most dispatches of a command buffer, and about how many bytes they touch: a run that may be stopped hands in one
after the other."""
_REACH = 4
"""Bytes that a descriptor reaches at least, even those of tensors without elements."""


class BufferPiece(NamedTuple):
    """A part of a span: where a buffer of the plan lies."""

    span: Span
    offset: int
    size: int


class MemoryPlace(NamedTuple):
    """An operand: a piece, the element of it that the operand begins with, and the bytes of an element."""

    piece: BufferPiece
    first: int
    width: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A call of a kernel for given sizes; the last `writes` operands are written."""

    template: Template
    operands: tuple[MemoryPlace, ...]
    numbers: tuple[int, ...]
    writes: int


class _Hazards:
    """What dispatches since the latest barrier read and write."""

    def __init__(self) -> None:
        self._read: list[tuple[int, int, int]] = []
        self._written: list[tuple[int, int, int]] = []

    def note(self, reads: Sequence[BufferPiece], writes: Sequence[BufferPiece]) -> bool:
        """Note a dispatch; whether a barrier must come before it."""
        read, written = [_range(each) for each in reads], [_range(each) for each in writes]
        waits = any(
            _meet(a, b)
            for ours, theirs in ((read, self._written), (written, self._read), (written, self._written))
            for a in ours
            for b in theirs
        )
        if waits:
            self._read, self._written = [], []
        self._read += read
        self._written += written
        return waits


def _range(piece: BufferPiece) -> tuple[int, int, int]:
    begin = piece.span.offset + piece.offset
    return piece.span.buffer, begin, begin + max(piece.size, _REACH)


def _meet(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


class Recording:
    """Dispatches that were recorded for memory at given places. It does not keep that memory: who submits it does."""

    def __init__(
        self,
        device: VulkanDevice,
        pipelines: Pipelines,
        dispatches: Sequence[Dispatch],
        *,
        cleared: BufferPiece | None = None,
        timed: bool = False,
    ) -> None:
        """`cleared` is set to 0 first. If `timed`, the time is noted before each dispatch and after the last."""
        self._device = device
        self._pipelines = [pipelines.get(each.template, _by_address(device, each)) for each in dispatches]
        self._count = len(dispatches)
        self._buffered = self._argument_buffer(dispatches)
        self._pool = self._descriptor_pool()
        self._sets = self._descriptor_sets(dispatches)
        self._queries = 0
        if timed:
            kind = constant("QUERY_TYPE_TIMESTAMP")
            self._queries = device.made("QueryPool", queryType=kind, queryCount=len(dispatches) + 1)
        self.barriers = 0
        self._starts = _starts(dispatches)
        self.commands = self._recorded(dispatches, cleared)
        self._used = [0]
        """The point of the latest run, shared with the finalizer."""
        weakref.finalize(self, _free, device, self.commands, self._pool, self._queries, self._used).atexit = False

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
        count = self._count + 1
        ticks = (ctypes.c_uint64 * count)()
        wait = flags("QUERY_RESULT_64", "QUERY_RESULT_WAIT")
        device = self._device
        device.api.GetQueryPoolResults(device.handle, self._queries, 0, count, 8 * count, ctypes.byref(ticks), 8, wait)
        scale = device.profile.timestamp_ns * 1e-9
        return [(after - before) * scale for before, after in pairwise(ticks)]

    # --- arguments that are no push constants

    def _argument_buffer(self, dispatches: Sequence[Dispatch]) -> tuple[Span, list[int]] | None:
        """The arguments that are too long, one after the other, and where those of each dispatch begin."""
        starts: list[int] = []
        data = bytearray()
        for pipeline, dispatch in zip(self._pipelines, dispatches, strict=True):
            starts.append(len(data))
            if not pipeline.arguments.direct:
                packed = _packed(pipeline, dispatch)
                data += packed + b"\0" * (-len(packed) % 256)
        if not data:
            return None
        span = self._device.shared.span(len(data))
        self._device.wait(span.used)
        ctypes.memmove(span.pointer, bytes(data), len(data))
        return span, starts

    def _descriptor_pool(self) -> int:
        sets = [each.arguments.bindings for each in self._pipelines if each.arguments.bindings]
        if not sets:
            return 0
        size = struct("DescriptorPoolSize", type=constant("DESCRIPTOR_TYPE_STORAGE_BUFFER"), descriptorCount=sum(sets))
        return self._device.made("DescriptorPool", maxSets=len(sets), poolSizeCount=1, pPoolSizes=size)

    def _descriptor_sets(self, dispatches: Sequence[Dispatch]) -> Any:
        """A set for each dispatch that has descriptors, all made and filled at once."""
        bound = [at for at, each in enumerate(self._pipelines) if each.descriptors]
        self._set_of = {at: index for index, at in enumerate(bound)}
        made = (ctypes.c_uint64 * len(bound))()
        if not bound:
            return made
        device = self._device
        wanted = struct(
            "DescriptorSetAllocateInfo",
            descriptorPool=self._pool,
            descriptorSetCount=len(bound),
            pSetLayouts=api.array("u64", [self._pipelines[at].descriptors for at in bound]),
        )
        device.api.AllocateDescriptorSets(device.handle, ctypes.byref(wanted), ctypes.byref(made))
        reached = [[_range(piece) for piece in self._bound_pieces(at, dispatches[at])] for at in bound]
        listed = api.array("u64", [word for each in reached for buffer, a, b in each for word in (buffer, a, b - a)])
        writes, first = (api.STRUCTS["VkWriteDescriptorSet"] * len(bound))(), ctypes.addressof(listed)
        usual = struct("WriteDescriptorSet", descriptorType=constant("DESCRIPTOR_TYPE_STORAGE_BUFFER"))
        for write, target, each in zip(writes, made, reached, strict=True):
            write.sType, write.descriptorType = usual.sType, usual.descriptorType
            write.dstSet, write.descriptorCount, write.pBufferInfo = target, len(each), first
            first += len(each) * ctypes.sizeof(api.STRUCTS["VkDescriptorBufferInfo"])
        device.api.UpdateDescriptorSets(device.handle, len(bound), ctypes.byref(writes), 0, None)
        return made

    def _bound_pieces(self, at: int, dispatch: Dispatch) -> list[BufferPiece]:
        """What the descriptors of a dispatch point to."""
        pieces, arguments = [place.piece for place in dispatch.operands], self._pipelines[at].arguments
        if not arguments.direct:
            assert self._buffered is not None
            span, starts = self._buffered
            pieces.append(BufferPiece(span, starts[at], arguments.size))
        return pieces

    # --- commands

    def _recorded(self, dispatches: Sequence[Dispatch], cleared: BufferPiece | None) -> list[int]:
        """Command buffers that do all of it, one after the other."""
        hazards, made = _Hazards(), list[int]()
        for first, end in pairwise((*self._starts, len(dispatches))):

            def record(commands: int, first: int = first, end: int = end) -> None:
                if first == 0:
                    self._prepare(commands, cleared)
                for at in range(first, end):
                    self._dispatch(commands, at, dispatches[at], hazards)
                if end == len(dispatches):
                    self._stamp(commands, end)
                    self._device.reveal(commands)

            made.append(self._device.commands(record))
        return made

    def _prepare(self, commands: int, cleared: BufferPiece | None) -> None:
        device, functions = self._device, self._device.api
        device.barrier(commands)
        if cleared is not None:
            functions.CmdFillBuffer(
                commands, cleared.span.buffer, cleared.span.offset + cleared.offset, cleared.size, 0
            )
            device.barrier(commands)
        if self._queries:
            functions.CmdResetQueryPool(commands, self._queries, 0, self._count + 1)

    def _stamp(self, commands: int, at: int) -> None:
        if self._queries:
            stage = flags("PIPELINE_STAGE_BOTTOM_OF_PIPE")
            self._device.api.CmdWriteTimestamp(commands, stage, self._queries, at)

    def _dispatch(self, commands: int, at: int, dispatch: Dispatch, hazards: _Hazards) -> None:
        pieces = [place.piece for place in dispatch.operands]
        cut = len(pieces) - dispatch.writes
        if hazards.note(pieces[:cut], pieces[cut:]):
            self._device.barrier(commands)
            self.barriers += 1
        self._stamp(commands, at)
        pipeline = self._pipelines[at]
        functions, arguments = self._device.api, pipeline.arguments
        bind = constant("PIPELINE_BIND_POINT_COMPUTE")
        functions.CmdBindPipeline(commands, bind, pipeline.handle)
        if arguments.direct:
            pushed = _packed(pipeline, dispatch)
        else:
            assert self._buffered is not None
            span, starts = self._buffered
            pushed = (span.address + starts[at]).to_bytes(8, "little") if arguments.addresses else b""
        if pushed:
            stage = flags("SHADER_STAGE_COMPUTE")
            functions.CmdPushConstants(commands, pipeline.layout, stage, 0, len(pushed), pushed)
        if pipeline.descriptors:
            chosen = ctypes.byref(self._sets, 8 * self._set_of[at])
            functions.CmdBindDescriptorSets(commands, bind, pipeline.layout, 0, 1, chosen, 0, None)
        rows, cols = dispatch.numbers[:2]
        functions.CmdDispatch(commands, dispatch.template.groups(self._device.profile, rows * cols), 1, 1)


def _starts(dispatches: Sequence[Dispatch]) -> list[int]:
    """The dispatches that command buffers begin with."""
    starts, touched = [0], 0
    for at, dispatch in enumerate(dispatches):
        if at - starts[-1] >= _TOGETHER or touched >= _BYTES:
            starts.append(at)
            touched = 0
        touched += sum(place.piece.size for place in dispatch.operands)
    return starts


def _packed(pipeline: Pipeline, dispatch: Dispatch) -> bytes:
    if pipeline.arguments.addresses:
        places = [piece.span.address + piece.offset + first * width for piece, first, width in dispatch.operands]
    else:
        places = [first for _, first, _ in dispatch.operands]
    return pipeline.arguments.packed(places, dispatch.numbers)


def _by_address(device: VulkanDevice, dispatch: Dispatch) -> bool:
    """Whether operands are given by address: as the device likes it, or because descriptors do not reach far enough."""
    profile = device.profile
    largest = max((place.piece.size for place in dispatch.operands), default=0)
    if largest <= profile.storage_range:
        return profile.addresses
    if profile.addresses_allowed:
        return True
    raise LimitExceeded(
        f"a tensor of {largest} bytes is more than the device reaches at once ({profile.storage_range})"
    )


def _free(device: Any, commands: Sequence[int], pool: int, queries: int, used: list[int]) -> None:
    for each in commands:
        device.free_commands(each, used[0])
    if pool:
        device.api.DestroyDescriptorPool(device.handle, pool, None)
    if queries:
        device.api.DestroyQueryPool(device.handle, queries, None)
