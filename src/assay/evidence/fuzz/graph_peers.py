"""Who is asked about a random graph: the oracle in several ways, and onnxruntime.

A peer answers for as much of a graph as it can. Nodes that it lacks are cut out, their results becoming inputs, and
each one is counted with its reason; known deviations from the standard are such reasons too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from assay.errors import AssayError
from assay.evidence.fuzz.graph_cases import GraphCase, alone, with_constants, without
from assay.evidence.fuzz.graph_deviations import DEVIATIONS, REFUSALS
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.needs import require
from assay.ops.lowering import lower
from assay.targets.reference import ReferenceTarget


class LeftOut(NamedTuple):
    """A node that a peer is not asked; `kind` is one of `KINDS`."""

    node: Node
    kind: str
    reason: str


NOT_SAID, NOT_DONE, DEVIATES = "not in ONNX", "not implemented", "deviating"
KINDS = (NOT_SAID, NOT_DONE, DEVIATES)


@dataclass(frozen=True)
class PeerAnswer:
    """What a peer makes of a case: the values that it computed, and the nodes that it left out.

    `failure` says how it failed where it should not have.
    """

    values: Mapping[Value, Any] = field(default_factory=dict[Value, Any])
    left_out: Sequence[LeftOut] = ()
    failure: str = ""


class Peer(Protocol):
    """Somebody who computes graphs."""

    name: str

    def ask(self, case: GraphCase) -> PeerAnswer:
        """Compute what can be computed of the case; never raises."""
        ...


# --- the oracle in other ways


def _reference(case: GraphCase, graph: Graph) -> PeerAnswer:
    results = ReferenceTarget().compile(graph).run(case.inputs)
    return PeerAnswer(dict(zip(case.graph.outputs, results, strict=True)))


class Decomposed:
    """The oracle on milli-ops alone, for the shapes at hand."""

    name = "decomposed"

    def ask(self, case: GraphCase) -> PeerAnswer:
        """Lower every composite, then run."""
        try:
            return _reference(case, lower(case.graph, decomposed=True))
        except Exception as error:
            return PeerAnswer(failure=described(error))


class Symbolic:
    """The oracle on milli-ops that were made without knowing the inputs' dims."""

    name = "symbolic"

    def ask(self, case: GraphCase) -> PeerAnswer:
        """Lower with a symbol for each dim of an input, then run."""
        try:
            return _reference(case, lower(case.graph, symbols_of(case), decomposed=True))
        except Exception as error:
            return PeerAnswer(failure=described(error))


def symbols_of(case: GraphCase) -> list[Fact]:
    """The inputs of a case with a symbol for each of their dims."""
    return [Fact(_symbolic(value, f"d{i}")) for i, value in enumerate(case.graph.inputs)]


def _symbolic(value: Value, name: str) -> TensorType:
    assert isinstance(value.type, TensorType)
    shape = value.type.shape
    return TensorType(value.type.dtype, shape and tuple(symbol(f"{name}_{i}") for i in range(len(shape))))


def described(error: Exception) -> str:
    """An error as a failure is told."""
    return str(error) if isinstance(error, AssayError) else f"{type(error).__name__}: {error}"


# --- through ONNX

OPSETS = (26, 21)
"""The versions of the standard that are tried: onnxruntime implements some ops in the older one only."""


class Reimported:
    """The oracle on the graph that our own front end makes of the exported ONNX model."""

    name = "reimported"

    def ask(self, case: GraphCase) -> PeerAnswer:
        """Export what can be exported, import and lower it again, run."""
        left_out: list[LeftOut] = []
        while case.graph.nodes:
            outcome = _export(case, OPSETS[0])
            if not isinstance(outcome, LeftOut):
                return self._run(case, outcome, left_out)
            left_out.append(outcome)
            case = without(case, [outcome.node])
        return PeerAnswer(left_out=left_out)

    def _run(self, case: GraphCase, model: bytes, left_out: Sequence[LeftOut]) -> PeerAnswer:
        from assay.frontends.onnx import load

        try:
            results = ReferenceTarget().compile(lower(load(model))).run(case.inputs)
        except Exception as error:
            return PeerAnswer(left_out=left_out, failure=described(error))
        return PeerAnswer(dict(zip(case.graph.outputs, results, strict=True)), left_out)


