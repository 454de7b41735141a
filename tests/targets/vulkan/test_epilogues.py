"""Elementwise work that goes on with a product's or a convolution's result inside its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.reference import ReferenceTarget
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.executable import VulkanExecutable

Made = tuple[list[Value], list[Value]]
"""The inputs and the outputs of a case."""


def _inputs(b: Builder, *shapes: tuple[Any, ...], dtype: DType = dtypes.f32) -> list[Value]:
    return [b.input(TensorType(dtype, shape)) for shape in shapes]


def dense(b: Builder) -> Made:
    x, w, bias = _inputs(b, (symbol("n", 1), 20), (20, 37), (37,))
    return [x, w, bias], [b.gelu(b.add(b.matmul(x, w), bias))]


def half(b: Builder) -> Made:
    x, w, bias = _inputs(b, (9, 20), (20, 37), (37,), dtype=dtypes.f16)
    return [x, w, bias], [b.tanh(b.mul(b.add(b.matmul(x, w), bias), b.constant(0.5, dtypes.f16)))]


def one_row(b: Builder) -> Made:
    x, w, bias = _inputs(b, (1, 70), (33, 70), (33,))
    return [x, w, bias], [b.relu(b.add(b.matmul(x, b.transpose(w, perm=(1, 0))), bias))]


def an_output_too(b: Builder) -> Made:
    x, w = _inputs(b, (9, 20), (20, 37))
    y = b.matmul(x, w)
    return [x, w], [y, b.tanh(y)]


def read_later(b: Builder) -> Made:
    x, w, z = _inputs(b, (9, 20), (20, 37), (9, 37))
    y = b.matmul(x, w)
    return [x, w, z], [b.softmax(b.relu(b.add(y, z)), axis=0), b.softmax(y, axis=1)]


def residual(b: Builder) -> Made:
    x, w = _inputs(b, (40, 40), (40, 40))
    y = b.softmax(x, axis=1)
    return [x, w], [b.softmax(b.add(y, b.matmul(y, w)), axis=0)]


def other_strides(b: Builder) -> Made:
    x, w, column, turned = _inputs(b, (3, 9, 20), (3, 20, 21), (9, 1), (21, 9))
    y = b.mul(b.matmul(x, w), column)
    return [x, w, column, turned], [b.add(y, b.transpose(turned, perm=(1, 0)))]


def truth(b: Builder) -> Made:
    x, w, bias = _inputs(b, (9, 20), (20, 37), (37,))
    return [x, w, bias], [b.gt(b.matmul(x, w), bias)]


def convolution(b: Builder) -> Made:
    x, w, z = _inputs(b, (2, 6, 9, 10), (10, 3, 3, 3), (2, 10, 9, 10))
    y = b.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=2)
    return [x, w, z], [b.sigmoid(b.add(y, z))]


CASES: dict[Callable[[Builder], Made], int] = {
    dense: 1,
    half: 1,
    one_row: 1,
    an_output_too: 1,
    read_later: 3,
    residual: 3,
    other_strides: 2,
    truth: 1,
    convolution: 1,
}
"""Graphs, and how many kernels they take."""


@pytest.mark.parametrize("restricted", ["", "bindings,push=16", "no-subgroups", "addresses,groups=2"], indirect=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_unit_is_part_of_the_kernel_before(case: Callable[[Builder], Made], restricted: VulkanDevice) -> None:
    b = Builder()
    inputs, outputs = case(b)
    graph = b.finish("g", inputs, outputs)
    rng = np.random.default_rng(0)
    arrays = [_array(rng, value) for value in inputs]
    executable = VulkanTarget("exact", DEFAULT).compile(graph, {})
    assert isinstance(executable, VulkanExecutable)
    found, run = executable.submit([restricted.upload(array) for array in arrays])
    run.wait()
    for mine, right in zip(found, ReferenceTarget().compile(graph).run(arrays), strict=True):
        wide = right.dtype == np.float16
        np.testing.assert_allclose(restricted.download(mine), right, rtol=2e-3 if wide else 2e-5, atol=1e-5)
    assert len(executable.kernels) == CASES[case]


@pytest.mark.usefixtures("device")
def test_sums_and_products_are_one_kernel_either_way() -> None:
    found: list[list[str]] = []
    for swapped in (False, True):
        b = Builder()
        x, w, bias, z = inputs = _inputs(b, (9, 20), (20, 37), (37,), (9, 37))
        y = b.add(b.matmul(x, w), bias)
        sides = (z, y) if swapped else (y, z)
        executable = VulkanTarget("exact", DEFAULT).compile(b.finish("g", inputs, [b.mul(*sides)]), {})
        assert isinstance(executable, VulkanExecutable)
        found.append(executable.kernels)
    assert found[0] == found[1]


def _array(rng: np.random.Generator, value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    shape = [size if isinstance(size, int) else 13 for size in value.type.shape or ()]
    return rng.normal(size=shape).astype(value.type.dtype.numpy)
