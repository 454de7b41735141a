"""The elementary functions of kernels against those of f64 and of more digits, in units of the last place."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from programs import compiled_on, placed_on

from assay.ir.dtypes import DType, f32, f64
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice

TARGET = VulkanTarget("exact", DEFAULT)
CASES: dict[str, tuple[float, float, float]] = {
    "exp": (-80, 80, 3),
    "expm1": (-20, 80, 4),
    "log": (1e-30, 1e30, 3),
    "log1p": (-0.999, 1000, 4),
    "sin": (-30, 30, 3),
    "cos": (-30, 30, 3),
    "atan": (-20, 20, 4),
    "tanh": (-9, 9, 4),
    "erf": (-4, 4, 4),
}
"""The range that is looked at, and how many units of the last place a result may be off."""


def spread(low: float, high: float, count: int, dtype: DType) -> Any:
    """Numbers of every size within a range."""
    rng = np.random.default_rng(7)
    if low > 0:
        return np.exp(rng.uniform(np.log(low), np.log(high), count)).astype(dtype.numpy)
    near = rng.uniform(-1, 1, count // 2) * 10.0 ** rng.uniform(-6, 0, count // 2)
    return np.clip(np.concatenate([rng.uniform(low, high, count // 2), near]), low, high).astype(dtype.numpy)


def computed(op: str, *arrays: Any) -> Any:
    b = Builder()
    inputs = [b.input(TensorType(f64 if each.dtype == np.float64 else f32, each.shape)) for each in arrays]
    return placed_on(TARGET, b.finish(op, inputs, b.emit(op, *inputs))).run(list(arrays))[0]


def off(found: Any, wanted: Any) -> float:
    """The largest distance in units of the last place."""
    exact = np.array([float(each) for each in wanted])
    unit = np.spacing(np.abs(exact).astype(found.dtype)).astype(np.float64)
    lost = np.array([float(mpmath.mpf(float(got)) - each) for got, each in zip(found, wanted, strict=True)])
    return float(np.abs(lost / unit).max())


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("op", CASES)
def test_functions_are_within_a_few_units(device: VulkanDevice, op: str, dtype: DType) -> None:
    low, high, most = CASES[op]
    x = spread(low, high, 4000 if dtype is f32 else 600, dtype)
    with mpmath.workdps(40):
        wanted = [getattr(mpmath, op)(mpmath.mpf(float(each))) for each in x]
        assert off(computed(op, x), wanted) <= most


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_powers_are_within_a_few_units(device: VulkanDevice, dtype: DType) -> None:
    x, y = spread(1e-3, 1e3, 600, dtype), spread(-10, 10, 600, dtype)
    with mpmath.workdps(40):
        wanted = [mpmath.power(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        assert off(computed("pow", x, y), wanted) <= 4


@pytest.mark.parametrize("restricted", ["no-f64"], indirect=True)
def test_powers_and_angles_are_right_without_f64(restricted: VulkanDevice) -> None:
    x, y = spread(1e-3, 1e3, 600, f32), spread(-10, 10, 600, f32)
    with mpmath.workdps(40):
        wanted = [mpmath.power(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        assert off(computed("pow", x, y), wanted) <= 6
        angles = spread(-30, 30, 600, f32)
        assert off(computed("sin", angles), [mpmath.sin(float(each)) for each in angles]) <= 6


def test_special_numbers_are_those_of_numpy(device: VulkanDevice) -> None:
    special = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, np.inf, -np.inf, np.nan, 1e30, -1e30], np.float32)
    x, y = (each.reshape(-1).copy() for each in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(computed("pow", x, y), np.power(x.astype(np.float64), y).astype(np.float32), 1e-6)
        for op, function in {"exp": np.exp, "log": np.log, "tanh": np.tanh, "atan": np.arctan}.items():
            np.testing.assert_allclose(computed(op, special), function(special.astype(np.float64)), 1e-6)


@pytest.mark.parametrize("restricted", ["", "no-f64"], indirect=True)
def test_powers_of_whole_numbers_have_no_error(restricted: VulkanDevice) -> None:
    for dtype, bits in ((f32, 24), (f64, 53))[: 1 + restricted.profile.f64]:
        pairs = [(x, y) for x in range(20) for y in range(64) if x**y < 2**bits]
        x, y = (np.array(side, dtype.numpy) for side in zip(*pairs, strict=True))
        assert computed("pow", x, y).tolist() == [float(a**b) for a, b in pairs]


@pytest.mark.usefixtures("device")
def test_arcs_are_exact_at_both_ends() -> None:
    x = np.append(spread(-0.999999, 0.999999, 2000, f32), np.array([-0.9999999, 0.9999999], np.float32))
    b = Builder()
    given = b.input(TensorType(f32, x.shape))
    found = compiled_on(TARGET, b.finish("atanh", [given], [b.atanh(given)])).run([x])[0]
    assert off(found, [mpmath.atanh(float(each)) for each in x]) <= 6


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 3.0])


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_zeros_that_are_constants_are_zeros_like_others(op: str, zero: float, dtype: DType) -> None:
    x = SPECIAL.astype(dtype.numpy)
    b = Builder()
    given, constant = b.input(TensorType(dtype, x.shape)), b.constant(zero, dtype)
    graph = b.finish(op, [given], [*b.emit(op, given, constant), *b.emit(op, constant, given)])
    function = getattr(np, {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}[op])
    with np.errstate(all="ignore"):
        wanted = function(x, dtype.numpy.type(zero)), function(dtype.numpy.type(zero), x)
    for found, right in zip(placed_on(TARGET, graph).run([x]), wanted, strict=True):
        np.testing.assert_array_equal(found, right)
        signs = [np.signbit(each[~np.isnan(right)]) for each in (found, right)]
        np.testing.assert_array_equal(*signs)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_infinities_among_exponentials(op: str, axis: int) -> None:
    import torch

    x = np.random.default_rng(2).normal(size=(9, 9)).astype(np.float32)
    x[2, 3], x[4, 5], x[6], x[:, 7], x[8, 1] = np.inf, -np.inf, -np.inf, -np.inf, np.nan
    b = Builder()
    given = b.input(TensorType(f32, x.shape))
    found = placed_on(TARGET, b.finish(op, [given], b.emit(op, given, axis=axis))).run([x])[0]
    wanted = getattr(torch, op)(torch.from_numpy(x).double(), axis).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
