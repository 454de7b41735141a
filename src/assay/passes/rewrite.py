"""What passes share, those of targets too: values that stand for others, nodes put in place of others.

A node that a pass makes or changes carries the pass in its origin. One that only reads another value instead of an
equal one is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay.ir.dtypes import Array, i64
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin, Value, fresh_ids
from assay.ir.types import TensorType, Type
from assay.ops.registry import CORE, complete_attrs


def touched(node: Node, name: str) -> Node:
    """The node as the pass `name` leaves it: its origin says so, once."""
    return node if node.origin.passes[-1:] == (name,) else replace(node, origin=node.origin.touched_by(name))


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
    """A graph that the pass `name` writes anew: its nodes so far, new constants, what was made once.

    `known` depends on constants and static inputs alone, so nodes that read nothing else run once.
    """

    name: str
    graph: Graph
    known: set[Value] = field(default_factory=set[Value])
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    made: dict[Any, Value] = field(default_factory=dict[Any, Value])

    def __post_init__(self) -> None:
        self._numbers: Iterator[int] = fresh_ids(self.graph)
        self._kept = frozenset(self.graph.nodes)

    def put(self, node: Node) -> None:
        """The next node: one of the graph as it is, or one that the pass has made or changed."""
        self.nodes.append(node if node in self._kept else touched(node, self.name))

    def emit(self, origin: Origin, op: str, *inputs: Value, **attrs: Any) -> Value:
        """The result of a new node that has one."""
        full = complete_attrs(CORE[op], attrs)
        facts = [Fact(value.type, self.constants.get(value)) for value in inputs]
        result = self.fresh(CORE[op].infer(facts, full)[0])
        self.put(Node(op, inputs, (result,), origin, full))
        if self.known.issuperset(inputs):
            self.known.add(result)
        return result

    def fresh(self, kind: Type) -> Value:
        """A new value."""
        return Value(next(self._numbers), kind)

    def constant(self, array: Array, kind: TensorType) -> Value:
        """A new constant."""
        value = self.fresh(kind)
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

    def finished(self) -> Graph:
        """The graph with the nodes that were put, and the new constants."""
        return replace(self.graph, nodes=tuple(self.nodes), constants={**self.graph.constants, **self.constants})
