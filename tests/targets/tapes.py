"""Graphs whose plans are kept as text, and that text: the same on every machine.

`python tests/targets/tapes.py` writes the files of `golden` anew, after a change of plans that is meant.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx.parser

from assay.frontends.onnx.importer import import_model
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Value, fresh_ids
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.lowering import adapt, lower
from assay.ops.registry import OpDef, Sample
from assay.passes.hoist import hoist
from assay.targets.cpu import CpuTarget, quads
from assay.targets.cpu.registry import KERNELS
from assay.targets.cpu.tape import encode
from assay.targets.shared.planner import Planner
from assay.targets.shared.tape import Step
from assay.targets.shared.views import Storage, View

FOLDER = Path(__file__).parent / "golden"
TARGET = CpuTarget("exact", DEFAULT)


# --- a plan as text


def told(graph: Graph, static: int = 0) -> str:
    """How a graph is planned, what depends on its last `static` inputs alone by itself."""
    graph = prepared(graph, static)
    parts = hoist(graph, graph.inputs[len(graph.inputs) - static :])
    refused = [node.op for part in parts for node in part.nodes if not TARGET.support(node).ok]
    assert not refused, f"the target refuses {refused}"
    return "\n".join(f"{name}\n{tape(part)}" for name, part in zip(parts._fields, parts, strict=True) if part.nodes)


def prepared(graph: Graph, static: int) -> Graph:
    """The graph in ops that the target takes, where there are such, after the target's own passes."""
    graph = adapt(graph, lambda node: TARGET.support(node).ok, DEFAULT)
    numbers = fresh_ids(graph)
    for each in TARGET.passes():
        graph = graph if each.apply is None else each.apply(graph, graph.inputs[len(graph.inputs) - static :], numbers)
    return graph


def tape(graph: Graph) -> str:
    """The tape of a graph that the target takes: sizes, buffers with their liveness, and steps."""
    plan = Planner(graph, constants(graph), DEFAULT, KERNELS)
    kernels = (step.kernel for step in plan.tape.order if step.kernel is not None)
    addresses = {kernel: number_of(kernel.source) for kernel in kernels}
    encoded = encode(plan.tape, plan.errors, addresses, DEFAULT.tensor_bytes)
    size_ops, _, buffers, operands, *_ = encoded.tables
    used = (view.storage for step in encoded.order for view in step.operands)
    names = {buffer: f"b{index}" for index, buffer in enumerate(plan.tape.given, start=1)}
    names.update((buffer, f"b{index}") for buffer, index in zip(used, operands["buffer"], strict=True))
    tables = digest(*(table.tobytes() for table in encoded.tables))
    arena = [f"b{index} {first}..{last}" for index, (_, first, last) in enumerate(buffers.tolist()) if first >= 0]
    return "\n".join(
        [
            f"  symbols {list(plan.tape.sizes.symbols)}, {len(size_ops)} sizes, tables {tables}",
            f"  {len(buffers)} buffers, of these live from step to step {', '.join(arena)}",
            *(f"  {index}: {line(step, encoded.order, names)}" for index, step in enumerate(encoded.order)),
            *(f"  output {place(view, names)}" for view in plan.outputs),
            "",
        ]
    )


def line(step: Step, order: tuple[Step, ...], names: dict[Storage, str]) -> str:
    """One step."""
    kernel = "-" if step.kernel is None else digest(step.kernel.source.encode())
    grid = f"{step.rows} × {step.cols} by {step.row_grain} × {step.col_grain}, work {step.work}, scratch {step.scratch}"
    leads = [f"{what} {order.index(to)}" for what, to in (("then", step.epilogue), ("to", step.target)) if to]
    views = ", ".join(place(view, names) for view in step.operands)
    numbers = f"({', '.join(map(str, step.numbers))}) {step.floats}"
    return " | ".join([step.control.name, kernel, views, numbers, grid, f"writes {step.writes}", *leads])


def place(view: View, names: dict[Storage, str]) -> str:
    """Where a view lies: its buffer and bytes, its dtype, sizes, strides and offset."""
    sizes, strides = (" ".join(map(str, dims)) for dims in (view.shape, view.strides))
    return f"{names[view.storage]}:{view.storage.bytes} {view.dtype} [{sizes}] by [{strides}] at {view.offset}"


def number_of(text: str) -> int:
    """A number that stands for where a kernel is."""
    return zlib.crc32(text.encode())


def constants(graph: Graph) -> dict[Value, Array]:
    """The constants of a graph and of the bodies in it."""
    found = dict(graph.constants)
    for node in graph.walk():
        for region in node.regions:
            found.update(region.constants)
    return found


