"""`IOBinding`: inputs and outputs at places that the caller chose."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import hint_for
from assay.ir.dtypes import Array
from assay.runtime.ort.errors import Misfit
from assay.runtime.ort.memory import check_device
from assay.runtime.ort.values import OrtValue, described, dtype_of, is_array

if TYPE_CHECKING:
    from assay.runtime.ort.session import InferenceSession


class IOBinding:
    """What a session reads and where it writes, until it is bound otherwise."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._places: dict[str, OrtValue | None] = {}
        self._outputs: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Read the input `name` from an array."""
        self._inputs[self._input(name)] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read the input `name` from a value."""
        self._inputs[self._input(name)] = ortvalue.value()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read the input `name` from memory that the caller keeps alive."""
        check_device(device_type, device_id)
        self._inputs[self._input(name)] = _array_at(buffer_ptr, element_type, shape)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Write the output `name` to new memory, or to memory that the caller keeps alive."""
        check_device(device_type, device_id)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise Misfit("memory for an output needs its element_type and shape")
        place = None if buffer_ptr is None else OrtValue(_array_at(buffer_ptr, element_type, shape or ()))
        self._places[self._output(name)] = place

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write the output `name` into a value."""
        self._places[self._output(name)] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._places.clear()

    def synchronize_inputs(self) -> None:
        """Does nothing: memory is where it is read."""

    def synchronize_outputs(self) -> None:
        """Does nothing: memory is where it is written."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the latest run, in the order in which they were bound."""
        return list(self._outputs)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """As `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the latest run as arrays of their own."""
        return [value.numpy().copy() if value.is_tensor() else value.value() for value in self._outputs]

    def run(self, session: InferenceSession, run_options: Any) -> None:
        """Run, and write each output where it belongs; Misfit if it does not fit there."""
        if session is not self._session:
            raise Misfit("a binding belongs to the session that made it", hint="use session.io_binding()")
        if not self._places:
            raise Misfit("no output is bound", hint="bind_output(name) for each that is wanted")
        results = session.run(list(self._places), self._inputs, run_options)
        self._outputs = [
            _written(name, result, place) for (name, place), result in zip(self._places.items(), results, strict=True)
        ]

    def _input(self, name: str) -> str:
        return _checked_name(name, [arg.name for arg in self._session.get_inputs()], "input")

    def _output(self, name: str) -> str:
        return _checked_name(name, [arg.name for arg in self._session.get_outputs()], "output")


def _checked_name(name: str, names: Sequence[str], what: str) -> str:
    if name not in names:
        raise Misfit(f"the model has no {what} '{name}'", hint=hint_for(name, names))
    return name


def _array_at(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """The array of this dtype and shape that lies at an address."""
    dtype, sizes = dtype_of(element_type), tuple(int(size) for size in shape)
    count = int(np.prod(sizes, dtype=object)) * dtype.itemsize
    if not count:
        return np.empty(sizes, dtype)
    if not address:
        raise Misfit("the address of memory is 0")
    return np.ndarray(sizes, dtype, memoryview((ctypes.c_char * count).from_address(address)))


def _written(name: str, result: Any, place: OrtValue | None) -> OrtValue:
    if place is None:
        return OrtValue(result)
    there = place.numpy()
    if not is_array(result) or (result.dtype, result.shape) != (there.dtype, there.shape):
        raise Misfit(f"the output '{name}' is {described(result)}, the memory bound to it {described(there)}")
    np.copyto(there, result)
    return place
