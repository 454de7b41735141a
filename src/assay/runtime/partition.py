"""Partition: decides where every node runs, and cuts the graph into segments of one target each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import TensorType
from assay.limits import Limits
from assay.ops.lowering import lower
from assay.targets.base import Target


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one node runs; `reason` says why not on the target that was asked for."""

    node: Node
    target: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of nodes for one target, as a graph of its own."""

    target: Target
    graph: Graph


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph cut up: `graph` is what was placed (refused composites decomposed)."""

    graph: Graph
    segments: tuple[Segment, ...]
    placements: tuple[Placement, ...]


def partition(graph: Graph, target: Target, fallback: Target, limits: Limits) -> Plan:
    """Place every node on `target` if it takes it, else on `fallback` with the reason.

    Composites that `target` refuses are decomposed and their parts asked for in turn.
    """
    if target is not fallback and any(not target.support(node).ok for node in graph.nodes):
        graph = lower(graph, accepts=lambda node: target.support(node).ok, limits=limits)
    placements = tuple(_place(node, target, fallback) for node in graph.nodes)
    runs = _runs(placements)
    return Plan(graph, _segments(graph, runs, {t.name: t for t in (fallback, target)}), placements)


def _place(node: Node, target: Target, fallback: Target) -> Placement:
    support = target.support(node)
    if support.ok:
        return Placement(node, target.name, waiting(node))
    return Placement(node, fallback.name, support.reason)


def waiting(node: Node) -> str:
    """Why a node is lowered only when the program runs; empty for one that is not."""
    return f"lowered when the program runs: it needs {node.attrs['reason']}" if node.op == "deferred" else ""


def _runs(placements: Sequence[Placement]) -> list[tuple[str, list[Node]]]:
    """Neighbours on one target, together."""
    runs: list[tuple[str, list[Node]]] = []
    for placement in placements:
        if not runs or runs[-1][0] != placement.target:
            runs.append((placement.target, []))
        runs[-1][1].append(placement.node)
    return runs


def _segments(graph: Graph, runs: list[tuple[str, list[Node]]], targets: dict[str, Target]) -> tuple[Segment, ...]:
    needed_later: set[Value] = set(graph.outputs)
    segments: list[Segment] = []
    for name, nodes in reversed(runs):
        made = {value for node in nodes for value in node.outputs}
        reads = dict.fromkeys(value for node in nodes for value in used(node) if value not in made)
        constants = {value: graph.constants[value] for value in reads if value in graph.constants}
        segment = Graph(
            name=f"{graph.name}.{name}",
            inputs=tuple(value for value in reads if value not in constants),
            outputs=tuple(dict.fromkeys(v for node in nodes for v in node.outputs if v in needed_later)),
            nodes=tuple(nodes),
            constants=constants,
        )
        segments.append(Segment(targets[name], segment))
        needed_later.update(segment.inputs)
    return tuple(reversed(segments))


def transferred_bytes(plan: Plan) -> int | None:
    """The bytes that cross from one target to another in a run; None if a size is not known before it."""
    total = 0
    made_by = {value: s.target.name for s in plan.segments for value in s.graph.outputs}
    for segment in plan.segments:
        for value in segment.graph.inputs:
            if made_by.get(value, segment.target.name) == segment.target.name:
                continue
            kind = value.type
            if not isinstance(kind, TensorType) or kind.shape is None:
                return None
            size = kind.dtype.numpy.itemsize
            for dim in kind.shape:
                if not isinstance(dim, int):
                    return None
                size *= dim
            total += size
    return total
