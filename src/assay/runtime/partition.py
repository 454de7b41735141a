"""Partition: decides where every node runs, and cuts the graph into segments of one target each.

Targets form a chain that ends at the oracle, and a node goes to the first target that takes it. `islands.py` then
looks at what is placed between segments of other targets: it stays only if it is worth its transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush

from assay.errors import CompileFailed
from assay.ir.dims import symbols
from assay.ir.graph import Graph, Node, Value, captured, used
from assay.ir.types import TensorType, size_in_bytes, symbol_axes
from assay.limits import Limits
from assay.ops.lowering import adapt, parts_of
from assay.ops.registry import Effect, effect_of
from assay.runtime import islands
from assay.runtime.placement import Placement, Refusal
from assay.targets.base import Target


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of nodes for one target, as a graph of its own."""

    target: Target
    graph: Graph


@dataclass(frozen=True)
class Plan:
    """A graph cut up: `graph` is what was placed (refused composites decomposed).

    `bodies` are the plans of bodies whose nodes run on the oracle, as graphs that take what the bodies capture as
    further inputs.
    """

    graph: Graph
    segments: tuple[Segment, ...]
    placements: tuple[Placement, ...]
    bodies: Mapping[Graph, Plan] = field(default_factory=dict[Graph, "Plan"])

    @cached_property
    def makers(self) -> Mapping[Value, Node]:
        """The node that makes each value, those in bodies left out."""
        return {value: node for node in self.graph.nodes for value in node.outputs}


def partition(
    graph: Graph, chain: Sequence[Target], limits: Limits, *, refused: str = "", watched: bool = False
) -> Plan:
    """Place every node on the first target of `chain` that takes it, with the reasons of those that do not.

    The chain ends at the oracle, which takes all. `refused` is a reason of all others for all nodes. If the run is
    `watched`, nodes with bodies go to the oracle: each run of a body is then one of its own, of whose nodes an observer
    is told.

    A composite that no target takes but the oracle is decomposed and its parts are placed in turn; so is one that an
    earlier target takes in parts, all of them, and a later one as a whole. A node whose types have a symbol that is no
    size of an input, nor of a result of the oracle, stays on the oracle, as no segment could learn the symbol's value.
    """
    *takers, oracle = chain
    if refused or not takers:
        refusals = tuple(Refusal(each.name, refused) for each in takers)
        notes = {node: waiting(node) or ("" if takers else refused) for node in graph.nodes}
        placements = tuple(Placement(node, oracle.name, refusals, note) for node, note in notes.items())
        return Plan(graph, (Segment(oracle, graph),), placements)
    graph = adapt(graph, lambda node: _stays_whole(node, graph, takers, limits), limits)
    placements = islands.weighed(_placed(graph, takers, oracle, watched), graph, chain)
    sources = symbol_sources(graph, placements, oracle)
    runs = cut(placements, sources, oracle.name)
    left = [each.node for each in placements if each.target == oracle.name and each.node.op != "deferred"]
    bodies = {body: _body(body, chain, limits, watched) for node in left for body in node.regions}
    targets = {each.name: each for each in chain}
    return Plan(graph, _segments(graph, runs, targets, sources, oracle), placements, bodies)


def _stays_whole(node: Node, graph: Graph, takers: Sequence[Target], limits: Limits) -> bool:
    """Whether a composite is placed as it is."""
    whole = next((at for at, target in enumerate(takers) if target.support(node).ok), None)
    if whole is None:
        return False
    return not any(_takes_parts(target, node, graph, limits) for target in takers[:whole])


def _takes_parts(target: Target, node: Node, graph: Graph, limits: Limits) -> bool:
    """Whether a target takes every part of a composite that it refuses."""
    parts = parts_of(node, graph.constants, lambda each: target.support(each).ok, limits)
    return all(target.support(part).ok for part in parts.nodes)


def _body(body: Graph, chain: Sequence[Target], limits: Limits, watched: bool) -> Plan:
    """The plan of a body as a graph of its own."""
    whole = replace(body, inputs=(*body.inputs, *captured(body)), input_names=())
    return partition(whole, chain, limits, watched=watched)


