"""`OrtValue`: a value with ONNX Runtime's methods around a NumPy array, a list of values or a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard, cast

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.runtime.ort.errors import Misfit
from assay.runtime.ort.memory import OrtMemoryInfo, check_device
from assay.runtime.ort.refused import refused_method


def is_array(value: Any) -> TypeGuard[Array]:
    """Whether a value is a tensor: an array of NumPy's, or one of its scalars."""
    return isinstance(value, np.ndarray | np.generic)


def described(value: Any) -> str:
    """An array as messages name it."""
    return f"{value.dtype}{list(value.shape)}" if is_array(value) else f"a {type(value).__name__}"


class OrtValue:
    """A value; for a tensor, an array whose memory it shares."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor in the memory of an array; one that does not lie in order is copied."""
        check_device(device_type, device_id)
        if not is_array(numpy_obj) or numpy_obj.dtype.kind in "USO":
            raise Misfit("an OrtValue is made of an array of numbers", hint="feed strings and lists as they are")
        return cls(np.ascontiguousarray(numpy_obj) if numpy_obj.ndim else numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """A tensor of another dtype of the same width in the memory of an array."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise Misfit(f"{data.dtype} is not as wide as {dtype}")
        return cls(np.ascontiguousarray(data).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor of zeros; `element_type` is a dtype of NumPy or ONNX's number of one."""
        check_device(device_type, device_id)
        return cls(np.zeros(tuple(shape), dtype_of(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """A tensor in the memory of another library's."""
        return cls(np.from_dlpack(data))

    def numpy(self) -> Array:
        """The array."""
        if not self.is_tensor():
            raise Misfit(f"a value of the type {self.data_type()} is no array")
        return cast("Array", self._value)

    def value(self) -> Any:
        """What a run is fed with."""
        return self._value

    def has_value(self) -> bool:
        """Whether there is anything in it."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is an array."""
        return is_array(self._value)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of arrays."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Never."""
        return False

    def shape(self) -> list[int]:
        """The sizes of the array."""
        return list(self.numpy().shape)

    def data_type(self) -> str:
        """ONNX Runtime's spelling of its type."""
        return _type_string(self._value)

    def element_type(self) -> int:
        """ONNX's number of the dtype."""
        from assay.frontends.onnx.types import code_of

        first = self._value[0] if self.is_tensor_sequence() and self._value else self._value
        return int(code_of(dtypes.of(first)))

    def device_name(self) -> str:
        """Where it lies."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self.numpy().ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """The bytes of all elements."""
        return self.numpy().nbytes

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Write into the array; Misfit unless dtype and number of elements are its own."""
        given = data.numpy() if isinstance(data, OrtValue) else data
        place = self.numpy()
        if not is_array(given) or (given.dtype, given.size) != (place.dtype, place.size):
            raise Misfit(f"{described(given)} does not fit into {described(place)}")
        np.copyto(place, given.reshape(place.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.numpy().__dlpack_device__()
        return int(kind), index

    as_sparse_tensor = refused_method("OrtValue", "as_sparse_tensor")
    ort_value_from_sparse_tensor = staticmethod(refused_method("OrtValue", "ort_value_from_sparse_tensor"))


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Write each value of `src` into the one of `dst`."""
    if len(src) != len(dst):
        raise Misfit(f"{len(src)} values do not go into {len(dst)}")
    for given, place in zip(src, dst, strict=True):
        place.update_inplace(given)


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """A dtype given as one, as its name or class, or as ONNX's number of it."""
    if not isinstance(element_type, int):
        return np.dtype(element_type)
    from assay.frontends.onnx.types import dtype_of as dtype_of_code

    return dtype_of_code(element_type).numpy


def _type_string(value: Any) -> str:
    from assay.ir.types import TensorType
    from assay.runtime.ort.describe import type_string

    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"seq({_type_string(items[0]) if items else 'tensor(float)'})"
    if is_array(value):
        return type_string(TensorType(dtypes.of(np.asarray(value)), ()))
    return "map" if isinstance(value, dict) else "unknown"
