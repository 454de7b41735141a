"""The element types of tensors: every ONNX and torch dtype, sub-byte and fp8 included."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kind = Literal["float", "int", "uint", "bool", "complex", "string"]


@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """One element type. Instances are singletons: compare with `is` or `==`.

    `numpy` is the dtype of the array that carries it (an object array of `str` for strings, one byte
    an element for sub-byte types); `bits` is the width of one element in packed storage.
    """

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[Any]

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)

    @property
    def is_float(self) -> bool:
        """True for real floating types, the 8-, 6- and 4-bit ones included."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers; bool is not one."""
        return self.kind in ("int", "uint")

    @property
    def limits(self) -> tuple[float, float] | tuple[int, int]:
        """The lowest and highest finite value."""
        if self.is_integer:
            info = ml_dtypes.iinfo(self.numpy)
            return int(info.min), int(info.max)
        bounds = cast(Any, ml_dtypes).finfo(self.numpy)
        return float(bounds.min), float(bounds.max)


def _table() -> dict[str, DType]:
    rows: list[tuple[str, Kind, int, Any]] = [
        ("f64", "float", 64, np.float64),
        ("f32", "float", 32, np.float32),
        ("f16", "float", 16, np.float16),
        ("bf16", "float", 16, ml_dtypes.bfloat16),
        ("f8e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn),
        ("f8e4m3fnuz", "float", 8, ml_dtypes.float8_e4m3fnuz),
        ("f8e5m2", "float", 8, ml_dtypes.float8_e5m2),
        ("f8e5m2fnuz", "float", 8, ml_dtypes.float8_e5m2fnuz),
        ("f8e8m0", "float", 8, ml_dtypes.float8_e8m0fnu),
        ("f6e2m3", "float", 6, ml_dtypes.float6_e2m3fn),
        ("f6e3m2", "float", 6, ml_dtypes.float6_e3m2fn),
        ("f4e2m1", "float", 4, ml_dtypes.float4_e2m1fn),
        ("i64", "int", 64, np.int64),
        ("i32", "int", 32, np.int32),
        ("i16", "int", 16, np.int16),
        ("i8", "int", 8, np.int8),
        ("i4", "int", 4, ml_dtypes.int4),
        ("i2", "int", 2, ml_dtypes.int2),
        ("u64", "uint", 64, np.uint64),
        ("u32", "uint", 32, np.uint32),
        ("u16", "uint", 16, np.uint16),
        ("u8", "uint", 8, np.uint8),
        ("u4", "uint", 4, ml_dtypes.uint4),
        ("u2", "uint", 2, ml_dtypes.uint2),
        ("bool", "bool", 8, np.bool_),
        ("c64", "complex", 64, np.complex64),
        ("c128", "complex", 128, np.complex128),
        ("string", "string", 0, np.object_),
    ]
    return {name: DType(name, kind, bits, np.dtype(carrier)) for name, kind, bits, carrier in rows}


_BY_NAME = _table()
_BY_NUMPY = {dtype.numpy: dtype for dtype in _BY_NAME.values()}

f64, f32, f16, bf16 = (_BY_NAME[n] for n in ("f64", "f32", "f16", "bf16"))
i64, i32, i16, i8, i4, i2 = (_BY_NAME[n] for n in ("i64", "i32", "i16", "i8", "i4", "i2"))
u64, u32, u16, u8, u4, u2 = (_BY_NAME[n] for n in ("u64", "u32", "u16", "u8", "u4", "u2"))
boolean, c64, c128, string = (_BY_NAME[n] for n in ("bool", "c64", "c128", "string"))

ALL: tuple[DType, ...] = tuple(_BY_NAME.values())
FLOATS: tuple[DType, ...] = (f64, f32, f16, bf16)
"""The floats that arithmetic is defined on."""
TINY_FLOATS: tuple[DType, ...] = tuple(d for d in ALL if d.is_float and d.bits <= 8)
"""Storage formats: they are cast from and to, never computed with."""
INTEGERS: tuple[DType, ...] = (i64, i32, i16, i8, u64, u32, u16, u8)
TINY_INTEGERS: tuple[DType, ...] = (i4, i2, u4, u2)
COMPLEX: tuple[DType, ...] = (c64, c128)
NUMERIC: tuple[DType, ...] = FLOATS + INTEGERS
TENSORS: tuple[DType, ...] = ALL


def is_array(value: object) -> TypeGuard[Array]:
    """True for a NumPy array."""
    return isinstance(value, np.ndarray)


_pointer = ctypes.c_void_p.from_address
_ELEMENTS = object.__basicsize__
"""Where an array object holds the address of its elements: the first field of `PyArrayObject`, in NumPy's C API."""


def _has_elements_there() -> bool:
    array = np.zeros(3, np.uint8)[1:]
    return _pointer(id(array) + _ELEMENTS).value == array.__array_interface__["data"][0]


_IS_PLAIN = _has_elements_there()


def address(array: Array) -> int:
    """Where an array lies in memory. Every run asks for some; NumPy's own answer takes ten times as long."""
    if _IS_PLAIN and is_array(array):
        return _pointer(id(array) + _ELEMENTS).value or 0
    return array.__array_interface__["data"][0]


def read_only(array: Array) -> Array:
    """The same memory, protected against writes; what is derived from it as a view is so too."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def by_name(name: str) -> DType:
    """The dtype called `name`; KeyError if there is none."""
    return _BY_NAME[name]


def of(array: Array) -> DType:
    """The dtype that `array` carries; TypeError if it is none of ours.

    NumPy's unicode and bytes arrays count as strings.
    """
    found = _BY_NUMPY.get(array.dtype)
    if found is not None:
        return found
    if array.dtype.kind in "USO":
        return string
    native = _BY_NUMPY.get(array.dtype.newbyteorder("="))
    if native is not None:
        return native
    raise TypeError(f"no tensor element type is carried by NumPy's {array.dtype}")
