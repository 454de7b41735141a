"""Core graphs as ONNX models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from assay.errors import AssayError
from assay.frontends.onnx import load
from assay.frontends.onnx.export import OPSET, ROWS, NotInOnnx, export_graph
from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.ir.parser import parse_graph
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.lowering import lower
from assay.targets.reference import ReferenceTarget

UNSAID = {"random_bits": "a random stream of our own", "deferred": "waits for a run"}
"""Milli-ops that ONNX has no words for, apart from control flow."""


def test_every_milli_op_can_be_said() -> None:
    milli = {definition.name for definition in CORE if definition.is_milli and not definition.host}
    control = {definition.name for definition in CORE if definition.regions}
    assert milli - control - ROWS.keys() == UNSAID.keys() - control


def test_rows_are_for_ops_that_exist() -> None:
    assert [name for name in ROWS if name not in CORE] == []


def graph(text: str) -> Graph:
    return parse_graph(f'graph "g" core {text}')


def test_a_model_is_valid_and_names_its_nodes() -> None:
    model = export_graph(
        graph(
            """(%0: f32[n, 3]) {
              const %1: f32[3] = [1.0, 2.0, 3.0]
              %2: f32[n, 3] = add(%0, %1) from "t"
              %3: f32[n, 3] = rsqrt(%2) from "t"
              return %3, %0, %3
            }"""
        )
    )
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["input0"]
    assert [value.name for value in model.graph.output] == ["output0", "output1", "output2"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    prefixes = [node.name.partition(".")[0] for node in model.graph.node]
    assert prefixes == ["0", "1", "1", "out", "out"]
    assert model.opset_import[0].version == OPSET
    x = np.array([[3.0, 2.0, 1.0]], np.float32)
    results = ReferenceTarget().compile(lower(load(model))).run([x])
    np.testing.assert_allclose(results[0], [[0.5, 0.5, 0.5]])
    np.testing.assert_array_equal(results[1], x)
    np.testing.assert_array_equal(results[2], results[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('(%0: u8[2]) { %1: u8[2] = neg(%0) from "t" return %1 }', "ONNX's Neg takes no u8"),
        ('(%0: f6e2m3[2]) { %1: f32[2] = cast(%0) {dtype = f32} from "t" return %1 }', "takes no f6e2m3"),
        (
            '(%0: f64[2]) { %1: f64[2] = leaky_relu(%0) {slope = 0.01} from "t" return %1 }',
            "holds its attribute 'alpha' in f32",
        ),
        ('(%0: i64[1], %1: i64[]) { %2: u32[?] = random_bits(%0, %1) from "t" return %2 }', "no op for random_bits"),
        ('(%0: f32[*]) { %1: f32[*], %2: i64[*] = sort(%0) {axis = 0} from "t" return %1 }', "the rank of an input"),
    ],
    ids=["dtype", "result", "attribute", "op", "rank"],
)
def test_what_onnx_cannot_say(text: str, message: str) -> None:
    with pytest.raises(NotInOnnx, match=message) as caught:
        export_graph(graph(text))
    assert caught.value.index == 0
    assert isinstance(caught.value, AssayError)


def test_an_older_opset_lacks_newer_ops() -> None:
    text = '(%0: f32[2]) { %1: f32[2] = cum_prod(%0) {axis = 0} from "t" return %1 }'
    assert export_graph(graph(text)).graph.node[0].op_type == "CumProd"
    with pytest.raises(NotInOnnx, match="ONNX 21 has no CumProd"):
        export_graph(graph(text), 21)


def test_integers_divide_by_zero_as_ours_do() -> None:
    b = Builder()
    x, y = (b.input(TensorType(dtypes.i32, (4,))) for _ in range(2))
    core = b.finish("g", [x, y], [b.div(x, y), b.mod(x, y)])
    given = [np.array([7, -7, 7, 0], np.int32), np.array([0, 2, -2, 0], np.int32)]
    expected = ReferenceTarget().compile(core).run(given)
    got = ReferenceTarget().compile(lower(load(export_graph(core)))).run(given)
    for a, wanted in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, wanted)
    assert expected[0].tolist() == [0, -3, -3, 0]
