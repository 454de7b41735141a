"""What targets are asked to take: every op, dtype and sample, at several levels of knowledge, control flow, and what
is rare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TypeAlias

from ops.cases import OPS, samples
from ops.knowledge import View, views
from suites.control_cases import CASES, GROWING
from suites.op_cases import single
from suites.rare_nodes import rare_nodes

from assay.ir.dtypes import DType
from assay.ir.graph import Graph, Node
from assay.limits import DEFAULT
from assay.ops.lowering import adapt
from assay.ops.registry import OpDef
from assay.runtime.targets import make_target
from assay.targets.base import Limitation, Target

KNOWN = "fixed values"
"""The level at which all sizes are numbers."""
LEVELS = (KNOWN, "symbols and fixed values", "one symbol a size", "ranks and fixed values")


Dtypes: TypeAlias = dict[str, dict[DType, None]]
"""Dtypes under a word each, in the order in which they came."""


def _dtypes() -> Dtypes:
    return defaultdict(dict)


@dataclass
class Census:
    """How a target answers: the ops and dtypes that each limitation met, and how each op and dtype runs if all sizes
    are known: as a whole, by its parts, or with something left to the oracle."""

    met: dict[Limitation, Dtypes] = field(default_factory=lambda: defaultdict(_dtypes))
    ways: dict[str, Dtypes] = field(default_factory=lambda: defaultdict(_dtypes))
    disagreements: list[str] = field(default_factory=list[str])
    """Nodes to which the target says something else than its limitations do."""


@cache
def counted(name: str) -> Census:
    """The census of a registered target."""
    return census(make_target(name, "exact", DEFAULT))


def census(target: Target) -> Census:
    """Ask a target about everything."""
    found, table = Census(), target.limitations()

    def takes(node: Node, dtype: DType | None) -> bool:
        said, stated = target.support(node), table.support(node)
        if said != stated:
            found.disagreements.append(f"{node.op} {dtype}: {said}, its limitations say {stated}")
        for each in (node, *(inner for region in node.regions for inner in region.walk())):
            row = None if stated.ok else table.first(each)
            if row is not None:
                found.met[row][each.op].update({} if dtype is None else {dtype: None})
        return said.ok

    for definition, dtype, level, graph in op_graphs():
        accepts = partial(takes, dtype=dtype)
        refused = [node for node in graph.nodes if not accepts(node)]
        if level == KNOWN:
            way = "whole" if not refused else _by_parts(graph, accepts)
            found.ways[definition.name][way].setdefault(dtype)
    for node in (*(node for graph in control_graphs() for node in graph.nodes), *rare_nodes()):
        takes(node, None)
    return found


def _by_parts(graph: Graph, accepts: Callable[[Node], bool]) -> str:
    """How a graph runs, of which something is refused as a whole."""
    refused = [node for node in adapt(graph, accepts, DEFAULT).nodes if not accepts(node)]
    return "oracle" if refused else "parts"


@cache
def op_graphs() -> tuple[tuple[OpDef, DType, str, Graph], ...]:
    """Each sample as a graph of one node, at each level."""
    return tuple(_op_graphs())


def _op_graphs() -> Iterator[tuple[OpDef, DType, str, Graph]]:
    for definition in OPS:
        for dtype, sample, rng in samples(definition):
            seen: dict[str, View] = {view.level: view for view in views(rng, definition, sample)}
            for level in LEVELS:
                yield definition, dtype, level, single(definition, sample, seen[level])


def control_graphs() -> Iterator[Graph]:
    """The cases of control flow, as they are placed: unknown sizes have names."""
    return (adapt(case.lowered(), lambda node: True, DEFAULT) for case in (*CASES.values(), *GROWING.values()))
