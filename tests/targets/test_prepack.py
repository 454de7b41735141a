"""Packed weights: who gets them, and that results stay what they were."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from programs import compiled_on, placed_on

from assay.errors import VerifyFailed
from assay.evidence.compare.arrays import closeness, epsilon
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Value, fresh_ids
from assay.ir.parser import parse_graph
from assay.ir.printer import print_graph
from assay.ir.types import TensorType
from assay.ir.verify import verify
from assay.limits import DEFAULT
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.levels import core_level, target_level
from assay.ops.lowering import adapt
from assay.passes.hoist import hoist
from assay.targets.cpu import CpuTarget, quads
from assay.targets.cpu.prepack import byte_panels, panels, quad_panels, sums_in_floats
from assay.targets.reference import ReferenceTarget

RNG = np.random.default_rng(5)


def prepack(graph: Graph, static: Collection[Value]) -> Graph:
    """All passes that give weights another form, in the order of the target."""
    for each in (quad_panels, byte_panels, sums_in_floats, panels):
        graph = each(graph, static, fresh_ids(graph))
    return graph


def network(dtype: DType) -> Graph:
    """Images of an open number and height through all kinds of convolutions, and two products with one weight."""
    b = Builder()
    x = b.input(TensorType(dtype, (symbol("n"), 3, symbol("h"), 9)))
    first, bias = b.input(TensorType(dtype, (20, 3, 3, 3))), b.input(TensorType(dtype, (20,)))
    each, grouped = b.input(TensorType(dtype, (20, 1, 3, 5))), b.input(TensorType(dtype, (12, 10, 3, 1)))
    point, weight = b.input(TensorType(dtype, (19, 12, 1, 1))), b.input(TensorType(dtype, (9, 9)))

    def conv(x: Value, w: Value, stride: int, pads: tuple[int, ...], groups: int, bias: Value | None = None) -> Value:
        return b.conv(x, w, bias, strides=(stride, 1), pads=pads, dilations=(1, 1), groups=groups)

    wide = b.relu(conv(x, first, 2, (1, 1, 1, 1), 1, bias))
    alone = conv(wide, each, 1, (1, 2, 1, 2), 20)
    pairs = conv(alone, grouped, 1, (1, 0, 1, 0), 2)
    mixed = conv(pairs, point, 1, (0, 0, 0, 0), 1)
    once = b.matmul(mixed, weight)
    inputs = [x, first, bias, each, grouped, point, weight]
    return b.finish("network", inputs, [b.add(b.matmul(b.tanh(once), weight), mixed)])


def arrays(graph: Graph, **sizes: int) -> list[np.ndarray]:
    shapes = [[sizes.get(str(dim), dim) for dim in value.type.shape] for value in graph.inputs]  # pyright: ignore
    return [RNG.uniform(-1, 1, shape).astype(graph.inputs[0].type.dtype.numpy) for shape in shapes]  # pyright: ignore


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=str)
def test_results_with_packed_weights_are_those_of_the_oracle(dtype: DType) -> None:
    graph = network(dtype)
    packed = prepack(graph, graph.inputs[1:])
    target, oracle = CpuTarget("exact", DEFAULT), ReferenceTarget("precise", DEFAULT)
    program = placed_on(target, packed)
    for sizes in ({"n": 2, "h": 13}, {"n": 1, "h": 40}, {"n": 0, "h": 8}):
        given = arrays(graph, **sizes)
        wanted = oracle.compile(graph).run(given)[0]
        found = closeness(program.run(given)[0], wanted, absolute=60 * epsilon(dtype) * np.abs(wanted).max(initial=1))
        assert found.ok, found


def test_weights_are_packed_once_and_ahead_of_the_run() -> None:
    graph = network(dtypes.f32)
    packed = prepack(graph, graph.inputs[1:])
    ops = [node.op for node in packed.nodes]
    assert (ops.count("cpu.pack_panels"), ops.count("cpu.conv_panels"), ops.count("cpu.matmul_panels")) == (5, 4, 2)
    assert "cpu.pack_panels" not in [node.op for node in hoist(packed, graph.inputs[1:]).rest.nodes]


def test_a_prepared_graph_is_a_graph_like_any_other() -> None:
    """Its ops are of its target's level, it has a text form, and the oracle runs it, whole or in core ops."""
    graph = network(dtypes.f32)
    packed = prepack(graph, graph.inputs[1:])
    verify(graph, core_level)
    verify(packed, target_level("cpu"))
    for check in (core_level, target_level("vulkan")):
        with pytest.raises(VerifyFailed, match=r"cpu\.pack_panels"):
            verify(packed, check)
    assert print_graph(parse_graph(print_graph(packed))) == print_graph(packed)
    given = arrays(graph, n=2, h=13)
    wanted = ReferenceTarget("precise").compile(graph).run(given)[0]
    core = adapt(packed, lambda node: node.op in CORE, DEFAULT)
    verify(core, core_level)
    for each in (parse_graph(print_graph(packed)), core):
        np.testing.assert_allclose(ReferenceTarget("precise").compile(each).run(given)[0], wanted, atol=1e-12)


