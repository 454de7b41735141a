"""Weights in quantised blocks: products and lookups that read them packed, beside the numbers of another reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from programs import compiled_on

from assay.evidence.compare.arrays import epsilon
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.block_formats import BLOCK_FORMATS, BlockFormat
from assay.ops.builder import Builder
from assay.ops.definitions.blocks import drawn_blocks
from assay.targets.cpu import CpuTarget

pytestmark = pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
CPU = CpuTarget("exact", DEFAULT)
ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 33, 400)
SIZES = ((1, 1), (3, 37), (2, 130), (9, 16))
"""Blocks in a row, and rows of the weight."""
NARROWER = ("-mno-avx512f", "-mno-avx")
BARE = ("-mno-avx2", "-mno-sse4.1")
"""Units of which the vectors are known, and those without instructions that widen bytes."""
FORMS = pytest.mark.parametrize("form", BLOCK_FORMATS.values(), ids=str)


def numbers_of(form: BlockFormat, blocks: Array) -> Array:
    """What another reader makes of blocks."""
    with np.errstate(all="ignore"):
        return dequantize(blocks, GGMLQuantizationType[form.name])


def product_of(form: BlockFormat, count: int, columns: int) -> Graph:
    """Any number of rows times a weight, and something after it. The weight is an input: a small constant is folded."""
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n"), count * form.elements)))
    blocks = b.input(TensorType(dtypes.u8, (columns, count * form.block_bytes)))
    bias = b.input(TensorType(dtypes.f32, (columns,)))
    w = b.transpose(b.block_dequantize(blocks, format=form.name), perm=(1, 0))
    return b.finish("product", [x, blocks, bias], [b.relu(b.add(b.matmul(x, w), bias))])


def products_are_right(form: BlockFormat, rows: tuple[int, ...], sizes: tuple[tuple[int, int], ...]) -> None:
    rng = np.random.default_rng(form.code)
    for count, columns in sizes:
        depth, blocks = count * form.elements, drawn_blocks(rng, form, columns, count)
        program = compiled_on(CPU, product_of(form, count, columns))
        assert [node.op for node in program.plan.graph.nodes] == ["cpu.matmul_blocks", "add", "relu"]
        w = numbers_of(form, blocks).astype(np.float64).T
        for n in rows:
            x, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((n, depth), (columns,)))
            found = program.run([x, blocks, bias])[0]
            wanted = np.maximum(x.astype(np.float64) @ w + bias, 0)
            scale = (np.abs(x.astype(np.float64)) @ np.abs(w)).max()
            np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * epsilon(dtypes.f32) * scale)


@FORMS
def test_products_are_those_of_the_numbers(form: BlockFormat) -> None:
    products_are_right(form, ROWS, SIZES)


@pytest.mark.usefixtures("vector_unit")
@pytest.mark.parametrize("vector_unit", NARROWER, indirect=True)
@FORMS
def test_narrower_vector_units_give_the_same(form: BlockFormat) -> None:
    products_are_right(form, (1, 3, 8, 33), SIZES[1:2])
    numbers_are_right(form)


@pytest.mark.usefixtures("vector_unit")
@pytest.mark.parametrize("vector_unit", BARE, indirect=True)
@pytest.mark.parametrize("name", ["Q8_0", "Q4_K"])
def test_bare_vector_units_give_the_same(name: str) -> None:
    test_narrower_vector_units_give_the_same(BLOCK_FORMATS[name])


@FORMS
def test_results_do_not_depend_on_threads(form: BlockFormat) -> None:
    rng = np.random.default_rng(0)
    depth, blocks = 2 * form.elements, drawn_blocks(rng, form, 1030, 2)
    graph = product_of(form, 2, 1030)
    programs = [compiled_on(CpuTarget("exact", DEFAULT, lambda n=n: n), graph) for n in (1, 2, 3)]
    for rows in (1, 6, 12, 50):
        x, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((rows, depth), (1030,)))
        one, *others = (program.run([x, blocks, bias])[0] for program in programs)
        for other in others:
            np.testing.assert_array_equal(one, other)


# --- numbers


def numbers_are_right(form: BlockFormat) -> None:
    """Bit for bit, also where scales are infinite; of NaNs the bits do not matter."""
    rng = np.random.default_rng(1)
    b = Builder()
    blocks = b.input(TensorType(dtypes.u8, (symbol("n"), 5, symbol("bytes"))))
    program = compiled_on(CPU, b.finish("numbers", [blocks], [b.block_dequantize(blocks, format=form.name)]))
    assert [(each.node.op, each.target) for each in program.plan.placements] == [("block_dequantize", "cpu")]
    for packed in (
        rng.integers(0, 256, (7, 5, 13 * form.block_bytes), dtype=np.uint8),
        drawn_blocks(rng, form, 3, 5, 2),
        np.zeros((2, 5, form.block_bytes), np.uint8),
        np.zeros((0, 5, form.block_bytes), np.uint8),
    ):
        found = program.run([packed])[0]
        wanted = numbers_of(form, packed) if packed.size else np.zeros((0, 5, form.elements), np.float32)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(wanted)]), np.signbit(wanted[~np.isnan(wanted)]))


@FORMS
def test_numbers_are_those_of_another_reader(form: BlockFormat) -> None:
    numbers_are_right(form)


# --- what is dequantised


def test_a_lookup_dequantises_the_rows_that_it_reads() -> None:
    form = BLOCK_FORMATS["Q4_0"]
    blocks = drawn_blocks(np.random.default_rng(2), form, 3000, 20)
    b = Builder()
    places = b.input(TensorType(dtypes.i64, (2, symbol("n"))))
    table = b.block_dequantize(b.constant(blocks), format=form.name)
    program = compiled_on(CPU, b.finish("lookup", [places], [b.mul(b.gather(table, places, axis=0), 2.0)]))
    assert [node.op for node in program.plan.graph.nodes] == ["gather", "block_dequantize", "mul"]
    given = np.array([[0, 2999, -1], [17, 17, -3000]])
    np.testing.assert_array_equal(program.run([given])[0], 2 * numbers_of(form, blocks)[given])


def test_a_weight_may_be_looked_up_and_multiplied_with() -> None:
    """As in models whose embedding is their head, too: nobody makes floats of it, and it is there once."""
    form = BLOCK_FORMATS["Q8_0"]
    blocks = drawn_blocks(np.random.default_rng(3), form, 70, 2)
    b = Builder()
    places = b.input(TensorType(dtypes.i64, (symbol("n"),)))
    table = b.block_dequantize(b.constant(blocks), format=form.name)
    out = b.matmul(b.gather(table, places, axis=0), b.transpose(table, perm=(1, 0)))
    program = compiled_on(CPU, b.finish("tied", [places], [out]))
    assert [node.op for node in program.plan.graph.nodes] == ["gather", "block_dequantize", "cpu.matmul_blocks"]
    assert [array.nbytes for array in program.plan.graph.constants.values()] == [blocks.nbytes]
    table_of = numbers_of(form, blocks).astype(np.float64)
    wanted = table_of[[5, 69]] @ table_of.T
    np.testing.assert_allclose(program.run([np.array([5, 69])])[0], wanted, rtol=1e-5, atol=1e-5)


def test_other_uses_of_numbers_are_right_too() -> None:
    """Along the axis of the blocks, and where the weight is not turned: floats are made of it once."""
    form = BLOCK_FORMATS["Q4_K"]
    blocks = drawn_blocks(np.random.default_rng(4), form, 64, 1)
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n"), 64)))
    table = b.block_dequantize(b.constant(blocks), format=form.name)
    outputs = [b.matmul(x, table), b.matmul(x, b.gather(table, [3, 200], axis=-1))]
    program = compiled_on(CPU, b.finish("others", [x], outputs))
    given, w = np.random.default_rng(5).normal(size=(3, 64)).astype(np.float32), numbers_of(form, blocks)
    for found, wanted in zip(program.run([given]), (given @ w, given @ w[:, [3, 200]]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


MEMORY = """
import sys
import numpy as np
from programs import compiled_on
from assay.ir import dtypes
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.cpu import CpuTarget

