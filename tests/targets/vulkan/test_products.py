"""Products by every way of kernels: tiles of texels, blocks in shared memory, lanes along columns or the depth."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
from suites.conftest import complaint

from assay.ir.dims import symbol
from assay.ir.dtypes import f32
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.executable import VulkanExecutable
from assay.targets.vulkan.templates import Template

SIZES = (
    (1, 40, 64), (3, 8, 36), (8, 4, 4), (16, 32, 32), (17, 12, 33), (20, 7, 68), (64, 64, 64), (70, 33, 100),
    (33, 0, 40), (130, 48, 65), (5, 5, 5),
)  # fmt: skip
"""Rows, depth and columns."""
WAYS = {
    "bindings,texels": "write_tiles",
    "no-texels": "write_broad",
    "bindings,texels,push=16": "write_tiles",
    "bindings,texels,groups=3": "write_tiles",
    "addresses": "write_broad",
    "no-texels,no-subgroups": "write_broad",
    "discrete": "write_blocks",
    "discrete,addresses,groups=2": "write_blocks",
}
"""How a product of 70 × 33 and 33 × 100 is computed on devices."""


def computed(x: Any, y: Any, turns: Sequence[bool], free: bool = False) -> tuple[Any, list[Template]]:
    """A product on the device, with sides that lie turned, and the kernels that made it."""
    b, device = Builder(), VulkanTarget("exact", DEFAULT).open()
    given = [np.swapaxes(side, -1, -2).copy() if turned else side for side, turned in zip((x, y), turns, strict=True)]
    shapes = [list[Any](side.shape) for side in given]
    if free:
        shapes[0][-1 if turns[0] else -2] = symbol("n", 1)
    sides = [b.input(TensorType(f32, tuple(shape))) for shape in shapes]
    order = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    taken = [b.transpose(side, perm=order) if turned else side for side, turned in zip(sides, turns, strict=True)]
    executable = VulkanTarget("exact", DEFAULT).compile(b.finish("product", sides, [b.matmul(*taken)]), {})
    assert isinstance(executable, VulkanExecutable)
    outputs, _ = executable.submit([device.upload(each) for each in given])
    return device.download(outputs[0]), [cast(Template, step.kernel) for step in executable._steps]


@pytest.mark.parametrize("restricted", list(WAYS), indirect=True)
def test_products_are_right_however_both_sides_lie(restricted: VulkanDevice) -> None:
    rng = np.random.default_rng(7)
    for (rows, depth, columns), turns in product(SIZES, product((False, True), repeat=2)):
        x = rng.standard_normal((rows, depth), np.float32)
        y = rng.standard_normal((depth, columns), np.float32)
        found, _ = computed(x, y, turns)
        np.testing.assert_allclose(found, x.astype(np.float64) @ y, rtol=1e-4, atol=1e-4, err_msg=f"{x.shape} {turns}")


@pytest.mark.parametrize(("restricted", "kernel"), list(WAYS.items()), indirect=["restricted"])
def test_each_device_has_its_way(restricted: VulkanDevice, kernel: str) -> None:
    if kernel == "write_tiles" and not restricted.profile.subgroup_shuffle:
        pytest.skip("lanes cannot hand each other what they loaded on this device")
    _, kernels = computed(np.ones((70, 33), np.float32), np.ones((33, 100), np.float32), (False, False))
    assert kernel in [each.entry for each in kernels]
    if shutil.which("spirv-val") is not None:
        assert [complaint(each.built(restricted.profile)) for each in kernels] == [""] * len(kernels)


@pytest.mark.parametrize("restricted", ["bindings,texels", "discrete", "no-texels"], indirect=True)
def test_batches_are_multiplied_one_by_one(restricted: VulkanDevice) -> None:
    rng = np.random.default_rng(8)
    for shape, turns in product(((3, 12, 8), (2, 3, 40, 36), (5, 9, 7)), product((False, True), repeat=2)):
        x, y = rng.standard_normal(shape, np.float32), rng.standard_normal((*shape[:-2], shape[-1], 44), np.float32)
        found, _ = computed(x, y, turns)
        np.testing.assert_allclose(found, x.astype(np.float64) @ y, rtol=1e-4, atol=1e-4, err_msg=f"{shape} {turns}")


@pytest.mark.parametrize("restricted", ["bindings,texels"], indirect=True)
def test_larger_tensors_may_lie_where_smaller_ones_lay(restricted: VulkanDevice) -> None:
    rng = np.random.default_rng(11)
    x, wide, narrow = (rng.standard_normal(shape, np.float32) for shape in ((8, 8), (8, 64), (64, 12)))
    b, device = Builder(), VulkanTarget("exact", DEFAULT).open()
    given = b.input(TensorType(f32, (8, 8)))
    y = b.matmul(b.softmax(given, axis=1), b.constant(wide))
    for _ in range(4):
        y = b.softmax(y, axis=1)
    executable = VulkanTarget("exact", DEFAULT).compile(
        b.finish("chain", [given], [b.matmul(y, b.constant(narrow))]), {}
    )
    outputs, _ = executable.submit([device.upload(x)])

    def softmax(array: Any) -> Any:
        raised = np.exp(array - array.max(1, keepdims=True))
        return raised / raised.sum(1, keepdims=True)

    wanted = softmax(x.astype(np.float64)) @ wide
    for _ in range(4):
        wanted = softmax(wanted)
    np.testing.assert_allclose(device.download(outputs[0]), wanted @ narrow, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("restricted", ["bindings,texels", "discrete"], indirect=True)
def test_rows_may_be_known_only_when_a_program_runs(restricted: VulkanDevice) -> None:
    rng = np.random.default_rng(9)
    for rows, turns in product((1, 4, 50), product((False, True), repeat=2)):
        x, y = rng.standard_normal((rows, 24), np.float32), rng.standard_normal((24, 40), np.float32)
        found, _ = computed(x, y, turns, free=True)
        np.testing.assert_allclose(found, x.astype(np.float64) @ y, rtol=1e-4, atol=1e-4, err_msg=f"{rows} {turns}")


@pytest.mark.parametrize("restricted", ["bindings,texels", "bindings,texels,groups=3", "no-texels"], indirect=True)
@pytest.mark.parametrize(
    ("channels", "each", "groups", "size", "stride"),
    [(20, 4, 1, 3, 1), (16, 3, 1, 3, 2), (40, 5, 2, 3, 1), (12, 7, 1, 1, 2), (9, 4, 1, 5, 1), (34, 2, 1, 2, 1)],
)
def test_convolutions_are_right(
    restricted: VulkanDevice, channels: int, each: int, groups: int, size: int, stride: int
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(10)
    x = rng.standard_normal((2, each * groups, 11, 13), np.float32)
    weights, bias = rng.standard_normal((channels, each, size, size), np.float32), rng.random(channels, np.float32)
    b, device = Builder(), VulkanTarget("exact", DEFAULT).open()
    inputs = [b.input(TensorType(f32, array.shape)) for array in (x, weights, bias)]
    attrs = {"strides": (stride,) * 2, "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": groups}
    executable = VulkanTarget("exact", DEFAULT).compile(b.finish("conv", inputs, [b.conv(*inputs, **attrs)]), {})
    outputs, _ = executable.submit([device.upload(array) for array in (x, weights, bias)])
    sides = [torch.from_numpy(array).double() for array in (x, weights, bias)]
    wanted = torch.nn.functional.conv2d(*sides, stride=stride, padding=1, groups=groups)
    np.testing.assert_allclose(device.download(outputs[0]), wanted.numpy(), rtol=1e-4, atol=1e-4)
