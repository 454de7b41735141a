"""The comparison that every verdict rests on."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from assay.evidence.compare.arrays import bounds, closeness, epsilon, ulp_distance
from assay.ir import dtypes
from assay.ops.registry import Tolerance

NAN, INF = np.nan, np.inf
FLOATS = [dtype for dtype in dtypes.ALL if dtype.is_float]


def f32(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def test_equal_is_ok() -> None:
    found = closeness(f32(1, NAN, INF, -INF), f32(1, NAN, INF, -INF))
    assert found.ok
    assert (found.count, found.max_abs, found.max_rel, found.max_ulp) == (4, 0, 0, 0)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(NAN, 1.0), (1.0, NAN), (INF, 3e38), (INF, -INF), (NAN, INF), (3e38, INF)],
    ids=str,
)
def test_what_is_not_finite_equals_only_itself(actual: float, expected: float) -> None:
    assert not closeness(f32(actual), f32(expected), relative=1e9, absolute=1e9).ok


def test_nan_and_inf_are_counted() -> None:
    found = closeness(f32(NAN, 1, INF, 5), f32(1, NAN, 1, 5))
    assert (found.nan, found.inf, found.beyond) == (2, 1, 0)
    assert "2 of 4 NaN in one" in str(found)


def test_errors_are_measured() -> None:
    found = closeness(f32(1.5, 100.0), f32(1.0, 101.0))
    assert found.max_abs == 1.0
    assert found.max_rel == 0.5
    assert found.max_ulp == 2.0**22
    assert found.beyond == 2


def test_what_is_allowed() -> None:
    assert closeness(f32(1.5, 100.0), f32(1.0, 101.0), relative=0.1, absolute=0.4).ok
    assert closeness(f32(1.5, 100.0), f32(1.0, 101.0), absolute=np.array([0.5, 0.9])).beyond == 1
    assert closeness(f32(1.5, 100.0), f32(1.0, 100.0), where=np.array([False, True])).ok


@pytest.mark.parametrize(
    ("actual", "expected", "difference"),
    [
        (f32(1), np.array([1.0]), "dtype f32 instead of f64"),
        (f32(1), np.array([1], np.int32), "dtype f32 instead of i32"),
        (f32(1, 2), f32(1), "shape [2] instead of [1]"),
        (f32(1), np.array(1, np.float32), "shape [1] instead of []"),
        ([f32(1)], [f32(1), f32(1)], "1 items instead of 2"),
        (None, f32(1), "None instead of a tensor float32[1]"),
        ({"a": 1}, {"a": 2}, "{'a': 1} instead of {'a': 2}"),
    ],
    ids=str,
)
def test_what_cannot_be_compared(actual: Any, expected: Any, difference: str) -> None:
    found = closeness(actual, expected, relative=1.0, absolute=1.0)
    assert not found.ok
    assert found.difference == difference


def test_lists_are_compared_item_by_item() -> None:
    found = closeness([f32(1), f32(2, 3)], [f32(1), f32(2, 4)])
    assert (found.count, found.beyond, found.max_abs) == (3, 1, 1.0)
    assert closeness((f32(1),), [f32(1)]).ok
    assert closeness("text", "text").ok


def test_integers_are_compared_without_overflow() -> None:
    assert closeness(np.array([-(2**63)]), np.array([2**63 - 1])).max_abs == 2.0**64
    assert closeness(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)).max_abs == 2.0**64
    assert closeness(np.array([7], np.int8), np.array([5], np.int8), absolute=2.0).ok
    assert closeness(np.array([1], ml_dtypes.int4), np.array([-1], ml_dtypes.int4)).max_ulp == 2


def test_text_and_bools_are_equal_or_not() -> None:
    assert closeness(np.array(["a", "b"], object), np.array(["a", "c"], object), absolute=9.0).beyond == 1
    assert closeness(np.array([True, False]), np.array([True, True]), absolute=9.0).beyond == 1


def test_complex_numbers_are_compared_by_their_size() -> None:
    found = closeness(np.array([1e3 + 1e-3j]), np.array([1e3 + 0j]), relative=1e-5)
    assert found.ok
    assert not closeness(np.array([1 + NAN * 1j]), np.array([1 + 0j])).ok


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_neighbours_are_one_ulp_apart(dtype: dtypes.DType) -> None:
    one = np.ones(1, dtype.numpy)
    above = np.array([1.0 + epsilon(dtype)]).astype(dtype.numpy)
    assert ulp_distance(one, above).tolist() == [1.0]
    assert ulp_distance(above, one).tolist() == [1.0]


def test_ulps_are_counted_across_zero() -> None:
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    assert ulp_distance(f32(tiny), f32(-tiny)).tolist() == [2.0]
    assert ulp_distance(f32(0.0), f32(-0.0)).tolist() == [0.0]
    assert ulp_distance(np.array([-1.7e308]), np.array([1.7e308]))[0] > 1.8e19


def test_bounds_follow_the_dtype_and_the_terms() -> None:
    assert bounds(Tolerance.EXACT, dtypes.f32) == (0.0, 0.0)
    assert bounds(Tolerance.ROUNDED, dtypes.f16) == (2.0**-10, 0.0)
    assert bounds(Tolerance.FUNCTION, dtypes.i32) == (0.0, 0.0)
    narrow, wide = (bounds(Tolerance.ACCUMULATED, dtypes.f32, terms=n, scale=s) for n, s in ((1, 1), (100, 10)))
    assert wide[0] == pytest.approx(10 * narrow[0])
    assert wide[1] == pytest.approx(10 * narrow[1])
