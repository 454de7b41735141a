"""Fuzzing: random valid graphs, on whose results the oracle and its peers must agree.

The verdict rests on the noise floor (`assay.evidence.compare.noise`), not on a hand-set tolerance. A disagreement is
shrunk to a minimal graph and printed as IR text. What a peer left out, what is undecided and what is known to deviate
is counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.errors import NotFound
from assay.evidence.compare.arrays import Closeness
from assay.evidence.compare.noise import Noise, noise_of
from assay.evidence.fuzz.graph_cases import (
    GraphCase,
    NotComputed,
    alone,
    pruned,
    random_case,
    with_constants,
    with_inputs,
    without,
)
from assay.evidence.fuzz.graph_peers import DEVIATES, KINDS, PEERS, Peer, PeerAnswer
from assay.evidence.fuzz.graph_targets import ELSEWHERE, TargetPeer
from assay.ir.graph import Graph, Node, Value
from assay.ir.printer import print_graph

Progress = Callable[[int, int], None]
"""Called with how many graphs are done, and how many there will be."""

ALL_PEERS = tuple(PEERS)
_REASONS = 20
"""So many reasons of a kind are shown."""


@dataclass(frozen=True)
class GraphFinding:
    """A disagreement, shrunk: `text` is a graph without inputs that shows it, `ops` are those in it."""

    peer: str
    index: int
    message: str
    ops: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"graph {self.index}, {self.peer}: {self.message}\n{self.text}"


@dataclass
class Tally:
    """What one peer did: graphs that it computed in whole, in part and not at all, results and elements compared.

    `undecided` counts elements whose right answer rounding alone can change; `left_out` nodes by kind and reason.
    """

    whole: int = 0
    part: int = 0
    none: int = 0
    results: int = 0
    elements: int = 0
    undecided: int = 0
    left_out: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter[str]() for kind in (*KINDS, ELSEWHERE)}
    )


@dataclass
class GraphFuzzReport:
    """What came of a run. `ok` only if there was no disagreement at all, and something was compared."""

    seed: int
    graphs: int = 0
    nodes: int = 0
    seconds: float = 0.0
    ops: Counter[str] = field(default_factory=Counter[str])
    peers: dict[str, Tally] = field(default_factory=dict[str, Tally])
    findings: list[GraphFinding] = field(default_factory=list[GraphFinding])

    @property
    def ok(self) -> bool:
        """True where every peer agreed wherever it answered, and each answered."""
        return not self.findings and all(tally.results for tally in self.peers.values())

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        peers: dict[str, Any] = {}
        for name, tally in self.peers.items():
            left_out = {kind: dict(reasons.most_common()) for kind, reasons in tally.left_out.items()}
            peers[name] = {**vars(tally), "left_out": left_out}
        fields = {**vars(self), "ops": dict(self.ops.most_common()), "peers": peers, "ok": self.ok}
        return {**fields, "findings": [vars(finding) for finding in self.findings]}

    def __str__(self) -> str:
        lines = [
            f"{self.graphs} graphs of {self.nodes} nodes and {len(self.ops)} ops from seed {self.seed} "
            f"in {self.seconds:.1f} s: {len(self.findings)} disagreements"
        ]
        for name, tally in self.peers.items():
            lines.append(
                f"  {name}: {tally.whole} graphs in whole, {tally.part} in part, {tally.none} not at all; "
                f"{tally.elements} elements of {tally.results} results compared, {tally.undecided} undecided"
            )
            for kind, reasons in tally.left_out.items():
                lines += [f"    {reasons.total()} nodes {kind}, for {len(reasons)} reasons"] if reasons else []
            for kind in (DEVIATES, ELSEWHERE):
                lines += [f"      {count} × {reason}" for reason, count in tally.left_out[kind].most_common(_REASONS)]
        return "\n".join([*lines, *map(str, self.findings)])


def run_fuzz(
    count: int,
    seed: int = 0,
    peers: Sequence[str] = ALL_PEERS,
    progress: Progress | None = None,
    ops: Sequence[str] | None = None,
    first: int = 0,
) -> GraphFuzzReport:
    """Compare `peers` with the oracle on `count` random graphs from number `first` on, made of `ops` if any are named.

    A peer is one of `ALL_PEERS` or a chain of targets, with `SYMBOLIC` behind it if sizes are to be symbols. Graph
    number i depends on `seed` and i alone. NotFound for a peer that does not exist.
    """
    asked = [_peer(name) for name in peers]
    report = GraphFuzzReport(seed, peers={peer.name: Tally() for peer in asked})
    started = time.perf_counter()
    for index in range(count):
        _one(report, first + index, asked, ops)
        if progress is not None:
            progress(index + 1, count)
    report.seconds = time.perf_counter() - started
    return report


def make_case(seed: int, index: int, ops: Sequence[str] | None = None) -> GraphCase:
    """Graph number `index` of a run; NotComputed if an op's reference fails on it."""
    return random_case(np.random.default_rng([seed, index]), ops)


