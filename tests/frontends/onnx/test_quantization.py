"""Quantisation in every granularity and dtype, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frontends.onnx.peer import Case, assert_agreement
from onnx import helper

RNG = np.random.default_rng(11)
FP8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]


def floats(*shape: int, low: float = -40, high: float = 40, dtype: Any = np.float32) -> Any:
    return RNG.uniform(low, high, size=shape).astype(dtype)


def scales(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.uniform(0.05, 0.5, size=shape).astype(dtype)


def integers(*shape: int, dtype: Any) -> Any:
    low, high = (int(f(ml_dtypes.iinfo(dtype))) for f in (lambda i: i.min, lambda i: i.max))
    return RNG.integers(low, high + 1, size=shape).astype(dtype)


def ties(dtype: Any = np.float32) -> Any:
    return (np.arange(-20, 21) / 2).astype(dtype)


def quantizing() -> list[Case]:
    one = np.array(0.25, np.float32)
    rows = [
        Case("QuantizeLinear", [floats(3, 4), one, np.array(3, np.uint8)], opset=10),
        Case("QuantizeLinear", [floats(3, 4), one], opset=10, name="no zero point"),
        Case("QuantizeLinear", [ties(), np.array(1, np.float32), np.array(1, np.int8)], opset=10, name="ties"),
        Case("QuantizeLinear", [floats(2, 3, 4), scales(3), integers(3, dtype=np.int8)], opset=13, name="axis 1"),
        Case("QuantizeLinear", [floats(2, 3, 4), scales(2), integers(2, dtype=np.uint8)], {"axis": -3}, opset=13),
        Case("QuantizeLinear", [floats(3, 4, dtype=np.float16), np.array(0.25, np.float16)], opset=19, name="f16"),
        Case("QuantizeLinear", [floats(4, 6), scales(4, 2)], {"axis": 1, "block_size": 3}, opset=21),
        Case(
            "QuantizeLinear",
            [floats(4, 6), scales(2, 6), integers(2, 6, dtype=np.int8)],
            {"axis": 0, "block_size": 2},
            opset=21,
        ),
        Case("QuantizeLinear", [floats(5), np.array([0.5], np.float32)], opset=21, name="one scale in a vector"),
    ]
    for dtype in (np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4):
        zero = np.array(1).astype(dtype)
        case = Case("QuantizeLinear", [floats(3, 4), one, zero], opset=21, name=np.dtype(dtype).name, constants=(2,))
        rows.append(case._replace(as_float=True))
    for dtype in FP8:
        zero = np.zeros((), dtype)
        for saturate in (0, 1):
            x = floats(3, 4, low=-200, high=200)
            rows.append(
                Case(
                    "QuantizeLinear",
                    [x, one, zero],
                    {"saturate": saturate},
                    opset=19,
                    name=f"{np.dtype(dtype).name}, {saturate=}",
                    constants=(2,),
                    as_float=True,
                )
            )
    return rows


def dequantizing() -> list[Case]:
    one = np.array(0.25, np.float32)
    rows = [
        Case("DequantizeLinear", [integers(3, 4, dtype=np.uint8), one, np.array(7, np.uint8)], opset=10),
        Case("DequantizeLinear", [integers(3, 4, dtype=np.int32) // 2**8, one], opset=10, name="i32"),
        Case("DequantizeLinear", [integers(2, 3, 4, dtype=np.int8), scales(3), integers(3, dtype=np.int8)], opset=13),
        Case("DequantizeLinear", [integers(2, 3, dtype=np.uint8), scales(2)], {"axis": 0}, opset=13),
        Case("DequantizeLinear", [integers(2, 3, dtype=np.uint8), scales(dtype=np.float16)], opset=19, name="f16"),
        Case("DequantizeLinear", [integers(4, 6, dtype=np.int8), scales(4, 2)], {"axis": 1, "block_size": 3}, opset=21),
    ]
    for dtype in (np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4):
        x, zero = integers(3, 4, dtype=dtype), np.array(1).astype(dtype)
        rows.append(Case("DequantizeLinear", [x, one, zero], opset=21, name=np.dtype(dtype).name, constants=(0, 2)))
    for dtype in FP8:
        x = floats(3, 4, low=-4, high=4).astype(dtype)
        rows.append(Case("DequantizeLinear", [x, one], opset=19, name=np.dtype(dtype).name, constants=(0,)))
    return [row._replace(relative=1e-6, absolute=0.0) for row in rows]


def dynamic() -> list[Case]:
    inputs = {
        "mixed": floats(4, 5),
        "positive": floats(4, 5, low=1, high=3),
        "negative": floats(7, low=-3, high=-1),
        "zeros": np.zeros((3, 2), np.float32),
        "scalar": np.array(2.5, np.float32),
    }
    return [Case("DynamicQuantizeLinear", [x], outputs=3, opset=11, name=name) for name, x in inputs.items()]


def products() -> list[Case]:
    def case(x: Any, y: Any, x_rows: int = 0, y_columns: int = 0, name: str = "") -> Case:
        sides = (
            [x, scales(*((x_rows,) if x_rows else ())), np.array([3] * x_rows if x_rows else 3, x.dtype)],
            [y, scales(*((y_columns,) if y_columns else ())), np.array([2] * y_columns if y_columns else 2, y.dtype)],
        )
        result = [np.array(5.0, np.float32), np.array(9, x.dtype)]
        return Case("QLinearMatMul", [*sides[0], *sides[1], *result], opset=10, name=name)

    return [
        case(integers(3, 4, dtype=np.uint8), integers(4, 2, dtype=np.uint8), name="u8 u8"),
        case(integers(3, 4, dtype=np.uint8), integers(4, 2, dtype=np.int8), name="u8 i8"),
        case(integers(3, 4, dtype=np.int8), integers(4, 2, dtype=np.int8), name="i8 i8"),
        case(integers(2, 3, 4, dtype=np.uint8), integers(4, 5, dtype=np.int8), y_columns=5, name="by column"),
    ]


def only_close(case: Case) -> Case:
    """ONNX Runtime multiplies with the reciprocal in some kernels: a quotient next to a tie may land on either side."""
    return case._replace(absolute=1.0, relative=0.0)


@pytest.mark.parametrize("case", [*quantizing(), *dequantizing(), *dynamic(), *map(only_close, products())], ids=str)
def test_agrees_with_onnxruntime(case: Case) -> None:
    assert_agreement(case)


def quantized(x: Any, scale: Any, dtype: Any, **attrs: Any) -> list[Any]:
    low, high = int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    return [np.clip(np.rint(x / scale), low, high).astype(np.int8).astype(dtype)]


@pytest.mark.parametrize("dtype", [ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4])
def test_the_output_dtype_may_be_an_attribute(dtype: Any) -> None:
    x, scale = floats(3, 4, low=-4, high=4), np.array(0.7, np.float32)
    attrs = {"output_dtype": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
    case = Case("QuantizeLinear", [x, scale], attrs, opset=25)
    assert_agreement(case, quantized(x, scale, dtype))


def test_the_quotient_is_taken_in_the_stated_precision() -> None:
    """2049 / 0.5 is a tie in f16, not in f32."""
    x, scale = np.array([2049.0, 1027.0], np.float32), np.array(2.0, np.float16)
    attrs = {"output_dtype": 5, "precision": 0}
    in_f16 = np.rint(x.astype(np.float16) / scale).astype(np.int16)
    assert_agreement(Case("QuantizeLinear", [x, scale], attrs, opset=25), [in_f16])
    in_f32 = np.rint(x / np.float32(2.0)).astype(np.int16)
    assert_agreement(Case("QuantizeLinear", [x, scale], {**attrs, "precision": 1}, opset=25), [in_f32])


def test_scales_may_be_powers_of_two() -> None:
    x = integers(2, 4, dtype=np.int8)
    scale = np.array([0.5, 2.0], np.float32).astype(ml_dtypes.float8_e8m0fnu)
    wanted = (x.astype(np.float32) * np.array([[0.5], [2.0]], np.float32)).astype(np.float16)
    case = Case("DequantizeLinear", [x, scale], {"axis": 0, "output_dtype": 10}, opset=28)
    assert_agreement(case, [wanted])
