"""Rewriting a graph: what the target's passes over nodes share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay.ir.dtypes import Array, DType, i64
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.ops import OPS
from assay.ops.registry import complete_attrs
from assay.passes.hoist import settled


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
    return Rewriting(set(settled(graph, static)), numbers)


def known_shape(value: Value) -> tuple[int, ...]:
    """The shape of a tensor; empty unless it is known and has no axis of size 0."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    sizes = tuple(size for size in shape or () if isinstance(size, int) and size)
    return sizes if shape is not None and len(sizes) == len(shape) else ()


def known_dtype(value: Value) -> DType | None:
    """The dtype of a tensor; None for anything else."""
    return value.type.dtype if isinstance(value.type, TensorType) else None


def is_single(value: Value) -> bool:
    """Whether a tensor surely has one element and at most one axis: one number for all."""
    return isinstance(value.type, TensorType) and value.type.shape in ((), (1,))
