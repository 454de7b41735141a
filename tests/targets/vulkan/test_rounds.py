"""Loops of kernels: lavapipe ends those of an invocation after 65,535 rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import compiled_on

from assay.errors import RunFailed
from assay.ir.dims import symbol
from assay.ir.dtypes import f32
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.program import Program
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice

pytestmark = pytest.mark.usefixtures("device")
TARGET = VulkanTarget("exact", DEFAULT)
RNG = np.random.default_rng(5)


def on_the_device(graph: Graph) -> Program:
    program = compiled_on(TARGET, graph)
    assert {each.target.name for each in program.plan.segments} == {"vulkan"}
    return program


@pytest.mark.parametrize("length", [4095, 4096, 9000])
def test_long_lines_are_sorted(length: int) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (2, length)))
    content = RNG.permutation(2 * length).reshape(2, length).astype(np.float32)
    values, places = on_the_device(b.finish("sort", [x], b.emit("sort", x, axis=1, descending=False))).run([content])
    np.testing.assert_array_equal(values, np.sort(content))
    np.testing.assert_array_equal(places, np.argsort(content))


def test_large_windows_are_seen_whole() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (1, 2, 110, 110)))
    windows: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": False}
    found = b.average_pool(x, kernel=(80, 80), include_pad=False, **windows)
    content = RNG.normal(size=(1, 2, 110, 110)).astype(np.float32)
    views = np.lib.stride_tricks.sliding_window_view(content.astype(np.float64), (80, 80), (2, 3))
    result = on_the_device(b.finish("pool", [x], [found])).run([content])[0]
    np.testing.assert_allclose(result, views.mean((-1, -2)), rtol=0, atol=1e-6)


def test_what_a_loop_does_not_reach_goes_to_the_next_target() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (70_000,)))
    program = compiled_on(TARGET, b.finish("scan", [x], [b.cum_sum(x, axis=0)]))
    assert "rounds" in str(program.plan.placements)
    np.testing.assert_array_equal(program.run([np.ones(70_000, np.float32)])[0], np.arange(1, 70_001))


def test_a_run_whose_loops_are_too_long_ends_with_an_error() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (symbol("n", 1),)))
    program = on_the_device(b.finish("scan", [x], [b.cum_sum(x, axis=0)]))
    np.testing.assert_array_equal(program.run([np.ones(50_000, np.float32)])[0], np.arange(1, 50_001))
    with pytest.raises(RunFailed, match="rounds"):
        program.run([np.ones(70_000, np.float32)])


@pytest.mark.parametrize("restricted", ["rounds=100"], indirect=True)
def test_the_last_axis_is_shared_by_lanes(restricted: VulkanDevice) -> None:
    b = Builder()
    short, long = (b.input(TensorType(f32, (3, size))) for size in (150, 6000))
    graph = b.finish("softmax", [short, long], [b.softmax(each, axis=-1) for each in (short, long)])
    taken, refused = map(VulkanTarget("exact", DEFAULT).support, graph.nodes)
    assert taken.ok
    assert "100 rounds" in refused.reason
