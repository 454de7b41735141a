"""`InferenceSession`: ONNX models with ONNX Runtime's names and habits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import NotFound
from assay.frontends.onnx import load
from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ir.types import MapType, OptionalType, SequenceType, TensorType, Type
from assay.runtime.session import Explanation, Session, SessionOptions
from assay.runtime.targets import target_names

_ORT_NAMES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8e4m3fn",
    "f8e4m3fnuz": "float8e4m3fnuz",
    "f8e5m2": "float8e5m2",
    "f8e5m2fnuz": "float8e5m2fnuz",
    "f8e8m0": "float8e8m0",
    "f6e2m3": "float6e2m3",
    "f6e3m2": "float6e3m2",
    "f4e2m1": "float4e2m1",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
    "string": "string",
}
_ORT_PROVIDERS = {"CPUExecutionProvider": "cpu"}


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output: its name, its shape (numbers, names, or None where unknown) and ORT's type string."""

    name: str
    shape: list[int | str | None]
    type: str


class InferenceSession:
    """Runs an ONNX model. Takes a path or the model's bytes; `providers` name targets, best first (ONNX Runtime's
    pairs of a name and options are taken too).

    `session.run(None, {"x": array})` gives all outputs as a list. Beyond ONNX Runtime: `explain()` says
    where every node runs, `observe(feeds, names)` gives any intermediate result.
    """

    def __init__(
        self,
        path_or_bytes: str | Path | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        chosen = replace(sess_options or SessionOptions(), **options)
        if providers:
            chosen = replace(chosen, target=_target_of(providers))
        self.session = Session(load(path_or_bytes, chosen.limits), chosen)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs asked for (None: all), in order."""
        return list(self.session.run(input_feed, output_names or None).values())

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run takes."""
        graph = self.session.source
        return [self._described(name, value) for name, value in zip(graph.input_names, graph.inputs, strict=True)]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that a run gives."""
        graph = self.session.lowered
        return [self._described(name, value) for name, value in zip(graph.output_names, graph.outputs, strict=True)]

    def get_providers(self) -> list[str]:
        """The targets in use: the one asked for, and the oracle that takes what it refuses."""
        return list(dict.fromkeys([self.session.target.name, "reference"]))

    def explain(self) -> Explanation:
        """Every node: op, target, reason."""
        return self.session.explain()

    def observe(self, feeds: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
        """Intermediate results by their names in the model."""
        return self.session.observe(feeds, names)

    def _described(self, name: str, value: Value) -> NodeArg:
        """As `node_arg`; dims without a name of their own, which are called INPUT.AXIS inside, are None."""
        given = zip(self.session.source.input_names, self.session.source.inputs, strict=True)
        inner = {f"{i}.{axis}" for i, v in given for axis in range(len(getattr(v.type, "shape", None) or ()))}
        found = node_arg(name, value.type)
        return replace(found, shape=[None if dim in inner else dim for dim in found.shape])


def _target_of(providers: Sequence[str | tuple[str, Any]]) -> str:
    """The first provider that exists here."""
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    for name in (_ORT_PROVIDERS.get(name, name) for name in names):
        if name in target_names():
            return name
    raise NotFound(f"none of {', '.join(names)} is a target here", hint=f"there is {', '.join(target_names())}")


def node_arg(name: str, kind: Type) -> NodeArg:
    """ONNX Runtime's description of an input or output."""
    shape: list[int | str | None] = []
    if isinstance(kind, TensorType) and kind.shape is not None:
        shape = [d if isinstance(d, int) else None if d is UNKNOWN else str(d) for d in kind.shape]
    return NodeArg(name, shape, type_string(kind))


def type_string(kind: Type) -> str:
    """ONNX Runtime's spelling of a type, such as `tensor(float)` or `seq(tensor(int64))`."""
    if isinstance(kind, TensorType):
        return f"tensor({_ort_name(kind.dtype)})"
    if isinstance(kind, SequenceType):
        return f"seq({type_string(kind.elem)})"
    if isinstance(kind, OptionalType):
        return f"optional({type_string(kind.elem)})"
    if isinstance(kind, MapType):
        return f"map({_ort_name(kind.key)},{type_string(kind.value)})"
    return "unknown"


def _ort_name(dtype: DType) -> str:
    if dtype.is_integer:
        return f"{'u' if dtype.kind == 'uint' else ''}int{dtype.bits}"
    return _ORT_NAMES[dtype.name]
