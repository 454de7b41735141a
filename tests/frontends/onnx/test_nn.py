"""Convolutions, pooling and normalizations at the corners that the official suite does not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontends.onnx.peer import Case, assert_agreement, model_of, ours

from assay.errors import AssayError, LimitExceeded
from assay.frontends.onnx import load
from assay.ops.lowering import lower

RNG = np.random.default_rng(11)


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def i64(*items: int) -> Any:
    return np.array(items, np.int64)


def bytes_(kind: type, *shape: int) -> Any:
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max, shape).astype(kind)


X, LINE = f(2, 4, 7, 6), f(1, 2, 9)
U8, I8, ZERO = bytes_(np.uint8, 1, 2, 6, 6), bytes_(np.int8, 1, 2, 6, 6), np.array(3, np.uint8)
SCALES = [
    np.array(0.02, np.float32),
    np.array(1, np.int8),
    bytes_(np.int8, 4, 2, 3, 3),
    f(4) ** 2,
    np.zeros(4, np.int8),
]
OUT = [np.array(3, np.float32), np.array(5, np.int8), np.array([1, -2, 3, 90000], np.int32)]
REGIONS = np.array([[0, 0, 0, 9, 6], [1, 3, 2, 3, 2], [0, 9, 9, 15, 15]], np.float32)
LOOSE = {"strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}
SAME = ("SAME_UPPER", "SAME_LOWER")
TURNED = {"strides": [3], "dilations": [2], "output_padding": [2], "pads": [1, 2]}
CASES = [
    *(Case("Conv", [X, f(6, 2, 3, 2), f(6)], {"group": 2, "strides": [2, 3], "auto_pad": a}) for a in SAME),
    Case("Conv", [X, f(4, 1, 3, 3)], {"group": 4, "dilations": [2, 1], "pads": [2, 1, 0, 1]}, opset=22),
    Case("Conv", [LINE, f(3, 2, 9)], opset=7),
    Case("Conv", [f(1, 2, 4, 5, 3), f(2, 2, 2, 3, 1)], {"strides": [1, 2, 1]}, opset=11),
    *(Case("ConvTranspose", [X, f(4, 3, 3, 3)], {"strides": [2, 3], "auto_pad": a}) for a in (*SAME, "VALID")),
    Case("ConvTranspose", [X, f(4, 2, 3, 2), f(4)], {"group": 2, "strides": [2, 2], "output_shape": [13, 11]}),
    Case("ConvTranspose", [LINE, f(2, 1, 3)], TURNED),
    Case("ConvInteger", [U8, bytes_(np.uint8, 4, 2, 3, 3), ZERO, ZERO], {"auto_pad": "SAME_LOWER"}, opset=10),
    *(Case("QLinearConv", [I8, *SCALES, *OUT[:count]], opset=10) for count in (2, 3)),
    Case("MaxPool", [X], {"kernel_shape": [3, 2], **LOOSE, "storage_order": 1}, 2, opset=12),
    Case("MaxPool", [f(1, 2, 6, 5, 4)], {"kernel_shape": [2, 2, 2], "strides": [3, 2, 1], "storage_order": 1}, 2),
    Case("MaxPool", [U8], {"kernel_shape": [2, 2], "dilations": [2, 1], "pads": [1, 1, 1, 1]}, opset=12),
    *(Case("AveragePool", [X], {"kernel_shape": [3, 2], **LOOSE, "count_include_pad": c}, opset=19) for c in (0, 1)),
    Case("AveragePool", [LINE], {"kernel_shape": [3], "dilations": [2], "strides": [2], "ceil_mode": 1}, opset=19),
    Case("LpPool", [X], {"kernel_shape": [2, 3], "p": 3, "dilations": [2, 1], **LOOSE}, opset=18),
    *(Case(f"Global{kind}Pool", [f(2, 3, 4, 1, 2)], opset=20) for kind in ("Average", "Max", "Lp")),
    Case("MaxRoiPool", [f(2, 3, 8, 9), REGIONS], {"pooled_shape": [3, 2], "spatial_scale": 0.5}),
    Case(
        "DeformConv",
        [f(1, 4, 6, 7), f(2, 2, 3, 3), f(1, 36, 4, 5), f(2), f(1, 18, 4, 5)],
        {"group": 2, "offset_group": 2},
        opset=19,
    ),
    Case("Col2Im", [f(2, 12, 9), i64(7, 6), i64(3, 2)], {"strides": [2, 2]}, constants=(1, 2)),
    Case("BatchNormalization", [X, f(4), f(4), f(4), f(4) ** 2], {"training_mode": 1, "momentum": 0.7}, 3, opset=15),
    Case("GroupNormalization", [X, f(2), f(2)], {"num_groups": 2}, opset=18),
    Case("GroupNormalization", [X, f(4), f(4)], {"num_groups": 2}, opset=21),
    Case("LayerNormalization", [X, f(7, 6), f(7, 6)], {"axis": -2}, 3),
    Case("LpNormalization", [np.zeros((2, 3), np.float32)], {"p": 1}),
    Case("LRN", [X], {"size": 3, "alpha": 0.3, "bias": 2.0}),
    *(Case("Einsum", [f(2, 3, 2), f(3, 2, 4)], {"equation": e}) for e in ("iji,jik->kj", "ijk,jkl", "...k,jkl->...l")),
    Case("Gemm", [f(4, 3), f(4, 5), f(3, 1)], {"transA": 1, "alpha": 0.5, "beta": 0.25}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnx_runtime(case: Case) -> None:
    assert_agreement(case)


def test_a_convolution_padded_to_the_same_size_needs_no_sizes() -> None:
    case = Case("Conv", [X, f(6, 4, 3, 2)], {"strides": [2, 3], "auto_pad": "SAME_UPPER"}, constants=(1,))
    graph = lower(load(model_of(case, sizes_known=False)))
    assert [node.op for node in graph.nodes if node.op in ("deferred", "conv")] == ["conv"]


def test_a_transposed_convolution_with_gaps_keeps_its_size() -> None:
    (result,) = ours(Case("ConvTranspose", [LINE, f(2, 1, 1)], {"strides": [3], "auto_pad": "SAME_UPPER"}))
    assert result.shape == (1, 1, 27)


def test_dropout_without_a_seed_drops_the_stated_share() -> None:
    inputs = [np.ones(4000, np.float32), np.array(0.25, np.float32), np.array(True)]
    result, mask = ours(Case("Dropout", inputs, outputs=2, opset=13))
    assert 0.7 < mask.mean() < 0.8
    np.testing.assert_array_equal(result, np.where(mask, np.float32(1 / 0.75), 0))


@pytest.mark.parametrize(
    "case",
    [
        Case("Conv", [X, f(6, 4, 3, 2)], {"strides": [2]}),
        Case("Conv", [X, f(6, 4, 3, 2)], {"pads": [-1, 0, 0, 0]}),
        Case("Conv", [X, f(6, 3, 3, 2)]),
        Case("Conv", [X, f(6, 4, 3, 2)], {"kernel_shape": [2, 2]}),
        Case("Conv", [X, f(6, 4, 3, 2)], {"group": 0}),
        Case("MaxPool", [X], {"kernel_shape": [9, 9]}),
        Case("MaxPool", [X], {"kernel_shape": [3]}),
        Case("AveragePool", [X], {"kernel_shape": [0, 2]}),
        Case("GroupNormalization", [X, f(4), f(4)], {"num_groups": 3}, opset=21),
        Case("Einsum", [X, X], {"equation": "ij,jk->ik"}),
        Case("Einsum", [f(2, 3)], {"equation": "ij->k"}),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told(case: Case) -> None:
    with pytest.raises(AssayError):
        ours(case)


def test_absurd_padding_is_refused_before_it_is_made() -> None:
    huge = {"kernel_shape": [1, 1], "strides": [2**40, 2**40], "pads": [0, 0, 2**40, 2**40]}
    with pytest.raises(LimitExceeded):
        ours(Case("MaxPool", [X], huge))