def _export(case: GraphCase, opset: int) -> bytes | LeftOut:
    """The graph as an ONNX model; or a node that ONNX cannot say."""
    from assay.frontends.onnx.export import NotInOnnx, export_graph

    try:
        return export_graph(case.graph, opset).SerializeToString()
    except NotInOnnx as refusal:
        return LeftOut(case.graph.nodes[refusal.index], NOT_SAID, refusal.message)


class OnnxRuntimePeer:
    """onnxruntime on the CPU, its graph optimizations switched off; Missing if it is not installed."""

    name = "onnxruntime"

    def __init__(self) -> None:
        require("onnxruntime")

    def ask(self, case: GraphCase) -> PeerAnswer:
        """The answer in the first of `OPSETS` that leaves nothing out, else the one that leaves out the least."""
        answers: list[PeerAnswer] = []
        for opset in OPSETS:
            answer = self._ask(case, opset)
            if answer.failure or not answer.left_out:
                return answer
            answers.append(answer)
        return min(answers, key=lambda answer: len(answer.left_out))

    def _ask(self, case: GraphCase, opset: int) -> PeerAnswer:
        """Export what can be exported, leave out what onnxruntime declines, run the rest."""
        left_out = [row for node in case.graph.nodes if (row := _deviation(node, case))]
        part = without(case, [row.node for row in left_out]) if left_out else case
        while part.graph.nodes:
            outcome = _attempt(part, opset)
            if isinstance(outcome, str):
                return PeerAnswer(left_out=left_out, failure=outcome)
            if isinstance(outcome, dict):
                return PeerAnswer(outcome, left_out)
            left_out.append(outcome)
            part = without(part, [outcome.node])
        return PeerAnswer(left_out=left_out)


def _attempt(case: GraphCase, opset: int) -> dict[Value, Any] | LeftOut | str:
    """The outputs; or a node to leave out; or what went wrong."""
    from assay.evidence.peers import open_onnxruntime, run_onnxruntime

    fed = with_constants(case, [v for v in case.graph.inputs if case.values[v].dtype == object])
    model = _export(fed, opset)
    if isinstance(model, LeftOut):
        return model
    feeds = {f"input{i}": array for i, array in enumerate(fed.inputs)}
    try:
        results = run_onnxruntime(open_onnxruntime(model, optimized=False), feeds)
    except Exception as error:
        return _declined(case, opset, str(error))
    return {value: np.asarray(results[f"output{i}"]) for i, value in enumerate(case.graph.outputs)}


_NODE = re.compile(r"(?:[Nn]ode with name '|Name:'|Node \(|in node \(|node:')(\d+)\.")


def _declined(case: GraphCase, opset: int, message: str) -> LeftOut | str:
    """The node that onnxruntime declines; or the message, where it is none of those that are known."""
    reason = next((reason for pattern, reason in REFUSALS.items() if re.search(pattern, message)), None)
    if reason is None:
        return f"onnxruntime: {message[:500]}"
    named = _NODE.search(message)
    if named is not None or len(case.graph.nodes) == 1:
        node = case.graph.nodes[int(named.group(1)) if named else 0]
        return LeftOut(node, NOT_DONE, reason.format(node.op, _dtypes(node)))
    outcomes = (_attempt(alone(case, node), opset) for node in case.graph.nodes)
    return next((row for row in outcomes if isinstance(row, LeftOut)), f"onnxruntime: {message[:500]}")


def _dtypes(node: Node) -> str:
    kinds = [v.type.dtype.name for v in node.inputs if v is not None and isinstance(v.type, TensorType)]
    return ", ".join(dict.fromkeys(kinds))


def _deviation(node: Node, case: GraphCase) -> LeftOut | None:
    """Why this node is not asked of onnxruntime, None if it is."""
    inputs = [None if value is None else case.values[value] for value in node.inputs]
    if any(x is not None and dtypes.of(x).kind == "complex" for x in inputs):
        return LeftOut(node, NOT_DONE, "onnxruntime has no complex tensors")
    rows = (row for row in DEVIATIONS if node.op in row.ops)
    return next((LeftOut(node, DEVIATES, row.reason) for row in rows if row.applies(node, inputs)), None)


PEERS: dict[str, Callable[[], Peer]] = {
    "decomposed": Decomposed,
    "symbolic": Symbolic,
    "reimported": Reimported,
    "onnxruntime": OnnxRuntimePeer,
}