def test_what_is_no_weight_stays() -> None:
    graph = network(dtypes.f32)
    assert prepack(graph, []) is graph
    whole = prepack(graph, graph.inputs)
    assert whole is graph


def quantised(scales: tuple[int, ...], *, turned: bool, zero: int | None, dtype: DType = dtypes.i8) -> Graph:
    """A product with a dequantised weight, and something after it."""
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n"), 70)))
    low, high = map(int, dtype.limits)
    q = b.constant(RNG.integers(low, high, (35, 70) if turned else (70, 35)).astype(dtype.numpy))
    scale = b.constant(RNG.uniform(0.01, 0.1, scales).astype(np.float32))
    zeros = None if zero is None else b.constant(np.full(scales, zero, dtype.numpy))
    w = b.dequantize_linear(q, scale, zeros, dtype=dtypes.f32, axis=0 if turned else 1)
    product = b.matmul(x, b.transpose(w, perm=(1, 0)) if turned else w)
    return b.finish("quantised", [x], [b.relu(product)])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("scales", "zero"), [((), None), ((35,), None), ((35,), 0), ((1,), 0)])
def test_bytes_stay_bytes(scales: tuple[int, ...], zero: int | None, turned: bool) -> None:
    graph = quantised(scales, turned=turned, zero=zero)
    packed = prepack(graph, ())
    assert "cpu.matmul_bytes" in [node.op for node in packed.nodes]
    prelude, _ = hoist(packed, ())
    assert "dequantize_linear" not in [node.op for node in packed.nodes]
    assert {str(value.type.dtype) for value in prelude.outputs if value.type.shape != scales} >= {"i8"}  # pyright: ignore
    program = placed_on(CpuTarget("exact", DEFAULT), packed)
    oracle = ReferenceTarget("precise", DEFAULT).compile(graph)
    for rows in (1, 5, 130, 0):
        given = [RNG.normal(size=(rows, 70)).astype(np.float32)]
        wanted = oracle.run(given)[0]
        found = closeness(
            program.run(given)[0],
            wanted,
            absolute=60 * epsilon(dtypes.f32) * np.abs(wanted).max(initial=1),
        )
        assert found.ok, found


@pytest.mark.parametrize("other", [{"zero": 3}, {"zero": None, "dtype": dtypes.u8}, {"zero": 128, "dtype": dtypes.u8}])
def test_other_quantised_weights_are_widened(other: dict[str, object]) -> None:
    packed = prepack(quantised((35,), turned=False, **other), ())  # pyright: ignore
    assert "cpu.matmul_bytes" not in [node.op for node in packed.nodes]


def test_a_session_keeps_a_quantised_weight_narrow() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n"), 128)))
    q = b.constant(RNG.integers(-127, 127, (128, 64)).astype(np.int8))
    w = b.dequantize_linear(q, b.constant(np.float32(0.1)), dtype=dtypes.f32)
    program = compiled_on(CpuTarget("exact", DEFAULT), b.finish("g", [x], [b.matmul(x, w)]))
    kept = [array.dtype for array in program.plan.graph.constants.values() if array.size >= q.type.shape[0]]  # pyright: ignore
    assert kept == [np.dtype(np.int8)]


# ---- products of bytes -------------------------------------------------------------------------------------------


