"""What Vulkan's validation layer says of the runtime: nothing; and of faults that are planted: a message each.

The layer is chosen when a process makes its instance, so each case is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.targets.vulkan.device import VulkanDevice

LAYERS = [Path(folder) / "vulkan/explicit_layer.d" for folder in ("/usr/share", "/usr/local/share", "/etc")]
SYNCHRONISATION = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
PROGRAM = """
import numpy as np
from assay.ir.dtypes import f32, i64
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice, open_device
from assay.targets.vulkan import api
{fault}
def wide():
    b = Builder()
    x, where = b.input(TensorType(f32, (40, 24))), b.input(TensorType(i64, (5,)))
    (y,) = b.emit("matmul", x, b.constant(np.eye(24, dtype=np.float32)))
    (y,) = b.emit("softmax", y, axis=-1)
    (y,) = b.emit("transpose", y, perm=(1, 0))
    (y,) = b.emit("gather", y, where, axis=0)
    (t,) = b.emit("tanh", y)
    (s,) = b.emit("reduce_sum", t, axes=(0, 1), keepdims=False)
    return b.finish("wide", [x, where], [t, s])
target = VulkanTarget("exact", DEFAULT)
device = open_device()
executable = target.compile(wide(), {{}})
inputs = [np.random.default_rng(0).random((40, 24), np.float32), np.array([1, -1, 5, 6, 23])]
for _ in range(3):
    outputs, run = executable.submit([device.upload(each) for each in inputs])
    run.wait()
    [device.download(each) for each in outputs]
print(len(device.instance.messages))
print("\\n".join(device.instance.messages))
"""
NO_BARRIER = "VulkanDevice.barrier = lambda self, commands: None"
WRONG_STRUCT = "api._TAGS['VkSemaphoreWaitInfo'] = 7"


def messages(fault: str, restrict: str) -> list[str]:
    """What the layer says of a program with a fault."""
    environment = {
        **os.environ,
        "ASSAY_VULKAN_VALIDATION": "1",
        "ASSAY_VULKAN_RESTRICT": restrict,
        "VK_LAYER_ENABLES": SYNCHRONISATION,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(fault=fault)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    count, *lines = done.stdout.splitlines()
    return lines if int(count) else []


@pytest.fixture(autouse=True)
def layer(device: VulkanDevice) -> None:
    """The validation layer, without which these tests are skipped."""
    if not any(list(folder.glob("*khronos_validation*")) for folder in LAYERS if folder.exists()):
        pytest.skip("the validation layer is not installed: make vulkan")


@pytest.mark.parametrize("restrict", ["bindings", "addresses", "staged", "push=16", "no-subgroups,no-f64"])
def test_nothing_is_said_of_what_is_right(restrict: str) -> None:
    assert messages("", restrict) == []


def test_a_missing_barrier_is_found() -> None:
    assert any("HAZARD" in line for line in messages(NO_BARRIER, "bindings"))


def test_a_wrong_struct_is_found() -> None:
    assert any("sType" in line for line in messages(WRONG_STRUCT, "bindings"))