# --- graphs


class Net:
    """A graph that is built; its weights are inputs behind the others."""

    def __init__(self) -> None:
        self.b = Builder()
        self.inputs: list[Value] = []
        self.weights: list[Value] = []

    def input(self, *shape: Any, dtype: DType = dtypes.f32) -> Value:
        """An input; names are symbols."""
        dims = tuple(symbol(size) if isinstance(size, str) else size for size in shape)
        self.inputs.append(self.b.input(TensorType(dtype, dims)))
        return self.inputs[-1]

    def weight(self, *shape: int, dtype: DType = dtypes.f32) -> Value:
        """A weight."""
        self.weights.append(self.b.input(TensorType(dtype, shape)))
        return self.weights[-1]

    def told(self, *outputs: Value) -> str:
        """The plan of it all."""
        return told(self.b.finish("net", [*self.inputs, *self.weights], outputs), len(self.weights))


def images() -> str:
    """Convolutions of all kinds, norms, pooling and a residual."""
    net = Net()
    b = net.b
    x = net.input("n", 3, 32, 32)

    def conv(value: Value, channels: int, each: int, size: int, stride: int = 1, groups: int = 1) -> Value:
        weight, around = net.weight(channels, each, size, size), (size // 2,) * 4
        made = b.conv(value, weight, None, strides=(stride, stride), pads=around, dilations=(1, 1), groups=groups)
        scale, bias, mean, variance = (net.weight(channels) for _ in range(4))
        return b.batch_norm(made, mean, variance, scale, bias, epsilon=1e-5)

    first = b.relu(conv(x, 16, 3, 3, 2))
    alone = b.clip(conv(first, 16, 1, 3, groups=16), 0.0, 6.0)
    joined = b.relu(b.add(conv(alone, 16, 16, 1), first))
    pooled = b.max_pool(joined, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1))
    flat = b.reduce_mean(pooled, axes=(2, 3))
    return net.told(b.softmax(b.add(b.matmul(flat, net.weight(16, 10)), net.weight(10)), axis=-1))


def transformer() -> str:
    """A block of a transformer over an open number of positions, its mask made of it."""
    net = Net()
    b = net.b
    x = net.input("n", "t", 64)

    def linear(value: Value, rows: int, columns: int) -> Value:
        return b.add(b.matmul(value, net.weight(rows, columns)), net.weight(columns))

    def heads(value: Value) -> Value:
        split = b.reshape(value, b.vector(b.size(value, 0), b.size(value, 1), 4, 16))
        return b.transpose(split, perm=(0, 2, 1, 3))

    normed = b.layer_norm(x, net.weight(64), net.weight(64), axis=-1, epsilon=1e-5)
    q, k, v = (heads(linear(normed, 64, 64)) for _ in range(3))
    mixed = b.transpose(b.sdpa(q, k, v, None, causal=True), perm=(0, 2, 1, 3))
    merged = b.reshape(mixed, b.vector(b.size(x, 0), b.size(x, 1), 64))
    after = b.add(x, linear(merged, 64, 64))
    inner = b.gelu(linear(b.rms_norm(after, net.weight(64), axis=-1, epsilon=1e-6), 64, 256))
    return net.told(b.add(after, linear(inner, 256, 64)))


def sizes() -> str:
    """Views and copies over sizes that are computed of symbols, some of which only a run can check."""
    net = Net()
    b = net.b
    x, y = net.input("n", 6, "m"), net.input("n", 6, "k")
    joined = b.concat(x, b.flip(y, axes=(2,)), axis=2)
    cut = b.slice(joined, [1, 2], [5, 1 << 40], [1, 3], axes=(1, 2))
    halves = b.reshape(b.transpose(x, perm=(1, 0, 2)), [2, 3, -1])
    sums = b.reduce_sum(b.mul(halves, 0.5), axes=(0,))
    top, places = b.emit("topk", joined, 3, axis=2)
    read = b.gather_elements(joined, places, axis=2)
    return net.told(b.exp(cut), sums, b.sub(top, read), b.expand(b.reduce_max(x, axes=(1,), keepdims=True), [1, 4, 1]))


CONTROL = """(float[3, m] x, int64 n) => (float[3, m] y, float[3, m] z) {
  go = Constant <value = bool {1}> () zero = Constant <value = float {0.0}> ()
  y = Loop (n, go, x) <body = b (int64 i, bool c, float[3, m] s) => (bool d, float[3, m] t) {
    d = Identity (c) u = Mul (s, s) v = Softmax <axis = 1> (u) t = Sub (v, x) }>
  sum = ReduceSum <keepdims = 0> (y) up = Greater (sum, zero)
  z = If (up) <then_branch = t () => (float[3, m] a) { a = Exp (y) },
               else_branch = e () => (float[3, m] a) { w = Neg (x) a = Softmax <axis = 0> (w) }> }"""


