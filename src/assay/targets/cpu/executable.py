"""A segment made runnable: one call of the machine for all of it."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from assay.errors import LimitExceeded, OutOfMemory, RunFailed
from assay.ir.dtypes import Array, address, read_only
from assay.ir.graph import Graph, Node
from assay.limits import Limits
from assay.memory import LARGE, are_lasting, check_room
from assay.targets.base import Event, Executable, Finished, Observer, Run, Stopwatch
from assay.targets.budget import Allowance
from assay.targets.cpu.growing import Extent, Growing
from assay.targets.cpu.inputs import Inputs
from assay.targets.cpu.registry import KERNELS
from assay.targets.cpu.tape import encode
from assay.targets.cpu.toolchain import Toolchain
from assay.targets.grown import GrownTensor, Room
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.bodies import all_constants
from assay.targets.shared.growth import growth_of
from assay.targets.shared.planner import Planner
from assay.targets.shared.tape import Control
from assay.targets.shared.tensors import hungriest_node
from assay.targets.threads import Threads

_NO_MEMORY, _TOO_LARGE = -1, -2
_TOO_LITTLE = "there is not enough memory to run this"
_LINE = 64
"""Bytes; results begin at multiples of it."""
_POPULATE = 23
"""MADV_POPULATE_WRITE, which Python has no name for: have the pages of memory ready (Linux 5.14)."""
_AT_ONCE, _PATIENCE = 16 << 20, 0.008
"""Bytes whose pages are asked for at once, and seconds that this may take in large pages; small ones take a third."""
_UNREAD = read_only(np.empty(0, np.uint8))
"""What stands for an input that a run does not look at."""
_MACHINE = Kernel('#include "machine.c"\n', entry="frame_run")


class CpuExecutable:
    """A planned segment. Threads may run it at the same time: each run has a frame of its own."""

    def __init__(
        self, graph: Graph, toolchain: Toolchain, limits: Limits, threads: Threads, *, fused: bool = True
    ) -> None:
        self.graph = graph
        self._toolchain, self._limits, self._threads = toolchain, limits, threads
        constants = {value: _strided(array) for value, array in all_constants(graph).items()}
        growth = growth_of(graph, KERNELS) if fused else None
        planner = Planner(graph, constants, limits, KERNELS, fused=fused, growth=growth)
        self._planner = planner
        self._growing = None if growth is None else Growing(growth, planner)
        kernels = list(dict.fromkeys(step.kernel for step in planner.tape.order if step.kernel is not None))
        machine, *libraries = toolchain.load([_MACHINE, *kernels])
        self._machine = _typed(machine)
        addresses = {
            kernel: ctypes.cast(library.kernel, ctypes.c_void_p).value or 0
            for kernel, library in zip(kernels, libraries, strict=True)
        }
        self._results = _Results(planner)
        self._encoded = encode(planner.tape, planner.errors, addresses, limits.tensor_bytes)
        self._tape = ctypes.byref(self._encoded.header)
        self._constants = list(constants.values())
        self._addresses = (
            [0] * len(graph.inputs) + [address(array) for array in self._constants] + [0] * len(planner.made)
        )
        self._sources = list(planner.sources.values())
        kept = {view.storage for view in planner.outputs}
        self.addressed = {at for at, value in enumerate(graph.inputs) if planner.view(value).storage not in kept}
        self._given: list[Any] = [None] * len(graph.inputs)
        """What is given for all runs; None for what each run is given."""
        self._open: Sequence[int] = range(len(graph.inputs))
        self._begin()

    def _begin(self) -> None:
        self._inputs = Inputs()
        self._frames: list[_Frame] = []
        self._plain: CpuExecutable | None = None
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
        symbols = tuple(given[index].shape[axis] for index, axis in self._sources)
        extent = self._extent(given, symbols, observer)
        dense = self._inputs.dense([given[at] for at in self._open] if bound else given)
        arrays = self._with_given(dense) if bound else dense
        if isinstance(observer, Stopwatch):
            return self._run_timed(arrays, symbols, observer, allowance)
        if observer is not None:
            return self._observed(arrays, observer, allowance)
        try:
            return self._run(arrays, symbols, extent, None, allowance)
        except OutOfMemory as error:
            raise error.located(self._largest(arrays)) from error.__cause__

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
        frame = self._frames.pop() if self._frames else _Frame(self._machine, self._tape, self._addresses)
        growing = self._growing
        if growing is not None:
            sizes = extent or growing.dense(symbols)
            symbols = (*symbols, sizes.capacity, sizes.moved)
        layout = frame.fit(symbols, self._results)
        if layout.large or allowance is not None:
            self._check_memory(layout, frame, allowance)
        blocks = self._blocks(layout, extent)
        places = [block.place for block in blocks]
        failed = frame.run(self._addresses_of(arrays), places, self._threads(), times, allowance)
        self._frames.append(frame)
        if failed < 0 and allowance is not None:
            raise allowance.stopped(self._next_node(-2 - failed))
        if failed:
            node, message = self._planner.tape.errors[failed - 1]
            raise RunFailed(f"{node.op}: {message}", where=str(node.origin))
        made = len(arrays) + len(self._constants)
        outputs = tuple(
            [
                blocks[out.memory - made].array(out) if out.memory >= made else self._view(out, arrays)
                for out in layout.outputs
            ]
        )
        if extent is not None and growing is not None:
            return self._grown(outputs, blocks, extent, growing), layout.over
        return outputs, layout.over

    def _blocks(self, layout: _Layout, extent: Extent | None) -> list[_Block]:
        """Memory for results; that of caches which stay where they are is there."""
        if extent is None or extent.rooms is None or self._growing is None:
            return _memory(layout.blocks, together=are_lasting())
        kept = {each.block: room for each, room in zip(self._growing.places, extent.rooms, strict=True)}
        new = iter(_memory([size for at, size in enumerate(layout.blocks) if at not in kept], together=are_lasting()))
        return [
            _Block(kept[at].memory, kept[at].start, kept[at].place) if at in kept else next(new)
            for at in range(len(layout.blocks))
        ]

    def _grown(
        self, outputs: Sequence[Any], blocks: Sequence[_Block], extent: Extent, growing: Growing
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

    def _run_timed(
        self, arrays: Sequence[Any], symbols: tuple[int, ...], stopwatch: Stopwatch, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        """The same run with the times of its calls; an epilogue is part of its call."""
        times = np.zeros(len(self._encoded.order) + 1)
        outcome = self._run(arrays, symbols, None, times, allowance)
        seconds = {id(step): float(taken) for step, taken in zip(self._encoded.order, times, strict=False)}
        for step in self._planner.tape.steps:
            if step.control is Control.RUN:
                stopwatch.note([node for part in step.parts for node in part.nodes], seconds[id(step)])
        return outcome

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

    def _view(self, out: _Output, arrays: Sequence[Any]) -> Array:
        """An output in the memory of an input or a constant."""
        given = len(arrays)
        array = arrays[out.memory] if out.memory < given else self._constants[out.memory - given]
        return _Block(array.reshape(-1).view(np.uint8), 0, 0).array(out)

    def _check_memory(self, layout: _Layout, frame: _Frame, allowance: Allowance | None) -> None:
        """OutOfMemory if there is less than the run takes, or it may take less."""
        results, arena = sum(layout.blocks), frame.peak()
        check_room(results + max(arena - frame.touched, 0), "this run")
        if allowance is not None:
            allowance.check_memory(results + arena, "")

    def _next_node(self, step: int) -> Node | None:
        return next((node for each in self._encoded.order[step:] for node in each.nodes), None)

    def _largest(self, arrays: Sequence[Array]) -> str:
        """The node that makes the largest result of a run with these inputs."""
        bound = {name: arrays[index].shape[axis] for name, (index, axis) in self._planner.sources.items()}
        return str(hungriest_node(self.graph, bound).origin)

    def _observed(
        self, inputs: Sequence[Any], observer: Observer, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        """Run the unfused program in which every value is an output, and call the observer for its nodes in order."""
        with self._lock:
            if self._plain is None:
                made = tuple(value for node in self.graph.nodes for value in node.outputs)
                whole = Graph(self.graph.name, self.graph.inputs, made, self.graph.nodes, self.graph.constants)
                self._plain = CpuExecutable(whole, self._toolchain, self._limits, self._threads, fused=False)
        return self._plain._run_observed(inputs, observer, self.graph, allowance)

    def _run_observed(
        self, inputs: Sequence[Any], observer: Observer, graph: Graph, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        arrays = [np.ascontiguousarray(array) for array in inputs]
        times = np.zeros(len(self._encoded.order) + 1)
        symbols = tuple(arrays[index].shape[axis] for index, axis in self._sources)
        outputs, over = self._run(arrays, symbols, None, times, allowance)
        found = {**graph.constants, **dict(zip(graph.inputs, arrays, strict=True))}
        found.update(zip(self.graph.outputs, outputs, strict=True))
        seconds = dict.fromkeys(graph.nodes, 0.0)
        owners = {inner: node for node in graph.nodes for body in node.regions for inner in body.walk()}
        for step, taken in zip(self._encoded.order, times, strict=False):
            for node in step.nodes:
                seconds[owners.get(node, node)] += float(taken) / len(step.nodes)
        live = 0
        for node in graph.nodes:
            results = tuple(found[value] for value in node.outputs)
            live += sum(result.nbytes for result in results)
            observer(Event(node, results, seconds[node], live))
        return tuple(found[value] for value in graph.outputs), over


class _Layout:
    """The sizes of the result blocks, and where the outputs lie in all memory, for one binding of the symbols."""

    __slots__ = ("blocks", "large", "outputs", "over")

    def __init__(self, blocks: list[int], outputs: list[_Output], arena: int) -> None:
        self.blocks, self.outputs = blocks, outputs
        self.large = sum(blocks) + arena >= LARGE
        self.over = Finished(arena)
        """What stands for the runs of this layout."""


class _Output:
    """Where a result lies, in bytes."""

    __slots__ = ("dtype", "memory", "offset", "shape", "strides")

    def __init__(
        self, memory: int, dtype: np.dtype[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.memory, self.dtype, self.offset, self.shape, self.strides = memory, dtype, offset, shape, strides


class _Results:
    """What to ask the machine for to know where results lie."""

    def __init__(self, planner: Planner) -> None:
        slot = planner.tape.sizes.slot
        given = {storage: index for index, storage in enumerate(planner.tape.given)}
        self.blocks = [slot(storage.bytes) for storage in planner.made]
        self.views = [(given[view.storage], view.dtype.numpy, view.rank) for view in planner.outputs]
        wanted = [slot(dim) for view in planner.outputs for dim in (view.offset, *view.shape, *view.strides)]
        self.slots = np.array([*self.blocks, *wanted], np.int32)
        widths = ((view.dtype.numpy.itemsize, view.rank) for view in planner.outputs)
        scales = [each for width, rank in widths for each in (width, *[1] * rank, *[width] * rank)]
        self._scales = np.array([*[1] * len(self.blocks), *scales], np.int64)

    def layout(self, sizes: Array, arena: int) -> _Layout:
        """The layout for the sizes that the machine gave for `slots`, beside an arena of so many bytes."""
        scaled: list[int] = (sizes * self._scales).tolist()
        outputs: list[_Output] = []
        at = len(self.blocks)
        for memory, dtype, rank in self.views:
            shape, end = at + 1 + rank, at + 1 + 2 * rank
            outputs.append(_Output(memory, dtype, scaled[at], tuple(scaled[at + 1 : shape]), tuple(scaled[shape:end])))
            at = end
        return _Layout(scaled[: len(self.blocks)], outputs, arena)


class _Frame:
    """What one run needs of its own."""

    def __init__(self, machine: ctypes.CDLL, tape: Any, addresses: Sequence[int]) -> None:
        """`addresses`: of the memory that is given to runs, which say where inputs and blocks lie."""
        self._machine, self._tape = machine, tape
        self._given = (ctypes.c_void_p * len(addresses))(*addresses)
        self._frame = machine.frame_new(tape)
        if not self._frame:
            raise OutOfMemory(_TOO_LITTLE)
        self._fitted: tuple[int, ...] | None = None
        self._layout: _Layout | None = None
        self._arena = self._needed = self.touched = 0
        """Bytes of the arena, those that runs of the latest sizes use, and those that runs have used so far."""

    def fit(self, symbols: tuple[int, ...], results: _Results) -> _Layout:
        if self._layout is not None and symbols == self._fitted:
            return self._layout
        values = np.array(symbols, np.int64)
        sizes = np.empty(len(results.slots), np.int64)
        count = len(results.slots)
        self._fitted = None
        arguments = (address(values), address(results.slots), count, address(sizes))
        failed = self._machine.frame_fit(self._tape, self._frame, *arguments)
        if failed == _TOO_LARGE:
            raise LimitExceeded("a tensor would exceed the limit", hint="check the sizes, or raise Limits.tensor_bytes")
        if failed:
            raise OutOfMemory(_TOO_LITTLE)
        peak = self._needed = self.peak()
        if not self._arena // 4 <= peak <= self._arena:  # the machine took another arena
            self._arena, self.touched = peak, 0
        self._layout = results.layout(sizes, peak)
        self._fitted = symbols
        return self._layout

    def run(
        self,
        inputs: Sequence[int],
        results: Sequence[int],
        threads: int,
        times: Array | None,
        allowance: Allowance | None,
    ) -> int:
        """Run with the addresses of the inputs and of memory for the results."""
        given = self._given
        given[: len(inputs)] = inputs
        given[len(given) - len(results) :] = results
        noted = None if times is None else address(times)
        until = None if allowance is None else ctypes.addressof(allowance.stop)
        self.touched = max(self.touched, self._needed)
        failed = self._machine.frame_run(self._tape, self._frame, given, threads, noted, until)
        if failed == _NO_MEMORY:
            raise OutOfMemory(_TOO_LITTLE)
        return failed

    def peak(self) -> int:
        return self._machine.frame_peak(self._frame)

    def __del__(self) -> None:
        if getattr(self, "_frame", None):
            self._machine.frame_free(self._frame)


class _Block(NamedTuple):
    """Memory for results: it begins at `start` of `memory`, and at the address `place`."""

    memory: Array
    start: int
    place: int

    def array(self, out: _Output) -> Array:
        """An output that lies in it; one without elements lies nowhere."""
        if 0 in out.shape:
            return np.empty(out.shape, out.dtype)
        return np.ndarray(out.shape, out.dtype, self.memory, self.start + out.offset, out.strides)


def _memory(sizes: Sequence[int], *, together: bool) -> list[_Block]:
    """Memory for results; `together` if all of them last equally long.

    It begins at whole lines of the cache: kernels read what was prepared for them much faster then.
    """
    try:
        return _side_by_side(sizes) if together else [_alone(size) for size in sizes]
    except (MemoryError, OSError) as error:
        raise OutOfMemory(_TOO_LITTLE) from error


def _alone(size: int) -> _Block:
    memory = np.empty(size + _LINE, np.uint8)
    found = address(memory)
    start = -found % _LINE
    return _Block(memory, start, found + start)


def _side_by_side(sizes: Sequence[int]) -> list[_Block]:
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
    return [_Block(memory, start, found + start) for start in starts[:-1]]


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


def _strided(array: Array) -> Array:
    """The array, or a copy if it does not step forward by whole elements."""
    width = max(array.dtype.itemsize, 1)
    return array if all(s >= 0 and s % width == 0 for s in array.strides) else read_only(np.ascontiguousarray(array))


@cache
def _typed_functions() -> tuple[tuple[str, Any, tuple[Any, ...]], ...]:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    return (
        ("frame_new", pointer, (pointer,)),
        ("frame_free", None, (pointer,)),
        ("frame_fit", number, (pointer, pointer, pointer, pointer, number, pointer)),
        ("frame_run", ctypes.c_int64, (pointer, pointer, pointer, number, pointer, pointer)),
        ("frame_peak", ctypes.c_int64, (pointer,)),
    )


def _typed(machine: ctypes.CDLL) -> ctypes.CDLL:
    for name, result, arguments in _typed_functions():
        function = getattr(machine, name)
        function.restype, function.argtypes = result, arguments
    return machine
