"""Native code that runs: the tables of a tape over constants, inputs and memory for results."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.errors import OutOfMemory, RunFailed
from assay.ir.dtypes import Array, address, read_only
from assay.memory import are_lasting, check_room
from assay.targets.base import Executable, Observer, Run
from assay.targets.budget import Allowance
from assay.targets.cpu.growing import CachePlaces, Extent, Growing
from assay.targets.cpu.inputs import Inputs
from assay.targets.cpu.machine import (
    MACHINE,
    TOO_LITTLE,
    Frame,
    ResultLayout,
    ResultPlace,
    ResultSlots,
    TapeTables,
    typed,
)
from assay.targets.grown import GrownTensor, Room
from assay.targets.shared.artifacts import Kernel
from assay.targets.threads import Threads

if TYPE_CHECKING:
    from assay.ir.graph import Node
    from assay.targets.cpu.toolchain import Toolchain

_LINE = 64
"""Bytes; results begin at multiples of it."""
_POPULATE = 23
"""MADV_POPULATE_WRITE, which Python has no name for: have the pages of memory ready (Linux 5.14)."""
_AT_ONCE, _PATIENCE = 16 << 20, 0.008
"""Bytes whose pages are asked for at once, and seconds that this may take in large pages; small ones take a third."""
_UNREAD = read_only(np.empty(0, np.uint8))
"""What stands for an input that a run does not look at."""


class RunError(NamedTuple):
    """What is wrong if a kernel reports it: the op, what it says, and where the op is from."""

    op: str
    message: str
    origin: str


@dataclass(frozen=True)
class NativeCode:
    """A planned segment as plain data. Kernels are numbered from 1 on in the tables; `sources` say which axis of which
    input each symbol is the size of; `addressed` are the inputs that are read by address alone."""

    inputs: int
    kernels: tuple[Kernel, ...]
    tables: TapeTables
    sources: tuple[tuple[int, int], ...]
    addressed: tuple[int, ...]
    results: ResultSlots
    caches: CachePlaces | None
    errors: tuple[RunError, ...]
    limit: int

    @property
    def symbols(self) -> int:
        """How many sizes a run is given: with caches, two more than its inputs tell."""
        return len(self.sources) + (0 if self.caches is None else 2)


class NativeExecutable:
    """Native code over its constants. Threads may run it at the same time: each run has a frame of its own."""

    def __init__(self, code: NativeCode, constants: Sequence[Array], toolchain: Toolchain, threads: Threads) -> None:
        self.code, self.constants, self._threads = code, constants, threads
        machine, *libraries = toolchain.load([MACHINE, *code.kernels])
        self._machine = typed(machine)
        found = [ctypes.cast(library.kernel, ctypes.c_void_p).value or 0 for library in libraries]
        self._tables = code.tables.linked(found)
        self._tape = ctypes.byref(self._tables.header(code.symbols, len(code.errors), code.limit))
        self._growing = None if code.caches is None else Growing(code.caches)
        self._addresses = [0] * code.inputs + [address(array) for array in constants] + [0] * code.results.blocks
        self.addressed = set(code.addressed)
        self._given: list[Any] = [None] * code.inputs
        """What is given for all runs; None for what each run is given."""
        self._open: Sequence[int] = range(code.inputs)
        self._begin()

    def _begin(self) -> None:
        self._inputs = Inputs()
        self._frames: list[Frame] = []
        self._lock = threading.Lock()

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        """The same tape over these inputs, whose addresses in memory are noted once."""
        bound = copy(self)
        bound._begin()
        ordered = bound._inputs.dense(list(statics.values()))
        dense = dict(zip([self._open[at] for at in statics], ordered, strict=True))
        addresses = dict(zip(dense, bound._inputs.addresses(ordered), strict=True))
        bound._given = [dense.get(at, given) for at, given in enumerate(self._given)]
        bound._open = [at for at in self._open if at not in dense]
        bound._addresses = [addresses.get(at, each) for at, each in enumerate(self._addresses)]
        bound.addressed = {new for new, at in enumerate(bound._open) if self._open.index(at) in self.addressed}
        return bound

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """A run that is over. Its peak is the size of the arena; inputs, constants and results come on top.

        With an observer of more than times, the values of all nodes are computed, each by itself.
        An allowance is looked at between kernels: one that is under way comes to its end.
        """
        bound = len(inputs) < len(self._given)
        given = self._with_given(inputs) if bound else list(inputs)
        symbols = tuple([given[index].shape[axis] for index, axis in self.code.sources])
        extent = self._extent(given, symbols, observer)
        dense = self._inputs.dense([given[at] for at in self._open] if bound else given)
        arrays = self._with_given(dense) if bound else dense
        if observer is not None:
            return self._watched(arrays, symbols, observer, allowance)
        try:
            return self._run(arrays, symbols, extent, None, allowance)
        except OutOfMemory as error:
            raise error.located(self._hungriest(arrays)) from error.__cause__

    @property
    def continued(self) -> dict[int, int]:
        """The inputs that outputs continue, and these, if each run is given them."""
        places = () if self._growing is None else self._growing.places
        open_at = {at: new for new, at in enumerate(self._open)}
        return {open_at[each.input]: each.output for each in places} if all(p.input in open_at for p in places) else {}

    def _extent(self, given: list[Any], symbols: Sequence[int], observer: Observer | None) -> Extent | None:
        """How caches lie in a run; None if there are none to grow. Those that stay where they are need not be read."""
        growing = self._growing
        wanted = growing is not None and observer is None and growing.is_wanted(given)
        extent = growing.taken(given, symbols) if growing is not None and wanted else None
        stays = extent is not None and extent.rooms is not None
        for at, each in enumerate(given):
            if isinstance(each, GrownTensor):
                given[at] = _UNREAD if stays else each.array
        return extent

    def _run(
        self,
        arrays: Sequence[Any],
        symbols: tuple[int, ...],
        extent: Extent | None,
        times: Array | None,
        allowance: Allowance | None = None,
    ) -> tuple[tuple[Any, ...], Run]:
        frame = self._frames.pop() if self._frames else Frame(self._machine, self._tape, self._addresses)
        growing = self._growing
        if growing is not None:
            sizes = extent or growing.dense(symbols)
            symbols = (*symbols, sizes.capacity, sizes.moved)
        layout = frame.fit(symbols, self.code.results)
        if layout.large or allowance is not None:
            self._check_memory(layout, frame, allowance)
        blocks = self._blocks(layout, extent)
        places = [block.place for block in blocks]
        failed = frame.run(self._addresses_of(arrays), places, self._threads(), times, allowance)
        self._frames.append(frame)
        if failed < 0 and allowance is not None:
            raise allowance.stopped(self._next_node(-2 - failed))
        if failed:
            error = self.code.errors[failed - 1]
            raise RunFailed(f"{error.op}: {error.message}", where=error.origin)
        made = len(arrays) + len(self.constants)
        outputs = tuple(
            [
                blocks[out.memory - made].array(out) if out.memory >= made else self._view(out, arrays)
                for out in layout.outputs
            ]
        )
        if extent is not None and growing is not None:
            return self._grown(outputs, blocks, extent, growing), layout.over
        return outputs, layout.over

    def _blocks(self, layout: ResultLayout, extent: Extent | None) -> list[ResultBlock]:
        """Memory for results; that of caches which stay where they are is there."""
        if extent is None or extent.rooms is None or self._growing is None:
            return _memory(layout.blocks, together=are_lasting())
        kept = {each.block: room for each, room in zip(self._growing.places, extent.rooms, strict=True)}
        new = iter(_memory([size for at, size in enumerate(layout.blocks) if at not in kept], together=are_lasting()))
        return [
            ResultBlock(kept[at].memory, kept[at].start, kept[at].place) if at in kept else next(new)
            for at in range(len(layout.blocks))
        ]

    def _grown(
        self, outputs: Sequence[Any], blocks: Sequence[ResultBlock], extent: Extent, growing: Growing
    ) -> tuple[Any, ...]:
        """The outputs, caches as tensors that can be continued."""
        results = list(outputs)
        rooms = extent.rooms
        if rooms is None:
            rooms = [Room(*blocks[each.block], extent.capacity, extent.used) for each in growing.places]
            for each, room in zip(growing.places, rooms, strict=True):
                room.memory.flags.writeable = False
                results[each.output] = read_only(results[each.output])
        for each, room in zip(growing.places, rooms, strict=True):
            results[each.output] = GrownTensor(results[each.output], room)
        return tuple(results)

    def _with_given(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs of a run among those that are given for all runs."""
        arrays = self._given.copy()
        for at, given in zip(self._open, inputs, strict=True):
            arrays[at] = given
        return arrays

    def _addresses_of(self, arrays: Sequence[Any]) -> list[int]:
        """Where the inputs of a run lie: those given for all runs as noted, the others as they lie now."""
        if len(self._open) == len(arrays):
            return self._inputs.addresses(arrays)
        addresses = self._addresses[: len(arrays)]
        for at, now in zip(self._open, self._inputs.addresses([arrays[at] for at in self._open]), strict=True):
            addresses[at] = now
        return addresses

    def _view(self, out: ResultPlace, arrays: Sequence[Any]) -> Array:
        """An output in the memory of an input or a constant."""
        given = len(arrays)
        array = arrays[out.memory] if out.memory < given else self.constants[out.memory - given]
        return ResultBlock(array.reshape(-1).view(np.uint8), 0, 0).array(out)

    def _check_memory(self, layout: ResultLayout, frame: Frame, allowance: Allowance | None) -> None:
        """OutOfMemory if there is less than the run takes, or it may take less."""
        results, arena = sum(layout.blocks), frame.peak()
        check_room(results + max(arena - frame.touched, 0), "this run")
        if allowance is not None:
            allowance.check_memory(results + arena, "")

    def _watched(
        self, arrays: Sequence[Any], symbols: tuple[int, ...], observer: Observer, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        """A run that somebody observes: it takes the plan that the code was made of."""
        raise NotImplementedError("code without its plan cannot be observed")

    def _hungriest(self, arrays: Sequence[Array]) -> str:
        """Where the largest result of a run with these inputs is from; nothing if that is not known."""
        return ""

    def _next_node(self, step: int) -> Node | None:
        """The node that a run would have come to at a step, if that is known."""
        return None


class ResultBlock(NamedTuple):
    """Memory for results: it begins at `start` of `memory`, and at the address `place`."""

    memory: Array
    start: int
    place: int

    def array(self, out: ResultPlace) -> Array:
        """An output that lies in it; one without elements lies nowhere."""
        if 0 in out.shape:
            return np.empty(out.shape, out.dtype)
        return np.ndarray(out.shape, out.dtype, self.memory, self.start + out.offset, out.strides)


def _memory(sizes: Sequence[int], *, together: bool) -> list[ResultBlock]:
    """Memory for results; `together` if all of them last equally long.

    It begins at whole lines of the cache: kernels read what was prepared for them much faster then.
    """
    try:
        return _side_by_side(sizes) if together else [_alone(size) for size in sizes]
    except (MemoryError, OSError) as error:
        raise OutOfMemory(TOO_LITTLE) from error


def _alone(size: int) -> ResultBlock:
    memory = np.empty(size + _LINE, np.uint8)
    found = address(memory)
    start = -found % _LINE
    return ResultBlock(memory, start, found + start)


def _side_by_side(sizes: Sequence[int]) -> list[ResultBlock]:
    """Memory for results that last equally long, those of constants such as packed weights.

    One piece in large pages, which are asked for all at once, is ready much sooner than many that are filled page by
    page, and is read faster.
    """
    starts = [0, *itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes)]
    piece = mmap.mmap(-1, max(starts[-1], 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # an older kernel, or one without large pages
        _populate(piece)
    memory = np.frombuffer(piece, np.uint8)
    found = address(memory)
    return [ResultBlock(memory, start, found + start) for start in starts[:-1]]


def _populate(piece: mmap.mmap) -> None:
    """Have the pages of memory ready: large ones as long as the kernel has them at hand.

    Where memory is in many pieces, or a virtual machine must ask its host for it, more would take their time. The
    kernel may put small ones together later.
    """
    advices = [mmap.MADV_HUGEPAGE, _POPULATE]
    for start in range(0, len(piece), _AT_ONCE):
        started = time.perf_counter()
        for advice in advices:
            piece.madvise(advice, start, min(_AT_ONCE, len(piece) - start))
        if time.perf_counter() - started > _PATIENCE:
            advices = [_POPULATE]
    piece.madvise(mmap.MADV_HUGEPAGE)
