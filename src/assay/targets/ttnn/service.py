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
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
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
        self.staying: dict[int, tuple[Any, int]] = {}
        """What stays on the card for programs: tensors, and the bytes of DRAM that each takes, by number."""
        self.others = 0
        self.held: dict[int, Any] = {}
        """Tensors with a content, by number: what a card computes with."""
        self.capture: Any = None
        """What the library notes calls with, while it does."""

    def answer(self, request: dict[str, Any], send: Send) -> Any:
        """The reply to a request; {"refused": what the library said, "step": where} if it did not take it."""
        kind = request.pop("do")
        try:
            return getattr(self, f"do_{kind}")(send, **request)
        except Refused as refused:
            return {"refused": str(refused), "step": refused.step, "given": refused.given, "others": self.others}

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

    def do_check(self, send: Send, steps: list[Any], inputs: list[Any], staying: list[Any], joins: list[Any]) -> Any:
        """Run a program on inputs of which only the specs (number, shape, dtype, layout) are given, and forget all but
        what stays on the card.

        `staying` lists what does, for this program and others: (number, shape, dtype, layout, axis) each. An input may
        name one of these, which it is then. What has an axis is a part of a larger tensor of the host's, which chips
        share along it. `joins` are results (number, axis) that are joined on the host. The reply has the specs of what
        each step gave, and the bytes of the card's memory before the first and after each, without those that stay for
        other programs. Then what nobody reads any more is forgotten: the library frees memory with the last tensor in
        it, and some of its results lie in the memory of others.

        What calls once planned stays on the card, and their small tables with it. A program that is refused while there
        are such of earlier programs is run again without them, so that the answer is about this program alone.
        """
        crowded = self._memory("L1_SMALL", "total_bytes_allocated_per_bank") > 0
        own = {resident for *_, resident, _ in inputs if resident is not None}
        self._keep(send, staying, own)
        try:
            return self._checked(send, steps, inputs, joins)
        except Refused:
            if not crowded:
                raise
            self.device.clear_program_cache()
            return self._checked(send, steps, inputs, joins)

    def do_report(self, send: Send, folder: str, labels: list[Any], staying: list[Any], **program: Any) -> Any:
        """Run a program, and have the library write what its visualizer reads into a folder, with a label (text, place
        in the source) for each input and each step. Times are left out: none was taken on a card."""
        own = {resident for *_, resident, _ in program["inputs"] if resident is not None}
        self._keep(send, [each for each in staying if each[0] not in own], own)
        graph = self.capture = self.ttnn._ttnn.graph
        graph.begin_graph_capture(graph.RunMode.NORMAL)
        try:
            found = self._checked(send, **program)
        finally:
            self.capture = None
            graph.end_graph_capture_to_file(os.path.join(folder, "report.json"))
        reports: Any = importlib.import_module("ttnn.graph_report")
        reports.import_report(os.path.join(folder, "report.json"), folder)
        _label(os.path.join(folder, "db.sqlite"), labels)
        return found

    # --- tensors with a content, for a card that computes

    def do_put(self, send: Send, number: int, array: Any, dtype: str, layout: str, gone: list[int]) -> Any:
        """Move an array to the card, every chip of it. `gone` are the numbers of tensors that nobody wants any more."""
        self._let_go(gone)
        send(("Tensor", None))
        form = self._named(dtype), self.device, self._named(layout)
        self.held[number] = self._guarded(-1, lambda: self.ttnn.Tensor(array, *form))

    def do_get(self, send: Send, number: int, gone: list[int]) -> Any:
        """The content of a tensor; floats as float32."""
        self._let_go(gone)
        tensor = self._wanted(number)
        send(("cpu", None))
        return self._guarded(-1, lambda: self._array(self._of_one_chip(tensor)))

    def do_run(
        self,
        send: Send,
        steps: list[Any],
        inputs: list[Any],
        results: list[Any],
        joins: dict[int, int],
        gone: list[int],
        timed: bool,
    ) -> Any:
        """Run a program. `inputs` are (its number in the program, the tensor's number, the axis that chips share it
        along, or None), `results` (its number in the program, a number for the tensor), of which `joins` says the axis
        that chips share. If it is `timed`, the reply has the seconds of each step."""
        self._let_go(gone)
        values: dict[int, Any] = {}
        for ref, number, axis in inputs:
            tensor = self._wanted(number)
            values[ref] = tensor if axis is None else self._guarded(-1, lambda t=tensor, a=axis: self._spread(t, a))
        seconds: list[float] = []
        for at, step in enumerate(steps):
            began = time.perf_counter()
            self._take(send, at, step, values)
            if timed:
                self.ttnn.synchronize_device(self.device)
                seconds.append(time.perf_counter() - began)
            for ref in step["frees"]:
                values.pop(ref, None)
        for ref, number in results:
            axis = joins.get(ref)
            whole = values[ref] if axis is None else self.ttnn.to_device(self._joined(values[ref], axis), self.device)
            self.held[number] = whole
        return seconds

    def _let_go(self, numbers: list[int]) -> None:
        for number in numbers:
            self.held.pop(number, None)

    def _wanted(self, number: int) -> Any:
        if number not in self.held:
            raise Refused(LookupError("it is not on the card any more, whose process was started anew"))
        return self.held[number]

    def _of_one_chip(self, tensor: Any) -> Any:
        return tensor if self.device.get_num_devices() == 1 else self.ttnn.get_device_tensors(tensor)[0]

    def _spread(self, tensor: Any, axis: int) -> Any:
        """Of a tensor that every chip has, an equal part for each along an axis."""
        here = self._of_one_chip(tensor).cpu()
        return self.ttnn.distribute_tensor(here, self.ttnn.shard_tensor_to_mesh_mapper(self.device, axis), self.device)

    # --- what stays on the card for programs

    def _keep(self, send: Send, staying: list[Any], own: set[int]) -> None:
        """Let go what stays no longer, and see that what other programs need is there."""
        numbers = {number for number, *_ in staying}
        self.staying = {number: each for number, each in self.staying.items() if number in numbers}
        for number, *spec, axis in staying:
            if number not in own:
                self._stays(send, number, spec, axis)
        self.others = sum(size for number, (_, size) in self.staying.items() if number not in own)

    def _stays(self, send: Send, number: int, spec: list[Any], axis: int | None, at: int = -1) -> Any:
        """A tensor that stays on the card, allocated now if it is not there."""
        if number not in self.staying:
            before = self._used()[0]
            tensor = self._given(send, spec, axis, at)
            self.staying[number] = tensor, self._used()[0] - before
        return self.staying[number][0]

    def _given(self, send: Send, spec: list[Any], axis: int | None, at: int) -> Any:
        send(("allocate", None))
        with self._noted("allocate_tensor_on_device" if axis is None else "distribute_tensor"):
            if axis is None:
                return self._guarded(-1, lambda: self._allocated(*spec), at)
            return self._guarded(-1, lambda: self._shared(axis, *spec), at)

    def _checked(self, send: Send, steps: list[Any], inputs: list[Any], joins: list[Any]) -> Any:
        values: dict[int, Any] = {}
        for at, (number, *spec, resident, axis) in enumerate(inputs):
            if resident is None:
                values[number] = self._given(send, spec, axis, at)
            else:
                values[number] = self._stays(send, resident, spec, axis, at)
        specs: list[Any] = []
        memory = [self._beside_others()]
        for at, step in enumerate(steps):
            specs.append([self._spec(each) for each in self._take(send, at, step, values)])
            memory.append(self._beside_others())
            for number in step["frees"]:
                del values[number]
        for number, axis in joins:
            send(("aggregate_tensor", None))
            self._guarded(len(steps) - 1, lambda n=number, a=axis: self._joined(values[n], a))
        return {"specs": specs, "memory": memory, "others": self.others}

    # --- steps

    def _take(self, send: Send, at: int, step: Any, values: dict[int, Any]) -> list[Any]:
        """The results of one call, which are among the values from now on."""
        send((step["op"], at))
        with self._noted(step["op"]):
            found = self._guarded(at, lambda: self._called(self._named(step["op"]), step, values))
        results = list(found) if type(found) in (list, tuple) else [found]
        values.update({number: results[place] for place, number in enumerate(step["results"])})
        return results

    @contextmanager
    def _noted(self, op: str) -> Generator[None, None, None]:
        """What the library does meanwhile belongs to this call, if it notes calls."""
        graph = self.capture
        if graph is None:
            yield
            return
        graph.track_function_start(f"ttnn.{op}")
        try:
            yield
        finally:
            graph.track_function_end()

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

    def _shared(self, axis: int, shape: list[int], dtype: str, layout: str) -> Any:
        """A tensor of the host's of which each chip has an equal part along an axis, in this shape."""
        import numpy

        ttnn, chips = self.ttnn, self.device.get_num_devices()
        whole = [size * chips if at == axis else size for at, size in enumerate(shape)]
        content = numpy.zeros(whole, numpy.int32 if "int" in dtype else numpy.float32)
        here = ttnn.Tensor(content, self._named(dtype), None, self._named(layout))
        found = ttnn.distribute_tensor(here, ttnn.shard_tensor_to_mesh_mapper(self.device, axis), self.device)
        if list(found.shape) != list(shape):
            raise ValueError(f"a chip's share is {list(found.shape)}, not {list(shape)}")
        return found

    def _joined(self, tensor: Any, axis: int) -> Any:
        """What each chip has of a tensor, joined on the host along an axis."""
        ttnn = self.ttnn
        whole = ttnn.aggregate_tensor(tensor, ttnn.concat_mesh_to_tensor_composer(self.device, axis))
        if whole.shape[axis] != tensor.shape[axis] * self.device.get_num_devices():
            raise ValueError(f"shares {list(tensor.shape)} are joined to {list(whole.shape)}")
        return whole

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

    def _beside_others(self) -> list[int]:
        dram, l1 = self._used()
        return [dram - self.others, l1]

    def _used(self) -> list[int]:
        return [self._memory(kind, "total_bytes_allocated_per_bank") for kind in ("DRAM", "L1")]

    def _memory(self, kind: str, what: str) -> int:
        view = self.ttnn.get_memory_view(self.device, getattr(self.ttnn.BufferType, kind))
        return getattr(view, what) * view.num_banks


def _label(path: str, labels: list[Any]) -> None:
    """Say in a report what each operation is for, and where that is in the source; leave out times."""
    with closing(sqlite3.connect(path)) as report, report:
        rows = report.execute("SELECT operation_id FROM operations WHERE name LIKE 'ttnn.%' ORDER BY operation_id")
        for (number,), (text, place) in zip(rows.fetchall(), labels):  # noqa: B905
            report.execute("INSERT INTO operation_arguments VALUES (?, 'node', ?, 0)", (number, text))
            if place:
                report.execute("INSERT INTO stack_traces VALUES (?, ?, NULL, 0)", (number, place))
        report.execute("UPDATE operations SET duration = NULL")
        report.execute("DELETE FROM report_metadata WHERE key = 'total_duration_ns'")
