"""ModelProto → symbolic graph: the source's own ops at their real versions, names and functions resolved."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from assay.errors import AssayError, ImportFailed, LimitExceeded, missing_model
from assay.frontends.onnx.counting import check_expanded_size
from assay.frontends.onnx.external import ExternalData
from assay.frontends.onnx.schema import check_counts, defaults_of, version_of
from assay.frontends.onnx.tensors import tensor_to_array
from assay.frontends.onnx.types import type_of
from assay.ir.building import collector_paused
from assay.ir.dtypes import Array
from assay.ir.dtypes import of as dtype_of_array
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType, Type, UnknownType
from assay.limits import DEFAULT, Limits


def load(source: str | Path | bytes | onnx.ModelProto, limits: Limits = DEFAULT) -> Graph:
    """The symbolic graph of an ONNX model given as a path, its bytes or a ModelProto.

    ImportFailed (LimitExceeded where a limit is met) names the place and gives a hint.
    """
    model, folder = read_model(source, limits)
    return import_model(model, folder, limits)


def read_model(
    source: str | Path | bytes | onnx.ModelProto, limits: Limits = DEFAULT
) -> tuple[onnx.ModelProto, Path | None]:
    """The ModelProto of an ONNX model, and the folder that it came from, if it came from one."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, bytes):
        return _parse(source, "the given bytes", limits), None
    path = Path(source)
    if not os.path.isfile(path):
        raise missing_model(path)
    try:
        with path.open("rb") as file:
            data = file.read(limits.model_bytes + 1)
    except (OSError, MemoryError) as error:
        raise ImportFailed(f"'{path}' cannot be read: {error}", hint="check the file and its rights") from error
    return _parse(data, str(path), limits), path.parent


def _parse(data: bytes, where: str, limits: Limits) -> onnx.ModelProto:
    if len(data) > limits.model_bytes:
        message = f"the model has more than {limits.model_bytes} bytes"
        raise LimitExceeded(message, where=where, hint="raise Limits.model_bytes")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ImportFailed("this is no ONNX model", where=where, hint=_taken_for(data)) from error
    if not model.HasField("graph"):
        raise ImportFailed("the model has no graph", where=where, hint="the file is empty or damaged")
    return model


_KINDS = {
    b"\x08": "it starts like one, so it is cut off or damaged: compare its size, {size:,} bytes, with the original's",
    b"version https://git-lfs": "it is a pointer of Git LFS: fetch the file with `git lfs pull`",
    b"<": "it is a page of HTML or XML: fetch the file again",
    b"PK": "it is a zip archive: unpack it, or name it .pt2 if torch.export saved it",
    b"": "it is damaged or of another kind",
}
"""What a file that is no model may be, by how it starts."""


def _taken_for(data: bytes) -> str:
    return next(words for start, words in _KINDS.items() if data.startswith(start)).format(size=len(data))


@collector_paused()
def import_model(model: onnx.ModelProto, folder: Path | None = None, limits: Limits = DEFAULT) -> Graph:
    """The symbolic graph of a ModelProto; `folder` is where external data may lie."""
    try:
        check_expanded_size(model, limits)
        return Importer.of_model(model, folder, limits).graph(model.graph, Scope(), root=True)
    except AssayError:
        raise
    except RecursionError as error:
        raise LimitExceeded("the model nests too deeply", where=f"graph '{model.graph.name}'") from error
    except MemoryError as error:
        raise LimitExceeded("there is not enough memory to load this", where=f"graph '{model.graph.name}'") from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, UnicodeError, OverflowError) as error:
        raise ImportFailed(f"{type(error).__name__}: {error}", where=f"graph '{model.graph.name}'") from error


