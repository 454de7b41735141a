"""How fast the Vulkan target is on the device at hand, beside the native target and the oracle.

Prints the first run of a block of a transformer, for which drivers may have kept compiled code: with
MESA_SHADER_CACHE_DISABLE=true, Mesa's start anew. Then each workload runs in turns on all targets, after its results
were compared: medians and the least disturbed rounds, and the seconds of all cores that such a round took, which a busy
machine changes least. Last, what the host spends on handing in a run, and on recording a dispatch: for memory that lies
elsewhere, and of a size that it meets for the first time. At last the same ONNX models run beside other engines on
Vulkan, each in a process of its own, its results compared with PyTorch's; a ratio above 1 says that Assay is faster.
Where there is no device, or no such engine, it says why.

    python bench/vulkan.py [--case CASE ...] [--rounds N] [--python PATH]

`PATH` is an interpreter that has the other engines. They come by
`pip install iree-base-compiler iree-base-runtime ncnn tinygrad dawn-python wgpu onnx` and `pip install --no-deps pnnx`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from peers import shaders
from peers.contests import OURS, Contest, Entry, options_of, run_contests

from assay.ir.dims import symbol
from assay.ir.dtypes import f32
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.pipeline import compiled, optimized
from assay.runtime.program import Program
from assay.runtime.settings import Settings
from assay.runtime.targets import make_target
from assay.targets.reference import ReferenceTarget
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import open_device

ROUNDS = 7
TARGETS = ("vulkan", "cpu", "reference")
CONTESTS = {"engines": Contest(shaders.materials, shaders.cases)}
ENTRIES = (
    Entry("engines", OURS, "shaders.py:assay"),
    Entry("engines", "IREE", "shaders.py:iree", "iree.compiler"),
    Entry("engines", "ncnn", "shaders.py:ncnn", "ncnn"),
    Entry("engines", "tinygrad", "shaders.py:tinygrad", "tinygrad"),
    Entry("engines", "wgpu", "shaders.py:wgpu", "wgpu"),
)


class Workload(NamedTuple):
    """A graph with its arguments; `operations` are those of its products, 0 if they are not what matters."""

    name: str
    graph: Graph
    arguments: list[Any]
    operations: float


def weight(b: Builder, rng: np.random.Generator, *shape: int) -> Value:
    """Weights of a size that keeps results of size 1."""
    return b.constant((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))


def finished(b: Builder, name: str, x: Value, results: Sequence[Value], operations: float) -> Workload:
    """The workload of a graph with one input."""
    shape = [size for size in b.dims(x) if isinstance(size, int)]
    arguments = [np.random.default_rng(0).standard_normal(shape, np.float32)]
    return Workload(name, b.finish(name, [x], results), arguments, operations)


def product(size: int) -> Workload:
    """A product of square matrices."""
    b, rng = Builder(), np.random.default_rng(1)
    x = b.input(TensorType(f32, (size, size)))
    return finished(b, f"matmul {size}", x, [b.matmul(x, weight(b, rng, size, size))], 2.0 * size**3)


def perceptron() -> Workload:
    """Three layers."""
    b, rng = Builder(), np.random.default_rng(1)
    x = y = b.input(TensorType(f32, (32, 256)))
    sizes = (256, 1024, 1024, 256)
    for old, new in pairwise(sizes):
        y = b.relu(b.add(b.matmul(y, weight(b, rng, old, new)), weight(b, rng, new)))
    operations = 2.0 * 32 * sum(old * new for old, new in pairwise(sizes))
    return finished(b, "MLP 32×256-1024-1024-256", x, [y], operations)


def block(length: int = 128, size: int = 256, heads: int = 8) -> Workload:
    """A block of a transformer."""
    b, rng = Builder(), np.random.default_rng(1)
    x = b.input(TensorType(f32, (1, length, size)))
    ones, zeros = (b.constant(np.full(size, number, np.float32)) for number in (1, 0))
    normal = b.layer_norm(x, ones, zeros, axis=-1, epsilon=1e-5)

    def split(y: Value) -> Value:
        return b.transpose(b.reshape(y, [1, length, heads, size // heads]), perm=(0, 2, 1, 3))

    q, k, v = (split(b.matmul(normal, weight(b, rng, size, size))) for _ in range(3))
    mixed = b.transpose(b.sdpa(q, k, v, causal=True), perm=(0, 2, 1, 3))
    y = b.add(x, b.matmul(b.reshape(mixed, [1, length, size]), weight(b, rng, size, size)))
    inner = b.gelu(b.matmul(b.layer_norm(y, ones, zeros, axis=-1, epsilon=1e-5), weight(b, rng, size, 4 * size)))
    z = b.add(y, b.matmul(inner, weight(b, rng, 4 * size, size)))
    return finished(b, f"block of a transformer, {length}×{size}", x, [z], 0.0)


def convolutions() -> Workload:
    """A residual block of ResNet-18."""
    b, rng = Builder(), np.random.default_rng(1)
    x = y = b.input(TensorType(f32, (1, 64, 56, 56)))
    for _ in range(2):
        w = b.constant((rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32))
        y = b.conv(y, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)
        y = b.relu(y)
    operations = 2 * 2.0 * 64 * 64 * 9 * 56 * 56
    return finished(b, "two convolutions 64×56×56", x, [b.add(x, y)], operations)


def program_on(name: str, workload: Workload) -> Program:
    """The workload on a target."""
    settings = Settings((make_target(name, "exact", DEFAULT), ReferenceTarget()))
    return compiled(optimized(workload.graph, "exact"), settings).program


def programs(workload: Workload) -> dict[str, Program]:
    """The workload on every target, its results compared with the oracle's."""
    made = {name: program_on(name, workload) for name in TARGETS}
    right = made["reference"].run(workload.arguments)[0]
    for name in TARGETS:
        np.testing.assert_allclose(made[name].run(workload.arguments)[0], right, rtol=1e-3, atol=1e-3, err_msg=name)
    return made


