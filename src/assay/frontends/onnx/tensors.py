"""TensorProto → array. Sizes are checked against the data before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from assay.errors import ImportFailed, LimitExceeded
from assay.frontends.onnx.external import ExternalData, expect
from assay.frontends.onnx.types import dtype_of
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.limits import Limits


def tensor_to_array(proto: onnx.TensorProto, external: ExternalData, limits: Limits) -> Array:
    """The content of a tensor; one in external data is a view of its file's content.

    ImportFailed names the tensor if its sizes, data or file do not fit together.
    """
    where = f"tensor '{proto.name}'"
    dtype = _dtype(proto, where)
    shape = tuple(int(d) for d in proto.dims)
    if any(d < 0 for d in shape):
        raise ImportFailed(f"a tensor has the negative size {list(shape)}", where=where)
    if len(shape) > limits.rank:
        raise LimitExceeded(f"a tensor has rank {len(shape)}, the limit is {limits.rank}", where=where)
    count = math.prod(shape)
    if count * dtype.numpy.itemsize > limits.tensor_bytes:
        raise LimitExceeded(
            f"a tensor of shape {list(shape)} exceeds {limits.tensor_bytes} bytes",
            where=where,
            hint="check the model, or raise Limits.tensor_bytes",
        )
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in proto.external_data}
        return _unpack(external.read(entries, stored_bytes(dtype, count), where), dtype, shape)
    if dtype is dtypes.string:
        return _strings(proto, shape, where)
    if proto.HasField("raw_data"):
        expect(len(proto.raw_data), stored_bytes(dtype, count), where)
        return _unpack(np.frombuffer(proto.raw_data, np.uint8), dtype, shape)
    return _typed_field(proto, dtype, shape, where)


def _dtype(proto: onnx.TensorProto, where: str) -> DType:
    try:
        return dtype_of(proto.data_type)
    except ImportFailed as error:
        raise error.located(where) from None


def stored_bytes(dtype: DType, count: int) -> int:
    """The bytes that `count` elements take in ONNX's packed storage."""
    return -(-count * _stored_bits(dtype) // 8)


def _stored_bits(dtype: DType) -> int:
    return 8 if dtype.bits == 6 else dtype.bits


def _unpack(raw: Array, dtype: DType, shape: Sequence[int]) -> Array:
    """Little-endian packed bytes as an array; a view where no bits need unpacking."""
    if dtype.bits not in (2, 4):
        return raw.view(dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "fiuc" else dtype.numpy).reshape(shape)
    return unpack_bits(raw, dtype, math.prod(shape)).reshape(shape)


def unpack_bits(raw: Array, dtype: DType, count: int) -> Array:
    """`count` 2- or 4-bit elements out of bytes, the first in the lowest bits."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    codes = ((raw[:, None] >> shifts) & ((1 << dtype.bits) - 1)).reshape(-1)[:count]
    if dtype.kind == "float":
        return codes.astype(np.uint8).view(dtype.numpy)
    if dtype.kind == "int":
        sign = 1 << (dtype.bits - 1)
        return ((codes ^ sign).astype(np.int8) - sign).astype(dtype.numpy)
    return codes.astype(dtype.numpy)


def _strings(proto: onnx.TensorProto, shape: Sequence[int], where: str) -> Array:
    expect(len(proto.string_data), math.prod(shape), where)
    result = np.empty(len(proto.string_data), dtype=object)
    result[:] = [item.decode("utf-8", "replace") for item in proto.string_data]
    return result.reshape(shape)


_FIELDS: dict[str, tuple[str, Any]] = {
    "f32": ("float_data", np.float32),
    "f64": ("double_data", np.float64),
    "c64": ("float_data", np.float32),
    "c128": ("double_data", np.float64),
    "i64": ("int64_data", np.int64),
    "u64": ("uint64_data", np.uint64),
    "u32": ("uint64_data", np.uint64),
}


def _typed_field(proto: onnx.TensorProto, dtype: DType, shape: Sequence[int], where: str) -> Array:
    field, carrier = _FIELDS.get(dtype.name, ("int32_data", np.int32))
    data = np.array(getattr(proto, field), dtype=carrier)
    count = math.prod(shape)
    if dtype.bits in (2, 4):
        expect(len(data), stored_bytes(dtype, count), where)
        return unpack_bits(data.astype(np.uint8), dtype, count).reshape(shape)
    expect(len(data), count * (2 if dtype.kind == "complex" else 1), where)
    if dtype.kind == "complex":
        return data.view(dtype.numpy).reshape(shape)
    if field == "int32_data" and dtype.is_float:
        return data.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy).reshape(shape)
    return data.astype(dtype.numpy).reshape(shape)