def _placed(graph: Graph, takers: Sequence[Target], oracle: Target, watched: bool) -> tuple[Placement, ...]:
    known = {name for value in graph.inputs for name, _ in symbol_axes(value.type)}
    placements: list[Placement] = []
    for node in graph.nodes:
        refusals: list[Refusal] = []
        home = oracle
        for target in takers:
            reason = "its bodies are watched" if watched and node.regions else _refusal(target, node, known)
            if not reason:
                home = target
                break
            refusals.append(Refusal(target.name, reason))
        if home is oracle:
            known.update(name for value in node.outputs for name, _ in symbol_axes(value.type))
        placements.append(Placement(node, home.name, tuple(refusals), waiting(node)))
    return tuple(placements)


def _refusal(target: Target, node: Node, known: Collection[str]) -> str:
    """Why a node cannot run on a target; empty if it can."""
    support = target.support(node)
    if not support.ok:
        return support.reason
    needed = needed_symbols(node)
    if needed and target.traits.sizes == "specialised":
        return f"the size {min(needed)} is not known before the run"
    missing = needed.difference(known)
    return f"nothing tells the size {min(missing)}" if missing else ""


def needed_symbols(node: Node) -> frozenset[str]:
    """The symbols in the types of what a node reads and makes, in its bodies too."""
    inner = [value for region in node.regions for each in region.walk() for value in (*used(each), *each.outputs)]
    kinds = [value.type for value in (*used(node), *node.outputs, *inner)]
    dims = [dim for kind in kinds if isinstance(kind, TensorType) for dim in kind.shape or ()]
    return frozenset[str]().union(*map(symbols, dims))


def symbol_sources(graph: Graph, placements: Sequence[Placement], oracle: Target) -> dict[str, Value]:
    """For each symbol the first value that has it as a size: an input, or a result of the oracle."""
    found: dict[str, Value] = {}
    made = [value for each in placements if each.target == oracle.name for value in each.node.outputs]
    for value in (*graph.inputs, *made):
        for name, _ in symbol_axes(value.type):
            found.setdefault(name, value)
    return found


def waiting(node: Node) -> str:
    """Why a node is lowered only when the program runs; empty for one that is not."""
    return f"lowered when the program runs: it needs {node.attrs['reason']}" if node.op == "deferred" else ""


def cut(placements: Sequence[Placement], sources: Mapping[str, Value], oracle: str) -> list[tuple[str, list[Node]]]:
    """The nodes in few runs of one target each: a run takes all that can be computed by then.

    Nodes that act on something outside, such as a generator of random numbers, keep their order.
    """
    missing, waiters = _dependencies(placements, sources, oracle)
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
    placements: Sequence[Placement], sources: Mapping[str, Value], oracle: str
) -> tuple[list[int], list[list[int]]]:
    """How many nodes each node waits for, and which ones wait for it.

    A node on a target waits for what tells it its symbols; on the oracle it needs to be told none.
    """
    maker = {value: index for index, each in enumerate(placements) for value in each.node.outputs}
    missing: list[int] = []
    waiters: list[list[int]] = [[] for _ in placements]
    acting: int | None = None
    for index, each in enumerate(placements):
        needs = list(used(each.node))
        if each.target != oracle:
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
    oracle: Target,
) -> tuple[Segment, ...]:
    needed_later: set[Value] = set(graph.outputs)
    segments: list[Segment] = []
    for name, nodes in reversed(runs):
        made = {value for node in nodes for value in node.outputs}
        reads = dict.fromkeys(value for node in nodes for value in used(node) if value not in made)
        if name != oracle.name:
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


def without(segment: Segment, node: Node, home: Target) -> tuple[Segment, ...]:
    """A segment in parts, with one of its nodes on another target."""
    own = segment.target.name
    graph = replace(segment.graph, name=segment.graph.name.removesuffix(f".{own}"))
    placements = [Placement(each, home.name if each is node else own) for each in graph.nodes]
    sources = symbol_sources(graph, (), home)
    targets = {own: segment.target, home.name: home}
    return _segments(graph, cut(placements, sources, home.name), targets, sources, home)


def _telling(
    nodes: Sequence[Node], reads: Collection[Value], graph: Graph, sources: Mapping[str, Value]
) -> Iterator[Value]:
    """Values that a segment takes only because their sizes tell it its symbols."""
    given = {name for value in reads if value not in graph.constants for name, _ in symbol_axes(value.type)}
    for name in sorted(frozenset[str]().union(*map(needed_symbols, nodes)) - given):
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
