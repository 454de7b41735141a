"""Ops whose inputs or attributes changed over the opsets, at each of their old versions, against ONNX Runtime."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import assay

RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def i64(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


class Case(NamedTuple):
    """One node at one opset; `outputs` are its number of outputs. Arrays in `fixed` become initializers."""

    op: str
    opset: int
    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    outputs: int = 1
    fixed: tuple[int, ...] = ()


X = f32(2, 3, 8, 8)
CASES = [
    *(Case("Clip", v, (f32(4),), {"min": -0.5, "max": 0.5}) for v in (7, 10)),
    *(Case("Clip", v, (f32(4), np.float32(-0.5), np.float32(0.5))) for v in (11, 12, 13)),
    *(Case("Pad", v, (f32(2, 3),), {"pads": [0, 1, 0, 2], "mode": "constant", "value": 1.5}) for v in (7, 10)),
    *(Case("Pad", v, (f32(4, 5),), {"pads": [1, 2, 1, 0], "mode": m}) for v in (7, 10) for m in ("reflect", "edge")),
    *(Case("Pad", v, (f32(2, 3), i64(0, 1, 0, 2), np.float32(2))) for v in (11, 13, 18, 19)),
    *(Case("Slice", v, (f32(5, 6),), {"starts": [1, -3], "ends": [4, 100], "axes": [0, 1]}) for v in (7, 9)),
    *(Case("Slice", v, (f32(5, 6), i64(4, 0), i64(0, 6), i64(0, 1), i64(-2, 3))) for v in (10, 11, 13)),
    *(Case("Squeeze", v, (f32(1, 3, 1),), {"axes": [0, 2]}) for v in (7, 11)),
    Case("Squeeze", 13, (f32(1, 3, 1), i64(0, 2))),
    Case("Squeeze", 13, (f32(1, 3, 1),)),
    *(Case("Unsqueeze", v, (f32(3),), {"axes": [0, 2]}) for v in (7, 11)),
    Case("Unsqueeze", 13, (f32(3), i64(0, 2))),
    *(
        Case(r, v, (f32(2, 3, 4),), {"axes": [1], "keepdims": k})
        for r in ("ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceProd")
        for v in (7, 11)
        for k in (0, 1)
    ),
    *(Case("ReduceSum", v, (f32(2, 3, 4), i64(-1)), {"keepdims": 0}) for v in (13,)),
    *(Case("ReduceMean", v, (f32(2, 3, 4), i64(0, 2))) for v in (18,)),
    *(Case("ReduceMean", v, (f32(2, 3, 4),), {"axes": [0, 2]}) for v in (13,)),
    *(Case("Split", v, (f32(6, 2),), {"axis": 0, "split": [1, 2, 3]}, 3) for v in (7, 11)),
    *(Case("Split", v, (f32(6, 2),), {"axis": 0}, 3) for v in (7, 11, 13)),
    Case("Split", 13, (f32(6, 2), i64(1, 2, 3)), {"axis": 0}, 3),
    Case("Split", 18, (f32(7, 2),), {"axis": 0, "num_outputs": 3}, 3),
    *(Case("TopK", v, (f32(3, 5),), {"k": 2, "axis": 1}, 2) for v in (7, 9)),
    *(Case("TopK", v, (f32(3, 5), i64(2)), {"axis": 1}, 2) for v in (10, 11)),
    Case("TopK", 11, (f32(3, 5), i64(3)), {"axis": 0, "largest": 0}, 2),
    Case("Upsample", 7, (X,), {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}),
    *(
        Case("Upsample", 9, (X, np.array([1, 1, 2, 2], np.float32)), {"mode": m}, fixed=(1,))
        for m in ("nearest", "linear")
    ),
    *(
        Case("Resize", 10, (X, np.array([1, 1, s, s], np.float32)), {"mode": m}, fixed=(1,))
        for m in ("nearest", "linear")
        for s in (2.0, 0.5)
    ),
    *(
        Case(
            "Resize",
            v,
            (X, np.zeros(0, np.float32), np.array([1, 1, 1.5, 2], np.float32)),
            {"mode": m, "coordinate_transformation_mode": c},
            fixed=(1, 2),
        )
        for v in (11, 13, 18)
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "align_corners", "asymmetric")
    ),
    *(Case("Dropout", v, (f32(3, 4),), {"ratio": 0.4}) for v in (7, 10)),
    *(Case("Dropout", v, (f32(3, 4), np.float32(0.4))) for v in (12, 13)),
    *(
        Case("BatchNormalization", v, (X, f32(3), f32(3), f32(3), np.abs(f32(3))), {"epsilon": 1e-3})
        for v in (7, 9, 14, 15)
    ),
    *(
        Case(s, v, (f32(2, 3, 4),), {"axis": a})
        for s in ("Softmax", "LogSoftmax", "Hardmax")
        for v in (7, 11, 13)
        for a in (0, 1, 2)
    ),
    *(
        Case("Cast", v, (f32(5) * 9,), {"to": t})
        for v in (7, 9, 13, 19)
        for t in (TensorProto.INT32, TensorProto.DOUBLE, TensorProto.BOOL)
    ),
    *(Case(a, v, (f32(3, 4),), {"axis": 1, "keepdims": 0}) for a in ("ArgMax", "ArgMin") for v in (7, 11, 12, 13)),
    *(
        Case("MaxPool", v, (X,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]})
        for v in (7, 8, 10, 11, 12)
    ),
    *(Case("MaxPool", v, (X,), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 2) for v in (10, 12)),
    *(
        Case("AveragePool", v, (X,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": c})
        for v in (7, 10, 11, 19)
        for c in (0, 1)
    ),
    *(Case("LpPool", v, (X,), {"kernel_shape": [2, 2], "p": 3}) for v in (7, 11, 18)),
    *(
        Case("Gemm", v, (f32(3, 4), f32(5, 4), f32(5)), {"transB": 1, "alpha": 0.5, "beta": 2.0})
        for v in (7, 9, 11, 13)
    ),
    *(Case("OneHot", v, (i64(0, 2, -1), i64(4), f32(2)), {"axis": 0}) for v in (9, 11)),
    Case("Scatter", 9, (f32(3, 3), np.array([[0, 2, 1]]), f32(1, 3)), {"axis": 0}),
    *(Case("ScatterElements", v, (f32(3, 3), np.array([[0, 2, 1]]), f32(1, 3)), {"axis": 0}) for v in (11, 13, 16, 18)),
    *(Case("Flatten", v, (f32(2, 3, 4),), {"axis": a}) for v in (7, 9, 11, 13) for a in (0, 1, 3)),
    *(Case("Reshape", v, (f32(2, 6), i64(0, -1, 3))) for v in (7, 13, 14)),
    *(Case("Equal", v, (i64(1, 2, 3), i64(1, 5, 3))) for v in (7, 11, 13)),
    *(Case("PRelu", v, (f32(2, 3, 4), f32(3, 1))) for v in (7, 9, 16)),
    *(Case("Max", v, (f32(3, 4), f32(4))) for v in (8, 12, 13)),
    *(Case("CumSum", v, (f32(3, 4), np.array(1, np.int32)), {"exclusive": 1, "reverse": 1}) for v in (11, 14)),
    *(Case("Gather", v, (f32(5, 2), i64(0, 4, 2)), {"axis": 0}) for v in (7, 11, 13)),
    *(
        Case("ConvTranspose", v, (f32(1, 2, 4, 4), f32(2, 3, 3, 3)), {"strides": [2, 2], "output_shape": [9, 9]})
        for v in (7, 11)
    ),
    *(
        Case("Conv", v, (X, f32(6, 1, 3, 3)), {"group": 3, "auto_pad": a})
        for v in (7, 11)
        for a in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    *(Case("InstanceNormalization", v, (X, f32(3), f32(3))) for v in (7, 22)),
    *(
        Case(
            "NonMaxSuppression",
            v,
            (
                np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32),
                np.array([[[0.9, 0.75, 0.6]]], np.float32),
                i64(3),
                np.array([0.5], np.float32),
                np.array([0.0], np.float32),
            ),
        )
        for v in (10, 11)
    ),
    *(Case("QuantizeLinear", v, (f32(3, 4), np.float32(0.02), np.uint8(128))) for v in (10, 13, 19, 21)),
    *(
        Case("DequantizeLinear", v, (np.arange(12, dtype=np.uint8).reshape(3, 4), np.float32(0.02), np.uint8(3)))
        for v in (10, 13, 19, 21)
    ),
    *(
        Case("LSTM", v, (f32(4, 2, 3), f32(1, 20, 3), f32(1, 20, 5), f32(1, 40)), {"hidden_size": 5}, 3)
        for v in (7, 14)
    ),
    *(
        Case(
            "GRU",
            v,
            (f32(4, 2, 3), f32(1, 15, 3), f32(1, 15, 5), f32(1, 30)),
            {"hidden_size": 5, "linear_before_reset": 1},
            2,
        )
        for v in (7, 14)
    ),
]


def model_of(case: Case) -> bytes:
    arrays = [np.asarray(a) for a in case.inputs]
    names = [f"x{i}" for i in range(len(arrays))]
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    given = [
        helper.make_tensor_value_info(n, k, a.shape)
        for i, (n, k, a) in enumerate(zip(names, kinds, arrays, strict=True))
        if i not in case.fixed
    ]
    weights = [helper.make_tensor(names[i], kinds[i], arrays[i].shape, arrays[i].ravel().tolist()) for i in case.fixed]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **case.attrs)
    graph = helper.make_graph(
        [node], "versions", given, [helper.make_empty_tensor_value_info(o) for o in outputs], weights
    )
    imports = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.opset}")
def test_an_old_version_means_what_onnxruntime_says(case: Case) -> None:
    model = model_of(case)
    feeds = {f"x{i}": np.asarray(a) for i, a in enumerate(case.inputs) if i not in case.fixed}
    expected: Any = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for decomposed in (False, True):
        ours = assay.InferenceSession(model, decomposed=decomposed).run(None, feeds)
        for mine, theirs in zip(ours, expected, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
