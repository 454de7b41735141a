"""Gradients against finite differences, for every op that has samples in f64: by its own rule or through its parts."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from assay.errors import LowerFailed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import Effect, FactMissing, OpDef, Sample
from assay.passes.gradient import gradients
from assay.targets.reference import ReferenceTarget

NO_DERIVATIVE = {"cum_prod", "nextafter"}
"""Ops that have none here."""

LOOPS = {"rnn", "gru", "lstm", "inverse", "cum_max", "cum_min", "cum_log_sum_exp"}
"""Ops that have one only while they need no loop."""

AT_KINKS = {"roi_align"}
"""Ops whose samples lie where the derivative of one side is not that of the other."""

RANGES = {"acosh": (1.2, 3.0)}
"""Where elementwise ops are tried, if not between 0.2 and 0.9: away from kinks and the borders of their domains."""


def differentiable(definition: OpDef) -> bool:
    """Whether the op takes f64 and gives it back."""
    if (
        definition.host
        or definition.regions
        or definition.types is not None
        or dtypes.f64 not in definition.main_dtypes
    ):
        return False
    main = next(iter(definition.typevars))
    return definition.results[0] == main and definition.effect is Effect.PURE


OPS = [definition for definition in CORE if differentiable(definition) and definition.name not in AT_KINKS]


def is_variable(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.float64


def tame(definition: OpDef, sample: Sample, rng: np.random.Generator) -> Sample:
    """The sample, elementwise ops with numbers of their range instead."""
    if definition.family not in ("elementwise", "functions"):
        return sample
    low, high = RANGES.get(definition.name, (0.2, 0.9))
    return sample._replace(
        inputs=tuple(rng.uniform(low, high, x.shape) if is_variable(x) else x for x in sample.inputs)
    )


def usable(sample: Sample) -> bool:
    floats = [x for x in sample.inputs if is_variable(x)]
    rough = sample.attrs.get("reduction", "none") not in ("none", "add") or dtypes.f32 in sample.attrs.values()
    return bool(floats) and all(np.isfinite(x).all() for x in floats) and not rough


def slope(definition: OpDef, sample: Sample, *, decomposed: bool) -> None:
    """Assert that the derivative along a random direction is what the gradients say."""
    rng = np.random.default_rng(zlib.crc32(definition.name.encode()))
    b = Builder(decomposed=decomposed)
    given: list[Any] = []
    variables: list[Value] = []
    for x in sample.inputs:
        if is_variable(x):
            variables.append(b.input(TensorType(dtypes.f64, x.shape)))
            given.append(variables[-1])
        else:
            given.append(None if x is None else b.constant(x))
    result = b.emit(definition.name, *given, **sample.attrs)[0]
    weights = rng.uniform(0.5, 1.5, b.static_shape(result))
    y = b.reduce_sum(b.mul(result, b.constant(weights)))
    found = gradients(b, list(b.nodes), y, variables)
    run = ReferenceTarget().compile(b.finish("test", variables, [y, *found])).run
    at = [x for x in sample.inputs if is_variable(x)]
    _, *slopes = run(at)
    assert [s.shape for s in slopes] == [x.shape for x in at]
    directions = [rng.normal(size=x.shape) for x in at]
    step = 1e-6
    ahead, behind = (
        float(run([x + sign * step * d for x, d in zip(at, directions, strict=True)])[0]) for sign in (1, -1)
    )
    expected = (ahead - behind) / (2 * step)
    actual = sum(float(np.sum(s * d)) for s, d in zip(slopes, directions, strict=True))
    assert actual == pytest.approx(expected, rel=2e-4, abs=2e-4), (definition.name, dict(sample.attrs))


@pytest.mark.parametrize("definition", OPS, ids=[definition.name for definition in OPS])
def test_gradients_are_finite_differences(definition: OpDef) -> None:
    rng = np.random.default_rng(zlib.crc32(definition.name.encode()))
    samples = [tame(definition, sample, rng) for sample in definition.samples(rng, dtypes.f64)]
    samples = [sample for sample in samples if usable(sample)]
    for index, sample in enumerate(samples):
        try:
            slope(definition, sample, decomposed=index % 2 == 1)
            refused = False
        except (LowerFailed, FactMissing):
            refused = True
        assert refused == (definition.name in NO_DERIVATIVE) or definition.name in LOOPS


# --- the way through a graph


def run(b: Builder, y: Value, xs: list[Value], at: list[Any]) -> list[Any]:
    found = gradients(b, list(b.nodes), y, xs)
    return list(ReferenceTarget().compile(b.finish("test", xs, found)).run(at))


def test_parts_of_several_uses_add_up() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f64, (3,)))
    y = b.add(b.mul(x, x), b.concat(b.slice(x, [1], [3], [1], axes=(0,)), b.slice(x, [0], [1], [1], axes=(0,)), axis=0))
    (found,) = run(b, y, [x], [np.array([1.0, 2.0, 3.0])])
    assert found.tolist() == [3.0, 5.0, 7.0]


def test_what_does_not_matter_has_gradient_zero() -> None:
    b = Builder()
    x, z = (b.input(TensorType(dtypes.f32, (2, 3))) for _ in range(2))
    found = run(b, b.exp(x), [x, z], [np.zeros((2, 3), np.float32)] * 2)
    assert found[0].tolist() == np.ones((2, 3)).tolist()
    assert found[1].tolist() == np.zeros((2, 3)).tolist()


def test_symbolic_sizes_need_no_numbers() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f64, (symbol("n"), 4)))
    w = b.input(TensorType(dtypes.f64, (4, 2)))
    y = b.reduce_sum(b.tanh(b.matmul(x, w)))
    at = [np.random.default_rng(0).normal(size=shape) for shape in ((5, 4), (4, 2))]
    found = run(b, y, [x, w], at)
    grown = 1 - np.tanh(at[0] @ at[1]) ** 2
    np.testing.assert_allclose(found[0], grown @ at[1].T)
    np.testing.assert_allclose(found[1], at[0].T @ grown)


def test_derivatives_can_be_taken_again() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f64, ()))
    y = b.sin(b.mul(x, x))
    (first,) = gradients(b, list(b.nodes), y, [x])
    (second,) = run(b, first, [x], [np.asarray(0.7)])
    assert second == pytest.approx(2 * np.cos(0.49) - 4 * 0.49 * np.sin(0.49))


def test_smooth_functions_are_smooth_where_their_parts_are_not() -> None:
    expected = {"sigmoid": 0.25, "softplus": 0.5, "sinh": 1.0, "asinh": 1.0, "silu": 0.5, "gelu": 0.5, "mish": 0.6}
    for name, slope_at_zero in expected.items():
        for decomposed in (False, True):
            b = Builder(decomposed=decomposed)
            x = b.input(TensorType(dtypes.f64, ()))
            (found,) = run(b, b.emit(name, x)[0], [x], [np.asarray(0.0)])
            assert found == pytest.approx(slope_at_zero), (name, decomposed)


def test_products_with_zeros() -> None:
    for values, expected in (
        ([2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
        ([0.0, 0.0, 3.0], [0.0] * 3),
        ([2.0, 4.0], [4.0, 2.0]),
    ):
        b = Builder()
        x = b.input(TensorType(dtypes.f64, (len(values),)))
        (found,) = run(b, b.reduce_prod(x), [x], [np.array(values)])
        assert found.tolist() == expected
