"""Models on a device with Vulkan: the same ONNX file for everybody, and PyTorch's results to be judged by."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

OPSET = 17
REPEATS = 3
"""How often a model runs for one figure: the least counts."""
NAMES = ("matmul 512", "matmul 1024", "MLP", "transformer block", "ResNet-18", "MobileNetV2")

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Array]


def cases() -> dict[str, Any]:
    """Every model by its name."""
    return {name: name.replace(" ", "_").replace("-", "_") for name in NAMES}


def materials(folder: Path) -> dict[str, Any]:
    """The ONNX files, each with an input and what PyTorch gives for it."""
    import torch
    from torch import nn
    from torchvision import models

    torch.default_generator.manual_seed(0)
    image = torch.randn(1, 3, 224, 224)
    layers = (nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256))
    made: dict[str, tuple[nn.Module, torch.Tensor]] = {
        **{f"matmul {size}": (nn.Linear(size, size, bias=False), torch.randn(size, size)) for size in (512, 1024)},
        "MLP": (nn.Sequential(*layers), torch.randn(32, 256)),
        "transformer block": (_block(256, 8), torch.randn(1, 128, 256)),
        "ResNet-18": (models.resnet18(), image),
        "MobileNetV2": (models.mobilenet_v2(), image),
    }
    for name, request in cases().items():
        module, x = made[name]
        path = folder / f"{request}.onnx"
        with torch.no_grad():
            np.savez(path.with_suffix(".npz"), x=x.numpy(), y=module.eval()(x).numpy())
            torch.onnx.export(module, (x,), path, opset_version=OPSET, dynamo=False, input_names=["x"])
    return {"folder": str(folder)}


def _block(width: int, heads: int) -> Any:
    """A block of a transformer, in the ops that everybody knows."""
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Tensor) -> Tensor:
            given = self.first(x)
            split = (*x.shape[:2], heads, width // heads)
            q, k, v = (layer(given).reshape(split).transpose(1, 2) for layer in (self.query, self.key, self.value))
            scores = q @ k.transpose(2, 3) * (width // heads) ** -0.5
            x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
            return x + self.inner(self.second(x))

    return Block()


def _handler(open_model: Callable[[Path, Array], Run], given: Mapping[str, Any]) -> Any:
    """The handler of somebody who opens ONNX files: what a run takes, its time and that of all cores, and how right it
    is."""
    models: dict[str, Run] = {}

    def handle(request: Any, tell: Any) -> dict[str, Any]:
        path = Path(given["folder"]) / f"{request}.onnx"
        pair = np.load(path.with_suffix(".npz"))
        if request not in models:
            models[request] = open_model(path, pair["x"])
        taken: list[tuple[float, float]] = []
        for _ in range(REPEATS):
            started, worked = time.perf_counter(), time.process_time()
            found = models[request](pair["x"])
            taken.append((time.perf_counter() - started, time.process_time() - worked))
        error = float(np.abs(np.asarray(found).reshape(pair["y"].shape) - pair["y"]).max() / np.abs(pair["y"]).max())
        seconds, cores = (min(each) for each in zip(*taken, strict=True))
        return {"figures": {"time": seconds, "all cores": cores}, "text": _told(error)}

    return handle


def _told(error: float) -> str:
    return "right" if error < 1e-4 else f"off by {error:.0e} of the largest result"


# --- everybody


def _open_assay(path: Path, x: Array) -> Run:
    from assay import SessionOptions, load

    session = load(path, SessionOptions(target="vulkan"))
    return lambda x: next(iter(session.run({"x": x}).values()))


def _open_iree(path: Path, x: Array) -> Run:
    from iree import compiler, runtime  # pyright: ignore

    text = path.with_suffix(".mlir")
    command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", path, "-o", text]
    subprocess.run(command, check=True, capture_output=True)
    made = path.with_suffix(".vmfb")
    compiler.compile_file(str(text), output_file=str(made), input_type="onnx", target_backends=["vulkan-spirv"])
    context: Any = runtime.SystemContext(config=runtime.Config("vulkan"))
    module: Any = runtime.VmModule.mmap(context.instance, str(made))
    context.add_vm_module(module)
    name = next(each for each in module.function_names if not each.startswith("__") and "$" not in each)
    function = context.modules[module.name][name]
    return lambda x: _fetched(runtime, context.config.device, function(x))


def _fetched(runtime: Any, device: Any, result: Any) -> Array:
    """A result of IREE's in host memory. Its own way there asks the driver for memory that NumPy aligned, and fails
    where that must begin at a page."""
    view, kinds, usages = result._buffer_view, runtime.MemoryType, runtime.BufferUsage
    source = view.get_buffer()
    staged = device.allocator.allocate_buffer(
        memory_type=int(kinds.HOST_LOCAL | kinds.DEVICE_VISIBLE),
        allowed_usage=int(usages.TRANSFER_TARGET | usages.MAPPING_SCOPED),
        allocation_size=source.byte_length(),
    )
    order = device.create_semaphore(0)
    before, after = (runtime.HalFence.create_at(order, step) for step in (0, 1))
    device.queue_copy(source, staged, wait_semaphores=before, signal_semaphores=after)
    after.wait()
    return staged.map().asarray(view.shape, np.dtype(np.float32)).copy()


def _open_ncnn(path: Path, x: Array) -> Run:
    import ncnn  # pyright: ignore

    spec = importlib.util.find_spec("pnnx")  # without importing it: that wants PyTorch
    if spec is None or spec.origin is None:
        raise RuntimeError("pnnx is not installed")
    shape = ",".join(map(str, x.shape))
    subprocess.run(
        [Path(spec.origin).parent / "pnnx", path, f"inputshape=[{shape}]f32", "fp16=0"],
        check=True,
        capture_output=True,
        cwd=path.parent,
    )
    net: Any = ncnn.Net()
    net.opt.use_vulkan_compute = True
    for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, option, False)
    if net.load_param(str(path.with_suffix(".ncnn.param"))) or net.load_model(str(path.with_suffix(".ncnn.bin"))):
        raise RuntimeError("ncnn does not load what pnnx made")

    def run(x: Array) -> Array:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(x if x.ndim == 2 else x[0]))
        status, found = extractor.extract("out0")
        if status:
            raise RuntimeError(f"ncnn ends with {status}")
        return np.array(found)

    return run


def _open_tinygrad(path: Path, x: Array) -> Run:
    os.environ["DEV"] = "WEBGPU"
    os.environ.setdefault("WEBGPU_PATH", _dawn())
    from tinygrad import Tensor, TinyJit  # pyright: ignore
    from tinygrad.nn.onnx import OnnxRunner  # pyright: ignore

    runner: Any = OnnxRunner(str(path))
    step: Any = TinyJit(lambda x: next(iter(runner({"x": x}).values())).realize())
    for _ in range(2):  # the second run is recorded
        step(Tensor(x).realize())
    return lambda x: step(Tensor(x).realize()).numpy()


def _dawn() -> str:
    """The library that dawn-python brings."""
    import pydawn  # pyright: ignore

    return str(Path(str(pydawn.__file__)).parent / "lib" / f"libwebgpu_dawn_{platform.machine()}.so")


_TILED = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(16, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.y * 4u; let column = id.x * 4u;
    var sums: array<vec4<f32>, 4>;
    for (var k = 0u; k < SIZEu; k++) {
        let at = k * SIZEu + column;
        let right = vec4<f32>(b[at], b[at + 1u], b[at + 2u], b[at + 3u]);
        for (var i = 0u; i < 4u; i++) { sums[i] += a[(row + i) * SIZEu + k] * right; }
    }
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) { c[(row + i) * SIZEu + column + j] = sums[i][j]; }
    }
}
"""


