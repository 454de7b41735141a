"""Core graph → ONNX model, so that other runtimes can be asked what they make of it.

Each core op that ONNX can say is a row: a small function that emits ONNX nodes for it. A composite without a row goes
out in its parts. What ONNX has no words for, or not for a dtype, raises `NotInOnnx` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from assay.errors import AssayError
from assay.frontends.onnx.types import code_of, dtype_of, to_proto
from assay.ir.dtypes import Array, DType, f64, i64
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.ops.registry import OPS

OPSET = 26
IR_VERSION = 12


class NotInOnnx(AssayError):
    """A node that ONNX cannot say, or not for its dtypes; `index` is its place in the graph."""

    stage = "export"
    index = -1


@dataclass(frozen=True, slots=True)
class Term:
    """A value of the ONNX graph that is being made."""

    name: str
    dtype: DType


OneOrMoreTerms: TypeAlias = Term | Sequence[Term]
ExportRow: TypeAlias = Callable[..., OneOrMoreTerms]
"""`(emitter, node, *inputs) -> result(s)`; an absent input is None."""

ROWS: dict[str, ExportRow] = {}


def exports(name: str) -> Callable[[ExportRow], ExportRow]:
    """Enter the row of the core op `name`."""

    def enter(row: ExportRow) -> ExportRow:
        if name in ROWS:
            raise ValueError(f"the core op {name} has two rows")
        ROWS[name] = row
        return row

    return enter


@dataclass
class OnnxEmitter:
    """The ONNX graph in the making. Nodes are named `<prefix>.<number>`, after the core node that they stand for."""

    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    contents: dict[str, Array] = field(default_factory=dict[str, Array])
    prefix: str = ""
    made: int = 0

    def op(self, kind: str, *inputs: Term | None, dtype: DType | None = None, **attrs: Any) -> Term:
        """Emit one node and return its first result. `dtype` is that of the result where the schema leaves it open."""
        return self.ops(kind, 1, *inputs, dtype=dtype, **attrs)[0]

    def ops(
        self, kind: str, results: int, *inputs: Term | None, dtype: DType | None = None, **attrs: Any
    ) -> list[Term]:
        """Emit one node and return its first `results` results."""
        schema = _schema(kind, self.opset)
        bound = _check_types(schema, inputs)
        outputs = [Term(self._name("v"), _result_dtype(schema, i, bound, dtype)) for i in range(results)]
        given = {name: _attribute(value) for name, value in attrs.items() if value is not None}
        _check_attributes(schema, given, any(term is not None and term.dtype is f64 for term in inputs))
        names = ["" if term is None else term.name for term in inputs]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(kind, names, [term.name for term in outputs], name=self._name("n"), **given)
        self.nodes.append(node)
        return outputs

    def constant(self, array: Any, dtype: DType) -> Term:
        """An initializer."""
        name = self._name("c")
        self.contents[name] = np.asarray(array).astype(dtype.numpy)
        self.initializers.append(to_tensor(self.contents[name], name))
        return Term(name, dtype)

    def like(self, number: float, term: Term) -> Term:
        """A scalar constant of the dtype of `term`."""
        return self.constant(number, term.dtype)

    def _name(self, kind: str) -> str:
        self.made += 1
        return f"{self.prefix}.{kind}{self.made}"


def export_graph(graph: Graph, opset: int = OPSET) -> onnx.ModelProto:
    """`graph` as an ONNX model whose inputs and outputs are named `input<i>` and `output<i>`.

    NotInOnnx names the node that cannot be said. ONNX nodes that stand for node i of the graph have names that begin
    with `<i>.`.
    """
    emitter = OnnxEmitter(opset)
    terms = _terms(emitter, graph, [Term(f"input{i}", _tensor(v).dtype) for i, v in enumerate(graph.inputs)])
    for index, node in enumerate(graph.nodes):
        emitter.prefix = str(index)
        try:
            _emit(emitter, node, terms)
        except NotInOnnx as refusal:
            refusal.index = index
            raise
    emitter.prefix = "out"
    outputs: list[onnx.ValueInfoProto] = []
    for i, value in enumerate(graph.outputs):
        _rename(emitter, terms[value], f"output{i}")
        terms[value] = Term(f"output{i}", terms[value].dtype)
        outputs.append(_value_info(f"output{i}", _tensor(value)))
    inputs = [_value_info(f"input{i}", _tensor(value)) for i, value in enumerate(graph.inputs)]
    proto = helper.make_graph(emitter.nodes, graph.name or "graph", inputs, outputs, emitter.initializers)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def ints(emitter: OnnxEmitter, *numbers: int) -> Term:
    """A constant vector of i64."""
    return emitter.constant(np.array(numbers, np.int64), i64)


def rank_of(value: Value | None) -> int:
    """The rank of an input; NotInOnnx if it is not known."""
    shape = None if value is None else _tensor(value).shape
    if shape is None:
        raise NotInOnnx("the rank of an input is not known")
    return len(shape)


def shape_of(value: Value | None) -> tuple[int, ...]:
    """The shape of an input as numbers; NotInOnnx if it is not known."""
    shape = None if value is None else _tensor(value).shape
    known = tuple(d for d in shape or () if isinstance(d, int))
    if shape is None or len(known) != len(shape):
        raise NotInOnnx("the shape of an input is not known")
    return known


def to_tensor(array: Array, name: str) -> onnx.TensorProto:
    """A TensorProto of any of our dtypes."""
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _terms(emitter: OnnxEmitter, graph: Graph, inputs: Sequence[Term]) -> dict[Value, Term]:
    """The terms of a graph's inputs and constants."""
    terms = dict(zip(graph.inputs, inputs, strict=True))
    terms.update((value, emitter.constant(array, _tensor(value).dtype)) for value, array in graph.constants.items())
    return terms


