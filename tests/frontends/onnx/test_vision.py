"""Resampling, regions, signals, random numbers and unique elements where the official suite is thin."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from frontends.onnx.peer import Case, assert_agreement, model_of, ours

from assay.errors import AssayError, LimitExceeded
from assay.frontends.onnx import load
from assay.ops.lowering import lower
from assay.targets.reference import ReferenceTarget

RNG = np.random.default_rng(5)


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def f32(*items: float) -> Any:
    return np.array(items, np.float32)


def i64(*items: int) -> Any:
    return np.array(items, np.int64)


def scalar(value: int) -> Any:
    return np.array(value, np.int64)


X, NO_ROI, ROI = f(1, 2, 6, 5), f32(), f32(0, 0, 0.2, -0.1, 1, 1, 0.9, 1.1)
TRANSFORMS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")


def resized(mode: str, transform: str, **attrs: Any) -> dict[str, Any]:
    return {"mode": mode, "coordinate_transformation_mode": transform, **attrs}


RESIZES = [
    *(
        Case("Resize", [X, NO_ROI, None, i64(1, 2, *sizes)], resized(mode, transform), opset=13, constants=(1, 3))
        for mode in MODES
        for transform in TRANSFORMS
        for sizes in ((9, 3), (1, 12))
    ),
    *(
        Case("Resize", [X, NO_ROI, f32(1, 1, *scales)], resized("nearest", transform, nearest_mode=rounding), opset=11)
        for rounding in ROUNDINGS
        for transform in ("half_pixel", "asymmetric")
        for scales in ((1 / 3, 2), (0.7, 2.6))
    ),
    *(
        Case("Resize", [X, ROI, None, i64(1, 2, 5, 7)], resized(mode, "tf_crop_and_resize", extrapolation_value=3.0))
        for mode in MODES
    ),
    Case("Resize", [X, None, None, i64(4, 4)], {"mode": "linear", "antialias": 1, "axes": [2, 3]}),
    Case("Resize", [X, None, f32(0.5, 0.6)], {"mode": "cubic", "antialias": 1, "axes": [-2, -1]}),
    Case("Resize", [X, None, f32(1, 1, 2, 1.5)], {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}),
    *(
        Case("Resize", [X, None, None, i64(9, 9)], {"axes": [2, 3], "keep_aspect_ratio_policy": policy})
        for policy in ("not_larger", "not_smaller")
    ),
    *(Case("Resize", [X, f32(1, 1, 0.5, 3)], {"mode": mode}, opset=10) for mode in ("nearest", "linear")),
    *(Case("Upsample", [X, f32(1, 1, 2.5, 1.3)], {"mode": mode}, opset=9) for mode in ("nearest", "linear")),
    Case("Upsample", [X], {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=7),
]

GRIDS = [
    *(
        Case("GridSample", [X, 1.5 * f(1, 4, 3, 2)], {"mode": mode, "padding_mode": padding, "align_corners": align})
        for mode in MODES
        for padding in PADDINGS
        for align in (0, 1)
    ),
    *(Case("GridSample", [X, f(1, 4, 3, 2)], {"mode": mode}, opset=16) for mode in ("bilinear", "bicubic")),
    Case("GridSample", [f(2, 1, 3, 4, 2), f(2, 2, 3, 1, 3)], {"padding_mode": "reflection"}),
    *(Case("AffineGrid", [f(2, 2, 3), i64(2, 1, 4, 3)], {"align_corners": align}) for align in (0, 1)),
    Case("AffineGrid", [f(1, 3, 4), i64(1, 1, 2, 4, 3)]),
]

ROIS, IMAGES = f32(0, 0, 5, 4, -3, 1, 2, 9, 2, 2, 2, 2).reshape(3, 4), i64(0, 1, 0)
BOXES, SCORES = (
    RNG.random((2, 20, 4)).astype(np.float32),
    RNG.choice(np.linspace(0, 1, 9), (2, 3, 20)).astype(np.float32),
)
REGIONS = [
    *(
        Case("RoiAlign", [f(2, 3, 7, 6), ROIS, IMAGES], {"output_height": 2, "output_width": 3, "mode": mode, **attrs})
        for mode in ("avg", "max")
        for attrs in ({}, {"sampling_ratio": 2}, {"coordinate_transformation_mode": "output_half_pixel"})
    ),
    Case("RoiAlign", [f(2, 3, 7, 6), ROIS, IMAGES], {"spatial_scale": 0.5}, opset=10),
    Case("RoiAlign", [f(2, 3, 7, 6), ROIS[:0], IMAGES[:0]]),
    *(
        Case("NonMaxSuppression", [BOXES, SCORES, i64(most), f32(0.3), f32(0.2)], {"center_point_box": centered})
        for most in (3, 20)
        for centered in (0, 1)
    ),
    Case("NonMaxSuppression", [BOXES, SCORES, i64(5)], opset=10),
    Case("NonMaxSuppression", [BOXES, SCORES]),
    Case("NonMaxSuppression", [BOXES[:, :0], SCORES[..., :0], i64(5)]),
]

WORDS = np.array([["b", "a"], ["a", "b"], ["b", "a"]], dtype=object)
SIGNALS = [
    *(Case("DFT", [f(2, n, 3, parts), scalar(12)], {"axis": 1}, opset=17) for n in (7, 20) for parts in (1, 2)),
    *(Case("DFT", [f(2, 3, n, 2), None, scalar(-2)], {"inverse": 1}) for n in (1, 8, 15, 31)),
    Case("DFT", [f(2, 30, 1)], {"onesided": 1}),
    Case("STFT", [f(2, 40, 1), scalar(3), np.hanning(8).astype(np.float32)], opset=17),
    Case("STFT", [f(2, 40, 1), scalar(7), None, scalar(16)], {"onesided": 0}, opset=17),
    Case("MelWeightMatrix", [scalar(20), scalar(512), scalar(16000), f32(20), f32(7600)], opset=17),
    *(
        Case(f"{name}Window", [scalar(n)], {"periodic": p}, opset=17)
        for name in ("Hann", "Hamming", "Blackman")
        for n, p in ((9, 0), (9, 1))
    ),
]
OTHERS = [
    *(
        Case("Unique", [x], {"sorted": ordered, **axis}, 4)
        for ordered in (0, 1)
        for x in (RNG.integers(0, 3, (5, 2)), WORDS, f32(2, 1, 2, 3, 1, -1).reshape(3, 2))
        for axis in ({}, {"axis": 0}, {"axis": -1})
    ),
    *(
        Case("ReverseSequence", [f(4, 5, 2), i64(*lengths)], {"time_axis": time, "batch_axis": 1 - time})
        for time, lengths in ((0, (1, 2, 3, 4, 4)), (1, (5, 1, 2, 3)))
    ),
    *(Case("Pad", [f(3, 4), i64(2, -1, 1, 5)], {"mode": mode}, opset=19) for mode in ("edge", "wrap")),
    Case("Pad", [f(5, 4), i64(3, 2), None, i64(-2)], {"mode": "reflect"}, opset=18),
    Case("Pad", [f(5, 4), i64(1, 0, 2, 3), f32(2).reshape(())], opset=13),
    *(Case("DepthToSpace", [f(2, 12, 2, 3)], {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD")),
    Case("SpaceToDepth", [f(2, 3, 4, 6)], {"blocksize": 2}),
    Case("CenterCropPad", [f(5, 6, 7), i64(8, 3)], {"axes": [-1, 0]}),
]


@pytest.mark.parametrize("case", [*RESIZES, *GRIDS, *REGIONS, *OTHERS], ids=str)
def test_agrees_with_onnx_runtime(case: Case) -> None:
    assert_agreement(case)


@pytest.mark.parametrize("case", SIGNALS, ids=str)
def test_signals_agree_with_onnx_runtime(case: Case) -> None:
    """Its transforms are a little less exact than others."""
    assert_agreement(case._replace(absolute=1e-4))


def test_a_resize_by_whole_numbers_needs_no_sizes() -> None:
    case = Case("Resize", [X, None, f32(1, 1, 2, 0.25)], opset=13, constants=(2,))
    graph = lower(load(model_of(case, sizes_known=False)))
    assert "deferred" not in [node.op for node in graph.nodes]


def test_nearest_neighbours_are_those_of_exact_arithmetic() -> None:
    """1 / (2 / 14) is a little less than 7 in f32, yet element 1 of 2 stands at element 7 of 14."""
    attrs = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    (result,) = ours(Case("Resize", [np.arange(14), None, f32(2 / 14)], attrs))
    assert result.tolist() == [0, 7]


def test_an_inverse_transform_undoes_a_one_sided_one() -> None:
    for count in (1, 2, 7, 12):
        signal = f(2, count, 1)
        (spectrum,) = ours(Case("DFT", [signal], {"onesided": 1}))
        back = Case("DFT", [spectrum, scalar(count)], {"onesided": 1, "inverse": 1})
        assert_agreement(back, [signal])


@pytest.mark.parametrize(("op", "inputs", "attrs", "mean", "deviation"), [
    ("RandomUniform", [], {"shape": [5000], "low": -1.0, "high": 3.0}, 1.0, 4 / np.sqrt(12)),
    ("RandomNormal", [], {"shape": [5000], "mean": 2.0, "scale": 0.5}, 2.0, 0.5),
    ("RandomUniformLike", [np.zeros((50, 100), np.float16)], {}, 0.5, 1 / np.sqrt(12)),
    ("RandomNormalLike", [np.zeros((50, 100), np.int32)], {"dtype": 11}, 0.0, 1.0),
    ("Bernoulli", [np.full(5000, 0.3, np.float32)], {"dtype": 7}, 0.3, np.sqrt(0.21)),
    ("Multinomial", [np.log(f32(0.5, 1e-30, 0.5).reshape(1, 3))], {"sample_size": 5000}, 1.0, 1.0),
])  # fmt: skip
def test_random_numbers(op: str, inputs: list[Any], attrs: dict[str, Any], mean: float, deviation: float) -> None:
    """As distributed as they should be; new in every run, unless a seed is given."""
    for seed in ({}, {"seed": 4.5}):
        model = model_of(Case(op, inputs, {**attrs, **seed}, opset=15))
        for decomposed in (False, True):
            program = ReferenceTarget().compile(lower(load(model), decomposed=decomposed))
            first, second = (program.run(inputs)[0].astype(np.float64) for _ in range(2))
            assert np.array_equal(first, second) is bool(seed)
            assert abs(first.mean() - mean) < 0.1
            assert abs(first.std() - deviation) < 0.1


def test_images_are_decoded() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(0, 256, (3, 4, 3)).astype(np.uint8)
    with io.BytesIO() as file:
        image.fromarray(pixels).save(file, "PNG")
        data = np.frombuffer(file.getvalue(), np.uint8)
    (rgb,), (bgr,) = (ours(Case("ImageDecoder", [data], {"pixel_format": kind})) for kind in ("RGB", "BGR"))
    np.testing.assert_array_equal(rgb, pixels)
    np.testing.assert_array_equal(bgr, pixels[..., ::-1])
    (nothing,) = ours(Case("ImageDecoder", [data[:20]]))
    assert nothing.size == 0


@pytest.mark.parametrize(
    "case",
    [
        Case("Resize", [X, None, None, i64(4, 4)], {"axes": [2, 7]}),
        Case("Resize", [X, None, None, i64(4, 4, 4)], {"axes": [2, 3]}),
        Case("Resize", [X, None, f32(1, 1, 2, -1)]),
        Case("Resize", [X, None, f32(1, 1, 2, np.nan)]),
        Case("Resize", [X, None, f32(1, 1, 2, 2)], {"mode": "quintic"}),
        Case("Resize", [X, None, f32(1, 1, 2, 2)], {"coordinate_transformation_mode": "elsewhere"}),
        Case("Resize", [X]),
        Case("GridSample", [X, f(1, 4, 3, 3)]),
        Case("GridSample", [X, f(1, 4, 3, 2)], {"padding_mode": "none"}),
        Case("NonMaxSuppression", [BOXES, SCORES[..., :7], i64(5)]),
        Case("NonMaxSuppression", [BOXES[0], SCORES, i64(5)]),
        Case("RoiAlign", [f(3, 7, 6), ROIS, IMAGES]),
        Case("DFT", [f(2, 8, 3)]),
        Case("DFT", [f(2, 8, 2), scalar(0)], constants=(1,)),
        Case("DFT", [f(2, 8, 2), None, scalar(-1)]),
        Case("STFT", [f(1, 4, 1), scalar(1), None, scalar(9)]),
        Case("ReverseSequence", [f(4, 5), i64(9, 1, 1, 1, 1)]),
        Case("ReverseSequence", [f(4, 5), i64(1, 1, 1, 1, 1)], {"time_axis": 1}),
        Case("Pad", [X, i64(0, 1)]),
        Case("Pad", [X, i64(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "mirror"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("decomposed", [False, True])
def test_what_does_not_fit_is_told(case: Case, decomposed: bool) -> None:
    with pytest.raises(AssayError):
        ours(case, decomposed=decomposed)


@pytest.mark.parametrize("decomposed", [False, True])
def test_absurd_sizes_are_refused_before_they_are_made(decomposed: bool) -> None:
    for case in (
        Case("Resize", [X, None, f32(1, 1, 1e12, 1)]),
        Case("Resize", [X, None, None, i64(1, 2, 2**40, 5)]),
        Case("DFT", [f(1, 8, 2), scalar(2**50 - 27)]),
        Case("RandomUniform", [], {"shape": [2**50]}),
    ):
        with pytest.raises(LimitExceeded):
            ours(case, decomposed=decomposed)
