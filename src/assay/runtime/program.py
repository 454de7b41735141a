"""The program: compiled segments that run one after the other, on one target or several."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from assay.errors import CompileFailed
from assay.ir.dtypes import is_array
from assay.ir.graph import Graph, Node, Value
from assay.runtime.explanation import all_placements
from assay.runtime.partition import Plan, Segment
from assay.runtime.placement import Placement, Refusal
from assay.runtime.transfers import HOST, Ledger, Metered, Transfer
from assay.targets.base import Bodies, Device, Executable, Observer, Target
from assay.targets.budget import Allowance

_NOTHING: Mapping[Value, Any] = {}


@dataclass(slots=True)
class _Stage:
    """A segment in a program: the places of what it reads and makes, and of what nobody reads after it."""

    executable: Executable
    graph: Graph
    target: str
    device: Device | None
    reads: list[int] = field(default_factory=list[int])
    writes: list[int] = field(default_factory=list[int])
    frees: list[int] = field(default_factory=list[int])


class Program:
    """The compiled segments of a plan, run one after the other; values are freed after their last use."""

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[_Stage],
        oracle: Target,
        disabled: Collection[str] = (),
        statics: Mapping[Value, Any] = _NOTHING,
        resident: Ledger | None = None,
    ) -> None:
        """`stages` are the segments of the plan. `statics` are values that all runs share, `resident` lists what was
        moved to devices for all runs. `disabled` names the passes that were switched off."""
        self.plan, self.oracle, self._disabled = plan, oracle, disabled
        self._stages = stages
        self._places, self._fixed = _places(plan, statics)
        self._outputs = [self._places[value] for value in plan.graph.outputs]
        self._has_devices = any(each.device is not None for each in stages)
        self.resident = (resident or Ledger()) if self._has_devices else None
        """What was moved to devices for all runs: constants and what was bound; None if there is no device."""
        self.transfers: Ledger | None = None
        """What crossed between host and devices in the latest run; None while there is no device."""
        self.damaged: list[Transfer] | None = None
        """If this is a list, what is moved to a device is read back, and what did not arrive as it was is noted."""
        self._link()

    def _link(self) -> None:
        last: dict[int, _Stage] = {}
        inputs = len(self.plan.graph.inputs)
        for each in self._stages:
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
        stages = [_bound(each, statics, resident, self.damaged) for each in self._stages]
        bound = Program(plan, stages, self.oracle, self._disabled, statics, resident)
        bound.damaged = self.damaged
        return bound

    def observing(self, values: Collection[Value]) -> Program:
        """The same program, with values that it computes on the way as further outputs, in the order given.

        The same kernels run; only their results are kept. Values in bodies cannot be observed in this way.
        """
        extra = [value for value in dict.fromkeys(values) if value not in self.plan.graph.outputs]
        wanted = frozenset(extra)
        segments = tuple(replace(each, graph=_revealing(each.graph, wanted)) for each in self.plan.segments)
        graph = self.plan.graph
        whole = replace(graph, outputs=(*graph.outputs, *extra), output_names=())
        watching = compile_plan(replace(self.plan, graph=whole, segments=segments), self.oracle, self._disabled)
        watching.damaged = self.damaged
        return watching

    def on_oracle(self) -> Program:
        """The same segments, computed by the oracle."""
        segments = tuple(Segment(self.oracle, each.graph) for each in self.plan.segments)
        return compile_plan(replace(self.plan, segments=segments), self.oracle, self._disabled)

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        """The graph's outputs. RunStopped and OutOfMemory when the allowance is used up."""
        if self._has_devices:
            return self._run_on_devices(inputs, observer, allowance)
        values = [*inputs, *self._fixed]
        around = 0 if allowance is None else allowance.held
        for each in self._stages:
            if allowance is not None:
                allowance.held = around + self._held(values)
            results = each.executable.run([values[place] for place in each.reads], observer, allowance)
            for place, result in zip(each.writes, results, strict=True):
                values[place] = result
            for place in each.frees:
                values[place] = None
        if allowance is not None:
            allowance.held = around
        return tuple([values[place] for place in self._outputs])

    def _run_on_devices(
        self, inputs: Sequence[Any], observer: Observer | None, allowance: Allowance | None
    ) -> tuple[Any, ...]:
        """The same where some targets have memory of their own: values go there when a segment needs them there."""
        ledger = Ledger()
        homes = _Homes([*inputs, *self._fixed], ledger, self.damaged)
        for each in self._stages:
            given = [homes.at(place, each.target, each.device) for place in each.reads]
            results = each.executable.run(given, observer, allowance)
            for place, result in zip(each.writes, results, strict=True):
                homes.put(place, result, each.target, each.device)
            for place in each.frees:
                homes.free(place)
        outputs = tuple([homes.at(place, HOST, None) for place in self._outputs])
        self.transfers = ledger
        return outputs

    @cached_property
    def targets(self) -> Mapping[Node, str]:
        """Where each node runs."""
        return {placement.node: placement.target for placement in all_placements(self.plan)}

    def _held(self, values: Sequence[Any]) -> int:
        """The bytes of what segments have made so far and others still need."""
        made = (values[place] for stage in self._stages for place in stage.writes)
        return sum(getattr(value, "nbytes", 0) for value in made)

    @property
    def addressed(self) -> set[int]:
        """The inputs that are read by address alone, in runs that nobody observes."""
        graph = self.plan.graph
        others = {
            value
            for stage in self._stages
            for at, value in enumerate(stage.graph.inputs)
            if at not in stage.executable.addressed or stage.device is not None
        }
        return {at for at, value in enumerate(graph.inputs) if value not in others and value not in graph.outputs}

    @property
    def peak_bytes(self) -> int | None:
        """The memory for the intermediate results of the hungriest segment; None if one does not tell."""
        told = [stage.executable.peak_bytes for stage in self._stages]
        known = [each for each in told if each is not None]
        return max(known, default=0) if len(known) == len(told) else None


