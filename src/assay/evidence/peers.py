"""Peers: other runtimes that take the same models, behind one small interface."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from assay.errors import NotFound, hint_for
from assay.ir.dtypes import Array
from assay.needs import require

ModelSource: TypeAlias = "str | Path | bytes"
"""An ONNX model: a file, or its content."""


class Ready(Protocol):
    """A model made ready to run by somebody."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        ...

    def run_all(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Every value that can be seen, outputs included, by its name in the model."""
        ...


Loader: TypeAlias = Callable[[ModelSource], Ready]


class OnnxReference:
    """The reference evaluator of the onnx package."""

    def __init__(self, model: ModelSource) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator: Any = ReferenceEvaluator(str(model) if isinstance(model, Path) else model)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        names = cast("list[str]", self._evaluator.output_names)
        return dict(zip(names, self._evaluator.run(None, dict(feeds)), strict=True))

    def run_all(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Every value of the main graph."""
        found: dict[str, Any] = self._evaluator.run(None, dict(feeds), intermediate=True)
        return {name: value for name, value in found.items() if name and value is not None}


class OnnxRuntime:
    """onnxruntime on the CPU, as it comes."""

    def __init__(self, model: ModelSource) -> None:
        self._model = model
        self._session = open_onnxruntime(model)
        self._observing: Any = None

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        return run_onnxruntime(self._session, feeds)

    def run_all(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Every value of the main graph, from a copy of the model in which all of them are outputs."""
        if self._observing is None:
            self._observing = open_onnxruntime(*_with_all_outputs(self._model))
        return run_onnxruntime(self._observing, feeds)


def open_onnxruntime(model: ModelSource, folder: str = "", *, optimized: bool = True) -> Any:
    """A quiet session of onnxruntime on the CPU; `folder` is where a model given as bytes has its external data.

    Unless `optimized`, the graph is run node by node as it stands, on one thread.
    """
    ort = _ort()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    ort.set_default_logger_severity(4)
    if not optimized:
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    source = str(model) if isinstance(model, Path) else model
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _ort() -> Any:
    return importlib.import_module("onnxruntime")


def _with_all_outputs(model: ModelSource) -> tuple[bytes, str]:
    """The model with every value of its main graph as an output, and the folder of its external data."""
    import onnx

    data = model if isinstance(model, bytes) else Path(model).read_bytes()
    folder = "" if isinstance(model, bytes) else str(Path(model).resolve().parent)
    proto = onnx.ModelProto.FromString(data)
    present = {info.name for info in proto.graph.output}
    made = [name for node in proto.graph.node for name in node.output if name and name not in present]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    return proto.SerializeToString(), folder


_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NUMPY_HAS_IT = frozenset(f"tensor({name})" for name in ("float", "double", "float16", "bool", "string", *_INTEGERS))


def run_onnxruntime(session: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs by name, of a session that `open_onnxruntime` gave."""
    names = [output.name for output in session.get_outputs()]
    kinds = [argument.type for argument in (*session.get_inputs(), *session.get_outputs())]
    if all(kind in _NUMPY_HAS_IT or not kind.startswith("tensor") for kind in kinds):
        results: Sequence[Any] = session.run(None, dict(feeds))
    else:
        given = {name: _to_ort(np.asarray(value)) for name, value in feeds.items()}
        results = [_from_ort(value) for value in session.run_with_ort_values(None, given)]
    return dict(zip(names, results, strict=True))


def _to_ort(array: Array) -> Any:
    """An OrtValue, for element types too that onnxruntime's NumPy conversion does not know."""
    import onnx.numpy_helper

    if array.dtype == object:
        return _ort().OrtValue.ortvalue_from_numpy(array)
    proto = onnx.numpy_helper.from_array(np.ascontiguousarray(array))
    value = _ort().OrtValue.ortvalue_from_shape_and_type(list(array.shape), proto.data_type, "cpu")
    ctypes.memmove(value.data_ptr(), proto.raw_data, len(proto.raw_data))
    return value


def _from_ort(value: Any) -> Any:
    import onnx
    import onnx.numpy_helper

    if not value.is_tensor() or value.data_type() in _NUMPY_HAS_IT:
        return value.numpy()
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    proto = onnx.TensorProto(data_type=value.element_type(), dims=value.shape(), raw_data=raw)
    return onnx.numpy_helper.to_array(proto)


_PEERS: dict[str, tuple[str, Loader]] = {
    "onnx-reference": ("onnx", OnnxReference),
    "onnxruntime": ("onnxruntime", OnnxRuntime),
}


def peer_names() -> list[str]:
    """The peers that Assay can drive; a peer's package need not be installed."""
    return list(_PEERS)


def peer_version(name: str) -> str:
    """The version of the package behind a peer; NotFound if it is not installed."""
    from importlib.metadata import version

    package, _ = _entry(name)
    require(package)
    return version(package)


def load_peer(name: str, model: ModelSource) -> Ready:
    """`model` made ready by the peer called `name`. Errors are the peer's own."""
    return _entry(name)[1](model)


def _entry(name: str) -> tuple[str, Loader]:
    if name not in _PEERS:
        raise NotFound(f"there is no peer '{name}'", hint=hint_for(name, _PEERS))
    return _PEERS[name]
