"""ONNX types and dtype codes ⇄ ours."""

from __future__ import annotations

from typing import Any

import onnx

from assay.errors import ImportFailed
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, symbol
from assay.ir.dtypes import DType
from assay.ir.types import MapType, OptionalType, SequenceType, TensorType, Type, UnknownType

_NAMES = {
    "FLOAT": "f32",
    "DOUBLE": "f64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "f8e4m3fn",
    "FLOAT8E4M3FNUZ": "f8e4m3fnuz",
    "FLOAT8E5M2": "f8e5m2",
    "FLOAT8E5M2FNUZ": "f8e5m2fnuz",
    "FLOAT8E8M0": "f8e8m0",
    "FLOAT6E2M3": "f6e2m3",
    "FLOAT6E3M2": "f6e3m2",
    "FLOAT4E2M1": "f4e2m1",
    "INT64": "i64",
    "INT32": "i32",
    "INT16": "i16",
    "INT8": "i8",
    "INT4": "i4",
    "INT2": "i2",
    "UINT64": "u64",
    "UINT32": "u32",
    "UINT16": "u16",
    "UINT8": "u8",
    "UINT4": "u4",
    "UINT2": "u2",
    "BOOL": "bool",
    "COMPLEX64": "c64",
    "COMPLEX128": "c128",
    "STRING": "string",
}
_FROM_CODE = {onnx.TensorProto.DataType.Value(code): dtypes.by_name(name) for code, name in _NAMES.items()}
_TO_CODE = {dtype: code for code, dtype in _FROM_CODE.items()}


_OPEN = -1
"""Some exporters write this where a dim is open; others name all open dims «?»."""


def dtype_of(code: int) -> DType:
    """The dtype of an ONNX `TensorProto.DataType` code."""
    found = _FROM_CODE.get(code)
    if found is None:
        raise ImportFailed(f"{code} is no ONNX element type", hint="the model is damaged or newer than this version")
    return found


def code_of(dtype: DType) -> int:
    """The ONNX code of a dtype."""
    return _TO_CODE[dtype]


def type_of(proto: onnx.TypeProto, owner: str = "") -> Type:
    """Our type for a TypeProto. A dim without name or size becomes a symbol of its own if `owner` names the
    graph input that it belongs to, else it is unknown."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" or kind == "sparse_tensor_type":
        return _tensor_type(getattr(proto, kind), owner)
    if kind == "sequence_type":
        return SequenceType(type_of(proto.sequence_type.elem_type))
    if kind == "optional_type":
        return OptionalType(type_of(proto.optional_type.elem_type))
    if kind == "map_type":
        return MapType(dtype_of(proto.map_type.key_type), type_of(proto.map_type.value_type))
    return UnknownType()


def _tensor_type(proto: Any, owner: str) -> Type:
    if not proto.elem_type:
        return UnknownType()
    dtype = dtype_of(proto.elem_type)
    if not proto.HasField("shape"):
        return TensorType(dtype)
    return TensorType(dtype, tuple(_dim(dim, f"{owner}.{i}" if owner else "") for i, dim in enumerate(proto.shape.dim)))


def _dim(proto: Any, fallback: str) -> Dim:
    if proto.HasField("dim_value") and proto.dim_value != _OPEN:
        if proto.dim_value < 0:
            raise ImportFailed(f"a dim is declared as {proto.dim_value}", hint="dims are zero or positive")
        return int(proto.dim_value)
    named = any(character.isalnum() for character in proto.dim_param)
    name = proto.dim_param if named else fallback
    return symbol(name) if name else UNKNOWN


def to_proto(kind: Type) -> onnx.TypeProto:
    """A TypeProto for our type; symbolic dims become named ones."""
    proto = onnx.TypeProto()
    if isinstance(kind, TensorType):
        proto.tensor_type.elem_type = code_of(kind.dtype)
        if kind.shape is not None:
            proto.tensor_type.shape.SetInParent()
            for dim in kind.shape:
                entry = proto.tensor_type.shape.dim.add()
                if not isinstance(dim, Expr):
                    entry.dim_value = dim
                elif dim is not UNKNOWN:
                    entry.dim_param = str(dim)
    elif isinstance(kind, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(to_proto(kind.elem))
    elif isinstance(kind, OptionalType):
        proto.optional_type.elem_type.CopyFrom(to_proto(kind.elem))
    elif isinstance(kind, MapType):
        proto.map_type.key_type = code_of(kind.key)
        proto.map_type.value_type.CopyFrom(to_proto(kind.value))
    return proto
