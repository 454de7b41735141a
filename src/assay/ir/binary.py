"""A graph as bytes that are quick to read back. `decode` runs no code and refuses what is not well formed.

    8 bytes    the length of the document, little-endian
    document   JSON: the graph as lists of numbers and words; tables of types, ops, origins, attributes and tensors
    data       the bytes of the tensors, one after the other

What writer and reader both have (`SharedParts`: the constants, origins and names of the graph that this one was made
from) is not stored but referred to by its index, so the graph that comes back carries the reader's own.
A graph written in terms of itself is thereby its bare structure, which serves as a key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, cast

import numpy as np

from assay.errors import ImportFailed
from assay.ir import dtypes
from assay.ir.building import collector_paused
from assay.ir.dtypes import Array, DType, is_array
from assay.ir.graph import Attr, Graph, Node, Origin, Value
from assay.ir.parser import parse_type
from assay.ir.types import TensorType, Type

_PLAIN = frozenset[type]({int, float, bool, str, NoneType})
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What is referred to by its index. Origins and names are distinct."""

    arrays: tuple[Array, ...] = ()
    origins: tuple[Origin, ...] = ()
    names: tuple[str, ...] = ()


def shared_parts(graph: Graph) -> SharedParts:
    """What a graph that is made from `graph` has in common with it."""
    names = dict.fromkeys((*graph.names, *graph.input_names, *graph.output_names))
    origins = dict.fromkeys(node.origin for node in graph.walk())
    return SharedParts(tuple(graph.constants.values()), tuple(origins), tuple(names))


@collector_paused()
def encode(graph: Graph, shared: SharedParts | None = None) -> bytes:
    """`graph` as bytes; TypeError for an attribute of a kind that `Attr` does not list."""
    writer = _Writer(shared or SharedParts())
    document = {
        "graph": writer.graph(graph),
        "types": [str(kind) for kind in writer.types],
        "ops": list(writer.ops),
        "attrs": [json.loads(text) for text in writer.attrs],
        "origins": writer.made_origins,
        "tensors": writer.tensors,
    }
    text = json.dumps(document, separators=(",", ":")).encode("ascii")
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *writer.data])


@collector_paused()
def decode(data: bytes, shared: SharedParts | None = None) -> Graph:
    """The graph that `encode` wrote, given the same `shared`; ValueError if `data` is no such thing.

    What is read has the form of a graph; whether it keeps the rules of the IR is for `assay.ir.verify` to say.
    """
    try:
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        document = json.loads(data[_LENGTH:end])
        reader = _Reader(document, memoryview(data)[end:], shared or SharedParts())
        return reader.graph(document["graph"], None)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, ImportFailed) as error:
        raise ValueError(f"these bytes are no graph: {type(error).__name__}: {error}") from error


class _Writer:
    """Builds the document; the tables hold each thing once, in order of first use."""

    def __init__(self, shared: SharedParts) -> None:
        self.names = {name: index for index, name in enumerate(shared.names)}
        self.origins = {origin: index for index, origin in enumerate(shared.origins)}
        self.made_origins: list[Any] = []
        self.arrays = {id(array): index for index, array in enumerate(shared.arrays)}
        self.tensors: list[Any] = []
        self.data: list[bytes] = []
        self.types: dict[Type, int] = {}
        self.ops: dict[str, int] = {}
        self.attrs: dict[str, int] = {}

    def graph(self, graph: Graph) -> list[Any]:
        return [
            graph.name,
            graph.level,
            self.defined(graph.inputs),
            [(value.id, self.type(value.type), self.array(array)) for value, array in graph.constants.items()],
            [self.node(node) for node in graph.nodes],
            [(self.name(name), value.id) for name, value in graph.names.items()],
            [value.id for value in graph.outputs],
            [self.name(name) for name in graph.input_names],
            [self.name(name) for name in graph.output_names],
        ]

    def node(self, node: Node) -> list[Any]:
        return [
            self.ops.setdefault(node.op, len(self.ops)),
            [None if value is None else value.id for value in node.inputs],
            self.defined(node.outputs),
            self.origin(node.origin),
            self.attr_table(node),
            [self.graph(region) for region in node.regions],
        ]

    def defined(self, values: Iterable[Value]) -> list[tuple[int, int]]:
        return [(value.id, self.type(value.type)) for value in values]

    def type(self, kind: Type) -> int:
        return self.types.setdefault(kind, len(self.types))

    def name(self, name: str) -> int | str:
        return self.names.get(name, name)

    def origin(self, origin: Origin) -> int:
        index = self.origins.get(origin)
        if index is None:
            merged = [self.origin(part) for part in origin.merged]
            base = self.origins.get(replace(origin, passes=(), merged=()))
            fields = [origin.op, origin.name, origin.module, origin.file, origin.line]
            self.made_origins.append([fields if base is None else base, origin.passes, merged])
            index = self.origins[origin] = len(self.origins)
        return index

    def attr_table(self, node: Node) -> int:
        text = json.dumps({key: self.attr(value) for key, value in node.attrs.items()})
        return self.attrs.setdefault(text, len(self.attrs))

    def attr(self, value: Attr) -> Any:
        """A tuple is a list, what JSON has no word for an object of one key."""
        kind = type(cast(object, value))
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [self.attr(item) for item in value]
        if kind is DType:
            return {"dtype": value.name}
        if kind is bytes:
            return {"bytes": value.decode("latin-1")}
        if is_array(value):
            return {"tensor": self.array(value)}
        raise TypeError(f"an attribute cannot be of type {kind.__name__}")

    def array(self, array: Array) -> int:
        """Shared arrays come first, the others follow."""
        index = self.arrays.get(id(array))
        if index is None:
            index = self.arrays[id(array)] = len(self.arrays)
            self.tensors.append(self.tensor(array))
        return index

    def tensor(self, array: Array) -> list[Any]:
        dtype = dtypes.of(array)
        if dtype is dtypes.string:
            return [dtype.name, array.shape, "C", array.ravel().tolist()]
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self.data.append(array.tobytes(order))
        return [dtype.name, array.shape, order, array.nbytes]


