"""What became of every node of an aten graph: converted, removed, run by torch, or run elsewhere."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from assay.ir.graph import Graph, Node, Value
from assay.runtime.placement import Placement
from assay.runtime.targets import first_target
from assay.runtime.torch.graphs import CompiledGraph

Status: TypeAlias = Literal["converted", "removed", "opaque", "fallback"]

STATUSES: Mapping[Status, str] = {
    "converted": "runs as core ops on the target that was asked for",
    "removed": "nothing runs for it: its values are inputs, constants, computed elsewhere, or not needed",
    "opaque": "torch itself runs it",
    "fallback": "runs as core ops, at least one of them on another target",
}


@dataclass(frozen=True, slots=True)
class AtenNode:
    """One node of an aten graph: its status, the core ops that run for it, where, and why so."""

    graph: int
    op: str
    name: str
    status: Status
    core: tuple[str, ...]
    targets: tuple[str, ...]
    reason: str
    module: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class SizeInput:
    """An input that is a symbolic number: its name in the graph, the symbol or expression, what it is in the model."""

    input: str
    symbol: str
    source: str

    def __str__(self) -> str:
        return f"{self.symbol} = {self.source}" if self.source else f"{self.symbol} (input {self.input})"


def calls_of(module: fx.GraphModule) -> list[fx.Node]:
    """The nodes that count as ops: every call, apart from those that only take a result out of a tuple."""
    return [n for n in module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def account(index: int, graph: CompiledGraph, target: str, late: Mapping[Node, str]) -> list[AtenNode]:
    """The account of graph number `index`, one entry for each of `calls_of`; `target` is the chain asked for.

    `late` says why nodes that were lowered only when the program ran went to torch.
    """
    first = first_target(target)
    symbolic = {node.origin.name: node for node in graph.imported.graph.nodes}
    placed: dict[str, list[Placement]] = {}
    for placement in graph.placements:
        placed.setdefault(placement.node.origin.name, []).append(placement)
    rows: list[AtenNode] = []
    for call in calls_of(graph.fx):
        node, placements = symbolic[call.name], placed.get(call.name, [])
        status, reason = _judged(placements, first, late) if placements else ("removed", _absence(call, graph))
        core = tuple(dict.fromkeys(_core_op(placement.node) for placement in placements))
        targets = tuple(dict.fromkeys(placement.target for placement in placements))
        place = plain_name(node.origin.module), node.origin.file, node.origin.line
        rows.append(AtenNode(index, node.op, call.name, status, core, targets, reason, *place))
    return rows


def _judged(placements: list[Placement], target: str, late: Mapping[Node, str]) -> tuple[Status, str]:
    opaque = [p.node.attrs["reason"] for p in placements if p.node.op == "opaque"]
    opaque += [late[p.node] for p in placements if p.node in late]
    if opaque:
        return "opaque", _joined(opaque)
    elsewhere = [f"{_core_op(p.node)}: {p.reason}" for p in placements if p.target != target]
    if elsewhere:
        return "fallback", _joined(elsewhere)
    return "converted", _joined([p.reason for p in placements])


def _joined(reasons: list[str]) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def _core_op(node: Node) -> str:
    return node.regions[0].name if node.op == "deferred" else node.op


def _absence(call: fx.Node, graph: CompiledGraph) -> str:
    """Why no core node runs for `call`: what its values are now."""
    names = [user.name for user in call.users if user.target is operator.getitem]
    single = isinstance(call.meta.get("val"), torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
    names = [call.name] if single else names
    if not names:
        return "it makes no value that is used"
    return _joined([_whereabouts(name, graph) for name in names])


def _whereabouts(name: str, graph: CompiledGraph) -> str:
    now = graph.program.plan.graph
    value = now.names.get(name)
    if value is None:
        return "nothing that runs needs it"
    if value in now.constants:
        return "a constant"
    given = dict(zip(now.inputs, graph.imported.graph.input_names, strict=False))
    if value in given:
        return f"the input {given[value]}"
    graphs = [now] if graph.prelude is None else [now, graph.prelude.plan.graph]
    made = next((node for each in graphs for node in _makers(each, value)), None)
    return "nothing that runs needs it" if made is None else f"the same as {made.origin.name}"


def _makers(graph: Graph, value: Value) -> Iterator[Node]:
    return (node for node in graph.nodes if value in node.outputs)


# --- symbols


def size_inputs(module: fx.GraphModule) -> tuple[SizeInput, ...]:
    """The inputs of an aten graph that are symbolic numbers."""
    holders = [node for node in module.graph.nodes if node.op == "placeholder"]
    numbers = [node for node in holders if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat)]
    return tuple(SizeInput(node.name, str(node.meta["val"]), _source(node.meta["val"])) for node in numbers)


def _source(number: Any) -> str:
    """What a symbol is in the model: `x.size()[0]`."""
    sources = number.node.shape_env.var_to_sources.get(number.node.expr) or ()
    return plain_name(sources[0].name) if sources else ""


def plain_name(text: str) -> str:
    """torch's text for a variable with the variable's name alone: `L['x'].size()[0]` is `x.size()[0]`."""
    return re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text).replace("___stack", "stack value ")
