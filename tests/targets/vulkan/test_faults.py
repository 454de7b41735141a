"""What goes wrong with devices and with what is kept of them: it is said, and the next run is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import placed_on

from assay.errors import OutOfMemory, RunFailed
from assay.ir.dims import symbol
from assay.ir.dtypes import f32
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.program import Program
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.api import CONSTANTS
from assay.targets.vulkan.device import VulkanDevice, open_device
from assay.targets.vulkan.memory import BLOCK

TARGET = VulkanTarget("exact", DEFAULT)


def cumulated() -> Program:
    """Running sums of rows: the result is as large as the input."""
    b = Builder()
    x = b.input(TensorType(f32, (symbol("n", 1), 8)))
    return placed_on(TARGET, b.finish("cumulated", [x], b.emit("cum_sum", x, axis=1)))


def is_right(program: Program, rows: int) -> bool:
    return bool((program.run([np.ones((rows, 8), np.float32)])[0][:, -1] == 8).all())


@pytest.mark.parametrize("restricted", ["groups=60001"], indirect=True)
def test_a_lost_device_is_said_and_opened_anew(restricted: VulkanDevice) -> None:
    program = cumulated()
    assert is_right(program, 10)
    lost = CONSTANTS["VK_ERROR_DEVICE_LOST"]
    restricted.api.QueueSubmit = restricted.api.checked("vkQueueSubmit", lambda *_: lost)  # type: ignore[method-assign]
    with pytest.raises(RunFailed, match="DEVICE_LOST") as failed:
        is_right(program, 10)
    assert "load the model again" in failed.value.hint
    assert open_device() is not restricted
    assert is_right(cumulated(), 10)


def short_of_memory(device: VulkanDevice, most: int, fails: int) -> None:
    """Let the next so many allocations of more than `most` bytes fail."""
    allocate, left = device.api.AllocateMemory, [fails]

    def allocated(*arguments: Any) -> int:
        if arguments[1]._obj.allocationSize > most and left[0]:
            left[0] -= 1
            return CONSTANTS["VK_ERROR_OUT_OF_DEVICE_MEMORY"]
        return allocate(*arguments)

    device.api.AllocateMemory = device.api.checked("vkAllocateMemory", allocated)  # type: ignore[method-assign]


@pytest.mark.parametrize("restricted", ["groups=60002"], indirect=True)
def test_a_run_without_memory_fails_and_a_smaller_one_does_not(restricted: VulkanDevice) -> None:
    program, rows = cumulated(), 2 * BLOCK // 32
    short_of_memory(restricted, BLOCK, 100)
    with pytest.raises(OutOfMemory, match="not enough memory on the Vulkan device"):
        is_right(program, rows)
    assert is_right(program, 10)


@pytest.mark.parametrize("restricted", ["groups=60003"], indirect=True)
def test_what_is_kept_for_later_is_given_back_if_memory_is_short(restricted: VulkanDevice) -> None:
    program, rows = cumulated(), 2 * BLOCK // 32
    assert is_right(program, rows)
    held = restricted.memory.held
    short_of_memory(restricted, BLOCK, 1)
    assert is_right(program, 2 * rows)
    assert restricted.memory.held < held + 4 * rows * 32


# --- processes

RUN = """
import os, signal
import numpy as np
from assay.ir.dtypes import f32
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import open_device
{fault}
b = Builder()
x = b.input(TensorType(f32, (50, 8)))
executable = VulkanTarget("exact", DEFAULT).compile(b.finish("g", [x], b.emit("cum_sum", x, axis=1)), {{}})
for _ in range(20):
    (found,), run = executable.submit([open_device().upload(np.ones((50, 8), np.float32))])
    run.wait()
    assert (open_device().download(found)[:, -1] == 8).all()
"""
KILLED = "os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)"


def started(cache: Path, fault: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "ASSAY_CACHE_DIR": str(cache)}
    return subprocess.Popen([sys.executable, "-c", RUN.format(fault=fault)], env=environment)


def test_a_process_that_is_killed_as_it_keeps_its_kernels_harms_nobody(device: VulkanDevice, tmp_path: Path) -> None:
    assert started(tmp_path / "cache", KILLED).wait() == -signal.SIGKILL
    assert list((tmp_path / "cache").glob("*.unfinished"))
    assert started(tmp_path / "cache").wait() == 0
    assert list((tmp_path / "cache").glob("*.entry"))


def test_processes_share_a_device_and_what_is_kept(device: VulkanDevice, tmp_path: Path) -> None:
    assert [each.wait() for each in [started(tmp_path / "cache") for _ in range(2)]] == [0, 0]