def control() -> str:
    """A loop and a branch."""
    text = f'<ir_version: 9, opset_import: ["" : 18]> g {CONTROL}'
    return told(lower(import_model(onnx.parser.parse_model(text))))


def recurrent() -> str:
    """A recurrent layer, which is a loop of products."""
    net = Net()
    x, w, r, bias = net.input("t", 2, 8), net.weight(48, 8), net.weight(48, 12), net.weight(96)
    return net.told(*net.b.emit("lstm", x, w, r, bias))


def quantised(*, fast: bool) -> str:
    """Products of bytes: a weight alone, and both sides, where processors multiply bytes and where not."""
    net, rng = Net(), np.random.default_rng(0)
    b = net.b

    def weight(rows: int, columns: int) -> Value:
        q = b.constant(rng.integers(-127, 127, (rows, columns)).astype(np.int8))
        scale = b.constant(rng.uniform(0.01, 0.1, columns).astype(np.float32))
        return b.dequantize_linear(q, scale, None, dtype=dtypes.f32, axis=1)

    x = net.input("n", 70)
    one = b.relu(b.matmul(x, weight(70, 35)))
    scale, zero = b.constant(np.float32(0.05)), b.constant(np.uint8(12))
    bytes_of = b.quantize_linear(one, scale, zero, dtype=dtypes.u8, axis=0)
    both = b.matmul(b.dequantize_linear(bytes_of, scale, zero, dtype=dtypes.f32, axis=0), weight(35, 24))
    whole = b.constant(rng.integers(-100, 100, (24, 8)).astype(np.int32))
    small = net.input("n", 24, dtype=dtypes.u8)
    with patch.object(quads, "has_byte_products", lambda: fast):
        return net.told(both, b.matmul(b.cast(small, dtype=dtypes.i32), whole))


OPS = (
    *("add", "where", "clip", "cast", "gelu", "pow", "bitcast", "matmul", "conv", "conv_transpose"),
    *("reduce_sum", "reduce_max", "arg_max", "cum_sum", "softmax", "log_softmax", "layer_norm", "group_norm", "lrn"),
    *("max_pool", "average_pool", "resize", "grid_sample", "sdpa", "rotary_embedding", "sort", "topk", "search_sorted"),
    *("reshape", "transpose", "expand", "flip", "split", "slice", "squeeze", "concat", "window", "trilu", "pad"),
    *("gather", "gather_nd", "gather_elements", "scatter_nd", "scatter_elements", "iota", "shape_of", "einsum", "gru"),
    *("quantize_linear", "dequantize_linear", "dynamic_quantize", "tile"),
)


def ops() -> str:
    """The samples of a few dozen ops: a digest of all plans of each op."""
    rows = ((name, [tape_of(CORE[name], sample) for sample in samples(CORE[name])]) for name in OPS)
    return "".join(f"{name}: {len(found)} samples, {digest('|'.join(found).encode())}\n" for name, found in rows)


def samples(definition: OpDef) -> Iterator[Sample]:
    """The samples of each dtype that the target computes with."""
    for dtype in definition.main_dtypes:
        rng = np.random.default_rng(zlib.crc32(f"{definition.name} {dtype}".encode()))
        yield from definition.samples(rng, dtype)


def tape_of(definition: OpDef, sample: Sample) -> str:
    """The plan of one sample, or that there is none."""
    b = Builder()
    values = [
        None if x is None else b.constant(x) if index in sample.fixed else b.input(TensorType(dtypes.of(x), x.shape))
        for index, x in enumerate(sample.inputs)
    ]
    results = b.emit(definition.name, *values, **sample.attrs)
    inputs = [value for value in values if value is not None and value not in b.constants]
    graph = prepared(b.finish("sample", inputs, results), 0)
    return tape(graph) if all(TARGET.support(node).ok for node in graph.nodes) else "refused"


def digest(*parts: bytes) -> str:
    """A few characters that stand for content."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


CASES: dict[str, Callable[[], str]] = {
    "images": images,
    "transformer": transformer,
    "sizes": sizes,
    "control": control,
    "recurrent": recurrent,
    "bytes": lambda: quantised(fast=True),
    "bytes_in_floats": lambda: quantised(fast=False),
    "ops": ops,
}


def main() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in CASES.items():
        (FOLDER / f"{name}.txt").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
