"""The session: one model made runnable on a target. Run it, observe any value, see where each op went."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from assay.errors import CompileFailed, NotFound, hint_for
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.limits import Limits
from assay.ops.lowering import lower
from assay.passes import STANDARD, UNFOLDED, apply
from assay.passes.hoist import hoist
from assay.runtime.explanation import Explanation, all_placements, explained_nodes, op_name
from assay.runtime.feeds import check_feeds, place_of
from assay.runtime.options import SessionOptions as SessionOptions
from assay.runtime.options import options_from
from assay.runtime.partition import Placement, Plan, Segment, partition, transferred_bytes
from assay.runtime.results import handed_out
from assay.runtime.stages import stage
from assay.runtime.targets import make_target
from assay.runtime.variants import Known, Variants, deciding_inputs, symbolic_inputs
from assay.targets.base import Bodies, Event, Executable, Observer, Target
from assay.targets.budget import Allowance, Budget


@dataclass(frozen=True, slots=True)
class OpTime:
    """One node that ran: what it came from, how long it took, the bytes it made and those alive after it."""

    source: str
    name: str
    op: str
    seconds: float
    result_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model keeps from run to run: the first content of the inputs that take it, by name.

    The output `name` in `renewals` is no result but the new content of the input `renewals[name]`: of one in
    `initial`, or of one that is fed and changed in place.
    """

    initial: Mapping[str, Any] = field(default_factory=dict[str, Any])
    renewals: Mapping[str, str] = field(default_factory=dict[str, str])


