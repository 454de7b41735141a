"""Partition: decides where every node runs, and cuts the graph into segments of one target each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from assay.errors import CompileFailed
from assay.ir.dims import symbols
from assay.ir.graph import Graph, Node, Value, captured, used
from assay.ir.types import TensorType, size_in_bytes, symbol_axes
from assay.limits import Limits
from assay.ops.lowering import adapt
from assay.ops.registry import Effect, effect_of
from assay.targets.base import Support, Target


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
    """A graph cut up: `graph` is what was placed (refused composites decomposed).

    `bodies` are the plans of bodies whose nodes run on the oracle, as graphs that take what the bodies capture as
    further inputs.
    """

    graph: Graph
    segments: tuple[Segment, ...]
    placements: tuple[Placement, ...]
    bodies: Mapping[Graph, Plan] = field(default_factory=dict[Graph, "Plan"])


def partition(
    graph: Graph, target: Target, fallback: Target, limits: Limits, *, refused: str = "", watched: bool = False
) -> Plan:
    """Place every node on `target` if it takes it, else on `fallback` with the reason.

    `refused` is a reason for all of them. If the run is `watched`, nodes with bodies go to `fallback`: each run of a
    body is then one of its own, of whose nodes an observer is told.

    Composites that `target` refuses are decomposed and their parts asked for in turn. A node whose types have a
    symbol that is no size of an input, nor of a result of `fallback`, stays on `fallback`, as no segment could
    learn the symbol's value.
    """
    if refused or target is fallback:
        placements = tuple(Placement(node, fallback.name, refused or waiting(node)) for node in graph.nodes)
        return Plan(graph, (Segment(fallback, graph),), placements)
    graph = adapt(graph, lambda node: target.support(node).ok, limits)
    placements = _placed(graph, target, fallback, watched)
    sources = symbol_sources(graph, placements, fallback)
    runs = _runs(placements, sources, fallback.name)
    targets = {each.name: each for each in (fallback, target)}
    left = [each.node for each in placements if each.target == fallback.name and each.node.op != "deferred"]
    bodies = {body: _body(body, target, fallback, limits, watched) for node in left for body in node.regions}
    return Plan(graph, _segments(graph, runs, targets, sources, fallback), placements, bodies)


def _body(body: Graph, target: Target, fallback: Target, limits: Limits, watched: bool) -> Plan:
    """The plan of a body as a graph of its own."""
    whole = replace(body, inputs=(*body.inputs, *captured(body)), input_names=())
    return partition(whole, target, fallback, limits, watched=watched)


def _placed(graph: Graph, target: Target, fallback: Target, watched: bool) -> tuple[Placement, ...]:
    known = {name for value in graph.inputs for name, _ in symbol_axes(value.type)}
    placements: list[Placement] = []
    for node in graph.nodes:
        support = Support(False, "its bodies are watched") if watched and node.regions else target.support(node)
        reason = support.reason if not support.ok else _unbound(node, known)
        if reason:
            known.update(name for value in node.outputs for name, _ in symbol_axes(value.type))
        placed = Placement(node, fallback.name, reason) if reason else Placement(node, target.name, waiting(node))
        placements.append(placed)
    return tuple(placements)


def _unbound(node: Node, known: Collection[str]) -> str:
    missing = needed_symbols(node).difference(known)
    return f"nothing tells the size {min(missing)}" if missing else ""


def needed_symbols(node: Node) -> frozenset[str]:
    """The symbols in the types of what a node reads and makes, in its bodies too."""
    inner = [value for region in node.regions for each in region.walk() for value in (*used(each), *each.outputs)]
    kinds = [value.type for value in (*used(node), *node.outputs, *inner)]
    dims = [dim for kind in kinds if isinstance(kind, TensorType) for dim in kind.shape or ()]
    return frozenset[str]().union(*map(symbols, dims))


def symbol_sources(graph: Graph, placements: Sequence[Placement], fallback: Target) -> dict[str, Value]:
    """For each symbol the first value that has it as a size: an input, or a result of `fallback`."""
    found: dict[str, Value] = {}
    made = [value for each in placements if each.target == fallback.name for value in each.node.outputs]
    for value in (*graph.inputs, *made):
        for name, _ in symbol_axes(value.type):
            found.setdefault(name, value)
    return found


def waiting(node: Node) -> str:
    """Why a node is lowered only when the program runs; empty for one that is not."""
    return f"lowered when the program runs: it needs {node.attrs['reason']}" if node.op == "deferred" else ""


def _runs(placements: Sequence[Placement], sources: Mapping[str, Value], fallback: str) -> list[tuple[str, list[Node]]]:
    """The nodes in few runs of one target each: a run takes all that can be computed by then.

    Nodes that act on something outside, such as a generator of random numbers, keep their order.
    """
    missing, waiters = _dependencies(placements, sources, fallback)
    ready: dict[str, list[int]] = {each.target: [] for each in placements}
    for index, each in enumerate(placements):
        if not missing[index]:
            heappush(ready[each.target], index)
    runs: list[tuple[str, list[Node]]] = []
    while any(ready.values()):
        previous = runs[-1][0] if runs else ""
        name = min((n for n, queue in ready.items() if queue), key=lambda n: (n == previous, ready[n][0]))
        runs.append((name, []))
        while ready[name]:
            index = heappop(ready[name])
            runs[-1][1].append(placements[index].node)
            for other in waiters[index]:
                missing[other] -= 1
                if not missing[other]:
                    heappush(ready[placements[other].target], other)
    _refuse_waiting([each.node for index, each in enumerate(placements) if missing[index]])
    return runs


def _refuse_waiting(nodes: Sequence[Node]) -> None:
    """CompileFailed if nodes are left that wait for each other: nothing may be dropped."""
    if nodes:
        names = ", ".join(f"{node.op} ({node.origin})" for node in nodes[:5])
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        raise CompileFailed(f"nodes wait for each other: {names}{more}", hint="a defect in Assay: please report this")


def _dependencies(
    placements: Sequence[Placement], sources: Mapping[str, Value], fallback: str
) -> tuple[list[int], list[list[int]]]:
    """How many nodes each node waits for, and which ones wait for it.

    A node on a target waits for what tells it its symbols; on `fallback` it needs to be told none.
    """
    maker = {value: index for index, each in enumerate(placements) for value in each.node.outputs}
    missing: list[int] = []
    waiters: list[list[int]] = [[] for _ in placements]
    acting: int | None = None
    for index, each in enumerate(placements):
        needs = list(used(each.node))
        if each.target != fallback:
            needs += [sources[name] for name in needed_symbols(each.node) if name in sources]
        before = {maker[value] for value in needs if value in maker} - {index}
        if effect_of(each.node) is not Effect.PURE:
            before |= set() if acting is None else {acting}
            acting = index
        missing.append(len(before))
        for other in before:
            waiters[other].append(index)
    return missing, waiters


def _segments(
    graph: Graph,
    runs: Sequence[tuple[str, list[Node]]],
    targets: Mapping[str, Target],
    sources: Mapping[str, Value],
    fallback: Target,
) -> tuple[Segment, ...]:
    needed_later: set[Value] = set(graph.outputs)
    segments: list[Segment] = []
    for name, nodes in reversed(runs):
        made = {value for node in nodes for value in node.outputs}
        reads = dict.fromkeys(value for node in nodes for value in used(node) if value not in made)
        if name != fallback.name:
            reads.update(dict.fromkeys(_telling(nodes, reads, graph, sources)))
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


def _telling(
    nodes: Sequence[Node], reads: Collection[Value], graph: Graph, sources: Mapping[str, Value]
) -> Iterator[Value]:
    """Values that a segment takes only because their sizes tell it its symbols."""
    told = {name for value in reads if value not in graph.constants for name, _ in symbol_axes(value.type)}
    for name in sorted(frozenset[str]().union(*map(needed_symbols, nodes)) - told):
        yield sources[name]


def crossings(plan: Plan) -> list[Value]:
    """The values that segments take from segments of other targets, once for each segment that takes them."""
    made_by = {value: segment.target.name for segment in plan.segments for value in segment.graph.outputs}
    return [
        value
        for segment in plan.segments
        for value in segment.graph.inputs
        if made_by.get(value, segment.target.name) != segment.target.name
    ]


def transferred_bytes(plan: Plan) -> int | None:
    """The bytes that cross from one target to another in a run; None if a size is not known before it."""
    sizes = [size_in_bytes(value.type) for value in crossings(plan)]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