class _Reader:
    """Reads the document; any error of Python means that it is no graph."""

    def __init__(self, document: dict[str, Any], data: memoryview, shared: SharedParts) -> None:
        self.shared = shared
        self.types = [parse_type(text) for text in document["types"]]
        self.ops: list[str] = document["ops"]
        self.arrays: list[Array] = [*shared.arrays, *_tensors(document["tensors"], data)]
        self.attrs = [{key: self.attr(item) for key, item in table.items()} for table in document["attrs"]]
        self.origins = list(shared.origins)
        for row in document["origins"]:
            self.origins.append(self.origin(*row))
        self.values: dict[int, Value] = {}

    def graph(self, row: list[Any], around: str | None) -> Graph:
        """A graph; `around` is the level of the graph that it is a region of. At another level it is isolated."""
        name, level, inputs, constants, nodes, names, outputs, input_names, output_names = row
        outside, self.values = self.values, self.values if around in (None, level) else {}
        given = self.define(inputs)
        arrays: dict[Value, Array] = {
            self.define([(number, kind)])[0]: self.arrays[index] for number, kind, index in constants
        }
        body = tuple([self.node(level, *node) for node in nodes])
        values = self.values
        self.values = outside
        return Graph(
            name,
            given,
            tuple([values[number] for number in outputs]),
            body,
            arrays,
            {self.name(key): values[number] for key, number in names},
            tuple(map(self.name, input_names)),
            tuple(map(self.name, output_names)),
            level,
        )

    def node(
        self, level: str, op: int, inputs: list[Any], outputs: list[Any], origin: int, attrs: int, regions: list[Any]
    ) -> Node:
        values = self.values
        given = tuple([None if number is None else values[number] for number in inputs])
        bodies = tuple([self.graph(region, level) for region in regions])
        made = self.define(outputs)
        return Node(self.ops[op], given, made, self.origins[origin], self.attrs[attrs], bodies)

    def define(self, pairs: Sequence[Sequence[int]]) -> tuple[Value, ...]:
        made = tuple([Value(number, self.types[kind]) for number, kind in pairs])
        for value in made:
            if value.id in self.values:
                raise ValueError(f"{value} is defined twice")
            self.values[value.id] = value
        return made

    def name(self, name: int | str) -> str:
        return self.shared.names[name] if isinstance(name, int) else name

    def origin(self, base: Any, passes: list[str], merged: list[int]) -> Origin:
        bare = self.origins[base] if isinstance(base, int) else Origin(*base)
        return replace(bare, passes=tuple(passes), merged=tuple(self.origins[index] for index in merged))

    def attr(self, item: Any) -> Attr:
        if isinstance(item, list):
            return tuple([self.attr(part) for part in cast("list[Any]", item)])
        return self.tagged(**cast("dict[str, Any]", item)) if isinstance(item, dict) else item

    def tagged(self, dtype: str | None = None, bytes: str | None = None, tensor: int | None = None) -> Attr:
        if dtype is not None:
            return dtypes.by_name(dtype)
        if bytes is not None:
            return bytes.encode("latin-1")
        if tensor is None:
            raise ValueError("an attribute has no content")
        return self.arrays[tensor]


def _tensors(rows: list[Any], data: memoryview) -> Iterable[Array]:
    start = 0
    for name, shape, order, content in rows:
        dtype = dtypes.by_name(name)
        if dtype is dtypes.string:
            flat = np.array(content, dtype.numpy)
        else:
            part = data[start : start + content]
            if len(part) != content or content != dtype.numpy.itemsize * math.prod(shape):
                raise ValueError(f"{TensorType(dtype, tuple(shape))} does not take {content} bytes")
            flat = np.frombuffer(part, dtype.numpy).copy() if content else np.empty(0, dtype.numpy)
            start += content
        array: Array = flat.reshape(tuple(shape), order=order)
        array.setflags(write=False)
        yield array
    if start != len(data):
        raise ValueError("there is data after the last tensor")
