"""The program: compiled segments that run one after the other, on one target or several."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from assay.errors import CompileFailed
from assay.ir.dtypes import is_array
from assay.ir.graph import Graph, Node, Value
from assay.runtime.device_tensors import fetched
from assay.runtime.explanation import all_placements
from assay.runtime.partition import Plan, Segment, without
from assay.runtime.placement import Placement, Refusal
from assay.runtime.runs import CompiledSegment, DeviceRun, HostRun, ProgramRun
from assay.runtime.transfers import Ledger, Metered, Transfer
from assay.targets.base import Bodies, Executable, NodeRefused, Noted, Observer, ProgramNote, Target
from assay.targets.budget import Allowance
from assay.targets.grown import Continuing

_NOTHING: Mapping[Value, Any] = {}
_OBSERVING = 4
"""How many programs with further outputs a program keeps."""
_ATTEMPTS = 64
"""So many nodes of a plan may be refused one by one while it is compiled; then whole segments go to the oracle."""


class Program:
    """The compiled segments of a plan, run one after the other; values are freed after their last use."""

    def __init__(
        self,
        plan: Plan,
        segments: Sequence[CompiledSegment],
        oracle: Target,
        disabled: Collection[str] = (),
        statics: Mapping[Value, Any] = _NOTHING,
        resident: Ledger | None = None,
    ) -> None:
        """`segments` are those of the plan, compiled. `statics` are values that all runs share, `resident` lists what
        was moved to devices for all runs. `disabled` names the passes that were switched off."""
        self.plan, self.oracle, self._disabled = plan, oracle, disabled
        self._compiled = segments
        self._places, self._fixed = _places(plan, statics)
        self._outputs = [self._places[value] for value in plan.graph.outputs]
        self._has_devices = any(each.device is not None for each in segments)
        self.resident = (resident or Ledger()) if self._has_devices else None
        """What was moved to devices for all runs: constants and what was bound; None if there is no device."""
        self.damaged: list[Transfer] | None = None
        """If this is a list, what is moved to a device is read back, and what did not arrive as it was is noted."""
        self._observing: dict[tuple[Value, ...], Program] = {}
        self._lock = threading.Lock()
        self._link()
        self._whole = self._only_executable()

    def _only_executable(self) -> Executable | None:
        """The executable that takes all inputs and makes all outputs, in their order, if one does."""
        only = self.only_segment
        inputs = list(range(len(self.plan.graph.inputs)))
        return only.executable if only and only.reads == inputs and only.writes == self._outputs else None

    def _link(self) -> None:
        last: dict[int, CompiledSegment] = {}
        inputs = len(self.plan.graph.inputs)
        for each in self._compiled:
            each.reads = [self._places[value] for value in each.graph.inputs]
            each.writes = [self._places[value] for value in each.graph.outputs]
            last.update(dict.fromkeys((*each.reads, *each.writes), each))
        for place, each in last.items():
            if place >= inputs and place not in self._outputs:
                each.frees.append(place)

    def bind(self, statics: Mapping[Value, Any]) -> Program:
        """A program of the other inputs: these are given for all its runs and stay where the targets work.

        This program is left as it is, so runs of both may overlap.
        """
        graph = self.plan.graph
        inputs = tuple(value for value in graph.inputs if value not in statics)
        plan = replace(self.plan, graph=replace(graph, inputs=inputs, input_names=()))
        resident = Ledger(list(self.resident.entries) if self.resident else [])
        segments = [_bound(each, statics, resident, self.damaged) for each in self._compiled]
        bound = Program(plan, segments, self.oracle, self._disabled, statics, resident)
        bound.damaged = self.damaged
        return bound

    def observing(self, values: Collection[Value]) -> Program:
        """The same program, with values that it computes on the way as further outputs, in the order given.

        The same kernels run; only their results are kept. Values in bodies cannot be observed in this way. The programs
        for the values that were asked for last are kept.
        """
        extra = tuple(value for value in dict.fromkeys(values) if value not in self.plan.graph.outputs)
        if not extra:
            return self
        with self._lock:
            watching = self._observing.pop(extra, None) or self._compile_observing(extra)
            self._observing[extra] = watching
            while len(self._observing) > _OBSERVING:
                self._observing.pop(next(iter(self._observing)))
        watching.damaged = self.damaged
        return watching

    def _compile_observing(self, extra: Sequence[Value]) -> Program:
        wanted = frozenset(extra)
        segments = tuple(replace(each, graph=_revealing(each.graph, wanted)) for each in self.plan.segments)
        graph = self.plan.graph
        whole = replace(graph, outputs=(*graph.outputs, *extra), output_names=())
        return compile_plan(replace(self.plan, graph=whole, segments=segments), self.oracle, self._disabled)

    def on_oracle(self) -> Program:
        """The same segments, computed by the oracle."""
        segments = tuple(Segment(self.oracle, each.graph) for each in self.plan.segments)
        return compile_plan(replace(self.plan, segments=segments), self.oracle, self._disabled)

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> ProgramRun:
        """Start a run. What works in host memory is over when this returns; devices may be at it still.

        RunStopped and OutOfMemory when the allowance is used up, here or when the outputs are asked for. The observer
        has been called for every node by then.
        """
        if self._whole is not None:
            results, run = self._whole.submit(fetched(inputs), observer, allowance)
            return HostRun(results, run.peak_bytes)
        values = [*inputs, *self._fixed]
        if self._has_devices:
            return DeviceRun(self._compiled, values, self._outputs, observer, allowance, self.damaged)
        values = fetched(values)
        around = 0 if allowance is None else allowance.held
        peak: int | None = 0
        for each in self._compiled:
            if allowance is not None:
                allowance.held = around + self._held(values)
            results, run = each.executable.submit([values[place] for place in each.reads], observer, allowance)
            taken = run.peak_bytes
            peak = None if peak is None or taken is None else max(peak, taken)
            for place, result in zip(each.writes, results, strict=True):
                values[place] = result
            for place in each.frees:
                values[place] = None
        if allowance is not None:
            allowance.held = around
        return HostRun(tuple([values[place] for place in self._outputs]), peak)

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        """The graph's outputs, waited for."""
        return self.submit(inputs, observer, allowance).outputs()

    @cached_property
    def targets(self) -> Mapping[Node, str]:
        """Where each node runs."""
        return {placement.node: placement.target for placement in all_placements(self.plan)}

    @property
    def only_segment(self) -> CompiledSegment | None:
        """The segment that is all there is, if it works in host memory."""
        return self._compiled[0] if len(self._compiled) == 1 and not self._has_devices else None

    @cached_property
    def continued(self) -> dict[int, int]:
        """The inputs that outputs continue where they lie, and these, if one segment in host memory is all there is."""
        only = self.only_segment
        if only is None or not isinstance(only.executable, Continuing):
            return {}
        inputs, outputs = self.plan.graph.inputs, self.plan.graph.outputs
        return {
            inputs.index(only.graph.inputs[source]): outputs.index(only.graph.outputs[result])
            for source, result in only.executable.continued.items()
        }

    def notes(self) -> list[ProgramNote]:
        """What the targets have to tell of their segments."""
        told = (each.executable.notes() for each in self._compiled if isinstance(each.executable, Noted))
        return [note for notes in told for note in notes]

    def _held(self, values: Sequence[Any]) -> int:
        """The bytes of what segments have made so far and others still need."""
        made = (values[place] for segment in self._compiled for place in segment.writes)
        return sum(getattr(value, "nbytes", 0) for value in made)

    @property
    def addressed(self) -> set[int]:
        """The inputs that are read by address alone, in runs that nobody observes."""
        graph = self.plan.graph
        others = {
            value
            for segment in self._compiled
            for at, value in enumerate(segment.graph.inputs)
            if at not in segment.executable.addressed or segment.device is not None
        }
        return {at for at, value in enumerate(graph.inputs) if value not in others and value not in graph.outputs}


