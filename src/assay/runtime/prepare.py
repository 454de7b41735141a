"""Placed segments made ready to compile: the targets' own passes, and a prelude that runs only when weights change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.ir.graph import Graph, Node, Origin, Value, fresh_ids, used
from assay.ir.types import symbol_axes
from assay.passes.hoist import hoist, static_values
from assay.passes.rewrite import Rewriting
from assay.passes.stamp import stamped
from assay.runtime.partition import Plan, Segment
from assay.runtime.placement import Placement
from assay.runtime.settings import Settings
from assay.targets.base import Target
from assay.targets.shared.resident import keep_static
from assay.targets.shared.tensors import known_shape

RESIDENT = "resident"
"""The pass after which weights stay on targets that have memory of their own."""


def prepared(plan: Plan, static: Sequence[Value], settings: Settings) -> Plan:
    """The plan with every segment rewritten as its target likes it; those of bodies only as far as it must be, as what
    a pass makes of weights would be made in every round."""
    known = static_values(plan.graph, static)
    numbers = fresh_ids(plan.graph)
    segments = tuple(_rewritten(segment, known, numbers, settings) for segment in plan.segments)
    inside = replace(settings, optimize=False)
    bodies = {graph: prepared(body, (), inside) for graph, body in plan.bodies.items()}
    return replace(_replanned(plan, segments), bodies=bodies)


def _rewritten(segment: Segment, known: Collection[Value], numbers: Iterator[int], settings: Settings) -> Segment:
    graph = segment.graph
    given = [value for value in graph.inputs if value in known]
    for each in segment.target.passes():
        runs = each.required or (settings.optimize and each.name not in settings.disabled)
        if each.apply is not None and runs:
            graph = stamped(graph, each.apply(graph, given, numbers), each.name)
    if segment.target.traits.own_memory and settings.optimize and RESIDENT not in settings.disabled:
        graph = stamped(graph, _with_resident(graph, given, numbers, segment.target), RESIDENT)
    return Segment(segment.target, graph)


def _with_resident(graph: Graph, static: Sequence[Value], numbers: Iterator[int], target: Target) -> Graph:
    """Weights that a segment reads as they are become views of themselves, for which nothing runs: what depends on
    weights alone is bound. `graph` itself where the target has no such view."""

    def keep(rewriting: Rewriting, origin: Origin, value: Value) -> Value:
        return rewriting.reshape(origin, value, known_shape(value))

    kept = keep_static(graph, [value for value in static if known_shape(value)], numbers, keep)
    before = set(graph.nodes)
    views = [node for node in kept.nodes if node not in before and node.op == "reshape"]
    return kept if all(target.support(node).ok for node in views) else graph


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


def split(plan: Plan, static: Sequence[Value], settings: Settings) -> tuple[Plan | None, Plan]:
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
    prelude_plan = _early_plan(plan, early, late)
    return prelude_plan, _late_plan(plan, prelude_plan.graph, late)


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


def _late_plan(plan: Plan, prelude: Graph, late: Sequence[Segment]) -> Plan:
    """What runs every time; its graph takes the results of the prelude as further inputs."""
    moved, handed_on = set(prelude.nodes), prelude.outputs
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


def with_constants(plan: Plan, made: Mapping[Value, Any]) -> Plan:
    """The plan in which what a prelude made of constants alone is constant."""
    segments = tuple(replace(each, graph=_with_constant_inputs(each.graph, made)) for each in plan.segments)
    whole = _with_constant_inputs(plan.graph, made)
    return replace(plan, graph=whole, segments=segments)


def _with_constant_inputs(graph: Graph, made: Mapping[Value, Any]) -> Graph:
    own = {value: made[value] for value in graph.inputs if value in made}
    inputs = tuple(value for value in graph.inputs if value not in made)
    return replace(graph, inputs=inputs, constants={**graph.constants, **own})