class Session:
    """A model on a target. Thread-safe; compiled once, when it is made.

    Most models keep nothing between runs. `state` holds what the others keep, by the names of the inputs that take it:
    a run starts from there and leaves the new content there. `signature` says how the source nests its arguments and
    results, where that is more than a list of names (models of torch); else it is None.
    """

    def __init__(
        self,
        graph: Graph,
        options: SessionOptions | None = None,
        *,
        facts: Sequence[Fact] | None = None,
        memory: Memory | None = None,
        signature: Any = None,
    ) -> None:
        """`graph` is what a front end loaded (symbolic), or a core graph; `facts` say more of its inputs."""
        self.options = options_from(options)
        self.source = graph
        self.memory = memory or Memory()
        self.state = _copies(self.memory.initial)
        self.signature = signature
        self.target: Target = _target_of(self.options)
        self._facts = facts or [Fact(value.type) for value in graph.inputs]
        self.lowered = self._lower(self._facts)
        self._program = self._latest = self._compile(self.lowered)
        self._variants = self._make_variants()
        self._plain: Program | None = None
        self._lock = threading.Lock()
        self._running = threading.Lock()

    @property
    def graph(self) -> Graph:
        """The core graph that runs: lowered, optimised, placed."""
        return self._program.plan.graph

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs that a run must be given, in order."""
        return tuple(name for name in self.source.input_names if name not in self.memory.initial)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(name for name in self.source.output_names if name not in self.memory.renewals)

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        budget: Budget | None = None,
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """The outputs by name (all, or those asked for). BadFeed says in a sentence what does not fit.

        An input that the model changes in place is changed: the array that was fed gets the new content. A run that
        uses up its budget ends with RunStopped or OutOfMemory and changes nothing; the session can be used again.
        `observer` is told of every node.
        """
        wanted = None if outputs is None else self._known(outputs, self.output_names, "output")
        if not self.memory.renewals:
            by_name = self._results(self._given(feeds), budget, observer)
        else:
            with self._running:
                by_name = self._renewed(feeds, budget, observer)
        return by_name if wanted is None else {name: by_name[name] for name in wanted}

    def reset(self) -> None:
        """Put the state back to what the model came with."""
        with self._running:
            self.state = _copies(self.memory.initial)

    def explain(self) -> Explanation:
        """Every node, those in bodies too: source, op, target and, where there is something to say, the reason.

        Where the content of inputs decides sizes, this is what the latest run was made of.
        """
        plan = self._latest.plan
        rows = tuple(explained_nodes(plan))
        return Explanation(rows, len(plan.segments), transferred_bytes(plan), self.target.name)

    def ran_on(self, node: Node) -> str:
        """The target that ran a node in the latest run; the session's if it is none of that run's."""
        return self._latest.targets.get(node, self.target.name)

    def observe(self, feeds: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
        """Values of intermediate results by their source names (all that were computed if `names` is None).

        Values inside bodies are those of the last iteration; a name in a branch not taken is absent
        from the full listing, and NotFound if asked for. In `precise` mode floats come in f64, as they are carried.
        State and inputs are read and left as they are.
        """
        program = self._unoptimized()
        graph = program.plan.graph
        named = named_values(graph)
        chosen = list(named) if names is None else self._known(names, named, "value")
        given = self._given(feeds)
        found: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
        outputs = program.run(given, _collector({named[name] for name in chosen}, found))
        found.update(zip(graph.outputs, outputs, strict=True))
        found.update(_constants(graph))
        if names is None:
            return {name: found[named[name]] for name in chosen if named[name] in found}
        return {name: self._computed(name, named[name], found) for name in chosen}

    def profile(self, feeds: Mapping[str, Any]) -> list[OpTime]:
        """One record for each node that ran, in order. State and inputs are read and left as they are."""
        times: list[OpTime] = []

        def note(event: Event) -> None:
            made = sum(getattr(result, "nbytes", 0) for result in event.results)
            origin = event.node.origin
            times.append(OpTime(origin.op, origin.name, op_name(event.node), event.seconds, made, event.live_bytes))

        given = self._given(feeds)
        self._chosen(given).run(given, note)
        return times

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that intermediate results took in the latest run; None if some target does not tell."""
        return self._latest.peak_bytes

    def _given(self, feeds: Mapping[str, Any]) -> list[Any]:
        return check_feeds(self.source, {**self.state, **feeds})

    def _results(self, given: Sequence[Any], budget: Budget | None, observer: Observer | None) -> dict[str, Any]:
        program, allowance = self._chosen(given), None if budget is None else budget.begin()
        results = handed_out(program.run(given, observer, allowance))
        return dict(zip(self.source.output_names, results, strict=True))

    def _renewed(self, feeds: Mapping[str, Any], budget: Budget | None, observer: Observer | None) -> dict[str, Any]:
        """The outputs of a run that leaves new content in the state and in inputs that were fed."""
        places = {name: place_of(name, feeds) for name in self.memory.renewals.values() if name not in self.state}
        by_name = self._results(self._given(feeds), budget, observer)
        for output, name in self.memory.renewals.items():
            content = by_name.pop(output)
            if name in self.state:
                self.state[name] = content
            else:
                np.copyto(places[name], content)
        return by_name

    def _lower(self, facts: Sequence[Fact]) -> Graph:
        with stage("lower"):
            return lower(self.source, facts, decomposed=self.options.decomposed, limits=self.options.limits)

    def _make_variants(self) -> Variants[Program] | None:
        """None if nothing is to be gained: the target takes all that has floats, or the model tells all sizes."""
        if self.target.name == "reference" or not _left_floats(self._program):
            return None
        deciding, sized = deciding_inputs(self.lowered), symbolic_inputs(self.source)
        return Variants(deciding, sized, self._variant) if deciding or sized else None

    def _variant(self, known: Known) -> Program | None:
        """A program for this alone; None if the target takes no more of it than of the program for all."""
        program = self._compile(self._lower([_learned(fact, at, known) for at, fact in enumerate(self._facts)]))
        return program if _left_floats(program) < _left_floats(self._program) else None

    def _chosen(self, given: Sequence[Any]) -> Program:
        """The program for these inputs."""
        found = None if self._variants is None else self._variants.find(given)
        self._latest = chosen = found or self._program
        return chosen

    def _compile(self, graph: Graph) -> Program:
        chosen = self.options
        with stage("compile"):
            return compile_program(graph, self.target, chosen.mode, chosen.limits, optimize=chosen.optimizes)

    def _unoptimized(self) -> Program:
        """The program in which every named value of the source is still computed."""
        with self._lock:
            if self._plain is None:
                options = self.options
                self._plain = place_program(self.lowered, self.target, options.mode, options.limits, watched=True)
            return self._plain

    def _computed(self, name: str, value: Value, found: Mapping[Value, Any]) -> Any:
        if value not in found:
            raise NotFound(f"'{name}' was not computed in this run", hint="it lies in a body that did not run")
        return found[value]

    def _known(self, names: Iterable[str], known: Iterable[str], what: str) -> list[str]:
        listed = dict.fromkeys(known)
        chosen = list(names)
        for name in chosen:
            if name not in listed:
                raise NotFound(f"there is no {what} called '{name}'", hint=hint_for(name, listed))
        return chosen


