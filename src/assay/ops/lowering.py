"""Lowering: a symbolic graph of source ops becomes a graph of core ops. Front ends supply the rule of one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


from assay.errors import AssayError, LowerFailed
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import Type
from assay.limits import DEFAULT, Limits
from assay.ops.builder import Builder, FactMissing
from assay.ops.registry import CORE


@dataclass(frozen=True)
class Dialect:
    """What a front end knows of its own ops: how one node lowers, and what types its results have."""

    lower: Callable[[Lowering, Node, Sequence[Value | None]], Sequence[Value]]
    types: Callable[[Node, Sequence[Type | None]], Sequence[Type]]


DIALECTS: dict[str, Dialect] = {}
"""Source dialects by the prefix of their op names; a front end enters itself when it is imported."""


@dataclass
class Lowering:
    """The state of one lowering: the builder, and the core value of each symbolic one."""

    builder: Builder
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def region(self, graph: Graph, inputs: Sequence[Type]) -> Graph:
        """`graph`, a body within the source, lowered for inputs of these types."""
        outer, self.builder = self.builder, self.builder.child()
        try:
            return self.graph(graph, [Fact(kind) for kind in inputs])
        finally:
            self.builder = outer

    def graph(self, graph: Graph, inputs: Sequence[Fact]) -> Graph:
        """`graph` lowered into the current builder and finished."""
        b = self.builder
        for value, fact in zip(graph.inputs, inputs, strict=True):
            self.values[value] = b.input(fact.type, fact.value)
        for value, array in graph.constants.items():
            self.values[value] = b.constant(array)
        for node in graph.nodes:
            self.node(node)
        return b.finish(
            graph.name,
            [self.values[value] for value in graph.inputs],
            [self.values[value] for value in graph.outputs],
            names={name: self.values[value] for name, value in graph.names.items() if value in self.values},
            input_names=graph.input_names,
            output_names=graph.output_names,
        )

    def node(self, node: Node) -> None:
        """Lower one node, or defer it where facts are missing."""
        inputs = [None if value is None else self.values[value] for value in node.inputs]
        mark = len(self.builder.nodes)
        try:
            with self.builder.origin(node.origin):
                results = self._lower(node, inputs)
        except FactMissing as missing:
            del self.builder.nodes[mark:]
            results = self._defer(node, inputs, str(missing))
        except AssayError:
            raise
        except RecursionError as error:
            raise LowerFailed("the model nests too deeply", where=str(node.origin)) from error
        except Exception as error:
            raise LowerFailed(
                f"{type(error).__name__}: {error}",
                where=str(node.origin),
                hint="check the node's inputs and attributes against the op's specification",
            ) from error
        self.values.update(zip(node.outputs, results, strict=False))

    def _lower(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
        if node.op in CORE:
            return self.builder.emit(node.op, *inputs, **node.attrs)
        return _dialect(node).lower(self, node, inputs)

    def _defer(self, node: Node, inputs: Sequence[Value | None], reason: str) -> Sequence[Value]:
        b = self.builder
        types = _dialect(node).types(node, [None if value is None else value.type for value in inputs])
        results = tuple(b.fresh(kind) for kind in types)
        needed = used(node)
        region = Graph(node.op, needed, node.outputs[: len(results)], (node,), level="symbolic")
        with b.origin(node.origin):
            b.defer(region, tuple(self.values[value] for value in needed), results, reason)
        return results


def _dialect(node: Node) -> Dialect:
    dialect = DIALECTS.get(node.op.partition(".")[0])
    if dialect is None:
        raise LowerFailed(f"no front end knows the op {node.op}", where=str(node.origin))
    return dialect


def lower(
    graph: Graph,
    facts: Sequence[Fact] | None = None,
    *,
    decomposed: bool = False,
    limits: Limits = DEFAULT,
) -> Graph:
    """`graph` in core ops. `facts` say more of the inputs than their types do, where something is known.

    With `decomposed`, composites are replaced by their parts, so that the result holds milli-ops alone.
    """
    builder = Builder(decomposed=decomposed, limits=limits)
    return Lowering(builder).graph(graph, facts or [Fact(value.type) for value in graph.inputs])



