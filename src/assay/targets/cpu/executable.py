"""A segment made runnable: one call of the machine for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir.dtypes import Array, read_only
from assay.ir.graph import Graph, Node, Value
from assay.limits import Limits
from assay.targets.base import Event, Observer, Run, Stopwatch
from assay.targets.budget import Allowance
from assay.targets.cpu.growing import CachePlace, CachePlaces
from assay.targets.cpu.machine import ResultSlots
from assay.targets.cpu.native import NativeCode, NativeExecutable, RunError
from assay.targets.cpu.registry import KERNELS
from assay.targets.cpu.tape import encode
from assay.targets.cpu.toolchain import Toolchain
from assay.targets.shared.bodies import all_constants
from assay.targets.shared.growth import CacheGrowth, growth_of
from assay.targets.shared.planner import Planner
from assay.targets.shared.tape import Control, Step
from assay.targets.shared.tensors import hungriest_node
from assay.targets.threads import Threads


class CpuExecutable(NativeExecutable):
    """A planned segment: native code, and the plan by which its runs can be observed."""

    def __init__(
        self, graph: Graph, toolchain: Toolchain, limits: Limits, threads: Threads, *, fused: bool = True
    ) -> None:
        self.graph = graph
        self._toolchain, self._limits = toolchain, limits
        constants = {value: _strided(array) for value, array in all_constants(graph).items()}
        growth = growth_of(graph, KERNELS) if fused else None
        self._planner = planner = Planner(graph, constants, limits, KERNELS, fused=fused, growth=growth)
        code, self._order = _code(planner, growth, limits)
        super().__init__(code, list(constants.values()), toolchain, threads)

    def _begin(self) -> None:
        super()._begin()
        self._plain: CpuExecutable | None = None

    def _watched(
        self, arrays: Sequence[Any], symbols: tuple[int, ...], observer: Observer, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        if isinstance(observer, Stopwatch):
            return self._run_timed(arrays, symbols, observer, allowance)
        return self._observed(arrays, observer, allowance)

    def _run_timed(
        self, arrays: Sequence[Any], symbols: tuple[int, ...], stopwatch: Stopwatch, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        """The same run with the times of its calls; an epilogue is part of its call."""
        times = np.zeros(len(self._order) + 1)
        outcome = self._run(arrays, symbols, None, times, allowance)
        seconds = {id(step): float(taken) for step, taken in zip(self._order, times, strict=False)}
        for step in self._planner.tape.steps:
            if step.control is Control.RUN:
                stopwatch.note([node for part in step.parts for node in part.nodes], seconds[id(step)])
        return outcome

    def _next_node(self, step: int) -> Node | None:
        return next((node for each in self._order[step:] for node in each.nodes), None)

    def _hungriest(self, arrays: Sequence[Array]) -> str:
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
        times = np.zeros(len(self._order) + 1)
        symbols = tuple(arrays[index].shape[axis] for index, axis in self.code.sources)
        outputs, over = self._run(arrays, symbols, None, times, allowance)
        found = {**graph.constants, **dict(zip(graph.inputs, arrays, strict=True))}
        found.update(zip(self.graph.outputs, outputs, strict=True))
        seconds = dict.fromkeys(graph.nodes, 0.0)
        owners = {inner: node for node in graph.nodes for body in node.regions for inner in body.walk()}
        for step, taken in zip(self._order, times, strict=False):
            for node in step.nodes:
                seconds[owners.get(node, node)] += float(taken) / len(step.nodes)
        live = 0
        for node in graph.nodes:
            results = tuple(found[value] for value in node.outputs)
            live += sum(result.nbytes for result in results)
            observer(Event(node, results, seconds[node], live))
        return tuple(found[value] for value in graph.outputs), over


def _code(planner: Planner, growth: CacheGrowth | None, limits: Limits) -> tuple[NativeCode, tuple[Step, ...]]:
    """The code of a plan, and its steps in the order in which their times are noted."""
    kernels = tuple(dict.fromkeys(step.kernel for step in planner.tape.order if step.kernel is not None))
    results = _results(planner)
    numbers = {kernel: at for at, kernel in enumerate(kernels, 1)}
    encoded = encode(planner.tape, planner.errors, numbers, limits.tensor_bytes)
    kept = {view.storage for view in planner.outputs}
    inputs = planner.graph.inputs
    code = NativeCode(
        len(inputs),
        kernels,
        encoded.tables,
        tuple(planner.sources.values()),
        tuple(at for at, value in enumerate(inputs) if planner.view(value).storage not in kept),
        results,
        None if growth is None else _caches(planner, growth),
        tuple(RunError(node.op, message, str(node.origin)) for node, message in planner.tape.errors),
        limits.tensor_bytes,
    )
    return code, encoded.order


def _results(planner: Planner) -> ResultSlots:
    slot = planner.tape.sizes.slot
    given = {storage: index for index, storage in enumerate(planner.tape.given)}
    blocks = [slot(storage.bytes) for storage in planner.made]
    views = tuple((given[view.storage], view.dtype.numpy, view.rank) for view in planner.outputs)
    wanted = [slot(dim) for view in planner.outputs for dim in (view.offset, *view.shape, *view.strides)]
    return ResultSlots(len(blocks), views, np.array([*blocks, *wanted], np.int32))


def _caches(planner: Planner, growth: CacheGrowth) -> CachePlaces:
    def place(source: Value, result: Value) -> CachePlace:
        graph, block = planner.graph, planner.made.index(planner.view(result).storage)
        return CachePlace(graph.inputs.index(source), graph.outputs.index(result), block)

    places = tuple(place(source, result) for result, source in growth.inputs.items())
    return CachePlaces(places, tuple(planner.sources), growth.before, growth.after)


def _strided(array: Array) -> Array:
    """The array, or a copy if it does not step forward by whole elements."""
    width = max(array.dtype.itemsize, 1)
    return array if all(s >= 0 and s % width == 0 for s in array.strides) else read_only(np.ascontiguousarray(array))