def _target_of(options: SessionOptions) -> Target:
    return make_target(options.target, options.mode, options.limits, options.threads)


def _learned(fact: Fact, place: int, known: Known) -> Fact:
    """What is known of an input in runs of a variant."""
    kind, shape = fact.type, known.shapes.get(place)
    if shape is not None and isinstance(kind, TensorType):
        kind = TensorType(kind.dtype, shape)
    return Fact(kind, known.content.get(place, fact.value))


def _left_floats(program: Program) -> int:
    """How many nodes with floats are left to the oracle, those in bodies too."""
    return sum(row.floats and row.target == "reference" for row in explained_nodes(program.plan))


def _copies(contents: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(content) for name, content in contents.items()}


def compile_program(graph: Graph, target: Target, mode: str, limits: Limits, *, optimize: bool = True) -> Program:
    """A core graph made runnable on `target`: optimised, prepared for it, then placed."""
    if not optimize:
        return place_program(graph, target, mode, limits)
    return place_program(_prepared(optimized(graph, mode), target, mode, limits), target, mode, limits)


def _prepared(graph: Graph, target: Target, mode: str, limits: Limits) -> Graph:
    """The graph as the target likes it; what that makes of constants alone, such as packed weights, is computed now."""
    suited = target.prepare(graph, ())
    prelude, rest = hoist(suited, ())
    if mode != "exact" or not prelude.nodes:
        return suited
    ready = place_program(prelude, target, mode, limits).run(())
    made = dict(zip(prelude.outputs, ready, strict=True))
    inputs = tuple(value for value in rest.inputs if value not in made)
    return replace(rest, inputs=inputs, input_names=graph.input_names, constants={**rest.constants, **made})


def optimized(graph: Graph, mode: str) -> Graph:
    """A core graph after the standard passes of the mode."""
    return apply(graph, STANDARD if mode == "exact" else UNFOLDED)


def place_program(
    graph: Graph, target: Target, mode: str, limits: Limits, *, refused: str = "", watched: bool = False
) -> Program:
    """A core graph as it is on `target`; what that refuses goes to the oracle, with the reason `refused` all of it.

    In a program that is `watched` an observer is told of the nodes in bodies, too."""
    oracle = target if target.name == "reference" else make_target("reference", mode, limits)
    return Program(partition(graph, target, oracle, limits, refused=refused, watched=watched), oracle)


@dataclass(slots=True)
class _Stage:
    """A segment in a program: the places of what it reads and makes, and of what nobody reads after it."""

    executable: Executable
    graph: Graph
    reads: list[int] = field(default_factory=list[int])
    writes: list[int] = field(default_factory=list[int])
    frees: list[int] = field(default_factory=list[int])