def compile_plan(plan: Plan, oracle: Target, disabled: Collection[str] = ()) -> Program:
    """The segments of a plan compiled by their targets. `disabled` names passes that are part of compiling.

    A node for which its target cannot compile a segment after all goes to the oracle, and the segment is compiled
    without it; if the target names no node, the segment goes there. A warning and the placements say why.
    """
    inner = {
        graph: compile_plan(each, oracle, disabled)
        for graph, each in plan.bodies.items()
        if _leaves_the_oracle(each, oracle)
    }
    bodies = {graph: program.run for graph, program in inner.items()}
    resident = Ledger([entry for program in inner.values() if program.resident for entry in program.resident.entries])
    compiled: list[tuple[Segment, CompiledSegment]] = []
    failed: dict[Node, str] = {}
    left = list(reversed(plan.segments))
    while left:
        segment = left.pop()
        try:
            compiled.append((segment, _compile_segment(segment, bodies, disabled, resident)))
        except CompileFailed as error:
            if segment.target is oracle:
                raise
            one = error.node if isinstance(error, NodeRefused) and len(failed) < _ATTEMPTS else None
            what = segment.graph.name if one is None else f"{one.op} of {segment.graph.name}"
            warnings.warn(f"{what} runs on the target '{oracle.name}': {error}", RuntimeWarning, stacklevel=2)
            left += [Segment(oracle, segment.graph)] if one is None else reversed(without(segment, one, oracle))
            failed.update(dict.fromkeys(segment.graph.nodes if one is None else [one], str(error).partition("\n")[0]))
    if failed:
        plan = _moved(plan, [segment for segment, _ in compiled], failed, oracle)
    return Program(plan, [each for _, each in compiled], oracle, disabled, resident=resident)


