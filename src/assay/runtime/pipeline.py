"""The way of a graph to a program, the same for every front end:

    lower → passes → place → the target's own passes, on each segment → prelude → compile

`core_graph` takes the first two steps, from the disk if they were taken before; `compiled` takes the others. `Model`
does both, and once more for sizes or contents of inputs that let a target take more of a model (`variants.py`).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import BadArgument, hint_for
from assay.ir.dtypes import is_array, read_only
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, fresh_ids, used
from assay.ir.types import TensorType, size_in_bytes, symbol_axes
from assay.limits import DEFAULT, Limits
from assay.memory import free_memory, with_room
from assay.ops.lowering import lower
from assay.passes import apply, standard_passes
from assay.passes.hoist import hoist, settled
from assay.passes.layout import take_as_laid_out
from assay.passes.stamp import stamped
from assay.runtime.explanation import explained_nodes
from assay.runtime.graph_cache import lowered_graph
from assay.runtime.partition import Plan, Segment, partition
from assay.runtime.placement import Placement
from assay.runtime.program import Program
from assay.runtime.stages import stage
from assay.runtime.variants import Known, Variants, deciding_inputs, symbolic_inputs
from assay.store import Store
from assay.targets.base import Target


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is compiled, whatever it came from.

    `chain` are the targets, the oracle last. `disabled` names passes that are switched off. Without `optimize`, only
    the passes run that a target requires. `store` keeps lowered graphs, under keys that depend on `versions`, too.
    """

    chain: tuple[Target, ...]
    mode: str = "exact"
    limits: Limits = DEFAULT
    optimize: bool = True
    decomposed: bool = False
    disabled: frozenset[str] = frozenset()
    store: Store | None = None
    versions: tuple[str, ...] = ()

    @property
    def oracle(self) -> Target:
        """The last target of the chain."""
        return self.chain[-1]


@dataclass(frozen=True, slots=True)
class Interface:
    """What is known of how a program will be called.

    The inputs at the places `static` change rarely: what depends on them alone is computed when they do. Those at
    `orders` are given with their axes in another order, as they lie in memory. `refused` is a reason to run all on
    the oracle. The program may be `watched` while it runs: then an observer is told of the nodes in bodies, too.
    """

    static: Sequence[int] = ()
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    refused: str = ""
    watched: bool = False