@dataclass
class Scope:
    """Names visible at one place of the source; `attrs` are the arguments of the function being expanded."""

    outer: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    attrs: Mapping[str, onnx.AttributeProto] | None = None
    path: str = ""
    depth: int = 0

    def find(self, name: str) -> Value | None:
        """The value of that name here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def inner(self) -> Scope:
        """The scope of a body within this one."""
        return replace(self, outer=self, values={}, depth=self.depth + 1)


@dataclass
class Importer:
    """What holds for a whole model while it is read."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    external: ExternalData
    limits: Limits
    ids: Iterator[int] = field(default_factory=itertools.count)
    count: int = 0

    @staticmethod
    def of_model(model: onnx.ModelProto, folder: Path | None, limits: Limits) -> Importer:
        """An importer with the opsets and functions of `model`."""
        functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        return Importer(opset_imports(model.opset_import), functions, ExternalData(folder), limits)

    # --- graphs

    def graph(self, proto: onnx.GraphProto, scope: Scope, *, root: bool = False) -> Graph:
        """One GraphProto, the main one or a body."""
        if scope.depth > self.limits.nesting:
            raise LimitExceeded(f"bodies nest deeper than {self.limits.nesting}", where=f"graph '{proto.name}'")
        constants = self._initializers(proto, scope)
        given = [info for info in proto.input if info.name not in scope.values]
        inputs = [self._declare(scope, info.name, _type(info, root)) for info in given]
        nodes = self.nodes(proto.node, scope, {info.name: info.type for info in proto.value_info})
        outputs = [self._use(scope, info.name, f"output of graph '{proto.name}'") for info in proto.output]
        if root and not outputs:
            raise ImportFailed("the model has no outputs", where=f"graph '{proto.name}'")
        return Graph(
            name=proto.name,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            nodes=tuple(nodes),
            constants=constants,
            names=dict(scope.values),
            input_names=tuple(info.name for info in given),
            output_names=tuple(info.name for info in proto.output),
            level="symbolic",
        )

    def _initializers(self, proto: onnx.GraphProto, scope: Scope) -> dict[Value, Array]:
        constants: dict[Value, Array] = {}
        for tensor in proto.initializer:
            self._constant(scope, tensor.name, tensor_to_array(tensor, self.external, self.limits), constants)
        for sparse in proto.sparse_initializer:
            self._constant(scope, sparse.values.name, self._dense(sparse), constants)
        return constants

    def _constant(self, scope: Scope, name: str, array: Array, constants: dict[Value, Array]) -> None:
        try:
            constants[self._declare(scope, name, TensorType(dtype_of_array(array), array.shape))] = array
        except ImportFailed as error:
            raise error.located(f"tensor '{name}'") from None

    def _dense(self, sparse: onnx.SparseTensorProto) -> Array:
        import numpy as np

        values = tensor_to_array(sparse.values, self.external, self.limits)
        positions = tensor_to_array(sparse.indices, self.external, self.limits)
        shape = tuple(sparse.dims)
        size = int(np.prod(shape, dtype=object)) * values.dtype.itemsize
        if any(d < 0 for d in shape) or size > self.limits.tensor_bytes:
            raise LimitExceeded(f"a sparse tensor has the shape {list(shape)}", where=f"tensor '{sparse.values.name}'")
        dense = np.zeros(shape, values.dtype)
        dense[tuple(positions.T) if positions.ndim == 2 else np.unravel_index(positions, shape)] = values
        return dense

    def _declare(self, scope: Scope, name: str, kind: Type) -> Value:
        if name in scope.values:
            raise ImportFailed(f"the value '{name}' is defined twice", hint="names must be unique in a graph")
        value = Value(next(self.ids), kind)
        if name:
            scope.values[name] = value
        return value

    def _use(self, scope: Scope, name: str, where: str) -> Value:
        value = scope.find(name)
        if value is None:
            raise ImportFailed(
                f"the value '{name}' is used but not defined before",
                where=where,
                hint="the nodes form a cycle, are not in order, or a node is missing",
            )
        return value

    # --- nodes

    def nodes(
        self, protos: Sequence[onnx.NodeProto], scope: Scope, declared: Mapping[str, onnx.TypeProto]
    ) -> list[Node]:
        """The nodes, calls of the model's own functions expanded."""
        nodes: list[Node] = []
        for proto in in_order(protos, scope):
            self.count += 1
            if self.count > self.limits.nodes:
                raise LimitExceeded(f"the model has more than {self.limits.nodes} nodes", hint="raise Limits.nodes")
            function = self.functions.get((proto.domain, proto.op_type, proto.overload))
            try:
                if function is not None:
                    nodes.extend(self._call(proto, function, scope))
                else:
                    nodes.append(self._node(proto, protos, scope, declared))
            except AssayError as error:
                raise error.located(_place(proto, scope)) from error.__cause__
        return nodes

    def _node(
        self,
        proto: onnx.NodeProto,
        around: Sequence[onnx.NodeProto],
        scope: Scope,
        declared: Mapping[str, onnx.TypeProto],
    ) -> Node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        where = _place(proto, scope)
        opset = self.opsets.get(domain)
        if opset is None:
            raise ImportFailed(
                f"the model uses domain '{domain or 'ai.onnx'}' without importing a version of it",
                where=where,
                hint="add an opset import for the domain",
            )
        version = version_of(domain, proto.op_type, opset)
        check_counts(proto, domain, version)
        inputs = tuple(self._use(scope, name, where) if name else None for name in proto.input)
        attrs, regions = self._attributes(proto, domain, version, scope, where)
        if (domain, proto.op_type) == GRADIENT:
            regions = (self._differentiated(proto, around, scope, where),)
        outputs = tuple(
            self._declare(scope, name, type_of(declared[name]) if name in declared else UnknownType())
            for name in proto.output
        )
        source, op = _op_names(domain, proto.op_type, version)
        origin = Origin(source, proto.name or next((n for n in proto.output if n), ""), module=scope.path)
        return Node(op, inputs, outputs, origin, attrs, regions)

    def _attributes(
        self, proto: onnx.NodeProto, domain: str, version: int, scope: Scope, where: str
    ) -> tuple[dict[str, Any], tuple[Graph, ...]]:
        attrs: dict[str, Any] = {}
        regions: list[Graph] = []
        given = [_resolved(attribute, scope) for attribute in proto.attribute]
        for attribute in (*defaults_of(domain, proto.op_type, version), *given):
            if attribute is None:
                continue
            if attribute.type == onnx.AttributeProto.GRAPH:
                attrs[attribute.name] = len(regions)
                regions.append(self.graph(attribute.g, scope.inner()))
            else:
                attrs[attribute.name] = self._attribute(attribute, where)
        return attrs, tuple(regions)

    def _attribute(self, proto: onnx.AttributeProto, where: str) -> Any:
        read = _ATTRIBUTES.get(proto.type)
        if read is not None:
            return read(proto)
        if proto.type == onnx.AttributeProto.TENSOR:
            return tensor_to_array(proto.t, self.external, self.limits)
        if proto.type == onnx.AttributeProto.SPARSE_TENSOR:
            return self._dense(proto.sparse_tensor)
        if proto.type == onnx.AttributeProto.TENSORS:
            return tuple(tensor_to_array(t, self.external, self.limits) for t in proto.tensors)
        raise ImportFailed(f"the attribute '{proto.name}' has an unknown type ({proto.type})", where=where)

    def _differentiated(
        self, proto: onnx.NodeProto, around: Sequence[onnx.NodeProto], scope: Scope, where: str
    ) -> Graph:
        """What a Gradient node names of the graph around it, from `xs` and `zs` to `y`, as a body of its own."""
        inner = scope.inner()
        if inner.depth > self.limits.nesting:
            raise LimitExceeded(f"gradients of gradients nest deeper than {self.limits.nesting}", where=where)
        given = [*_named(proto, "xs"), *_named(proto, "zs")]
        target = next(iter(_named(proto, "y")), "")
        inputs = [self._declare(inner, name, self._use(scope, name, where).type) for name in given]
        nodes = self.nodes(_ancestors(target, around, given), inner, {})
        y = self._use(inner, target, where)
        return Graph("gradient", tuple(inputs), (y,), tuple(nodes), level="symbolic")

    # --- functions

    def _call(self, proto: onnx.NodeProto, function: onnx.FunctionProto, scope: Scope) -> list[Node]:
        if scope.depth >= self.limits.nesting:
            raise LimitExceeded(
                f"calls nest deeper than {self.limits.nesting}",
                where=f"function '{function.domain}.{function.name}'",
                hint="a function may not call itself",
            )
        given = {attribute.name: _resolved(attribute, scope) for attribute in proto.attribute}
        defaults = {attribute.name: attribute for attribute in function.attribute_proto}
        arguments = {k: v for k, v in {**defaults, **given}.items() if v is not None}
        name = proto.name or next((n for n in proto.output if n), function.name)
        inner = Scope(attrs=arguments, path=f"{scope.path}{_short(name)}/", depth=scope.depth + 1)
        where = f"call of function '{function.name}' at '{name}'"
        if len(proto.input) > len(function.input) or len(proto.output) > len(function.output):
            raise ImportFailed("a function is called with more inputs or outputs than it has", where=where)
        for formal, actual in zip(function.input, proto.input, strict=False):
            if actual:
                inner.values[formal] = self._use(scope, actual, where)
        nodes = self.expand(function, inner)
        for formal, actual in zip(function.output, proto.output, strict=False):
            if actual:
                if actual in scope.values:
                    raise ImportFailed(f"the value '{actual}' is defined twice", where=where)
                scope.values[actual] = self._use(inner, formal, where)
        for key, value in inner.values.items():
            scope.values.setdefault(f"{inner.path}{_short(key)}", value)
        return nodes

    def expand(self, function: onnx.FunctionProto, scope: Scope) -> list[Node]:
        """The nodes of a function's body, its inputs bound in `scope`; inputs that were not given are absent."""
        absent = {name for name in function.input if name not in scope.values}
        own = replace(self, opsets={**self.opsets, **opset_imports(function.opset_import)})
        body = [_without(proto, absent) for proto in function.node] if absent else function.node
        nodes = own.nodes(body, scope, {info.name: info.type for info in function.value_info})
        self.count = own.count
        return nodes