def _compile_segment(segment: Segment, bodies: Bodies, disabled: Collection[str], resident: Ledger) -> CompiledSegment:
    """A segment compiled by its target; what that moves to its device now is noted as resident."""
    target, device = segment.target, segment.target.open()
    metered = None if device is None else Metered(device, target.name, resident)
    executable = target.compile(segment.graph, bodies, disabled, metered)
    return CompiledSegment(executable, segment.graph, target.name, device)


def _bound(
    segment: CompiledSegment, statics: Mapping[Value, Any], resident: Ledger, damaged: list[Transfer] | None
) -> CompiledSegment:
    """A segment whose static inputs are given, moved to its device."""
    own = {at: statics[value] for at, value in enumerate(segment.graph.inputs) if value in statics}
    if not own:
        return replace(segment, reads=[], writes=[], frees=[])
    if segment.device is not None:
        metered = Metered(segment.device, segment.target, resident, damaged)
        own = {at: metered.upload(each) if is_array(each) else each for at, each in own.items()}
    left = tuple(value for value in segment.graph.inputs if value not in statics)
    return CompiledSegment(
        segment.executable.bind(own), replace(segment.graph, inputs=left), segment.target, segment.device
    )


def _revealing(graph: Graph, wanted: Collection[Value]) -> Graph:
    """A segment with the values among `wanted` that it makes as further outputs."""
    made = (value for node in graph.nodes for value in node.outputs)
    return replace(graph, outputs=(*graph.outputs, *(v for v in made if v in wanted and v not in graph.outputs)))


def _places(plan: Plan, statics: Mapping[Value, Any]) -> tuple[dict[Value, int], list[Any]]:
    """Where in a run's list each value lies, and what that list holds behind the inputs when the run begins: the
    constants and static values among the outputs, and room for what segments make."""
    graph = plan.graph
    known = {**graph.constants, **statics}
    made = (value for segment in plan.segments for value in segment.graph.outputs)
    fixed = (value for value in graph.outputs if value in known)
    order = dict.fromkeys((*graph.inputs, *fixed, *made))
    behind = [known.get(value) for value in order][len(graph.inputs) :]
    return {value: place for place, value in enumerate(order)}, behind


def _leaves_the_oracle(plan: Plan, oracle: Target) -> bool:
    """Whether anything of a plan runs elsewhere."""
    own = any(segment.target.name != oracle.name for segment in plan.segments)
    return own or any(_leaves_the_oracle(each, oracle) for each in plan.bodies.values())


def _moved(plan: Plan, segments: Sequence[Segment], failed: Mapping[Node, str], oracle: Target) -> Plan:
    """The plan in other segments, with the nodes that could not be compiled on the oracle."""
    placements = tuple(
        Placement(each.node, oracle.name, (*each.refusals, Refusal(each.target, failed[each.node])), each.note)
        if each.node in failed
        else each
        for each in plan.placements
    )
    return replace(plan, segments=tuple(segments), placements=placements)
