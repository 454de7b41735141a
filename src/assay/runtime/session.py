"""The session: one model made runnable on a target. Run it, observe any value, see where each op went."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from assay.errors import CompileFailed, NotFound, hint_for
from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value
from assay.limits import Limits
from assay.ops.lowering import lower
from assay.passes import STANDARD, UNFOLDED, apply
from assay.passes.hoist import hoist
from assay.runtime.explanation import Explanation, explained, op_name
from assay.runtime.feeds import check_feeds, place_of
from assay.runtime.options import SessionOptions as SessionOptions
from assay.runtime.options import options_from
from assay.runtime.partition import Placement, Plan, Segment, partition, transferred_bytes
from assay.runtime.stages import stage
from assay.runtime.targets import make_target
from assay.runtime.variants import Variants, deciding_inputs
from assay.targets.base import Event, Executable, Observer, Target

Check: TypeAlias = Callable[[], None]


def _go_on() -> None:
    """The check of a run that nobody stops."""


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
        self.state = dict(self.memory.initial)
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
        check: Check = _go_on,
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """The outputs by name (all, or those asked for). BadFeed says in a sentence what does not fit.

        An input that the model changes in place is changed: the array that was fed gets the new content.
        `check` is called before each segment and stops the run by raising; `observer` is told of every node.
        """
        wanted = self._known(self.output_names if outputs is None else outputs, self.output_names, "output")
        if not self.memory.renewals:
            by_name = self._results(self._given(feeds), check, observer)
        else:
            with self._running:
                by_name = self._renewed(feeds, check, observer)
        return {name: by_name[name] for name in wanted}

    def reset(self) -> None:
        """Put the state back to what the model came with."""
        with self._running:
            self.state = dict(self.memory.initial)

    def explain(self) -> Explanation:
        """Every node, those in bodies too: source, op, target and, where there is something to say, the reason.

        Where the content of inputs decides sizes, this is what the latest run was made of.
        """
        plan = self._latest.plan
        rows = tuple(row for placement in plan.placements for row in explained(placement))
        return Explanation(rows, len(plan.segments), transferred_bytes(plan), self.target.name)

    def ran_on(self, node: Node) -> str:
        """The target that ran a node in the latest run; that of a body's nodes is the session's."""
        return self._latest.places.get(node, self.target.name)

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

    def _results(self, given: Sequence[Any], check: Check, observer: Observer | None) -> dict[str, Any]:
        results = self._chosen(given).run(given, observer, check=check)
        return dict(zip(self.source.output_names, results, strict=True))

    def _renewed(self, feeds: Mapping[str, Any], check: Check, observer: Observer | None) -> dict[str, Any]:
        """The outputs of a run that leaves new content in the state and in inputs that were fed."""
        places = {name: place_of(name, feeds) for name in self.memory.renewals.values() if name not in self.state}
        by_name = self._results(self._given(feeds), check, observer)
        fresh = {name: by_name.pop(output) for output, name in self.memory.renewals.items()}
        if any(np.may_share_memory(*pair) for pair in itertools.product(_arrays(by_name), _arrays(fresh, places))):
            by_name = {name: np.array(value) for name, value in by_name.items()}
        for name, content in fresh.items():
            if name in self.state:
                self.state[name] = content
            else:
                np.copyto(places[name], content)
        return by_name

    def _lower(self, facts: Sequence[Fact]) -> Graph:
        with stage("lower"):
            return lower(self.source, facts, decomposed=self.options.decomposed, limits=self.options.limits)

    def _make_variants(self) -> Variants[Program] | None:
        """None if nothing is to be gained: the oracle takes every node as it is."""
        places = () if self.target.name == "reference" else deciding_inputs(self.lowered)
        return Variants(places, self._variant) if places else None

    def _variant(self, content: Mapping[int, Array]) -> Program:
        facts = [replace(fact, value=content.get(index, fact.value)) for index, fact in enumerate(self._facts)]
        return self._compile(self._lower(facts))

    def _chosen(self, given: Sequence[Any]) -> Program:
        """The program for these inputs."""
        found = None if self._variants is None else self._variants.find(given)
        self._latest = chosen = found or self._program
        return chosen

    def _compile(self, graph: Graph, optimize: bool | None = None) -> Program:
        wanted = self.options.optimizes if optimize is None else optimize
        with stage("compile"):
            return compile_program(graph, self.target, self.options.mode, self.options.limits, optimize=wanted)

    def _unoptimized(self) -> Program:
        """The program in which every named value of the source is still computed."""
        with self._lock:
            if self._plain is None:
                self._plain = self._compile(self.lowered, optimize=False)
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


def _arrays(*groups: Mapping[str, Any]) -> list[Any]:
    return [value for group in groups for value in group.values() if isinstance(value, np.ndarray)]


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


def place_program(graph: Graph, target: Target, mode: str, limits: Limits, *, refused: str = "") -> Program:
    """A core graph as it is on `target`; what that refuses goes to the oracle, with the reason `refused` all of it."""
    oracle = target if target.name == "reference" else make_target("reference", mode, limits)
    return Program(partition(graph, target, oracle, limits, refused=refused), oracle)


class Program:
    """The compiled segments of a plan, run one after the other; values are freed after their last use.

    A segment that its target cannot compile after all goes to the oracle; a warning and the placements say why.
    """

    def __init__(self, plan: Plan, oracle: Target) -> None:
        executables = [_compiled(segment, oracle) for segment in plan.segments]
        failed = {
            node: reason
            for (_, reason), segment in zip(executables, plan.segments, strict=True)
            for node in segment.graph.nodes
            if reason
        }
        self.plan = _moved(plan, failed, oracle) if failed else plan
        self.places = {placement.node: placement.target for placement in self.plan.placements}
        self._stages: list[tuple[Executable, Graph, tuple[Value, ...]]] = []
        last: dict[Value, int] = {}
        for index, segment in enumerate(plan.segments):
            last.update(dict.fromkeys((*segment.graph.outputs, *segment.graph.inputs), index))
        kept = set(plan.graph.outputs)
        for index, (segment, (executable, _)) in enumerate(zip(plan.segments, executables, strict=True)):
            dead = tuple(value for value, at in last.items() if at == index and value not in kept)
            self._stages.append((executable, segment.graph, dead))
        constants = plan.graph.constants
        self._fixed = {value: constants[value] for value in plan.graph.outputs if value in constants}
        self._whole = executables[0][0] if _is_all(plan) else None

    def run(self, inputs: Sequence[Any], observer: Observer | None = None, *, check: Check = _go_on) -> tuple[Any, ...]:
        """The graph's outputs; `check` is called before each segment and stops the run by raising."""
        check()
        if self._whole is not None:
            return self._whole.run(inputs, observer)
        graph = self.plan.graph
        values: dict[Value, Any] = {**self._fixed, **dict(zip(graph.inputs, inputs, strict=True))}
        for executable, segment, dead in self._stages:
            check()
            results = executable.run([values[value] for value in segment.inputs], observer)
            values.update(zip(segment.outputs, results, strict=True))
            for value in dead:
                values.pop(value, None)
        return tuple(values[value] for value in graph.outputs)

    @property
    def peak_bytes(self) -> int | None:
        """The memory for the intermediate results of the hungriest segment; None if one does not tell."""
        told = [executable.peak_bytes for executable, _, _ in self._stages]
        known = [each for each in told if each is not None]
        return max(known, default=0) if len(known) == len(told) else None


def _is_all(plan: Plan) -> bool:
    """Whether the first segment takes the inputs and gives the outputs of the whole graph, as they are."""
    if len(plan.segments) != 1:
        return False
    segment = plan.segments[0].graph
    return segment.inputs == plan.graph.inputs and segment.outputs == plan.graph.outputs


def _compiled(segment: Segment, oracle: Target) -> tuple[Executable, str]:
    """A segment made runnable, on the oracle if its target fails; then with the reason."""
    try:
        return segment.target.compile(segment.graph), ""
    except CompileFailed as error:
        warnings.warn(f"{segment.graph.name} runs on the target '{oracle.name}': {error}", RuntimeWarning, stacklevel=2)
        return oracle.compile(segment.graph), str(error).partition("\n")[0]


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