def compile_plan(plan: Plan, oracle: Target, disabled: Collection[str] = ()) -> Program:
    """The segments of a plan compiled by their targets. `disabled` names passes that are part of compiling.

    A segment that its target cannot compile after all goes to the oracle; a warning and the placements say why.
    """
    inner = {
        graph: compile_plan(each, oracle, disabled)
        for graph, each in plan.bodies.items()
        if _leaves_the_oracle(each, oracle)
    }
    bodies = {graph: program.run for graph, program in inner.items()}
    resident = Ledger([entry for program in inner.values() if program.resident for entry in program.resident.entries])
    stages: list[_Stage] = []
    failed: dict[Node, str] = {}
    for segment in plan.segments:
        try:
            stages.append(_stage(segment, bodies, disabled, resident))
        except CompileFailed as error:
            message = f"{segment.graph.name} runs on the target '{oracle.name}': {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            stages.append(_stage(Segment(oracle, segment.graph), bodies, disabled, resident))
            failed.update(dict.fromkeys(segment.graph.nodes, str(error).partition("\n")[0]))
    return Program(_moved(plan, failed, oracle) if failed else plan, stages, oracle, disabled, resident=resident)


def _stage(segment: Segment, bodies: Bodies, disabled: Collection[str], resident: Ledger) -> _Stage:
    """A segment compiled by its target; what that moves to its device now is noted as resident."""
    target, device = segment.target, segment.target.open()
    metered = None if device is None else Metered(device, target.name, resident)
    executable = target.compile(segment.graph, bodies, disabled, metered)
    return _Stage(executable, segment.graph, target.name, device)


def _bound(stage: _Stage, statics: Mapping[Value, Any], resident: Ledger, damaged: list[Transfer] | None) -> _Stage:
    """A stage whose static inputs are given, moved to its device."""
    own = {at: statics[value] for at, value in enumerate(stage.graph.inputs) if value in statics}
    if not own:
        return replace(stage, reads=[], writes=[], frees=[])
    if stage.device is not None:
        metered = Metered(stage.device, stage.target, resident, damaged)
        own = {at: metered.upload(each) if is_array(each) else each for at, each in own.items()}
    left = tuple(value for value in stage.graph.inputs if value not in statics)
    return _Stage(stage.executable.bind(own), replace(stage.graph, inputs=left), stage.target, stage.device)


class _Homes:
    """Where the values of a run are: in the host's memory, on devices, or both once they were moved."""

    def __init__(self, values: Sequence[Any], ledger: Ledger, damaged: list[Transfer] | None) -> None:
        self._forms: list[dict[str, Any]] = [{HOST: value} for value in values]
        self._devices: dict[str, Metered] = {}
        self._ledger, self._damaged = ledger, damaged

    def put(self, place: int, value: Any, target: str, device: Device | None) -> None:
        """Keep what a segment made, where it made it."""
        self._forms[place] = {HOST if device is None else target: value}
        if device is not None:
            self._devices.setdefault(target, Metered(device, target, self._ledger, self._damaged))

    def free(self, place: int) -> None:
        """Forget a value that nobody reads any more."""
        self._forms[place] = {}

    def at(self, place: int, target: str, device: Device | None) -> Any:
        """The value where it is needed, moved there now if it is not there yet."""
        forms, wanted = self._forms[place], HOST if device is None else target
        if wanted in forms:
            return forms[wanted]
        if HOST not in forms:
            source, buffer = next(iter(forms.items()))
            forms[HOST] = self._devices[source].download(buffer)
        if device is not None:
            forms[target] = Metered(device, target, self._ledger, self._damaged).upload(forms[HOST])
        return forms[wanted]


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


def _moved(plan: Plan, failed: Mapping[Node, str], oracle: Target) -> Plan:
    """The plan with the nodes that could not be compiled on the oracle."""
    placements = tuple(
        Placement(each.node, oracle.name, (*each.refusals, Refusal(each.target, failed[each.node])), each.note)
        if each.node in failed
        else each
        for each in plan.placements
    )
    segments = tuple(
        Segment(oracle, each.graph) if failed.keys() & each.graph.nodes else each for each in plan.segments
    )
    return replace(plan, segments=segments, placements=placements)
