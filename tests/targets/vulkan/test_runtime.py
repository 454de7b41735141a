"""The runtime of the Vulkan target: devices and their absence, memory, transfers, recordings, kept pipelines."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from programs import placed_on

from assay.errors import BadArgument, RunFailed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import f32, i64
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.program import Program
from assay.store import Store
from assay.targets.budget import Budget
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.api import STRUCTS
from assay.targets.vulkan.device import VulkanDevice, open_device
from assay.targets.vulkan.instance import Absent, choose, open_instance
from assay.targets.vulkan.memory import ALIGNMENT, BLOCK
from assay.targets.vulkan.pipelines import Pipelines
from assay.targets.vulkan.recording import Recording

TARGET = VulkanTarget("exact", DEFAULT)
ADDRESSING = ("addresses", "bindings", "staged")


def chain(count: int = 4, size: Any = 1000) -> Program:
    """A product, a sum and a root of a sum, some times over."""
    b = Builder()
    x = b.input(TensorType(f32, (size, 8)))
    y = x
    for _ in range(count):
        (y,) = b.emit("matmul", y, b.constant(np.full((8, 8), 0.125, np.float32)))
        (y,) = b.emit("add", y, b.constant(np.ones(8, np.float32)))
        (y,) = b.emit("sqrt", y)
    return placed_on(TARGET, b.finish("chain", [x], [y]))


def expected(x: Any, count: int = 4) -> Any:
    y = x.astype(np.float64)
    for _ in range(count):
        y = np.sqrt(y @ np.full((8, 8), 0.125) + 1)
    return y


# --- what is not here


def probed(environment: dict[str, str]) -> str:
    """What the probe says in a process of its own."""
    code = (
        "from assay.targets.vulkan import VulkanTarget; from assay.limits import DEFAULT; "
        "p = VulkanTarget('exact', DEFAULT).probe(); print(p.present, p.reason, dict(p.details))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return told.stdout


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ASSAY_VULKAN_LIBRARY": "/nowhere/libvulkan.so"}, "there is no Vulkan loader (/nowhere/libvulkan.so)"),
        ({"VK_ICD_FILENAMES": "/nowhere/icd.json", "VK_DRIVER_FILES": "/nowhere/icd.json"}, "make vulkan"),
        ({"ASSAY_VULKAN_DEVICE": "a device that nobody has"}, "there is no Vulkan device"),
        ({"ASSAY_VULKAN_RESTRICT": "no-f46"}, "did you mean 'no-f64'"),
    ],
)
def test_the_probe_says_what_is_missing(device: VulkanDevice, environment: dict[str, str], words: str) -> None:
    told = probed(environment)
    assert told.startswith("False")
    assert words in told


def test_a_device_is_chosen_by_number_or_by_a_part_of_its_name(device: VulkanDevice) -> None:
    devices = open_instance().devices
    name = devices[0].profile.name
    assert choose(devices, "0").profile.name == choose(devices, name[:6].upper()).profile.name == name
    with pytest.raises(Absent, match="no Vulkan device"):
        choose(devices, "17")


def test_the_probe_lists_the_device(device: VulkanDevice) -> None:
    probe = TARGET.probe()
    assert probe.present
    assert probe.details["device"] == device.profile.name


def test_words_that_restrict_nothing_are_an_error(device: VulkanDevice) -> None:
    for words in ("no-f46", "groups", "groups=many", "no-f64=3"):
        with pytest.raises(BadArgument, match="does not restrict"):
            device.profile.restricted(words)
    assert not device.profile.restricted("no-f64, groups=4").f64


# --- memory and transfers


@pytest.mark.parametrize("restricted", ["", "staged"], indirect=True)
def test_arrays_of_every_dtype_come_back_as_they_were(restricted: VulkanDevice) -> None:
    rng = np.random.default_rng(0)
    for dtype in dtypes.ALL:
        if dtype is dtypes.string:
            continue
        for shape in ((), (3,), (2, 0), (5, 7)):
            count = int(np.prod(shape)) * dtype.numpy.itemsize
            array = np.frombuffer(rng.bytes(count), np.uint8)[:count].view(dtype.numpy).reshape(shape)
            buffer = restricted.upload(array)
            found = restricted.download(buffer)
            assert found.dtype == array.dtype
            assert found.shape == array.shape
            assert found.tobytes() == array.tobytes()
            assert buffer.nbytes == array.nbytes


def test_an_array_may_change_as_soon_as_it_was_moved(device: VulkanDevice) -> None:
    array = np.arange(10, dtype=np.float32)
    buffer = device.upload(array.T)
    array[:] = 0
    assert device.download(buffer).tolist() == list(range(10))


def test_regions_do_not_overlap_and_come_back(device: VulkanDevice) -> None:
    rng = np.random.default_rng(1)
    memory, held = device.memory, [device.memory.span(1)]
    for _ in range(400):
        if held and rng.random() < 0.45:
            held.pop(int(rng.integers(len(held))))
        else:
            held.append(memory.span(int(rng.integers(1, 200_000))))
        taken = sorted((span.buffer, span.offset, span.offset + span.size) for span in held)
        assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(taken))
        assert all(span.offset % ALIGNMENT == 0 for span in held)
    before = memory.held
    first = memory.span(1000).offset
    assert memory.span(1000).offset == first  # what is free is taken again at the same place
    held.clear()
    large = memory.span(BLOCK + 5)
    assert large.size >= BLOCK + 5
    del large
    gc.collect()
    assert memory.held >= before


def test_spans_that_the_garbage_collector_lets_go_are_not_given_twice(device: VulkanDevice) -> None:
    """The collector may run at any allocation of Python's, also inside of the memory's own book-keeping."""
    rng = np.random.default_rng(3)
    held: list[list[Any]] = []
    drained: list[Any] = []
    before = gc.get_threshold()
    try:
        for round_ in range(6000):
            gc.set_threshold(int(rng.integers(1, 50)))
            drained += [(round_, at, at) for at in range(100)]  # Python's spare tuples: taking one starts no collection
            for _ in range(int(rng.integers(4))):
                each: list[Any] = [device.memory.span(int(rng.integers(1, 2000)))]
                if rng.random() < 0.7:
                    each.append(each)  # only the collector sees that it is gone
                held.append(each)
            while len(held) > 60 or (held and rng.random() < 0.5):
                held.pop(int(rng.integers(len(held))))
            taken = sorted((each[0].buffer, each[0].offset, each[0].offset + each[0].size) for each in held)
            assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(taken))
    finally:
        gc.set_threshold(*before)


# --- runs


@pytest.mark.parametrize("restricted", ADDRESSING, indirect=True)
def test_results_are_right_however_memory_is_reached(restricted: VulkanDevice) -> None:
    x = np.random.default_rng(2).random((1000, 8), np.float32)
    np.testing.assert_allclose(chain().run([x])[0], expected(x), rtol=1e-5)


@pytest.mark.parametrize(
    "restricted",
    ["push=16", "push=16,addresses", "groups=2", "range=512", "invocations=16", "subgroup=32"],
    indirect=True,
)
def test_results_are_right_on_poorer_devices(restricted: VulkanDevice) -> None:
    x = np.random.default_rng(2).random((1000, 8), np.float32)
    np.testing.assert_allclose(chain().run([x])[0], expected(x), rtol=1e-5)


def test_what_was_recorded_is_handed_in_again(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = chain(), []
    record = Recording.__init__

    def counted(self: Recording, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        record(self, *args, **kwargs)

    monkeypatch.setattr(Recording, "__init__", counted)
    x = np.random.default_rng(2).random((1000, 8), np.float32)
    for at in range(20):
        np.testing.assert_allclose(program.run([x + at])[0], expected(x + at), rtol=1e-5)
    assert len(made) <= 2


@pytest.mark.parametrize("budget", [None, Budget(seconds=60)])
def test_a_run_is_one_command_buffer_unless_it_may_be_stopped(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, budget: Budget | None
) -> None:
    """Dispatches that follow each other with the same kernel bind it once a command buffer."""
    bound: list[Any] = []
    bind = device.raw.CmdBindPipeline
    monkeypatch.setattr(device.raw, "CmdBindPipeline", lambda *told: (bound.append(told), bind(*told)))
    b = Builder()
    x = y = b.input(TensorType(f32, (4, 4)))
    for _ in range(40):
        y = b.softmax(y, axis=-1)
    program = placed_on(TARGET, b.finish("chain", [x], [y]))
    program.run([np.ones((4, 4), np.float32)], None, None if budget is None else budget.begin())
    executable: Any = program._compiled[0].executable
    (fit,) = executable._fits.values()
    (kept,) = fit.recordings.values()
    assert len(bound) == len(kept[0].commands) == (1 if budget is None else 3)


def test_one_program_serves_all_sizes(device: VulkanDevice) -> None:
    program = chain(size=symbol("n"))
    for size in (1, 7, 64, 1000, 3, 0):
        x = np.random.default_rng(size).random((size, 8), np.float32)
        np.testing.assert_allclose(program.run([x])[0], expected(x), rtol=1e-5)


def test_barriers_stand_only_where_data_flows(device: VulkanDevice) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (64, 64)))
    sums = [b.emit("reduce_sum", x, axes=(axis,), keepdims=True)[0] for axis in (0, 1)]
    (both,) = b.emit("add", *sums)
    program = placed_on(TARGET, b.finish("sums", [x], [both]))
    array = np.random.default_rng(3).random((64, 64), np.float32)
    np.testing.assert_allclose(program.run([array])[0], array.sum(0, keepdims=True) + array.sum(1, keepdims=True), 1e-5)
    executable: Any = program._compiled[0].executable
    (fit,) = executable._fits.values()
    (kept,) = fit.recordings.values()
    assert kept[0].barriers == 1  # the sums do not wait for each other


def test_a_position_outside_is_an_error_and_the_next_run_is_none(device: VulkanDevice) -> None:
    b = Builder()
    x, where = b.input(TensorType(f32, (5,))), b.input(TensorType(i64, (2,)))
    program = placed_on(TARGET, b.finish("pick", [x, where], b.emit("gather", x, where, axis=0)))
    array = np.arange(5, dtype=np.float32)
    with pytest.raises(RunFailed, match="outside"):
        program.run([array, np.array([1, 5])])
    assert program.run([array, np.array([1, -1])])[0].tolist() == [1, 4]


def test_times_of_nodes_are_told(device: VulkanDevice) -> None:
    seen: list[Any] = []
    x = np.ones((1000, 8), np.float32)
    chain(2).run([x], seen.append)
    assert [event.node.op for event in seen] == ["matmul", "add", "sqrt"] * 2
    assert all(event.seconds > 0 for event in seen)
    np.testing.assert_allclose(seen[-1].results[0], expected(x, 2), rtol=1e-5)


# --- pipelines


def test_what_the_driver_compiled_is_kept_and_damage_is_survived(device: VulkanDevice, tmp_path: Any) -> None:
    store = Store(tmp_path)
    tmp_path.chmod(0o700)
    first = Pipelines(device, store)
    template: Any = chain(1)._compiled[0].executable._steps[0].kernel  # type: ignore[attr-defined]
    first.get(template, False)
    first.save()
    kept = [each for each in tmp_path.iterdir() if each.suffix == ".entry"]
    assert len(kept) == 1
    again = Pipelines(device, store)
    assert again.get(template, False).handle
    store.put(again._key, b"no cache of pipelines")
    assert Pipelines(device, store).get(template, False).handle


def test_kernels_that_rely_on_the_size_of_subgroups_demand_it(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not device.profile.subgroup_sized:
        pytest.skip("the size of subgroups cannot be demanded on this device")
    seen: list[int] = []
    demand = STRUCTS["VkPipelineShaderStageRequiredSubgroupSizeCreateInfo"]
    create = device.api.CreateComputePipelines

    def noted(*arguments: Any) -> int:
        chained = arguments[3]._obj.stage.pNext
        if chained:
            seen.append(demand.from_address(chained).requiredSubgroupSize)
        return create(*arguments)

    product, elementwise = (step.kernel for step in unfused_steps())
    monkeypatch.setattr(device.api, "CreateComputePipelines", noted)
    Pipelines(device, None).get(product, False)
    assert seen == [device.profile.subgroup]
    Pipelines(device, None).get(elementwise, False)
    assert len(seen) == 1


def unfused_steps() -> Any:
    """A product, then a root of it in a kernel of its own."""
    b = Builder()
    x = b.input(TensorType(f32, (9, 8)))
    (y,) = b.emit("matmul", x, b.constant(np.ones((8, 8), np.float32)))
    executable = VulkanTarget("exact", DEFAULT).compile(b.finish("g", [x], [y, *b.emit("sqrt", x)]), {})
    return executable._steps  # type: ignore[attr-defined]


def test_a_child_process_opens_the_device_anew(device: VulkanDevice) -> None:
    x = np.ones((1000, 8), np.float32)
    chain(1).run([x])
    child = os.fork()
    if child == 0:
        try:
            right = np.allclose(chain(1).run([x])[0], expected(x, 1))
            os._exit(0 if right and open_device() is not device else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