PLAIN = Interface()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program and, where it has static inputs, the prelude that computes what it needs of them.

    `reads` are the places of the inputs that the prelude takes. `program` takes all inputs, then the prelude's results.
    """

    program: Program
    prelude: Program | None = None
    reads: tuple[int, ...] = ()

    def bound(self, results: Sequence[Any]) -> Program:
        """The program for these results of the prelude; its runs take what is no result of that."""
        assert self.prelude is not None
        made = (read_only(result) if is_array(result) else result for result in results)
        return self.program.bind(dict(zip(self.prelude.plan.graph.outputs, made, strict=True)))


    def on_oracle(self) -> Compiled:
        """The same programs, as prepared for their targets, computed by the oracle: what is wrong here is wrong by a
        rewrite, not by a kernel."""
        return Compiled(self.program.on_oracle(), self.prelude and self.prelude.on_oracle(), self.reads)


# --- lower and pass


def core_graph(source: Graph, facts: Sequence[Fact] | None, settings: Settings) -> Graph:
    """`source` in core ops, after the standard passes; found on disk if it was made before."""
    given = facts or [Fact(value.type) for value in source.inputs]
    options = (settings.mode, str(settings.decomposed), *sorted(settings.disabled), *settings.versions)
    with stage("lower"):
        return lowered_graph(
            source,
            given,
            lambda: optimized(lowered(source, given, settings), settings.mode, settings.disabled),
            store=settings.store,
            options=options,
        )


def lowered(source: Graph, facts: Sequence[Fact] | None, settings: Settings) -> Graph:
    """`source` in core ops, before any pass: every value of the source that is computed at all has its name."""
    return lower(source, facts, decomposed=settings.decomposed, limits=settings.limits)


def optimized(graph: Graph, mode: str, disabled: Collection[str] = ()) -> Graph:
    """A core graph after the standard passes of the mode."""
    return apply(graph, standard_passes(mode), disabled=disabled)


# --- place, prepare, compile


def compiled(graph: Graph, settings: Settings, interface: Interface = PLAIN) -> Compiled:
    """A core graph made runnable: placed, prepared by the targets that got its segments, compiled."""
    with stage("compile"):
        _check_names(settings)
        graph = take_as_laid_out(graph, interface.orders)
        refused, watched = interface.refused, interface.watched
        plan = partition(graph, settings.chain, settings.limits, refused=refused, watched=watched)
        static = [graph.inputs[at] for at in interface.static]
        static = _with_room(static) if settings.optimize else []
        prepared = _prepared(plan, static, settings)
        early, late = _split(prepared, static, settings)
        if early is None:
            return Compiled(Program(late, settings.oracle, settings.disabled))
        prelude = Program(early, settings.oracle, settings.disabled)
        if not early.graph.inputs:
            late = _with_constants(late, dict(zip(early.graph.outputs, prelude.run(()), strict=True)))
            return Compiled(Program(late, settings.oracle, settings.disabled))
        reads = tuple(graph.inputs.index(value) for value in early.graph.inputs)
        return Compiled(Program(late, settings.oracle, settings.disabled), prelude, reads)


def placed(graph: Graph, settings: Settings, interface: Interface = PLAIN) -> Program:
    """A core graph as it is: placed and compiled, prepared only as far as its targets require."""
    return compiled(graph, replace(settings, optimize=False), replace(interface, static=())).program


def _check_names(settings: Settings) -> None:
    """BadArgument if a pass is switched off that does not exist, or without which a target cannot compile."""
    known = {each.__name__: False for each in standard_passes(settings.mode)}
    known |= {each.name: each.required for target in settings.chain for each in target.passes()}
    for name in sorted(settings.disabled):
        if name not in known:
            raise BadArgument(f"there is no pass '{name}'", hint=hint_for(name, known))
        if known[name]:
            raise BadArgument(f"the pass '{name}' cannot be switched off", hint="its target compiles nothing without")


def _with_room(static: Sequence[Value]) -> list[Value]:
    """The static inputs whose results may be kept beside them; if memory is short for some, a warning says so."""
    sizes = {index: size_in_bytes(value.type) or 0 for index, value in enumerate(static)}
    free = free_memory()
    chosen = with_room(sizes, free)
    if free is not None and len(chosen) < len(sizes):
        left = sum(sizes.values()) - sum(sizes[index] for index in chosen)
        warnings.warn(
            f"{free >> 20:,} MiB of memory are free: parameters of {left >> 20:,} MiB are read as they lie, not in the "
            "form that is fastest",
            RuntimeWarning,
            stacklevel=2,
        )
    return [static[index] for index in chosen]


def _prepared(plan: Plan, static: Sequence[Value], settings: Settings) -> Plan:
    """The plan with every segment rewritten as its target likes it; those of bodies only as far as it must be, as what
    a pass makes of weights would be made in every round."""
    known = settled(plan.graph, static)
    numbers = fresh_ids(plan.graph)
    segments = tuple(_rewritten(segment, known, numbers, settings) for segment in plan.segments)
    inside = replace(settings, optimize=False)
    bodies = {graph: _prepared(body, (), inside) for graph, body in plan.bodies.items()}
    return replace(_replanned(plan, segments), bodies=bodies)


def _rewritten(segment: Segment, known: Collection[Value], numbers: Iterator[int], settings: Settings) -> Segment:
    graph = segment.graph
    given = [value for value in graph.inputs if value in known]
    for each in segment.target.passes():
        runs = each.required or (settings.optimize and each.name not in settings.disabled)
        if each.apply is not None and runs:
            graph = stamped(graph, each.apply(graph, given, numbers), each.name)
    return Segment(segment.target, graph)


def _replanned(plan: Plan, segments: tuple[Segment, ...]) -> Plan:
    """The plan with other segments; its graph is what these hold, its placements tell of their nodes."""
    if all(new.graph is old.graph for new, old in zip(segments, plan.segments, strict=True)):
        return plan
    graph = plan.graph
    nodes = tuple(node for segment in segments for node in segment.graph.nodes)
    constants = {**graph.constants, **{v: array for each in segments for v, array in each.graph.constants.items()}}
    names = _names_in(graph, (*graph.inputs, *constants), nodes)
    before = {placement.node: placement for placement in plan.placements}
    placements = tuple(
        before.get(node) or Placement(node, segment.target.name) for segment in segments for node in segment.graph.nodes
    )
    whole = replace(graph, nodes=nodes, constants=constants, names=names)
    return replace(plan, graph=whole, segments=segments, placements=placements)


def _names_in(graph: Graph, given: Iterable[Value], nodes: Iterable[Node]) -> dict[str, Value]:
    """The names of `graph` whose values are given or made by these nodes."""
    there = {*given, *(value for node in nodes for value in node.outputs)}
    return {name: value for name, value in graph.names.items() if value in there}


def _split(plan: Plan, static: Sequence[Value], settings: Settings) -> tuple[Plan | None, Plan]:
    """The plan cut in two: what constants and static inputs determine, if there is such, and the rest."""
    if not settings.optimize or settings.mode != "exact":
        return None, plan
    known = {*static, *plan.graph.constants}
    early: list[Segment] = []
    late: list[Segment] = []
    for segment in plan.segments:
        given = [value for value in segment.graph.inputs if value in known]
        prelude, rest = hoist(segment.graph, given)
        known.update(value for node in prelude.nodes for value in node.outputs)
        if prelude.nodes:
            early.append(Segment(segment.target, prelude))
        if rest.nodes:
            late.append(Segment(segment.target, _without_unread(rest, known)))
    if not early:
        return None, plan
    return _early_plan(plan, early, late), _late_plan(plan, early, late)


def _without_unread(rest: Graph, known: Collection[Value]) -> Graph:
    """What is left of a segment, without inputs that only its prelude read and outputs that only that makes."""
    needed = {value for node in rest.nodes for value in used(node)}
    made = {value for node in rest.nodes for value in node.outputs}
    inputs = tuple(v for v in rest.inputs if v in needed or (v not in known and any(symbol_axes(v.type))))
    return replace(rest, inputs=inputs, outputs=tuple(value for value in rest.outputs if value in made))


def _early_plan(plan: Plan, early: Sequence[Segment], late: Sequence[Segment]) -> Plan:
    """The prelude: its results are what the other segments read and the graph gives."""
    nodes = tuple(node for segment in early for node in segment.graph.nodes)
    made = {value: None for node in nodes for value in node.outputs}
    wanted = {value for segment in late for value in segment.graph.inputs}.union(plan.graph.outputs)
    reads = {value for segment in early for value in segment.graph.inputs}
    handed_on = {*wanted, *reads}
    segments = tuple(
        Segment(each.target, replace(each.graph, outputs=tuple(_made_by(each.graph, handed_on)))) for each in early
    )
    graph = Graph(
        f"{plan.graph.name}.prelude",
        tuple(value for value in plan.graph.inputs if value in reads),
        tuple(value for value in made if value in wanted),
        nodes,
        {value: array for each in early for value, array in each.graph.constants.items()},
        {name: value for name, value in plan.graph.names.items() if value in made},
    )
    inside = set(nodes)
    placements = tuple(each for each in plan.placements if each.node in inside)
    return Plan(graph, segments, placements)


def _made_by(graph: Graph, wanted: Collection[Value]) -> list[Value]:
    return [value for node in graph.nodes for value in node.outputs if value in wanted]


def _late_plan(plan: Plan, early: Sequence[Segment], late: Sequence[Segment]) -> Plan:
    """What runs every time; its graph takes the results of the prelude as further inputs."""
    moved: set[Node] = {node for segment in early for node in segment.graph.nodes}
    wanted = {value for segment in late for value in segment.graph.inputs}.union(plan.graph.outputs)
    handed_on = tuple(dict.fromkeys(v for each in early for n in each.graph.nodes for v in n.outputs if v in wanted))
    nodes = tuple(node for segment in late for node in segment.graph.nodes)
    constants = {v: array for segment in late for v, array in segment.graph.constants.items()}
    graph = plan.graph
    outputs = {value: graph.constants[value] for value in graph.outputs if value in graph.constants}
    whole = replace(
        graph,
        inputs=(*graph.inputs, *handed_on),
        input_names=(),
        nodes=nodes,
        constants={**constants, **outputs},
        names=_names_in(graph, (*graph.inputs, *handed_on, *constants, *outputs), nodes),
    )
    placements = tuple(each for each in plan.placements if each.node not in moved)
    return Plan(whole, tuple(late), placements, plan.bodies)


def _with_constants(plan: Plan, made: Mapping[Value, Any]) -> Plan:
    """The plan in which what a prelude made of constants alone is constant."""
    segments = tuple(replace(each, graph=_with_constant_inputs(each.graph, made)) for each in plan.segments)
    whole = _with_constant_inputs(plan.graph, made)
    return replace(plan, graph=whole, segments=segments)


def _with_constant_inputs(graph: Graph, made: Mapping[Value, Any]) -> Graph:
    own = {value: made[value] for value in graph.inputs if value in made}
    inputs = tuple(value for value in graph.inputs if value not in made)
    return replace(graph, inputs=inputs, constants={**graph.constants, **own})


# --- models


class Model:
    """A model as programs: one that serves all inputs, and variants for sizes or contents that serve better.

    Variants are made when inputs ask for them and only if floats of the general program are left to the oracle.
    Threads may share this.
    """

    def __init__(
        self, source: Graph, facts: Sequence[Fact] | None, settings: Settings, interface: Interface = PLAIN
    ) -> None:
        self.source, self.settings, self.interface = source, settings, interface
        self.facts = facts or [Fact(value.type) for value in source.inputs]
        self._lowered: Graph | None = None
        self._lock = threading.Lock()
        self.general = self._compiled(self.facts)
        self._variants = self._make_variants()

    @property
    def lowered(self) -> Graph:
        """The model in core ops, before the passes."""
        with self._lock:
            if self._lowered is None:
                self._lowered = lowered(self.source, self.facts, self.settings)
            return self._lowered

    def program_for(self, inputs: Sequence[Any]) -> Program:
        """The program that runs these inputs."""
        found = None if self._variants is None else self._variants.find(inputs)
        return found or self.general.program

    def _compiled(self, facts: Sequence[Fact]) -> Compiled:
        settings = self.settings
        if not settings.optimize:
            with stage("lower"):
                graph = lowered(self.source, facts, settings)
            return compiled(graph, settings, self.interface)
        return compiled(core_graph(self.source, facts, settings), settings, self.interface)

    def _make_variants(self) -> Variants[Program] | None:
        """None if nothing is to be gained: targets take all that has floats, or the model tells all sizes."""
        if self.interface.static or not self._missed(self.general.program):
            return None
        deciding, sized = deciding_inputs(self.lowered), symbolic_inputs(self.source)
        return Variants(deciding, sized, self._variant) if deciding or sized else None

    def _variant(self, known: Known) -> Program | None:
        """A program for this alone; None if targets take no more of it than of the program for all."""
        program = self._compiled([_learned(fact, at, known) for at, fact in enumerate(self.facts)]).program
        return program if self._missed(program) < self._missed(self.general.program) else None

    def _missed(self, program: Program) -> int:
        """How many nodes with floats run elsewhere than they should: on the oracle, or, where a target of the chain
        takes only sizes that are known, on any other than the first."""
        *takers, oracle = (target.name for target in self.settings.chain)
        if not takers:
            return 0
        special = any(target.traits.sizes == "specialised" for target in self.settings.chain)
        rows = [row for row in explained_nodes(program.plan) if row.floats]
        return sum(row.target != takers[0] if special else row.target == oracle for row in rows)


def _learned(fact: Fact, place: int, known: Known) -> Fact:
    """What is known of an input in runs of a variant."""
    kind, shape = fact.type, known.shapes.get(place)
    if shape is not None and isinstance(kind, TensorType):
        kind = TensorType(kind.dtype, shape)
    return Fact(kind, known.content.get(place, fact.value))
