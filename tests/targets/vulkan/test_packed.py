"""Weights in quantised blocks: products and lookups that read them packed, beside the numbers of another reader."""

from __future__ import annotations

import shutil
from typing import Any, cast

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from programs import compiled_on
from suites.conftest import complaint

from assay.evidence.compare.arrays import epsilon
from assay.ir import dtypes
from assay.ir.dims import Dim, symbol
from assay.ir.dtypes import Array
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.block_formats import BLOCK_FORMATS, BlockFormat
from assay.ops.builder import Builder
from assay.ops.definitions.blocks import drawn_blocks
from assay.runtime.program import Program
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.executable import VulkanExecutable
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