def _emit(emitter: OnnxEmitter, node: Node, terms: dict[Value, Term]) -> None:
    definition = OPS[node.op]
    if definition.regions or not all(isinstance(v.type, TensorType) for v in (*node.inputs, *node.outputs) if v):
        raise NotInOnnx(f"{node.op} is not exported", where=str(node.origin))
    inputs = [None if value is None else terms[value] for value in node.inputs]
    row = ROWS.get(node.op)
    if row is not None:
        outcome = row(emitter, node, *inputs)
        results: Sequence[Term] = (outcome,) if isinstance(outcome, Term) else outcome
    elif definition.is_milli:
        raise NotInOnnx(f"ONNX has no op for {node.op}", where=str(node.origin))
    else:
        results = in_parts(emitter, node, *inputs)
    terms.update(zip(node.outputs, results, strict=True))


def in_parts(emitter: OnnxEmitter, node: Node, *inputs: Term | None) -> list[Term]:
    """Export a composite by its decomposition."""
    b = Builder(decomposed=True)
    known = [None if term is None else emitter.contents.get(term.name) for term in inputs]
    values = [
        None if value is None else b.input(value.type) if array is None else b.constant(array, _tensor(value).dtype)
        for value, array in zip(node.inputs, known, strict=True)
    ]
    results = b.emit(node.op, *values, **node.attrs)
    graph = b.finish(node.op, [value for value in values if value is not None and value not in b.constants], results)
    waiting = next((inner for inner in graph.nodes if inner.op == "deferred"), None)
    if waiting is not None:
        raise NotInOnnx(f"{node.op} falls apart only at run time: it needs {waiting.attrs['reason']}")
    given = [term for term, array in zip(inputs, known, strict=True) if term is not None and array is None]
    terms = _terms(emitter, graph, given)
    for inner in graph.nodes:
        _emit(emitter, inner, terms)
    return [terms[value] for value in results]


def _rename(emitter: OnnxEmitter, term: Term, name: str) -> None:
    """Make `name` stand for `term`: rename what makes it, or copy it where it is an input or an output already."""
    maker = next((node for node in emitter.nodes if term.name in node.output), None)
    if maker is None or term.name.startswith("output"):
        emitter.op("Identity", term)
        emitter.nodes[-1].output[0] = name
        return
    for node in emitter.nodes:
        for names in (node.input, node.output):
            for i, old in enumerate(names):
                if old == term.name:
                    names[i] = name


