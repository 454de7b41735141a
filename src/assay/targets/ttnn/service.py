"""What runs in the worker: the library ttnn with an open card, answering requests. It knows no op.

The file is run by its path under the Python that has the library (3.10 or later), with NumPy and without this package.
A request is a dict whose "do" names a function below.

Arguments of calls are plain data, and dicts for what is none: {"value": 3} is a tensor, {"name": "bfloat16"} what the
library calls so, {"make": "UnaryWithParam", "args": [...], "kwargs": {...}} what such a call gives.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from typing import Any, cast

Send = Callable[[Any], None]


class Refused(Exception):
    """The library raised an error: what it said, and the step, or the input before the first step, at which it did."""

    def __init__(self, error: BaseException, step: int = -1, given: int = -1) -> None:
        super().__init__(said(error))
        self.step, self.given = step, given


def said(error: BaseException) -> str:
    """What the library says in an error, without the place in its source and without a stack."""
    text = str(error)
    found = re.search(r"\binfo:\s*(.*?)(?:\bbacktrace:|$)", text, re.DOTALL)
    return " ".join((found.group(1) if found else text).split()) or type(error).__name__


def serve(mesh: list[int], small: int, folder: str) -> Callable[[Any, Send], Any]:
    """Open the card, a mesh of chips, with `small` bytes of each core's memory for small things. The library writes
    notes into its working folder, which is `folder`."""
    os.chdir(folder)
    ttnn: Any = importlib.import_module("ttnn")
    if mesh == [1, 1]:
        device = ttnn.open_device(device_id=0, l1_small_size=small)
    else:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        device = ttnn.open_mesh_device(ttnn.MeshShape(*mesh), l1_small_size=small)
    return OpenCard(ttnn, device).answer


class OpenCard:
    """An open card."""

    def __init__(self, ttnn: Any, device: Any) -> None:
        self.ttnn, self.device = ttnn, device

    def answer(self, request: dict[str, Any], send: Send) -> Any:
        """The reply to a request; {"refused": what the library said, "step": where} if it did not take it."""
        kind = request.pop("do")
        try:
            return getattr(self, f"do_{kind}")(send, **request)
        except Refused as refused:
            return {"refused": str(refused), "step": refused.step, "given": refused.given}

    def do_about(self, send: Send) -> Any:
        """What the library says of itself and of the card."""
        from importlib.metadata import version

        grid = self.device.compute_with_storage_grid_size()
        return {
            "version": version("ttnn"),
            "arch": str(self.device.arch()).rpartition(".")[2],
            "chips": self.device.get_num_devices(),
            "grid": [grid.x, grid.y],
            "dram": self._memory("DRAM", "total_bytes_per_bank"),
            "l1": self._memory("L1", "total_bytes_per_bank"),
        }

    def do_convert(self, send: Send, array: Any, dtype: str) -> Any:
        """An array in a dtype of the library's and back, as the library's host code converts it."""
        send((f"Tensor({dtype})", None))
        tensor = self._guarded(-1, lambda: self.ttnn.Tensor(array, self._named(dtype), None, self.ttnn.TILE_LAYOUT))
        return self._array(tensor)

    def do_check(self, send: Send, steps: list[Any], inputs: list[Any]) -> Any:
        """Run a program on inputs of which only the specs (number, shape, dtype, layout) are given, and forget all.

        The reply has the specs of what each step gave, and the bytes of the card's memory before the first and after
        each. Then what nobody reads any more is forgotten: the library frees memory with the last tensor in it, and
        some of its results lie in the memory of others.

        What calls once planned stays on the card, and their small tables with it. A program that is refused while there
        are such of earlier programs is run again without them, so that the answer is about this program alone.
        """
        crowded = self._memory("L1_SMALL", "total_bytes_allocated_per_bank") > 0
        try:
            return self._checked(send, steps, inputs)
        except Refused:
            if not crowded:
                raise
            self.device.clear_program_cache()
            return self._checked(send, steps, inputs)

    def _checked(self, send: Send, steps: list[Any], inputs: list[Any]) -> Any:
        values: dict[int, Any] = {}
        for at, (number, shape, dtype, layout) in enumerate(inputs):
            send(("allocate", None))
            values[number] = self._guarded(-1, lambda s=shape, d=dtype, o=layout: self._allocated(s, d, o), at)
        specs: list[Any] = []
        memory = [self._used()]
        for at, step in enumerate(steps):
            specs.append([self._spec(each) for each in self._take(send, at, step, values)])
            memory.append(self._used())
            for number in step["frees"]:
                del values[number]
        return {"specs": specs, "memory": memory}

    # --- steps

    def _take(self, send: Send, at: int, step: Any, values: dict[int, Any]) -> list[Any]:
        """The results of one call, which are among the values from now on."""
        send((step["op"], at))
        found = self._guarded(at, lambda: self._called(self._named(step["op"]), step, values))
        results = list(found) if type(found) in (list, tuple) else [found]
        values.update({number: results[place] for place, number in enumerate(step["results"])})
        return results

    def _made(self, given: Any, values: dict[int, Any]) -> Any:
        """An argument as the library takes it."""
        if type(given) in (list, tuple):
            return type(given)([self._made(each, values) for each in given])
        if type(given) is not dict:
            return given
        tagged = cast("dict[str, Any]", given)
        if "value" in tagged:
            return values[tagged["value"]]
        if "name" in tagged:
            return self.device if tagged["name"] == "device" else self._named(tagged["name"])
        return self._called(self._named(tagged["make"]), tagged, values)

    def _called(self, call: Any, given: dict[str, Any], values: dict[int, Any]) -> Any:
        keywords: dict[str, Any] = given["kwargs"]
        arguments = [self._made(each, values) for each in given["args"]]
        return call(*arguments, **{name: self._made(each, values) for name, each in keywords.items()})

    def _guarded(self, at: int, call: Callable[[], Any], given: int = -1) -> Any:
        try:
            return call()
        except Exception as error:
            raise Refused(error, at, given) from None

    def _named(self, path: str) -> Any:
        found = self.ttnn
        for part in path.split("."):
            found = getattr(found, part)
        return found

    # --- tensors

    def _allocated(self, shape: list[int], dtype: str, layout: str) -> Any:
        ttnn = self.ttnn
        spec = ttnn.Shape(shape), self._named(dtype), self._named(layout)
        return ttnn.allocate_tensor_on_device(*spec, self.device, ttnn.DRAM_MEMORY_CONFIG)

    def _array(self, tensor: Any) -> Any:
        """A tensor's content as the host has it; floats as float32."""
        here = tensor if tensor.storage_type() == self.ttnn.StorageType.HOST else tensor.cpu()
        floats = (self.ttnn.bfloat16, self.ttnn.bfloat8_b, self.ttnn.bfloat4_b)
        return (self.ttnn.to_dtype(here, self.ttnn.float32) if here.dtype in floats else here).to_numpy()

    def _spec(self, tensor: Any) -> Any:
        """Shape, dtype, layout, and where it lies."""
        if not isinstance(tensor, self.ttnn.Tensor):
            return None
        names = (str(tensor.dtype), str(tensor.layout)) + (
            ("HOST", "")
            if tensor.storage_type() == self.ttnn.StorageType.HOST
            else (str(tensor.memory_config().buffer_type), str(tensor.memory_config().memory_layout))
        )
        return [list(tensor.shape), *(name.rpartition(".")[2] for name in names)]

    def _used(self) -> list[int]:
        return [self._memory(kind, "total_bytes_allocated_per_bank") for kind in ("DRAM", "L1")]

    def _memory(self, kind: str, what: str) -> int:
        view = self.ttnn.get_memory_view(self.device, getattr(self.ttnn.BufferType, kind))
        return getattr(view, what) * view.num_banks
