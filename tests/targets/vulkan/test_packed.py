"""Weights in quantised blocks: products and lookups that read them packed, beside the numbers of another reader."""

from __future__ import annotations

import shutil
from typing import Any, cast

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from programs import compiled_on, placed_on
from suites.conftest import complaint

from assay.evidence.compare.arrays import epsilon
from assay.ir import dtypes
from assay.ir.dims import Dim, symbol
from assay.ir.dtypes import Array
from assay.ir.graph import fresh_ids
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.block_formats import BLOCK_FORMATS, BlockFormat
from assay.ops.builder import Builder
from assay.ops.definitions.blocks import drawn_blocks
from assay.runtime.program import Program
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.executable import VulkanExecutable
from assay.targets.vulkan.packing import byte_products, integer_products
from assay.targets.vulkan.templates import Template

pytestmark = pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
FORMS = pytest.mark.parametrize("form", BLOCK_FORMATS.values(), ids=str)
DEVICES = pytest.mark.parametrize(
    "restricted", ["", "addresses,subgroup=32,groups=3", "no-texels,no-subgroups,push=16"], indirect=True
)
ROWS = (1, 3, 9, 40)
SIZES = ((1, 1), (9, 37))
"""Blocks in a row, and rows of the weight."""


def numbers_of(form: BlockFormat, blocks: Array) -> Array:
    """What another reader makes of blocks."""
    with np.errstate(all="ignore"):
        return dequantize(blocks, GGMLQuantizationType[form.name])


def product_of(form: BlockFormat, rows: Dim, count: int, columns: int) -> Program:
    """Rows times a weight, and something after it. The weight is an input: a small constant is folded."""
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (rows, count * form.elements)))
    blocks = b.input(TensorType(dtypes.u8, (columns, count * form.block_bytes)))
    bias = b.input(TensorType(dtypes.f32, (columns,)))
    w = b.transpose(b.block_dequantize(blocks, format=form.name), perm=(1, 0))
    graph = b.finish("product", [x, blocks, bias], [b.relu(b.add(b.matmul(x, w), bias))])
    return compiled_on(VulkanTarget("exact", DEFAULT), graph)


def is_right(program: Program, form: BlockFormat, rows: int, count: int, columns: int) -> None:
    rng = np.random.default_rng(form.code)
    blocks = drawn_blocks(rng, form, columns, count)
    x, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((rows, count * form.elements), (columns,)))
    w = numbers_of(form, blocks).astype(np.float64).T
    wanted = np.maximum(x.astype(np.float64) @ w + bias, 0)
    scale = (np.abs(x.astype(np.float64)) @ np.abs(w)).max(initial=0)
    found = program.run([x, blocks, bias])[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * epsilon(dtypes.f32) * scale, err_msg=f"{rows} rows")


@pytest.mark.usefixtures("restricted")
@DEVICES
@FORMS
def test_products_are_those_of_the_numbers(form: BlockFormat) -> None:
    for count, columns in SIZES:
        program = product_of(form, symbol("n"), count, columns)
        assert [node.op for node in program.plan.graph.nodes] == ["vulkan.matmul_blocks", "add", "relu"]
        for rows in ROWS:
            is_right(program, form, rows, count, columns)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("rows", "kernel"), [(1, "write_blocks_product"), (40, "write_numbers")])
def test_many_rows_take_floats_that_are_made_first(rows: int, kernel: str) -> None:
    for form in BLOCK_FORMATS.values():
        program = product_of(form, rows, 2, 33)
        is_right(program, form, rows, 2, 33)
        assert any(kernel in name for name in kernels_of(program))


def kernels_of(program: Program) -> list[str]:
    """The kernels of all segments."""
    made = [step.executable for step in cast(Any, program)._compiled if isinstance(step.executable, VulkanExecutable)]
    return [name for executable in made for name in executable.kernels]


@pytest.mark.usefixtures("restricted")
@DEVICES
@FORMS
def test_numbers_are_those_of_another_reader(form: BlockFormat) -> None:
    b = Builder()
    blocks = b.input(TensorType(dtypes.u8, (3, 2 * form.block_bytes)))
    graph = b.finish("numbers", [blocks], [b.block_dequantize(blocks, format=form.name)])
    executable = VulkanTarget("exact", DEFAULT).compile(graph, {})
    given = drawn_blocks(np.random.default_rng(form.code), form, 3, 2)
    device = VulkanTarget("exact", DEFAULT).open()
    outputs, _ = executable.submit([device.upload(given)])
    np.testing.assert_array_equal(device.download(outputs[0]), numbers_of(form, given))