def of_bytes(zero: int | None, scales: tuple[int, ...], *, turned: bool, depth: int, dtype: DType = dtypes.u8) -> Graph:
    """A product of dequantised numbers with a dequantised weight."""
    b = Builder()
    x = b.input(TensorType(dtype, (symbol("n"), 3, depth)))
    q = b.constant(RNG.integers(-128, 128, (35, depth) if turned else (depth, 35)).astype(np.int8))
    zeros = None if zero is None else b.constant(np.array(zero, dtype.numpy))
    left = b.dequantize_linear(x, b.constant(np.float32(0.03)), zeros, dtype=dtypes.f32)
    scale = b.constant(RNG.uniform(0.01, 0.1, scales).astype(np.float32))
    right = b.dequantize_linear(q, scale, dtype=dtypes.f32, axis=0 if turned else 1)
    return b.finish("bytes", [x], [b.relu(b.matmul(left, b.transpose(right, perm=(1, 0)) if turned else right))])


def of_integers(zero: bool, low: int, high: int) -> Graph:
    """A product of bytes in i32, as ONNX's MatMulInteger has it."""
    b = Builder()
    x, z = b.input(TensorType(dtypes.u8, (symbol("n"), 3, 37))), b.input(TensorType(dtypes.u8, ()))
    w = b.constant(RNG.integers(low, high, (37, 20)).astype(np.int32))
    left = b.cast(x, dtype=dtypes.i32)
    left = b.sub(left, b.cast(z, dtype=dtypes.i32)) if zero else left
    return b.finish("integers", [x, z] if zero else [x], [b.matmul(left, w)])


@pytest.fixture
def byte_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that has an instruction for them; others run the same in plain code."""
    monkeypatch.setattr(quads, "has_byte_products", lambda: True)


@pytest.mark.usefixtures("byte_products", "vector_unit")
@pytest.mark.parametrize("vector_unit", ["", "-mno-avx512f", "-mno-avx"], indirect=True)
@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("depth", [1, 4, 70])
@pytest.mark.parametrize(("zero", "scales", "turned"), [(None, (), False), (131, (35,), True), (7, (35,), False)])
def test_products_of_bytes(zero: int | None, scales: tuple[int, ...], turned: bool, depth: int) -> None:
    graph = of_bytes(zero, scales, turned=turned, depth=depth)
    packed = prepack(graph, ())
    assert "cpu.matmul_quads" in [node.op for node in packed.nodes]
    program = placed_on(CpuTarget("exact", DEFAULT), packed)
    oracle = ReferenceTarget("precise", DEFAULT).compile(graph)
    for rows in (1, 5, 43, 0):
        given = [RNG.integers(0, 256, (rows, 3, depth)).astype(np.uint8)]
        wanted = oracle.run(given)[0]
        found = program.run(given)[0]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * epsilon(dtypes.f32) * np.abs(wanted).max(initial=1))


@pytest.mark.usefixtures("byte_products")
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("low", [-128, -141, 0, 1000])
def test_integer_products_of_bytes_are_exact(zero: bool, low: int) -> None:
    graph = of_integers(zero, low, low + 256)
    packed = prepack(graph, ())
    assert "cpu.matmul_quads" in [node.op for node in packed.nodes]
    program = placed_on(CpuTarget("exact", DEFAULT), packed)
    oracle = ReferenceTarget("exact", DEFAULT).compile(graph)
    for rows in (1, 9, 0):
        given = [RNG.integers(0, 256, (rows, 3, 37)).astype(np.uint8), np.array(200, np.uint8)][: 1 + zero]
        np.testing.assert_array_equal(program.run(given)[0], oracle.run(given)[0])


@pytest.mark.usefixtures("byte_products")
def test_what_is_no_product_of_bytes_stays() -> None:
    for graph in (
        of_integers(False, -1410, 1000),
        of_bytes(3, (), turned=False, depth=8, dtype=dtypes.i8),
        of_bytes(3, (), turned=False, depth=8, dtype=dtypes.u16),
    ):
        assert "cpu.matmul_quads" not in [node.op for node in prepack(graph, ()).nodes]


def test_without_the_instruction_bytes_are_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quads, "has_byte_products", lambda: False)
    ops = [node.op for node in prepack(of_bytes(3, (), turned=False, depth=8), ()).nodes]
    assert "cpu.matmul_quads" not in ops
    assert "cpu.matmul_bytes" in ops


def convolution_of_bytes(dtype: DType, largest: int) -> Graph:
    """A convolution of bytes in i32, as ONNX's ConvInteger has it."""
    b = Builder()
    x, z = b.input(TensorType(dtype, (2, 12, 9, symbol("n")))), b.input(TensorType(dtype, ()))
    w = b.constant(RNG.integers(-largest, largest + 1, (10, 12, 3, 3)).astype(np.int32))
    left = b.sub(b.cast(x, dtype=dtypes.i32), b.cast(z, dtype=dtypes.i32))
    made = b.conv(left, w, None, strides=(1, 2), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)
    return b.finish("integers", [x, z], [b.mul(made, b.constant(np.int32(3)))])


