"""The one graph type that serves every level: values, nodes, regions, origins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from assay.ir.dtypes import Array, is_array, read_only
from assay.ir.types import Type

Attr: TypeAlias = Any
"""int, float, bool, str, bytes, None, DType, Array, or a tuple of these."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node came from. Survives every rewrite; a node made from several keeps them in `merged`."""

    op: str
    name: str = ""
    module: str = ""
    file: str = ""
    line: int = 0
    passes: tuple[str, ...] = ()
    merged: tuple[Origin, ...] = ()

    def touched_by(self, pass_name: str) -> Origin:
        """This origin with `pass_name` added to the passes that touched the node."""
        return replace(self, passes=(*self.passes, pass_name))

    def __str__(self) -> str:
        where = f" at {self.file}:{self.line}" if self.file else ""
        named = f" '{self.name}'" if self.name else ""
        inside = f" in {self.module}" if self.module else ""
        return f"{self.op}{named}{inside}{where}"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One value of the program, compared by identity; `id` is unique in its root graph."""

    id: int
    type: Type

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an op. An absent optional input is None. Regions may use outer values."""

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    origin: Origin
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
    regions: tuple[Graph, ...] = ()

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.outputs))} = {self.op}({', '.join(map(repr, self.inputs))})"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes in an order in which every value is defined before it is used.

    A value is an input, a constant or the output of exactly one node; in a region it may also be a
    value of an enclosing graph. `names` maps the source's value names to values and is what
    observation looks a name up in.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=dict[Value, Array])
    names: Mapping[str, Value] = field(default_factory=dict[str, Value])
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    level: str = "core"

    def __post_init__(self) -> None:
        """Constants are read-only: nobody who gets at one can change what the graph computes."""
        if any(is_array(array) and array.flags.writeable for array in self.constants.values()):
            protected = {
                value: read_only(array) if is_array(array) else array for value, array in self.constants.items()
            }
            object.__setattr__(self, "constants", protected)

    def walk(self) -> Iterator[Node]:
        """Every node, those of nested regions right after the node that holds them."""
        for node in self.nodes:
            yield node
            for region in node.regions:
                yield from region.walk()


def named_values(graph: Graph) -> dict[str, Value]:
    """The values of `graph` and of the bodies in it by their source names, in the order in which they are computed."""
    names: dict[Value, list[str]] = {}
    for name, value in graph.names.items():
        names.setdefault(value, []).append(name)
    ordered: dict[str, Value] = {}
    for node in graph.nodes:
        for region in node.regions:
            ordered.update(named_values(region))
        ordered.update((name, value) for value in node.outputs for name in names.pop(value, ()))
    return {**{name: value for value, listed in names.items() for name in listed}, **ordered}


def captured(graph: Graph) -> tuple[Value, ...]:
    """The values of enclosing graphs that `graph` uses, in order of first use."""
    own: set[Value] = {*graph.inputs, *graph.constants}
    outer: dict[Value, None] = {}
    for node in graph.nodes:
        for value in used(node):
            if value not in own:
                outer[value] = None
        own.update(node.outputs)
    for value in graph.outputs:
        if value not in own:
            outer[value] = None
    return tuple(outer)


def used(node: Node) -> tuple[Value, ...]:
    """The values that `node` reads, what its regions capture included."""
    direct = tuple(value for value in node.inputs if value is not None)
    if not node.regions:
        return direct
    return tuple(dict.fromkeys(direct + tuple(v for region in node.regions for v in captured(region))))


def fresh_ids(graph: Graph) -> Iterator[int]:
    """Ids that no value of `graph` has, nor of the regions in it."""
    return itertools.count(1 + max((value.id for value in _all_values(graph)), default=0))


def _all_values(graph: Graph) -> Iterator[Value]:
    yield from (*graph.inputs, *graph.constants)
    for node in graph.walk():
        yield from node.outputs
        for region in node.regions:
            yield from (*region.inputs, *region.constants)