@DEVICES
def test_kernels_are_valid(restricted: VulkanDevice) -> None:
    if shutil.which("spirv-val") is None:
        pytest.skip("spirv-val is not installed")
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (3, 256)))
    for form in BLOCK_FORMATS.values():
        blocks = b.input(TensorType(dtypes.u8, (5, form.bytes_of(256))))
        (made,) = b.emit("vulkan.matmul_blocks", x, blocks, format=form.name)
        graph = b.finish(form.name, [x, blocks], [made])
        executable = VulkanTarget("exact", DEFAULT).compile(graph, {})
        assert isinstance(executable, VulkanExecutable)
        built = [cast(Template, step.kernel).built(restricted.profile) for step in executable._steps]
        assert [complaint(each) for each in built] == [""] * len(built)


def _of_integers(b: Builder, x: Any, q: Any, zero: Any) -> Any:
    wide = b.cast(q, dtype=dtypes.i32)
    return b.matmul(b.cast(x, dtype=dtypes.i32), wide if zero is None else b.sub(wide, b.cast(zero, dtype=dtypes.i32)))


@pytest.mark.usefixtures("restricted")
@pytest.mark.parametrize(
    "restricted", ["", "addresses,subgroup=32", "discrete", "no-texels,no-subgroups"], indirect=True
)
@pytest.mark.parametrize("zeros", [None, (), (37,)])
@pytest.mark.parametrize("kind", [dtypes.i8, dtypes.u8], ids=str)
def test_products_of_integers_read_bytes(kind: dtypes.DType, zeros: tuple[int, ...] | None) -> None:
    rng, depth, columns = np.random.default_rng(3), 70, 37
    w = rng.integers(0, 256, (depth, columns), np.uint8).view(kind.numpy)
    taken = None if zeros is None else rng.integers(0, 100, zeros).astype(kind.numpy)
    for lead in ((5,), (2, 3), ()):
        b = Builder()
        x, q = b.input(TensorType(dtypes.u8, (*lead, depth))), b.input(TensorType(kind, w.shape))
        zero = None if zeros is None else b.input(TensorType(kind, zeros))
        inputs = [x, q, *([] if zero is None else [zero])]
        graph = b.finish("product", inputs, [_of_integers(b, x, q, zero)])
        packed = integer_products(graph, inputs[1:], fresh_ids(graph))
        assert "vulkan.matmul_bytes" in [node.op for node in packed.nodes]
        program = placed_on(VulkanTarget("exact", DEFAULT), packed)
        given = rng.integers(0, 255, (*lead, depth), endpoint=True).astype(np.uint8)
        wanted = given.astype(np.int64) @ (w.astype(np.int64) - (0 if taken is None else taken.astype(np.int64)))
        np.testing.assert_array_equal(program.run([given, w, *([] if taken is None else [taken])])[0], wanted)


@pytest.mark.usefixtures("restricted")
@pytest.mark.parametrize("restricted", ["no-texels", "addresses,subgroup=32", "discrete"], indirect=True)
@pytest.mark.parametrize("scales", [(), (37,)])
@pytest.mark.parametrize("kind", [dtypes.i8, dtypes.u8], ids=str)
def test_products_of_floats_read_bytes(kind: dtypes.DType, scales: tuple[int, ...]) -> None:
    b, rng = Builder(), np.random.default_rng(4)
    x, q = b.input(TensorType(dtypes.f32, (5, 70))), b.input(TensorType(kind, (70, 37)))
    scale = b.input(TensorType(dtypes.f32, scales))
    weight = b.dequantize_linear(q, scale, dtype=dtypes.f32, axis=1)
    graph = b.finish("product", [x, q, scale], [b.relu(b.matmul(x, weight))])
    packed = VulkanTarget("exact", DEFAULT)._with_bytes(graph, [q, scale], fresh_ids(graph))
    assert [node.op for node in packed.nodes] == ["vulkan.matmul_bytes", "mul", "relu"]
    w = rng.integers(0, 256, (70, 37), np.uint8).view(kind.numpy)
    given, by = rng.normal(size=(5, 70)).astype(np.float32), rng.uniform(0.1, 1, scales).astype(np.float32)
    wanted = np.maximum(given.astype(np.float64) @ (w.astype(np.float64) * by), 0)
    found = placed_on(VulkanTarget("exact", DEFAULT), packed).run([given, w, by])[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=30 * epsilon(dtypes.f32) * np.abs(wanted).max())


def test_weights_with_a_zero_point_are_dequantised() -> None:
    b = Builder()
    x, q = b.input(TensorType(dtypes.f32, (5, 70))), b.input(TensorType(dtypes.u8, (70, 37)))
    scale, zero = b.input(TensorType(dtypes.f32, ())), b.input(TensorType(dtypes.u8, ()))
    weight = b.dequantize_linear(q, scale, zero, dtype=dtypes.f32, axis=1)
    graph = b.finish("product", [x, q, scale, zero], [b.matmul(x, weight)])
    assert byte_products(graph, graph.inputs[1:], fresh_ids(graph)) is graph
