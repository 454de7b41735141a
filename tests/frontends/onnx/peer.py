"""One-node models, run here in all three ways and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from assay.evidence.compare.arrays import closeness
from assay.frontends.onnx import load
from assay.ops.lowering import lower
from assay.targets.reference import ReferenceTarget

ort.set_default_logger_severity(4)


class Case(NamedTuple):
    """One node: `inputs` are arrays or None for an absent one; those in `constants` become initializers; `as_float`
    casts the first output to f32, for dtypes that ONNX Runtime cannot hand out."""

    op: str
    inputs: Sequence[Any]
    attrs: Mapping[str, Any] = {}
    outputs: int = 1
    domain: str = ""
    opset: int = 20
    constants: Sequence[int] = ()
    relative: float = 1e-4
    absolute: float = 1e-5
    name: str = ""
    as_float: bool = False

    def __str__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.attrs.items())
        return f"{self.op}{self.opset}({self.name or told})"


def model_of(case: Case, *, sizes_known: bool = True) -> onnx.ModelProto:
    """The model of one node."""
    names = ["" if value is None else f"in{i}" for i, value in enumerate(case.inputs)]
    outputs = [f"out{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, domain=case.domain, **case.attrs)
    fed = [
        helper.make_tensor_value_info(name, code(value), value.shape if sizes_known else [None] * value.ndim)
        for i, (name, value) in enumerate(zip(names, case.inputs, strict=True))
        if value is not None and i not in case.constants
    ]
    fixed = [onnx.numpy_helper.from_array(case.inputs[i], names[i]) for i in case.constants]
    cast = [helper.make_node("Cast", ["out0"], ["as_float"], to=onnx.TensorProto.FLOAT)] if case.as_float else []
    results = [onnx.ValueInfoProto(name=name) for name in (["as_float"] if case.as_float else outputs)]
    graph = helper.make_graph([node, *cast], "case", fed, results, fixed)
    imports = [helper.make_opsetid("", case.opset)] + ([helper.make_opsetid(case.domain, 1)] if case.domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def code(array: Any) -> int:
    """ONNX's number for the dtype of an array."""
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def feeds_of(case: Case) -> dict[str, Any]:
    """What the model is fed."""
    return {f"in{i}": value for i, value in enumerate(case.inputs) if value is not None and i not in case.constants}


def expected(case: Case) -> list[Any]:
    """What ONNX Runtime gives."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model_of(case).SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds_of(case)))


def ours(case: Case, *, decomposed: bool = False, sizes_known: bool = True) -> tuple[Any, ...]:
    """What the oracle gives."""
    graph = lower(load(model_of(case, sizes_known=sizes_known)), decomposed=decomposed)
    return ReferenceTarget().compile(graph).run(list(feeds_of(case).values()))


def assert_agreement(case: Case, wanted: Sequence[Any] | None = None) -> None:
    """Composites, milli-ops alone, and unknown sizes: all as ONNX Runtime (or `wanted`) has it."""
    known = expected(case) if wanted is None else wanted
    for decomposed, sizes_known in ((False, True), (True, True), (False, False), (True, False)):
        got = ours(case, decomposed=decomposed, sizes_known=sizes_known)
        for index, (a, b) in enumerate(zip(got, known, strict=True)):
            found = closeness(np.asarray(a), np.asarray(b), relative=case.relative, absolute=case.absolute)
            assert found.ok, f"{case}, output {index}, {decomposed=}, {sizes_known=}: {found}\ngot {a}\nnot {b}"
