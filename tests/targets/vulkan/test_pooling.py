"""Where the largest elements of windows lie."""

from __future__ import annotations

import numpy as np
import pytest

from assay.ir.dtypes import f32
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.executable import VulkanExecutable


@pytest.mark.parametrize("restricted", ["", "no-subgroups,groups=2", "addresses,push=16"], indirect=True)
@pytest.mark.parametrize("kernel", [(2, 3), (4, 5)])
def test_the_largest_elements_and_their_places_are_one_kernel(
    restricted: VulkanDevice, kernel: tuple[int, int]
) -> None:
    import torch

    b = Builder()
    x = b.input(TensorType(f32, (2, 3, 13, 11)))
    windows = {"kernel": kernel, "strides": (2, 1), "pads": (1, 1, 1, 1), "dilations": (1, 2), "ceil": False}
    found = b.emit("max_pool_positions", x, **windows)
    executable = VulkanTarget("exact", DEFAULT).compile(b.finish("pool", [x], found), {})
    assert isinstance(executable, VulkanExecutable)
    assert len(executable.kernels) == 1
    content = np.random.default_rng(3).integers(-4, 5, (2, 3, 13, 11)).astype(np.float32)
    content[0, 0, 3:7, 2:6] = -np.inf
    content[1, 2, 8, 5] = np.nan
    results, run = executable.submit([restricted.upload(content)])
    run.wait()
    wanted = torch.nn.functional.max_pool2d(torch.from_numpy(content), kernel, (2, 1), 1, (1, 2), return_indices=True)
    for mine, right in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(restricted.download(mine), right.numpy())
