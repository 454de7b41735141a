"""A segment made runnable: planned once, laid out once a size, recorded once for memory at given places."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from assay.errors import OutOfMemory, RunFailed
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Value
from assay.limits import Limits
from assay.targets.base import Event, Executable, Observer, Run, Stopwatch
from assay.targets.budget import Allowance
from assay.targets.shared.bodies import all_constants
from assay.targets.shared.tape import Control
from assay.targets.shared.tensors import hungriest_node
from assay.targets.shared.views import Storage
from assay.targets.vulkan.device import VulkanBuffer, VulkanDevice
from assay.targets.vulkan.epilogues import one_by_one
from assay.targets.vulkan.fitting import Fit, Fitting
from assay.targets.vulkan.memory import Span
from assay.targets.vulkan.pipelines import Pipelines
from assay.targets.vulkan.planning import VulkanPlanner
from assay.targets.vulkan.recording import KernelCall, Recording, region
from assay.targets.vulkan.templates import Template

_KEPT = 8
"""How many sizes, and recordings of each, are kept."""
_CELL = 8
"""Bytes of an error cell."""


class _Recorded(NamedTuple):
    """A recording with the memory that is its own: the arena, if there is one, and the error cells."""

    recording: Recording
    own: dict[Storage, Span]


class _Work:
    """A run that was handed in."""

    def __init__(self, device: VulkanDevice, point: int, peak_bytes: int) -> None:
        self._device, self._point = device, point
        self.peak_bytes: int | None = peak_bytes

    def wait(self) -> None:
        """Return when the device is done with it."""
        self._device.wait(self._point)


class VulkanExecutable:
    """A planned segment. Runs of several threads take turns when they hand their commands in."""

    addressed: frozenset[int] = frozenset()

    def __init__(
        self,
        graph: Graph,
        device: VulkanDevice,
        pipelines: Pipelines,
        limits: Limits,
        upload: Callable[[Array], Any],
        *,
        fused: bool = True,
    ) -> None:
        """`upload` moves constants to the device."""
        self.graph = graph
        self._device, self._pipelines, self._limits = device, pipelines, limits
        constants = {value: _dense(array) for value, array in all_constants(graph).items()}
        self._plan = plan = VulkanPlanner(graph, constants, limits, device.profile, fused=fused)
        steps = one_by_one(plan.tape.steps)
        self._steps = [step for step in steps if step.control is Control.RUN]
        touched = {view.storage for step in self._steps for view in step.operands}
        self._reports = plan.errors in touched
        made = [pipelines.get(cast(Template, step.kernel), device.profile.addresses) for step in self._steps]
        self._fitting = Fitting(plan, steps, dict(zip(map(id, self._steps), made, strict=True)), device.profile, limits)
        self._resident = {
            plan.view(value).storage: upload(array)
            for value, array in constants.items()
            if plan.view(value).storage in touched
        }
        self._given: list[Any] = [None] * len(graph.inputs)
        self._open: Sequence[int] = range(len(graph.inputs))
        self._begin()

    def _begin(self) -> None:
        self._fits: OrderedDict[tuple[int, ...], Fit] = OrderedDict()
        self._plain: VulkanExecutable | None = None
        self._lock = threading.RLock()

    @property
    def kernels(self) -> list[str]:
        """What the calls of a run are, in order."""
        return [cast(Template, step.kernel).source for step in self._steps]

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        """The same plan over these inputs."""
        bound = copy(self)
        given = {self._open[at]: buffer for at, buffer in statics.items()}
        bound._given = [given.get(at, before) for at, before in enumerate(self._given)]
        bound._open = [at for at in self._open if at not in given]
        bound._begin()
        return bound

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Start a run: the outputs as buffers, which may be on their way. With an observer, every node is told of."""
        given = self._given.copy()
        for at, buffer in zip(self._open, inputs, strict=True):
            given[at] = buffer
        try:
            if isinstance(observer, Stopwatch) and self._device.profile.timestamp_ns > 0:
                return self._run_timed(given, observer, allowance)
            if observer is not None:
                return self._observed(given, observer, allowance)
            outputs, work, _ = self._run(given, allowance)
        except OutOfMemory as error:
            raise error.located(self._hungriest(given)) from error.__cause__
        return outputs, work

    def _hungriest(self, given: Sequence[VulkanBuffer]) -> str:
        bound = {name: given[index].shape[axis] for name, (index, axis) in self._plan.sources.items()}
        return str(hungriest_node(self.graph, bound).origin)

    # --- runs

    def _run_timed(
        self, given: Sequence[VulkanBuffer], stopwatch: Stopwatch, allowance: Allowance | None
    ) -> tuple[tuple[VulkanBuffer, ...], Run]:
        """The same run, waited for, with the times of its calls."""
        outputs, work, recording = self._run(given, allowance, timed=True)
        work.wait()
        symbols = tuple(given[index].shape[axis] for index, axis in self._plan.sources.values())
        taken = [] if recording is None else recording.seconds()
        for call, seconds in zip(self._fit(symbols).calls, taken, strict=recording is not None):
            stopwatch.note(call.nodes, seconds)
        return outputs, work

    def _run(
        self, given: Sequence[VulkanBuffer], allowance: Allowance | None, *, timed: bool = False
    ) -> tuple[tuple[VulkanBuffer, ...], Run, Recording | None]:
        with self._lock:
            symbols = tuple(given[index].shape[axis] for index, axis in self._plan.sources.values())
            fit = self._fit(symbols)
            if allowance is not None:
                made = sum(fit.bytes[storage] for storage in self._plan.made)
                allowance.check_memory(made + fit.arena.bytes, "")
                _check(allowance, fit.calls, 0)
            spans = self._spans(given, fit)
            recording, spans = self._recorded(fit, spans, timed, allowance is not None)
            before = None if allowance is None else partial(_check, allowance, fit.calls)
            point = 0 if recording is None else recording.submit(list(spans.values()), before)
            if self._reports and recording is not None:
                self._check(spans[self._plan.errors])
        outputs = zip(self._plan.outputs, fit.shapes, strict=True)
        buffers = tuple(VulkanBuffer(spans[view.storage], view.dtype, shape) for view, shape in outputs)
        return buffers, _Work(self._device, point, fit.arena.bytes), recording

    def _spans(self, given: Sequence[VulkanBuffer], fit: Fit) -> dict[Storage, Span]:
        """Where the storages of a run lie that are not in the arena; those for results are new."""
        plan, memory = self._plan, self._device.memory
        found = {plan.view(value).storage: each.span for value, each in zip(self.graph.inputs, given, strict=True)}
        found.update({storage: each.span for storage, each in self._resident.items()})
        found.update({storage: memory.span(fit.bytes[storage]) for storage in plan.made})
        return found

    def _recorded(
        self, fit: Fit, spans: dict[Storage, Span], timed: bool, stoppable: bool
    ) -> tuple[Recording | None, dict[Storage, Span]]:
        """A recording for these places, an earlier one if there is one, and the spans with arena and error cells."""
        if not fit.calls:
            return None, spans
        key = (timed, stoppable, *((span.block.serial, span.offset) for span in spans.values()))
        kept = fit.recordings.get(key)
        if kept is None:
            own: dict[Storage, Span] = {}
            if fit.places:
                own[_ARENA] = self._device.memory.span(fit.arena.bytes)
            if self._reports:
                own[self._plan.errors] = self._device.shared.span(len(self._plan.tape.errors) * _CELL)
            kept = fit.recordings[key] = _Recorded(self._record(fit, {**spans, **own}, timed, stoppable), own)
            if len(fit.recordings) > _KEPT:
                fit.recordings.popitem(last=False)
        fit.recordings.move_to_end(key)
        return kept.recording, {**spans, **kept.own}

    def _record(self, fit: Fit, spans: Mapping[Storage, Span], timed: bool, stoppable: bool) -> Recording:
        regions = {storage: region(span) for storage, span in spans.items()}
        for storage, place in fit.places.items():
            regions[storage] = regions[_ARENA].part(place, fit.bytes[storage])
        cleared = regions[self._plan.errors] if self._reports else None
        return Recording(
            self._device, self._pipelines, fit.calls, regions, cleared=cleared, timed=timed, stoppable=stoppable
        )

    def _check(self, errors: Span) -> None:
        """RunFailed if a kernel said so."""
        self._device.wait(errors.used)
        cells = np.frombuffer(ctypes.string_at(errors.pointer, errors.size), np.int64)
        found = np.flatnonzero(cells[: len(self._plan.tape.errors)])
        if found.size:
            node, message = self._plan.tape.errors[int(found[0])]
            raise RunFailed(f"{node.op}: {message}", where=str(node.origin))

    # --- sizes

    def _fit(self, symbols: tuple[int, ...]) -> Fit:
        found = self._fits.get(symbols)
        if found is None:
            found = self._fits[symbols] = self._fitting.fit(symbols, self._device.memory.check)
            if len(self._fits) > _KEPT:
                self._fits.popitem(last=False)
        self._fits.move_to_end(symbols)
        return found

    # --- told of each node

    def _observed(
        self, given: Sequence[Any], observer: Observer, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        """Run the unfused program in which every value is an output, and tell of its nodes in order."""
        with self._lock:
            if self._plain is None:
                made = tuple(value for node in self.graph.nodes for value in node.outputs)
                whole = Graph(self.graph.name, self.graph.inputs, made, self.graph.nodes, self.graph.constants)
                self._plain = VulkanExecutable(
                    whole, self._device, self._pipelines, self._limits, self._device.upload, fused=False
                )
        return self._plain._told(given, observer, self.graph, allowance)

    def _told(
        self, given: Sequence[Any], observer: Observer, graph: Graph, allowance: Allowance | None
    ) -> tuple[tuple[Any, ...], Run]:
        timed = self._device.profile.timestamp_ns > 0
        outputs, work, recording = self._run(given, allowance, timed=timed)
        found: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
        found.update(zip(self.graph.outputs, outputs, strict=True))
        seconds = dict.fromkeys(graph.nodes, 0.0)
        outer = {inner: node for node in graph.nodes for body in node.regions for inner in body.walk()}
        if recording is not None and timed:
            symbols = tuple(given[index].shape[axis] for index, axis in self._plan.sources.values())
            for call, taken in zip(self._fit(symbols).calls, recording.seconds(), strict=True):
                for node in call.nodes:
                    seconds[outer.get(node, node)] += taken / len(call.nodes)
        live = 0
        for node in graph.nodes:
            results = tuple(self._device.download(found[value]) for value in node.outputs)
            live += sum(result.nbytes for result in results)
            observer(Event(node, results, seconds[node], live))
        for value, array in graph.constants.items():
            if value in graph.outputs:
                found[value] = self._device.upload(array)
        return tuple(found[value] for value in graph.outputs), work


_ARENA = Storage(0)
"""Stands for the arena among the storages of a run."""


def _check(allowance: Allowance, calls: Sequence[KernelCall], at: int) -> None:
    """RunStopped, with the first node of the next calls, if the allowance is used up."""
    allowance.check(next((node for call in calls[at:] for node in call.nodes), None))


def _dense(array: Array) -> Array:
    return array if array.flags.c_contiguous else array.copy()