@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.i8])
@pytest.mark.parametrize(("largest", "kind"), [(127, "f32"), (5000, "i32")])
def test_integer_convolutions_are_exact(dtype: DType, largest: int, kind: str) -> None:
    """In floats where these hold every sum, else in integers."""
    graph = convolution_of_bytes(dtype, largest)
    packed = prepack(graph, ())
    (made,) = [node for node in packed.nodes if node.op in ("conv", "cpu.conv_panels")]
    assert str(made.outputs[0].type.dtype) == kind  # pyright: ignore
    program = placed_on(CpuTarget("exact", DEFAULT), packed)
    oracle = ReferenceTarget("exact", DEFAULT).compile(graph)
    low, high = map(int, dtype.limits)
    for fill in (None, low, high):
        x = RNG.integers(low, high + 1, (2, 12, 9, 14)) if fill is None else np.full((2, 12, 9, 14), fill)
        given = [x.astype(dtype.numpy), np.array(low if fill == high else high, dtype.numpy)]
        np.testing.assert_array_equal(program.run(given)[0], oracle.run(given)[0])


# --- bodies


def _looped(convolved: bool) -> tuple[Graph, Array]:
    """A loop in a branch that multiplies its state with a weight of outside, or convolves it, three times."""
    shape = (1, 6, 9) if convolved else (5, 6)
    kind = TensorType(dtypes.f32, shape)
    b = Builder()
    x, flag = b.input(kind), b.input(TensorType(dtypes.boolean, ()))
    weight = b.constant(RNG.normal(size=(6, 6, 3) if convolved else (6, 6)).astype(np.float32) / 4)
    bias = b.constant(RNG.normal(size=(6,)).astype(np.float32))

    def layer(c: Builder, value: Value) -> Value:
        if convolved:
            return c.conv(value, weight, bias, pads=(1, 1), strides=(1,), dilations=(1,))
        return c.add(c.matmul(value, weight), bias)

    c, e = b.child(), b.child()
    d = c.child()
    count, go, state = (d.input(each) for each in (TensorType(dtypes.i64, ()), flag.type, kind))
    body = d.finish("body", [count, go, state], [d.constant(np.True_), d.tanh(layer(d, state))])
    then = c.finish("then", [], [c.emit("loop", c.constant(3), None, x, regions=(body,))[0]])
    other = e.finish("other", [], [e.relu(layer(e, x))])
    graph = b.finish("looped", [x, flag], list(b.emit("branch", flag, regions=(then, other))))
    return graph, RNG.normal(size=shape).astype(np.float32)


@pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
@pytest.mark.parametrize("convolved", [False, True])
def test_weights_of_bodies_are_packed_once_outside(convolved: bool) -> None:
    graph, array = _looped(convolved)
    packed = prepack(graph, ())
    verify(packed)
    inside = [node.op for node in packed.walk() if node not in packed.nodes]
    assert inside.count("cpu.conv_panels" if convolved else "cpu.matmul_panels") == 2
    assert [node.op for node in packed.nodes].count("cpu.pack_panels") == 1
    assert "cpu.pack_panels" not in inside
    program = compiled_on(CpuTarget("exact", DEFAULT), graph)
    assert "cpu.pack_panels" not in [node.op for node in program.plan.graph.walk()]
    oracle = ReferenceTarget("precise", DEFAULT).compile(graph)
    for flag in (True, False):
        (found,), (wanted,) = (each.run([array, np.array(flag)]) for each in (program, oracle))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_weights_that_lie_in_a_body_stay_there() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (5, 6)))
    c = b.child()
    kinds = (TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ()), x.type)
    count, go, state = (c.input(each) for each in kinds)
    weight = c.constant(RNG.normal(size=(6, 6)).astype(np.float32))
    body = c.finish("body", [count, go, state], [c.constant(np.True_), c.matmul(state, weight)])
    graph = b.finish("looped", [x], list(b.emit("loop", b.constant(3), None, x, regions=(body,))))
    packed = prepack(graph, ())
    verify(packed)
    assert packed is graph