def _short(name: str) -> str:
    """A name as part of a path; every call repeats the names in a function, so they must not be of any length."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


_LONGEST = 200


def _type(info: onnx.ValueInfoProto, root: bool) -> Type:
    """The declared type of a graph input; open dims of the main graph's inputs are symbols of their own."""
    try:
        kind = type_of(info.type, info.name if root else "")
    except AssayError as error:
        raise error.located(f"input '{info.name}'") from None
    if root and isinstance(kind, UnknownType):
        raise ImportFailed("an input has no type", where=f"input '{info.name}'")
    return kind


@cache
def _op_names(domain: str, op_type: str, version: int) -> tuple[str, str]:
    """An op as origins name it, and with its version as nodes do."""
    name = f"onnx.{domain}.{op_type}" if domain else f"onnx.{op_type}"
    return name, f"{name}@{version}"


def _place(proto: onnx.NodeProto, scope: Scope) -> str:
    """A node as errors name it."""
    return f"{scope.path}{proto.op_type} '{proto.name or next(iter(proto.output), '')}'"


def opset_imports(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain; the default domain under the empty name."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}


def in_order(protos: Sequence[onnx.NodeProto], scope: Scope) -> Sequence[onnx.NodeProto]:
    """The nodes in an order in which each follows what it reads, as far as that exists; usually as they are."""
    made = {name: index for index, proto in enumerate(protos) for name in proto.output if name}
    waiting = [
        {made[name] for name in proto.input if made.get(name, -1) >= index and scope.find(name) is None}
        for index, proto in enumerate(protos)
    ]
    if not any(waiting):
        return protos
    return _sorted(protos, made)


def _sorted(protos: Sequence[onnx.NodeProto], made: Mapping[str, int]) -> Sequence[onnx.NodeProto]:
    needs = [{made[name] for name in proto.input if name in made} for proto in protos]
    users: list[list[int]] = [[] for _ in protos]
    for index, needed in enumerate(needs):
        for source in needed:
            users[source].append(index)
    ready = [index for index, needed in enumerate(needs) if not needed]
    order: list[int] = []
    left = [len(needed) for needed in needs]
    for index in ready:
        order.append(index)
        for user in users[index]:
            left[user] -= 1
            if left[user] == 0:
                ready.append(user)
    if len(order) < len(protos):
        stuck = next(index for index in range(len(protos)) if left[index])
        raise ImportFailed("the nodes form a cycle", where=f"{protos[stuck].op_type} '{protos[stuck].name}'")
    return [protos[index] for index in order]


GRADIENT = ("ai.onnx.preview.training", "Gradient")


def _named(proto: onnx.NodeProto, attribute: str) -> list[str]:
    """The names in a string attribute of one or several."""
    found = [entry for entry in proto.attribute if entry.name == attribute]
    return [_text(name) for entry in found for name in (*entry.strings, *([entry.s] if entry.s else []))]


def _ancestors(target: str, protos: Sequence[onnx.NodeProto], given: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that `target` depends on, as far as it does not through `given`."""
    made = {name: index for index, proto in enumerate(protos) for name in proto.output if name}
    needed: set[int] = set()
    waiting = [target]
    while waiting:
        name = waiting.pop()
        if name in given or name not in made or made[name] in needed:
            continue
        needed.add(made[name])
        waiting += _reads(protos[made[name]])
    return [proto for index, proto in enumerate(protos) if index in needed]


def _reads(proto: onnx.NodeProto) -> list[str]:
    """The names that a node refers to, its bodies included."""
    bodies = [entry.g for entry in proto.attribute if entry.type == onnx.AttributeProto.GRAPH]
    inside = [name for body in bodies for inner in body.node for name in _reads(inner)]
    outputs = [info.name for body in bodies for info in body.output]
    differentiated = _named(proto, "y") if (proto.domain, proto.op_type) == GRADIENT else []
    return [*proto.input, *inside, *outputs, *differentiated]


def _resolved(attribute: onnx.AttributeProto, scope: Scope) -> onnx.AttributeProto | None:
    """The attribute, or the function's argument that it refers to (None: not given)."""
    if not attribute.ref_attr_name:
        return attribute
    argument = (scope.attrs or {}).get(attribute.ref_attr_name)
    if argument is None:
        return None
    renamed = onnx.AttributeProto()
    renamed.CopyFrom(argument)
    renamed.name = attribute.name
    return renamed


def _without(proto: onnx.NodeProto, absent: set[str]) -> onnx.NodeProto:
    if not absent.intersection(proto.input):
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.input[:] = ["" if name in absent else name for name in proto.input]
    return copy


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_ATTRIBUTES: dict[int, Callable[[onnx.AttributeProto], Any]] = {
    onnx.AttributeProto.FLOAT: lambda a: float(a.f),
    onnx.AttributeProto.INT: lambda a: int(a.i),
    onnx.AttributeProto.STRING: lambda a: _text(a.s),
    onnx.AttributeProto.FLOATS: lambda a: tuple(float(x) for x in a.floats),
    onnx.AttributeProto.INTS: lambda a: tuple(int(x) for x in a.ints),
    onnx.AttributeProto.STRINGS: lambda a: tuple(_text(x) for x in a.strings),
    onnx.AttributeProto.TYPE_PROTO: lambda a: str(type_of(a.tp)),
}
