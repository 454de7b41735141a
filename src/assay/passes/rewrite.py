"""What passes share: replacing values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay.ir.graph import Graph, Node, Value


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
