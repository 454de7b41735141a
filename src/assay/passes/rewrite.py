"""What passes share, those of targets too: values that stand for others, and a graph that is written anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay.ir.dtypes import Array, i64
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.ops.registry import OPS, complete_attrs
from assay.passes.hoist import static_values


def renamed(nodes: Iterable[Node], table: Mapping[Value, Value]) -> list[Node]:
    """The nodes with other values in place of those in `table`, in bodies too."""

    def of(value: Value) -> Value:
        return table.get(value, value)

    def body(graph: Graph) -> Graph:
        return replace(
            graph,
            inputs=tuple(map(of, graph.inputs)),
            outputs=tuple(map(of, graph.outputs)),
            nodes=tuple(renamed(graph.nodes, table)),
        )

    return [
        replace(
            node,
            inputs=tuple(None if value is None else of(value) for value in node.inputs),
            outputs=tuple(map(of, node.outputs)),
            regions=node.regions if node.op == "deferred" else tuple(map(body, node.regions)),
        )
        for node in nodes
    ]


@dataclass
class Replaced:
    """Which value stands for which; a chain of replacements is followed to its end."""

    table: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def note(self, old: Value, new: Value) -> None:
        """From now on `new` stands for `old`."""
        if old is not new:
            self.table[old] = self.of(new)

    def of(self, value: Value) -> Value:
        """What stands for `value`."""
        return self.table.get(value, value)

    def in_node(self, node: Node) -> Node:
        """The node with its inputs replaced (bodies are the caller's to visit)."""
        if not any(value in self.table for value in node.inputs if value is not None):
            return node
        return replace(node, inputs=tuple(None if value is None else self.of(value) for value in node.inputs))

    def in_graph(self, graph: Graph, nodes: Sequence[Node]) -> Graph:
        """The graph with these nodes, its outputs and names replaced; constants replaced by others go."""
        return replace(
            graph,
            nodes=tuple(nodes),
            outputs=tuple(self.of(value) for value in graph.outputs),
            constants={value: array for value, array in graph.constants.items() if value not in self.table},
            names={name: self.of(value) for name, value in graph.names.items()},
        )


@dataclass
class Rewriting:
    """The new graph so far: its nodes, new constants, what was made once, and numbers for new values.

    `known` depends on constants and static inputs alone, so nodes that read nothing else run once.
    """

    known: set[Value]
    numbers: Iterator[int]
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    made: dict[Any, Value] = field(default_factory=dict[Any, Value])

    def emit(self, origin: Origin, op: str, *inputs: Value, **attrs: Any) -> Value:
        """A node of one result."""
        full = complete_attrs(OPS[op], attrs)
        facts = [Fact(value.type, self.constants.get(value)) for value in inputs]
        result = Value(next(self.numbers), OPS[op].infer(facts, full)[0])
        self.nodes.append(Node(op, inputs, (result,), origin, full))
        if self.known.issuperset(inputs):
            self.known.add(result)
        return result

    def constant(self, array: Array, kind: TensorType) -> Value:
        """A new constant."""
        value = Value(next(self.numbers), kind)
        self.constants[value] = array
        self.known.add(value)
        return value

    def reshape(self, origin: Origin, x: Value, shape: Sequence[int]) -> Value:
        """x under another shape."""
        return self.emit(origin, "reshape", x, self.constant(np.array(shape, np.int64), TensorType(i64, (len(shape),))))

    def once(self, key: Any, make: Callable[[], Value]) -> Value:
        """What `make` makes, made the first time that `key` is asked for."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def finished(self, graph: Graph) -> Graph:
        """`graph` with the new nodes and constants."""
        return replace(graph, nodes=tuple(self.nodes), constants={**graph.constants, **self.constants})


def begin(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Rewriting:
    """A rewriting of `graph` that has no nodes yet; new values get ids from `numbers`."""
    return Rewriting(set(static_values(graph, static)), numbers)
