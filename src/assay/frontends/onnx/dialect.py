"""How one ONNX node becomes core ops: by its own lowering, else through the standard's function body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from assay.errors import LowerFailed
from assay.frontends.onnx import ops as ops  # enters the lowerings
from assay.frontends.onnx.external import ExternalData
from assay.frontends.onnx.importer import Importer, Scope, opset_imports
from assay.frontends.onnx.registry import Source, rule_for, split_name
from assay.frontends.onnx.schema import function_body, result_types
from assay.frontends.onnx.types import code_of
from assay.ir import dtypes
from assay.ir.dtypes import is_array
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import Type, UnknownType
from assay.ops.lowering import DIALECTS, Dialect, Lowering
from assay.ops.registry import as_results


def lower_node(lowering: Lowering, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
    """The core values of an ONNX node's results."""
    domain, op_type, version = split_name(node.op)
    rule = rule_for(domain, op_type, version)
    if rule is not None:
        results = as_results(rule(lowering.builder, Source(node, lowering), *inputs))
    else:
        results = _through_function(lowering, node, inputs)
    if len(results) < len(node.outputs):
        raise LowerFailed(
            f"{op_type} has {len(results)} results, the node names {len(node.outputs)}", where=str(node.origin)
        )
    return results


def _through_function(lowering: Lowering, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
    domain, op_type, version = split_name(node.op)
    body = function_body(node_proto(node), version, [None if v is None else v.type for v in inputs])
    if body is None:
        raise LowerFailed(
            f"the op {op_type} (version {version}, domain '{domain or 'ai.onnx'}') is not supported",
            where=str(node.origin),
            hint="it has no lowering and the ONNX standard gives no function body for it",
        )
    graph = _function_graph(body, node, inputs, lowering)
    for inner in graph.nodes:
        lowering.node(inner)
    return [lowering.values[value] for value in graph.outputs]


def _function_graph(body: onnx.FunctionProto, node: Node, inputs: Sequence[Value | None], lowering: Lowering) -> Graph:
    """The function's body as symbolic nodes whose inputs stand for the node's."""
    importer = Importer(opset_imports(body.opset_import), {}, ExternalData(None), lowering.builder.limits)
    scope = Scope(attrs={a.name: a for a in node_proto(node).attribute}, path=f"{node.origin.name}/")
    for name, value, source in zip(body.input, inputs, node.inputs, strict=False):
        if value is not None and source is not None:
            scope.values[name] = source
    nodes = importer.expand(body, scope)
    outputs = tuple(scope.values[name] for name in body.output if name in scope.values)
    return Graph(body.name, (), outputs, tuple(nodes), level="symbolic")


def result_types_of(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type]:
    """The types of a node's results; where the standard does not tell, UnknownType."""
    domain, _, version = split_name(node.op)
    if node.regions or domain not in ("", "ai.onnx.ml"):
        return [UnknownType() if isinstance(v.type, UnknownType) else v.type for v in node.outputs]
    return result_types(node_proto(node), version, inputs)


def node_proto(node: Node) -> onnx.NodeProto:
    """The node as a NodeProto, values named by their place; bodies are left out."""
    domain, op_type, _ = split_name(node.op)
    names = ["" if value is None else f"x{place}" for place, value in enumerate(node.inputs)]
    results = [f"y{place}" for place in range(len(node.outputs))]
    proto = onnx.helper.make_node(op_type, names, results, node.origin.name, domain=domain)
    schema_less = (name for name, value in node.attrs.items() if value is not None)
    for name in schema_less:
        if not (node.regions and isinstance(node.attrs[name], int) and name.endswith(("branch", "body"))):
            proto.attribute.append(_attribute(name, node.attrs[name]))
    return proto


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    if is_array(value):
        tensor = onnx.TensorProto(data_type=code_of(dtypes.of(value)), dims=value.shape)
        if value.dtype == object:
            tensor.string_data.extend(str(item).encode() for item in value.reshape(-1))
        else:
            tensor.raw_data = value.tobytes()
        return onnx.AttributeProto(name=name, type=onnx.AttributeProto.TENSOR, t=tensor)
    if value == ():
        return onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
    return onnx.helper.make_attribute(name, value)


DIALECTS["onnx"] = Dialect(lower_node, result_types_of)