def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

path, rows, depth, size, form = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]

def program(blocks):
    b = Builder()
    x, places = b.input(TensorType(dtypes.f32, (rows, depth))), b.input(TensorType(dtypes.i64, (rows,)))
    table = b.block_dequantize(b.constant(blocks), format=form)
    out = b.matmul(b.add(x, b.gather(table, places, axis=0)), b.transpose(table, perm=(1, 0)))
    return compiled_on(CpuTarget("exact", DEFAULT), b.finish("head", [x, places], [b.reduce_max(out, axes=(1,))]))

given = [np.ones((rows, depth), np.float32), np.arange(rows)]
program(np.fromfile(path, np.uint8, 2 * size).reshape(2, size)).run([given[0], given[1] % 2])
before = most()
mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
program(mapped.reshape(-1, size)).run(given)
print(most() - before, mapped.nbytes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is asked of Linux")
@pytest.mark.parametrize("rows", [1, 64])
def test_memory_stays_near_the_packed_size(tmp_path: Path, rows: int) -> None:
    """Of a weight that is mapped from a file, as an embedding and as a head: no float copy, and no other one."""
    form, columns, depth = BLOCK_FORMATS["Q4_0"], 40_000, 1024
    blocks = drawn_blocks(np.random.default_rng(0), form, columns, depth // form.elements)
    blocks.tofile(tmp_path / "blocks")
    sizes = map(str, (rows, depth, blocks.shape[1]))
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "blocks"), *sizes, form.name]
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    grown, packed = map(int, subprocess.run(command, env=there, check=True, capture_output=True).stdout.split())
    assert packed == blocks.nbytes
    result = 4 * rows * columns
    assert grown < 1.25 * packed + result + (4 << 20), f"{grown / packed:.2f} of the packed size"