def _peer(name: str) -> Peer:
    if name in PEERS:
        return PEERS[name]()
    try:
        return TargetPeer(name)
    except NotFound as error:
        hint = f"there is {', '.join(PEERS)}, and a target or a chain"
        raise NotFound(f"there is no peer '{name}' to fuzz against: {error.message}", hint=hint) from error


def _one(report: GraphFuzzReport, index: int, peers: Sequence[Peer], ops: Sequence[str] | None) -> None:
    report.graphs += 1
    try:
        case = make_case(report.seed, index, ops)
    except NotComputed as failed:
        report.findings.append(GraphFinding("oracle", index, str(failed), (failed.op,), ""))
        return
    report.nodes += len(case.graph.nodes)
    report.ops.update(node.op for node in case.graph.nodes)
    noise = noise_of(case.graph, case.values, index)
    for peer in peers:
        answer = peer.ask(case)
        _count(report.peers[peer.name], case, answer, noise)
        if _disagreement(case, answer, noise):
            report.findings.append(_shrunk(peer, case, index))


# --- the verdict


def _count(tally: Tally, case: GraphCase, answer: PeerAnswer, noise: dict[Value, Noise]) -> None:
    for _, kind, reason in answer.left_out:
        tally.left_out[kind][reason] += 1
    if not answer.values:
        tally.none += 1
    elif answer.left_out:
        tally.part += 1
    else:
        tally.whole += 1
    for value in answer.values:
        if value not in noise:
            continue
        found, size = noise[value], int(np.size(case.values[value]))
        open_ = size if found.everything else 0 if found.undecided is None else int(np.count_nonzero(found.undecided))
        tally.results += 1
        tally.elements += size - open_
        tally.undecided += open_


def _disagreement(case: GraphCase, answer: PeerAnswer, noise: dict[Value, Noise]) -> str:
    """How an answer differs from the oracle's by more than the noise; empty if it does not."""
    if answer.failure:
        return answer.failure
    for value, actual in answer.values.items():
        found = noise[value].judge(actual, case.values[value]) if value in noise else Closeness()
        if not found.ok:
            return f"{value}: {found}"
    return ""


# --- shrinking


def _shrunk(peer: Peer, case: GraphCase, index: int) -> GraphFinding:
    """The disagreement on the least graph that can be found to show it."""

    def shows(smaller: GraphCase) -> str:
        answer = peer.ask(smaller)
        return _disagreement(smaller, answer, noise_of(smaller.graph, smaller.values, index))

    least = shrink(case, lambda smaller: bool(shows(smaller)))
    message = shows(least) or "seen once in the whole graph, not in the parts"
    text = print_graph(with_constants(least, least.graph.inputs).graph)
    return GraphFinding(peer.name, index, message, tuple(sorted({node.op for node in least.graph.nodes})), text)


def shrink(case: GraphCase, shows: Callable[[GraphCase], bool]) -> GraphCase:
    """A case as small as can be found of which `shows` still holds.

    A single node will often do; else nodes are cut out, their results becoming inputs, one after the other. In the end
    contents are made plain, zeros or ones, where that shows it too.
    """
    for node in case.graph.nodes:
        single = alone(case, node)
        if shows(single):
            return _plain(single, shows)
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            if shows(smaller):
                case, found = smaller, True
                break
    return _plain(case, shows)


def _smaller(case: GraphCase) -> list[GraphCase]:
    """The case with one output alone, and with one node less."""
    outputs = [_with_outputs(case, [value]) for value in case.graph.outputs] if len(case.graph.outputs) > 1 else []
    return outputs + [without(case, [node]) for node in _last_first(case.graph)]


def _last_first(graph: Graph) -> list[Node]:
    return list(reversed(graph.nodes)) if len(graph.nodes) > 1 else []


def _with_outputs(case: GraphCase, outputs: Sequence[Value]) -> GraphCase:
    graph = case.graph
    return pruned(GraphCase(Graph(graph.name, graph.inputs, tuple(outputs), graph.nodes, graph.constants), case.values))


def _plain(case: GraphCase, shows: Callable[[GraphCase], bool]) -> GraphCase:
    for value in case.graph.inputs:
        array = case.values[value]
        if array.dtype == object:
            continue
        for plain in (np.zeros_like(array), np.ones_like(array)):
            try:
                simpler = with_inputs(case, {value: plain})
            except NotComputed:
                continue
            if shows(simpler):
                case = simpler
                break
    return case