class Taken(NamedTuple):
    """What a call took: time, and the time of all cores together."""

    seconds: float
    work: float


def taken(run: Callable[[], Any]) -> Taken:
    """What a call takes."""
    started, worked = time.perf_counter(), time.process_time()
    run()
    return Taken(time.perf_counter() - started, time.process_time() - worked)


def compare(workload: Workload) -> None:
    """Measure a workload on all targets by turns, and print."""
    made = programs(workload)
    rounds: dict[str, list[Taken]] = {name: [] for name in made}
    for _ in range(ROUNDS):
        for name, program in made.items():
            rounds[name].append(taken(lambda program=program: program.run(workload.arguments)))
    print(workload.name)
    for name, found in rounds.items():
        median, least = statistics.median(each.seconds for each in found), min(found)
        work = min(each.work for each in found)
        rate = f", {workload.operations / work / 1e9:.1f} GFLOP/s of a core" if workload.operations else ""
        times = f"median {median * 1e3:.2f} ms, least {least.seconds * 1e3:.2f} ms, of cores {work * 1e3:.2f} ms"
        print(f"  {name:9} {times}{rate}")


def host_costs(count: int = 100) -> None:
    """What the host does for a run: handing it in, recording it for memory elsewhere, and doing so for a new size."""
    b = Builder()
    x = y = b.input(TensorType(f32, (symbol("n", 1), 4)))
    for _ in range(count):
        y = b.softmax(y, axis=-1)
    executable = VulkanTarget("exact", DEFAULT).compile(b.finish("chain", [x], [y]), {})
    buffers = [open_device().upload(np.ones((rows, 4), np.float32)) for rows in range(1, 3 + ROUNDS) for _ in range(2)]

    def run(at: int) -> float:
        started = time.thread_time()
        _, work = executable.submit([buffers[at]])
        spent = time.thread_time() - started
        work.wait()
        return spent

    run(0)
    sizes = range(2, len(buffers), 2)
    new, elsewhere, again = zip(*((run(at), run(at + 1), min(run(at) for _ in range(5))) for at in sizes), strict=True)
    known, fresh = ((min(each) - min(again)) / count * 1e6 for each in (elsewhere, new))
    handed = f"{min(again) * 1e6:.0f} µs to hand a run in"
    print(f"host: {handed}; to record a dispatch {known:.1f} µs, of a new size {fresh:.1f} µs")


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, CONTESTS)
    probe = make_target("vulkan", "exact", DEFAULT).probe()
    if not probe.present:
        print(f"vulkan: {probe.reason}")
        return
    print(f"vulkan: {probe.details['device']}, {probe.details['driver']}")
    cold = block()
    first = taken(lambda: program_on("vulkan", cold).run(cold.arguments))
    print(f"first run of a block of a transformer: {first.seconds:.2f} s, of cores {first.work:.2f} s")
    for workload in (product(512), product(1024), perceptron(), block(), convolutions()):
        compare(workload)
    host_costs()
    run_contests(options, CONTESTS, ENTRIES)


if __name__ == "__main__":
    main()