class Program:
    """The compiled segments of a plan, run one after the other; values are freed after their last use.

    A segment that its target cannot compile after all goes to the oracle; a warning and the placements say why.
    """

    def __init__(self, plan: Plan, oracle: Target) -> None:
        bodies = {graph: Program(each, oracle).run for graph, each in plan.bodies.items() if _leaves_the_oracle(each)}
        executables = [_compiled(segment, bodies, oracle) for segment in plan.segments]
        failed = {
            node: reason
            for (_, reason), segment in zip(executables, plan.segments, strict=True)
            for node in segment.graph.nodes
            if reason
        }
        self.plan = _moved(plan, failed, oracle) if failed else plan
        pairs = zip(executables, plan.segments, strict=True)
        self._stages = [_Stage(executable, segment.graph) for (executable, _), segment in pairs]
        self._places, self._fixed = _places(plan)
        self._outputs = [self._places[value] for value in plan.graph.outputs]
        last: dict[int, _Stage] = {}
        for each in self._stages:
            each.reads = [self._places[value] for value in each.graph.inputs]
            each.writes = [self._places[value] for value in each.graph.outputs]
            last.update(dict.fromkeys((*each.reads, *each.writes), each))
        for place, each in last.items():
            if place >= len(plan.graph.inputs) and place not in self._outputs:
                each.frees.append(place)

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        """The graph's outputs. RunStopped and OutOfMemory when the allowance is used up."""
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
            if at not in stage.executable.addressed
        }
        return {at for at, value in enumerate(graph.inputs) if value not in others and value not in graph.outputs}

    @property
    def peak_bytes(self) -> int | None:
        """The memory for the intermediate results of the hungriest segment; None if one does not tell."""
        told = [stage.executable.peak_bytes for stage in self._stages]
        known = [each for each in told if each is not None]
        return max(known, default=0) if len(known) == len(told) else None


def _places(plan: Plan) -> tuple[dict[Value, int], list[Any]]:
    """Where in a run's list each value lies, and what that list holds behind the inputs when the run begins: the
    constants among the outputs, and room for what segments make."""
    graph = plan.graph
    made = (value for segment in plan.segments for value in segment.graph.outputs)
    constants = (value for value in graph.outputs if value in graph.constants)
    order = dict.fromkeys((*graph.inputs, *constants, *made))
    behind = [graph.constants.get(value) for value in order][len(graph.inputs) :]
    return {value: place for place, value in enumerate(order)}, behind


def _leaves_the_oracle(plan: Plan) -> bool:
    """Whether anything of a plan runs elsewhere."""
    own = any(segment.target.name != "reference" for segment in plan.segments)
    return own or any(map(_leaves_the_oracle, plan.bodies.values()))


def _compiled(segment: Segment, bodies: Bodies, oracle: Target) -> tuple[Executable, str]:
    """A segment made runnable, on the oracle if its target fails; then with the reason."""
    try:
        return segment.target.compile(segment.graph, bodies), ""
    except CompileFailed as error:
        warnings.warn(f"{segment.graph.name} runs on the target '{oracle.name}': {error}", RuntimeWarning, stacklevel=2)
        return oracle.compile(segment.graph, bodies), str(error).partition("\n")[0]


def _moved(plan: Plan, failed: Mapping[Node, str], oracle: Target) -> Plan:
    """The plan with the nodes that could not be compiled on the oracle."""
    placements = tuple(
        Placement(each.node, oracle.name, failed[each.node]) if each.node in failed else each
        for each in plan.placements
    )
    segments = tuple(
        Segment(oracle, each.graph) if failed.keys() & each.graph.nodes else each for each in plan.segments
    )
    return replace(plan, segments=segments, placements=placements)


def _collector(wanted: set[Value], found: dict[Value, Any]) -> Callable[[Event], None]:
    def collect(event: Event) -> None:
        for value, result in zip(event.node.outputs, event.results, strict=True):
            if value in wanted:
                found[value] = result

    return collect


def named_values(graph: Graph) -> dict[str, Value]:
    """The values of `graph` and of the bodies in it by their source names, in the order in which they are computed."""
    names: dict[Value, list[str]] = {}
    for name, value in graph.names.items():
        names.setdefault(value, []).append(name)
    ordered: dict[str, Value] = {}
    for node in graph.nodes:
        for region in node.regions:
            ordered.update(named_values(region))
        ordered.update((name, value) for value in node.outputs for name in names.pop(value, ()))
    return {**{name: value for value, listed in names.items() for name in listed}, **ordered}


def _constants(graph: Graph) -> dict[Value, Any]:
    """The constants of `graph` and of the bodies in it."""
    found: dict[Value, Any] = dict(graph.constants)
    for node in graph.nodes:
        for region in node.regions:
            found.update(_constants(region))
    return found