def _tensor(value: Value) -> TensorType:
    if not isinstance(value.type, TensorType):
        raise NotInOnnx(f"{value} is of type {value.type}")
    return value.type


def _value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, to_proto(kind))


def _attribute(value: Any) -> Any:
    if isinstance(value, DType):
        return code_of(value)
    if isinstance(value, bool):
        return int(value)
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


# --- what the standard says of types


@dataclass(frozen=True, slots=True)
class _Schema:
    """The dtypes that an ONNX op takes and gives. A parameter names a type variable; the last may repeat."""

    kind: str
    inputs: tuple[str, ...]
    mixed: tuple[bool, ...]
    outputs: tuple[str, ...]
    allowed: Mapping[str, frozenset[DType]]
    attributes: frozenset[str]

    def input(self, index: int) -> tuple[str, bool]:
        """The type variable of an input, and whether it may differ from others of the same variable."""
        at = min(index, len(self.inputs) - 1)
        return self.inputs[at], self.mixed[at]


@cache
def _schema(kind: str, opset: int) -> _Schema:
    if not onnx.defs.has(kind, opset):
        raise NotInOnnx(f"ONNX {opset} has no {kind}")
    found = onnx.defs.get_schema(kind, opset)
    allowed = {c.type_param_str: _dtypes(c.allowed_type_strs) for c in found.type_constraints}
    for parameter in (*found.inputs, *found.outputs):
        allowed.setdefault(parameter.type_str, _dtypes([parameter.type_str]))
    return _Schema(
        kind,
        tuple(p.type_str for p in found.inputs),
        tuple(not p.is_homogeneous for p in found.inputs),
        tuple(p.type_str for p in found.outputs),
        allowed,
        frozenset(found.attributes),
    )


_WORDS = {name.lower(): code for name, code in onnx.TensorProto.DataType.items() if code}
_WORDS["double"], _WORDS["float"] = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT


def _dtypes(names: Sequence[str]) -> frozenset[DType]:
    """The dtypes among `tensor(float)` and the like."""
    words = [name[len("tensor(") : -1] for name in names if name.startswith("tensor(")]
    return frozenset(dtype_of(_WORDS[word]) for word in words)


def _check_attributes(schema: _Schema, attrs: Mapping[str, Any], in_f64: bool) -> None:
    """Refuse an attribute that is unknown, and a number that ONNX's f32 does not hold as f64 arithmetic wants it."""
    for name, value in attrs.items():
        if name not in schema.attributes:
            raise NotInOnnx(f"ONNX's {schema.kind} has no attribute '{name}' yet")
        numbers = cast("list[Any]", value) if isinstance(value, list) else [value]
        if in_f64 and any(isinstance(item, float) and float(np.float32(item)) != item for item in numbers):
            raise NotInOnnx(f"ONNX's {schema.kind} holds its attribute '{name}' in f32")


def _check_types(schema: _Schema, inputs: Sequence[Term | None]) -> dict[str, DType]:
    bound: dict[str, DType] = {}
    for index, term in enumerate(inputs):
        if term is None:
            continue
        variable, mixed = schema.input(index)
        if term.dtype not in schema.allowed[variable]:
            raise NotInOnnx(f"ONNX's {schema.kind} takes no {term.dtype}")
        if not mixed and bound.setdefault(variable, term.dtype) is not term.dtype:
            raise NotInOnnx(f"ONNX's {schema.kind} mixes no {bound[variable]} and {term.dtype}")
    return bound


def _result_dtype(schema: _Schema, index: int, bound: Mapping[str, DType], stated: DType | None) -> DType:
    variable = schema.outputs[min(index, len(schema.outputs) - 1)]
    if variable in bound:
        return bound[variable]
    allowed = schema.allowed[variable]
    if len(allowed) == 1:
        return next(iter(allowed))
    if stated is None or stated not in allowed:
        raise NotInOnnx(f"ONNX's {schema.kind} gives no {stated}")
    return stated


from assay.frontends.onnx import export_layers, export_rows  # noqa: E402

__all__ = ["NotInOnnx", "export_graph", "export_layers", "export_rows", "exports"]