def _open_wgpu(path: Path, x: Array) -> Run:
    import onnx
    import wgpu  # pyright: ignore

    weights = [onnx.numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer]
    if len(weights) != 1:
        raise NotImplementedError("wgpu runs shaders, and here is one for a product alone")
    right = np.ascontiguousarray(weights[0])
    device: Any = wgpu.gpu.request_adapter_sync(power_preference="high-performance").request_device_sync()
    usage, size = wgpu.BufferUsage, right.nbytes
    left = device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_DST)
    held = device.create_buffer_with_data(data=right, usage=usage.STORAGE)
    result = device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC)
    module = device.create_shader_module(code=_TILED.replace("SIZE", str(len(right))))
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [{"binding": at, "resource": {"buffer": each}} for at, each in enumerate((left, held, result))]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)

    def run(x: Array) -> Array:
        device.queue.write_buffer(left, 0, np.ascontiguousarray(x))
        encoder = device.create_command_encoder()
        step = encoder.begin_compute_pass()
        step.set_pipeline(pipeline)
        step.set_bind_group(0, group)
        step.dispatch_workgroups(len(right) // 64, len(right) // 32)
        step.end()
        device.queue.submit([encoder.finish()])
        return np.frombuffer(device.queue.read_buffer(result), np.float32).reshape(right.shape)

    return run


def assay(given: dict[str, Any]) -> Any:
    """Assay's session."""
    return _handler(_open_assay, given)


def iree(given: dict[str, Any]) -> Any:
    """IREE, compiled for SPIR-V."""
    return _handler(_open_iree, given)


def ncnn(given: dict[str, Any]) -> Any:
    """ncnn, after pnnx has read the file."""
    return _handler(_open_ncnn, given)


def tinygrad(given: dict[str, Any]) -> Any:
    """tinygrad on WebGPU."""
    return _handler(_open_tinygrad, given)


def wgpu(given: dict[str, Any]) -> Any:
    """wgpu with a shader of our own."""
    return _handler(_open_wgpu, given)
