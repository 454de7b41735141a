"""The official ONNX backend suite as data: every case with its model, inputs, expected outputs and tolerances."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.backend.test
import onnx.numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
"""The parts of the suite; `light` are the real models whose weights are generated."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """One set of inputs, and what must come out, in the order of the model's outputs."""

    feeds: dict[str, Any]
    expected: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """What a case holds once it is read."""

    model: bytes
    sets: tuple[DataSet, ...]


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One case; `rtol` and `atol` are the suite's own for it."""

    name: str
    kind: str
    rtol: float
    atol: float
    read: Callable[[], Content]


def official_cases(contains: str = "", kinds: Sequence[str] = KINDS) -> list[SuiteCase]:
    """The cases of these kinds in the installed onnx package whose name has `contains` in it, in a fixed order."""
    from onnx.backend.test.loader import load_model_tests

    cases: list[SuiteCase] = []
    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the suite's own arithmetic overflows on purpose
            tests = load_model_tests(kind="real" if kind == "light" else kind)
        chosen = sorted((test for test in tests if contains in test.name), key=lambda test: test.name)
        cases.extend(SuiteCase(t.name, kind, t.rtol, t.atol, partial(_READERS.get(kind, _stored), t)) for t in chosen)
    return cases


def _generated(test: Any) -> Content:
    """A node case: the loader made it in memory."""
    names = _fed(test.model)
    sets = [
        DataSet(dict(zip(names, map(_plain, inputs), strict=False)), tuple(map(_plain, outputs)))
        for inputs, outputs in test.data_sets
    ]
    return Content(test.model.SerializeToString(), tuple(sets))


def _stored(test: Any) -> Content:
    """A case in a folder: the model, and for each data set one file per input and output."""
    folder = Path(test.model_dir)
    data = (folder / "model.onnx").read_bytes()
    model = onnx.load_model_from_string(data)
    types = {info.name: info.type for info in model.graph.input}
    names = _fed(model)
    sets: list[DataSet] = []
    for each in sorted(folder.glob("test_data_set_*")):
        inputs = _files(each, "input", [types[name] for name in names])
        outputs = _files(each, "output", [info.type for info in model.graph.output])
        sets.append(DataSet(dict(zip(names, inputs, strict=False)), tuple(outputs)))
    return Content(data, tuple(sets))


def _light(test: Any) -> Content:
    """A real architecture with generated weights: the input is a ramp, the outputs are stored."""
    from onnx.backend.test.runner import Runner

    path = Path(onnx.backend.test.__file__).parent / "data" / "light" / Path(test.url).name
    data = path.read_bytes()
    model = onnx.load_model_from_string(data)
    infos = {info.name: info for info in model.graph.input}
    feeds = {name: Runner.generate_dummy_data(infos[name], name=test.name) for name in _fed(model)}
    outputs = [
        _parsed(path.with_name(f"{path.stem}_output_{i}.pb"), info.type) for i, info in enumerate(model.graph.output)
    ]
    return Content(data, (DataSet(feeds, tuple(outputs)),))


_READERS: dict[str, Callable[[Any], Content]] = {"node": _generated, "light": _light}


def _fed(model: Any) -> list[str]:
    """The inputs that a run is given: those that are no initializers."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    return [info.name for info in model.graph.input if info.name not in initialized]


def _files(folder: Path, stem: str, types: Sequence[Any]) -> list[Any]:
    present = [(folder / f"{stem}_{i}.pb", kind) for i, kind in enumerate(types)]
    return [_parsed(path, kind) for path, kind in present if path.exists()]


def _parsed(path: Path, kind: Any) -> Any:
    """The content of a file that holds a tensor, a sequence or an optional."""
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(cast(Any, value)) if isinstance(value, np.generic) else value
