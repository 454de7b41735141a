"""TensorProto → array. Sizes are checked against the data before anything is allocated."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from assay.errors import ImportFailed, LimitExceeded
from assay.frontends.onnx.types import dtype_of
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.limits import Limits


def tensor_to_array(proto: onnx.TensorProto, folder: Path | None, limits: Limits) -> Array:
    """The content of a tensor; external data is mapped into memory from within `folder`.

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
        return _unpack(_external(proto, dtype, count, folder, where), dtype, shape)
    if dtype is dtypes.string:
        return _strings(proto, shape, where)
    if proto.HasField("raw_data"):
        _expect(len(proto.raw_data), stored_bytes(dtype, count), where)
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


def _expect(got: int, wanted: int, where: str) -> None:
    if got != wanted:
        raise ImportFailed(
            f"the data has {got} bytes where its shape and type need {wanted}",
            where=where,
            hint="the model file is damaged or was written wrongly",
        )


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
    _expect(len(proto.string_data), math.prod(shape), where)
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
        _expect(len(data), stored_bytes(dtype, count), where)
        return unpack_bits(data.astype(np.uint8), dtype, count).reshape(shape)
    _expect(len(data), count * (2 if dtype.kind == "complex" else 1), where)
    if dtype.kind == "complex":
        return data.view(dtype.numpy).reshape(shape)
    if field == "int32_data" and dtype.is_float:
        return data.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy).reshape(shape)
    return data.astype(dtype.numpy).reshape(shape)


def _external(proto: onnx.TensorProto, dtype: DType, count: int, folder: Path | None, where: str) -> Array:
    entries = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise ImportFailed(
            "the model keeps data in other files but was not loaded from a file",
            where=where,
            hint="load the model by its path",
        )
    path = _inside(folder, entries.get("location", ""), where)
    offset, length = _number(entries, "offset", 0, where), stored_bytes(dtype, count)
    declared = _number(entries, "length", length, where)
    _expect(declared, length, where)
    size = path.stat().st_size
    if offset + length > size:
        raise ImportFailed(
            f"the data at {offset}…{offset + length} lies past the end of '{path.name}' ({size} bytes)", where=where
        )
    if length == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r", offset=offset, shape=(length,))


def _inside(folder: Path, location: str, where: str) -> Path:
    """The file `location` within `folder`; links that lead out of it are followed and refused."""
    if not location or os.path.isabs(location):
        raise ImportFailed(f"the data file '{location}' is no path relative to the model", where=where)
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location))
    if not path.is_relative_to(root):
        raise ImportFailed(
            f"the data file '{location}' lies outside of the model's folder",
            where=where,
            hint="keep external data beside the model file",
        )
    if not path.is_file():
        raise ImportFailed(f"the data file '{location}' does not exist", where=where)
    return path


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None or text == "":
        return default
    if not text.isdigit() or len(text) > 18:
        raise ImportFailed(f"the external data has the {key} '{text}'", where=where)
    return int(text)
