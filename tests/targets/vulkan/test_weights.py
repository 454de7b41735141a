"""Norms and biases of convolutions: they go into weights, or are added by the kernel that makes the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs import compiled_on

from assay.evidence.compare.arrays import epsilon
from assay.ir.dtypes import f32
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.executable import VulkanExecutable

RNG = np.random.default_rng(11)
KERNELS = ((1, 1), (3, 3))
"""Windows of convolutions: a product, and none."""


def network(window: Sequence[int], *, normal: bool) -> Graph:
    """A convolution with its bias, perhaps a norm, and an activation; weights are constants."""
    b = Builder()
    x = b.input(TensorType(f32, (2, 8, 9, 7)))
    w = b.constant(RNG.normal(size=(12, 8, *window)).astype(np.float32))
    bias, mean, scale, offset = (b.constant(RNG.normal(size=12).astype(np.float32)) for _ in range(4))
    variance = b.constant(RNG.uniform(0.5, 2, 12).astype(np.float32))
    y = b.conv(x, w, bias, strides=(1, 1), pads=tuple(size // 2 for size in window) * 2, dilations=(1, 1), groups=1)
    y = b.batch_norm(y, mean, variance, scale, offset, epsilon=1e-3) if normal else y
    return b.finish("network", [x], [b.relu(y)])


def kernels(program: Any) -> list[str]:
    made = [each.executable for each in program._compiled if isinstance(each.executable, VulkanExecutable)]
    return [kernel for executable in made for kernel in executable.kernels]


@pytest.mark.parametrize("restricted", ["", "no-texels", "discrete"], indirect=True)
@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("window", KERNELS)
def test_a_convolution_its_bias_norm_and_activation_are_one_kernel(
    restricted: VulkanDevice, window: Sequence[int], normal: bool
) -> None:
    graph = network(window, normal=normal)
    x = RNG.normal(size=(2, 8, 9, 7)).astype(np.float32)
    program = compiled_on(VulkanTarget("exact", DEFAULT), graph)
    (kernel,) = kernels(program)
    assert ".matmul." in kernel if window == (1, 1) else ".conv." in kernel
    wanted = _by_torch(graph, x, normal)
    np.testing.assert_allclose(program.run([x])[0], wanted, rtol=0, atol=60 * epsilon(f32) * np.abs(wanted).max())


def _by_torch(graph: Graph, x: np.ndarray[Any, Any], normal: bool) -> Any:
    import torch

    conv = next(node for node in graph.nodes if node.op == "conv")
    w, bias = (torch.tensor(graph.constants[value]).double() for value in conv.inputs[1:3] if value is not None)
    y = torch.nn.functional.conv2d(torch.from_numpy(x).double(), w, bias, padding=w.shape[-1] // 2)
    if normal:
        norm = next(node for node in graph.nodes if node.op == "batch_norm")
        mean, variance, scale, offset = (
            torch.tensor(graph.constants[value]).double() for value in norm.inputs[1:] if value is not None
        )
        y = torch.nn.functional.batch_norm(y, mean, variance, scale, offset, eps=1e-3)
    return torch.relu(y).numpy()


class Case(NamedTuple):
    """A convolution: channels of x, of the result, groups, sizes of x, window, steps, padding, dilations, batch."""

    channels: tuple[int, int, int]
    sizes: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    images: int = 3


SINGLE = (
    Case((6, 6, 6), (13, 12), (3, 3), pads=(1, 1, 1, 1)),
    Case((6, 12, 6), (13, 12), (5, 7), (2, 1), (2, 6, 3, 0)),
    Case((6, 6, 6), (13, 12), (11, 1), pads=(5, 0, 5, 0)),
    Case((6, 6, 6), (13, 12), (2, 4), pads=(0, 0, 0, 7)),
    Case((6, 6, 6), (7, 7), (3, 3), (2, 2), (1, 1, 1, 1)),
    Case((6, 6, 6), (2, 2), (5, 5), (1, 1), (2, 2, 2, 2)),
    Case((6, 6, 6), (9, 16), (3, 3), (3, 4), (1, 2, 0, 1), (2, 3)),
)
"""Each channel is made of one of x."""
FEW = (
    Case((3, 8, 1), (16, 16), (7, 7), (2, 2), (3, 3, 3, 3)),
    Case((3, 5, 1), (9, 12), (3, 3), pads=(1, 1, 1, 1)),
    Case((6, 4, 2), (5, 8), (3, 3), pads=(1, 1, 1, 1)),
    Case((4, 1, 1), (7, 5), (5, 3), pads=(2, 1, 2, 1), dilations=(1, 2)),
    Case((4, 7, 1), (8, 12), (1, 1), (2, 2)),
)
"""There are few channels, each made of several of x."""
MANY = (
    Case((10, 36, 2), (3, 3), (3, 3), pads=(1, 1, 1, 1)),
    Case((24, 48, 1), (2, 2), (1, 1)),
    Case((24, 48, 1), (1, 1), (1, 1), images=1),
    Case((16, 64, 1), (6, 6), (3, 3), (2, 2)),
)
"""Lanes lie along the channels; pixels of several images come together."""
WAYS = [
    *(("rows", each, words) for each in SINGLE for words in ("", "no-texels", "addresses,no-subgroups")),
    *(("rows", each, "") for each in FEW),
    *(("conv", each, "no-texels") for each in FEW),
    *(("conv_tiles", each, "") for each in MANY),
]


@pytest.mark.parametrize(("way", "case", "restricted"), WAYS, indirect=["restricted"])
def test_convolutions_have_ways_that_suit_their_channels(restricted: VulkanDevice, way: str, case: Case) -> None:
    import torch

    (old, new, groups), pads = case.channels, case.pads
    steps = {"strides": case.strides, "dilations": case.dilations, "groups": groups}
    b = Builder()
    shapes = [(case.images, old, *case.sizes), (new, old // groups, *case.window), (new,)]
    x, w, bias = inputs = [b.input(TensorType(f32, shape)) for shape in shapes]
    y = b.conv(x, w, bias, pads=pads, **steps)
    arrays = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    program = compiled_on(VulkanTarget("exact", DEFAULT), b.finish("conv", inputs, [b.relu(y)]))
    kernel, *_ = kernels(program)
    assert f".write_{way}(" in kernel
    left = torch.nn.functional.pad(torch.from_numpy(arrays[0]), (pads[1], pads[3], pads[0], pads[2])).double()
    weights, shifts = (torch.from_numpy(each).double() for each in arrays[1:])
    convolved = torch.nn.functional.conv2d(left, weights, shifts, case.strides, 0, case.dilations, groups)
    wanted = torch.relu(convolved).numpy()
    np.testing.assert_allclose(program.run(arrays)[0], wanted, rtol=0, atol=60 * epsilon(f32) * np.abs(wanted).max())
