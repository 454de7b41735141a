"""What the installed onnx package says of its ops: their real versions, defaults, function bodies, result types."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from functools import cache
from typing import Any

import onnx
import onnx.defs
import onnx.shape_inference

from assay.errors import ImportFailed
from assay.frontends.onnx.types import to_proto, type_of
from assay.ir.types import TensorType, Type, UnknownType

STANDARD = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

_RUNTIME_OPS: dict[str, int | None] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None}
"""What ONNX Runtime writes into the default domain at any version, with the version that the standard took it up at."""


@cache
def schema_of(domain: str, op_type: str, opset: int) -> Any | None:
    """The schema that op `op_type` has under an import of `opset` of `domain`; None outside of the standard.

    ImportFailed if the domain is standard but has no such op at that version.
    """
    if domain not in STANDARD:
        return None
    try:
        return onnx.defs.get_schema(op_type, max_inclusive_version=opset, domain=domain)
    except onnx.defs.SchemaError:
        pass
    if not domain and op_type in _RUNTIME_OPS:
        later = _RUNTIME_OPS[op_type]
        return None if later is None else onnx.defs.get_schema(op_type, max_inclusive_version=later)
    close = difflib.get_close_matches(op_type, _op_names(domain), 3)
    hint = f"did you mean {', '.join(close)}?" if close else "check the model's opset imports"
    raise ImportFailed(
        f"opset {opset} of domain '{domain or 'ai.onnx'}' has no op '{op_type[:100]}'",
        hint=hint,
    )


@cache
def _op_names(domain: str) -> list[str]:
    return sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain})


def version_of(domain: str, op_type: str, opset: int) -> int:
    """The real version of an op: when the definition in force under `opset` was introduced."""
    schema = schema_of(domain, op_type, opset)
    return opset if schema is None else schema.since_version


def check_counts(proto: onnx.NodeProto, domain: str, version: int) -> None:
    """ImportFailed if a node has more or fewer inputs or outputs than its op allows."""
    schema = schema_of(domain, proto.op_type, version)
    if schema is None:
        return
    for what, names, least, most in (
        ("inputs", proto.input, schema.min_input, schema.max_input),
        ("outputs", proto.output, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            allowed = f"{least}" if least == most else f"{least} or more" if most > 1000 else f"{least} to {most}"
            raise ImportFailed(f"{proto.op_type} (version {version}) has {allowed} {what}, the node has {len(names)}")


@cache
def defaults_of(domain: str, op_type: str, version: int) -> tuple[onnx.AttributeProto, ...]:
    """The attributes of an op that have a default."""
    schema = schema_of(domain, op_type, version)
    if schema is None:
        return ()
    return tuple(a.default_value for a in schema.attributes.values() if a.default_value.name)


def result_types(proto: onnx.NodeProto, opset: int, inputs: Sequence[Type | None]) -> list[Type]:
    """The types of a node's results as far as the standard's own inference tells."""
    schema = schema_of(proto.domain, proto.op_type, opset)
    if schema is None:
        return [UnknownType() for _ in proto.output]
    given = {
        name: to_proto(kind)
        for name, kind in zip(proto.input, inputs, strict=False)
        if name and kind is not None and not isinstance(kind, UnknownType)
    }
    imports = [onnx.helper.make_opsetid(proto.domain, opset)]
    inferred: dict[str, onnx.TypeProto] = {}
    if all(name in given for name in proto.input if name):
        with contextlib.suppress(onnx.shape_inference.InferenceError, RuntimeError):
            inferred = onnx.shape_inference.infer_node_outputs(schema, proto, given, opset_imports=imports)
    declared = _declared_types(schema, inputs)
    return [
        type_of(inferred[name]) if name in inferred else declared.get(_formal(schema.outputs, i), UnknownType())
        for i, name in enumerate(proto.output)
    ]


def _formal(formals: Sequence[Any], index: int) -> str:
    """The type expression of input or output number `index`; the last one may be variadic."""
    return formals[min(index, len(formals) - 1)].type_str if formals else ""


def _declared_types(schema: Any, inputs: Sequence[Type | None]) -> dict[str, Type]:
    """What the inputs bind the schema's type variables to; of a tensor, the dtype alone."""
    bound: dict[str, Type] = {}
    for index, kind in enumerate(inputs):
        if kind is not None:
            bound[_formal(schema.inputs, index)] = TensorType(kind.dtype) if isinstance(kind, TensorType) else kind
    return bound


def function_body(proto: onnx.NodeProto, version: int, inputs: Sequence[Type | None]) -> onnx.FunctionProto | None:
    """The standard's own definition of an op in terms of others, for these input types; None if it has none."""
    schema = schema_of(proto.domain, proto.op_type, version)
    if schema is None:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = [to_proto(kind).SerializeToString() if kind is not None else b"" for kind in inputs]
    versions = schema.context_dependent_function_opset_versions
    chosen = max((v for v in versions if v <= max(version, min(versions))), default=versions[-1])
    body = schema.get_context_dependent_function_with_opset_version(chosen, proto.SerializeToString(), types)
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    return function
