"""How ONNX Runtime describes models: inputs, outputs, types, metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import DType
from assay.ir.types import MapType, OptionalType, SequenceType, TensorType, Type

if TYPE_CHECKING:
    import onnx

_NAMES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8e4m3fn",
    "f8e4m3fnuz": "float8e4m3fnuz",
    "f8e5m2": "float8e5m2",
    "f8e5m2fnuz": "float8e5m2fnuz",
    "f8e8m0": "float8e8m0",
    "f6e2m3": "float6e2m3",
    "f6e3m2": "float6e3m2",
    "f4e2m1": "float4e2m1",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
    "string": "string",
}


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output: its name, ONNX Runtime's type string, and its shape (numbers, names, None where unknown)."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str
    graph_name: str
    graph_description: str
    description: str
    domain: str
    version: int
    custom_metadata_map: dict[str, str]


def metadata_of(model: onnx.ModelProto) -> ModelMetadata:
    """The metadata of a model."""
    return ModelMetadata(
        producer_name=model.producer_name,
        graph_name=model.graph.name,
        graph_description=model.graph.doc_string,
        description=model.doc_string,
        domain=model.domain,
        version=model.model_version,
        custom_metadata_map={entry.key: entry.value for entry in model.metadata_props},
    )


def node_arg(name: str, kind: Type) -> NodeArg:
    """The description of an input or output."""
    shape: list[int | str | None] = []
    if isinstance(kind, TensorType) and kind.shape is not None:
        shape = [d if isinstance(d, int) else None if d is UNKNOWN else str(d) for d in kind.shape]
    return NodeArg(name, type_string(kind), shape)


def type_string(kind: Type) -> str:
    """The spelling of a type, such as `tensor(float)` or `seq(tensor(int64))`."""
    if isinstance(kind, TensorType):
        return f"tensor({_name(kind.dtype)})"
    if isinstance(kind, SequenceType):
        return f"seq({type_string(kind.elem)})"
    if isinstance(kind, OptionalType):
        return f"optional({type_string(kind.elem)})"
    if isinstance(kind, MapType):
        return f"map({_name(kind.key)},{type_string(kind.value)})"
    return "unknown"


def _name(dtype: DType) -> str:
    if dtype.is_integer:
        return f"{'u' if dtype.kind == 'uint' else ''}int{dtype.bits}"
    return _NAMES[dtype.name]
