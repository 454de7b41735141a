"""Lowering: a symbolic graph of source ops becomes a graph of core ops. Front ends supply the rule of one node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from assay.errors import AssayError, LowerFailed
from assay.ir.building import collector_paused
from assay.ir.dims import symbols
from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import TensorType, Type
from assay.limits import DEFAULT, Limits
from assay.ops.builder import Builder
from assay.ops.registry import OPS, FactMissing


@dataclass(frozen=True)
class Dialect:
    """What a front end knows of its own ops: how one node lowers, and what types its results have.

    `typed` says that its graphs state the types of all results truly, so that a dim that cannot be derived is
    taken from there.
    """

    lower: Callable[[Lowering, Node, Sequence[Value | None]], Sequence[Value]]
    types: Callable[[Node, Sequence[Type | None]], Sequence[Type]]
    typed: bool = False


DIALECTS: dict[str, Dialect] = {}
"""Source dialects by the prefix of their op names; a front end enters itself when it is imported."""


@dataclass
class Lowering:
    """The state of one lowering: the builder, and the core value of each symbolic one."""

    builder: Builder
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def region(self, graph: Graph, inputs: Sequence[Type]) -> Graph:
        """`graph`, a body within the source, lowered for inputs of these types."""
        with self.nested():
            return self.graph(graph, [Fact(kind) for kind in inputs])

    @contextmanager
    def nested(self) -> Generator[Builder]:
        """Build a region of the next node: inside, `builder` is a child of the current one."""
        outer, self.builder = self.builder, self.builder.child()
        try:
            yield self.builder
        finally:
            self.builder = outer

    def inline(self, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a body of the source whose nodes are put right here."""
        self.values.update(zip(graph.inputs, inputs, strict=True))
        for value, array in graph.constants.items():
            self.values[value] = self.builder.constant(array)
        for node in graph.nodes:
            self.node(node)
        return [self.values[value] for value in graph.outputs]

    def graph(self, graph: Graph, inputs: Sequence[Fact]) -> Graph:
        """`graph` lowered into the current builder and finished."""
        b = self.builder
        given = [b.input(fact.type, fact.value) for fact in inputs]
        outputs = self.inline(graph, given)
        return b.finish(
            graph.name,
            given,
            outputs,
            names={name: self.values[value] for name, value in graph.names.items() if value in self.values},
            input_names=graph.input_names,
            output_names=graph.output_names,
        )

    def node(self, node: Node) -> None:
        """Lower one node, or defer it where facts are missing."""
        mark = len(self.builder.nodes)
        try:
            results = self._lowered_or_deferred(node)
        except AssayError as error:
            raise error.located(str(node.origin)) from error.__cause__
        except RecursionError as error:
            raise LowerFailed("the model nests too deeply", where=str(node.origin)) from error
        except Exception as error:
            raise LowerFailed(f"{type(error).__name__}: {error}", where=str(node.origin)) from error
        if node.op in OPS or _dialect(node).typed:
            results = self.builder.refined(results, [value.type for value in node.outputs], mark)
        self.values.update(zip(node.outputs, results, strict=False))

    def _lowered_or_deferred(self, node: Node) -> Sequence[Value]:
        inputs = [None if value is None else self.values[value] for value in node.inputs]
        mark = len(self.builder.nodes)
        try:
            with self.builder.origin(node.origin):
                return self._lower(node, inputs)
        except FactMissing as missing:
            del self.builder.nodes[mark:]
            return self._defer(node, inputs, str(missing))

    def _lower(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
        if node.op == "deferred":
            return self._copy_deferred(node, inputs)
        if node.op in OPS:
            regions = tuple(self.region(r, [value.type for value in r.inputs]) for r in node.regions)
            return self.builder.emit(node.op, *inputs, regions=regions, **node.attrs)
        return _dialect(node).lower(self, node, inputs)

    def _copy_deferred(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
        given = tuple(value for value in inputs if value is not None)
        region = node.regions[0]
        if any(value.type != known.type for value, known in zip(given, region.inputs, strict=True)):
            return self.inline(region, given)
        results = tuple(self.builder.fresh(value.type) for value in node.outputs)
        self.builder.defer(region, given, results, node.attrs["reason"])
        return results

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


def adapt(graph: Graph, accepts: Callable[[Node], bool], limits: Limits, numbers: Iterator[int] | None = None) -> Graph:
    """A core graph in which the composites that `accepts` refuses are replaced by their parts, and unknown sizes have
    names, so that whoever goes on with a value of unknown size can be told it. Its values are new, with ids from
    `numbers`."""
    nodes = list(graph.walk())
    refused = any(node.op in OPS and not OPS[node.op].is_milli and not accepts(node) for node in nodes)
    if not refused and all(map(_is_named, _types(graph, nodes))):
        return graph
    builder = Builder(accepts=accepts, limits=limits, names=_free_names(graph, nodes), numbers=numbers)
    with collector_paused():
        return Lowering(builder).graph(graph, [Fact(value.type) for value in graph.inputs])


def parts_of(
    node: Node,
    constants: Mapping[Value, Array],
    accepts: Callable[[Node], bool],
    limits: Limits,
    numbers: Iterator[int] | None = None,
) -> Graph:
    """What a composite becomes where `accepts` refuses it, as a graph of what the node reads that is no constant.

    Composites among its parts that are refused become parts in turn. A milli-op, or a node that lacks facts, is its
    own only part."""
    reads = used(node)
    known = {value: constants[value] for value in reads if value in constants}
    inputs = tuple(value for value in reads if value not in known)
    return adapt(Graph(node.op, inputs, node.outputs, (node,), known), accepts, limits, numbers)


def _is_named(kind: Type) -> bool:
    return not isinstance(kind, TensorType) or kind.shape is None or kind.is_sized


def _types(graph: Graph, nodes: Sequence[Node]) -> Iterator[Type]:
    yield from (value.type for value in graph.inputs)
    yield from (value.type for node in nodes for value in (*used(node), *node.outputs))


def _free_names(graph: Graph, nodes: Sequence[Node]) -> Iterator[str]:
    """Names for sizes that the graph does not have yet."""
    kinds = (kind for kind in _types(graph, nodes) if isinstance(kind, TensorType))
    taken = {name for kind in kinds for dim in kind.shape or () for name in symbols(dim)}
    return (name for name in map("?{}".format, itertools.count(1)) if name not in taken)


@collector_paused()
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
