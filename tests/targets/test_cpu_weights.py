"""Weights that are read where they lie: products and convolutions over numbers of rows, layouts, dtypes and widths of
the vector unit beside the oracle; and how good their sums are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from programs import compiled_on, placed_on

from assay.evidence.compare.arrays import epsilon
from assay.ir import dtypes
from assay.ir.dims import Dim, symbol
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.cpu import CpuTarget
from assay.targets.reference import ReferenceTarget

pytestmark = pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")
CPU, ORACLE = CpuTarget("exact", DEFAULT), ReferenceTarget("precise", DEFAULT)
ROWS = (1, 2, 3, 7, 8, 9, 16, 33, 70)
FLOATS = (dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16)


def numbers(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return rng.normal(size=shape).astype(dtype.numpy)


def agree(graph: Graph, arrays: list[Array], dtype: DType, terms: int) -> None:
    """Both give the same, up to the rounding of a sum of so many terms."""
    found = placed_on(CPU, graph).run(arrays)
    wanted = placed_on(ORACLE, graph).run(arrays)
    for ours, theirs in zip(found, wanted, strict=True):
        scale = float(np.abs(np.asarray(theirs, np.float64)).max(initial=1))
        allowed = 4 * epsilon(dtype) * scale * max(terms, 16) ** 0.5
        error = float(np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max(initial=0))
        assert error <= allowed, f"{error} of {allowed}: {graph}"


def products() -> Iterator[Any]:
    for dtype, rows, turned in itertools.product(FLOATS, ROWS, (False, True)):
        yield pytest.param(dtype, rows, turned, id=f"{dtype.name}-{rows}-{'turned' if turned else 'as it is'}")


@pytest.mark.parametrize(("dtype", "rows", "turned"), list(products()))
def test_products_read_weights_as_they_lie(dtype: DType, rows: int, turned: bool) -> None:
    """The weight is an input: nothing is packed ahead. Odd sizes leave rests in every direction."""
    rng = np.random.default_rng(rows)
    sizes = (1, 1, False), (130, 37, True), (64, 96, False), (257, 5, True), (40, 205, True), (401, 43, False)
    for depth, cols, bias in sizes:
        b = Builder()
        x = b.input(TensorType(dtype, (rows, depth)))
        w = b.input(TensorType(dtype, (cols, depth) if turned else (depth, cols)))
        inputs: list[Value] = [x, w]
        out = b.matmul(x, b.transpose(w, perm=(1, 0)) if turned else w)
        if bias:
            inputs.append(b.input(TensorType(dtype, (cols,))))
            out = b.add(out, inputs[-1])
        arrays = [numbers(rng, dtype, *(int(d) for d in value.type.shape)) for value in inputs]  # type: ignore[union-attr]
        agree(b.finish("product", inputs, [b.relu(out)]), arrays, dtype, depth)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
def test_batched_products(dtype: DType, batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for rows, depth, cols in ((1, 40, 24), (5, 33, 17), (20, 129, 31)):
        b = Builder()
        x, w = b.input(TensorType(dtype, (*batch, rows, depth))), b.input(TensorType(dtype, (*batch, depth, cols)))
        graph = b.finish("products", [x, w], [b.matmul(x, w)])
        agree(graph, [numbers(rng, dtype, *batch, rows, depth), numbers(rng, dtype, *batch, depth, cols)], dtype, depth)


CONVOLUTIONS = {
    "plain": ((2, 8, 9, 10), (12, 8, 3, 3), {"strides": (1, 1), "groups": 1}),
    "stride 2": ((1, 3, 17, 15), (7, 3, 3, 3), {"strides": (2, 2), "groups": 1}),
    "pointwise": ((1, 32, 6, 5), (20, 32, 1, 1), {"strides": (1, 1), "groups": 1}),
    "depthwise": ((1, 16, 8, 8), (16, 1, 3, 3), {"strides": (1, 1), "groups": 16}),
    "groups": ((1, 12, 7, 7), (18, 4, 3, 3), {"strides": (1, 1), "groups": 3}),
    "1-D": ((1, 10, 31), (6, 10, 5), {"strides": (1,), "groups": 1}),
    "one channel made": ((2, 33, 9, 12), (1, 33, 3, 3), {"strides": (1, 1), "groups": 1}),
    "three channels made": ((1, 8, 11, 13), (3, 8, 5, 5), {"strides": (2, 3), "groups": 1}),
    "four channels made": ((1, 40, 5, 6), (4, 40, 1, 1), {"strides": (1, 1), "groups": 1}),
    "a long filter": ((2, 1, 300), (1, 1, 100), {"strides": (2,), "groups": 1}),
    "a window wider than x": ((1, 2, 3, 9), (2, 2, 1, 33), {"strides": (1, 1), "groups": 1, "pads": (0, 20, 0, 20)}),
    "one volume made": ((1, 6, 4, 5, 9), (1, 6, 3, 2, 7), {"strides": (1, 1, 2), "groups": 1}),
    "more rows than are copied at once": ((1, 640, 15, 16), (18, 640, 3, 3), {"strides": (1, 1), "groups": 1}),
    "one pixel": ((1, 24, 3, 3), (40, 24, 3, 3), {"strides": (1, 1), "groups": 1}),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_read_weights_as_they_lie(name: str, dtype: DType) -> None:
    shape, weights, attrs = CONVOLUTIONS[name]
    spatial = len(shape) - 2
    rng = np.random.default_rng(1)
    b = Builder()
    x, w = b.input(TensorType(dtype, shape)), b.input(TensorType(dtype, weights))
    out = b.conv(x, w, None, **{"pads": (1,) * (2 * spatial), "dilations": (1,) * spatial, **attrs})
    terms = int(np.prod(weights[1:]))
    agree(b.finish("conv", [x, w], [out]), [numbers(rng, dtype, *shape), numbers(rng, dtype, *weights)], dtype, terms)


@pytest.mark.usefixtures("vector_unit")
@pytest.mark.parametrize("vector_unit", ["-mno-avx512f", "-mno-avx"], indirect=True)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_narrower_vector_units_give_the_same(dtype: DType) -> None:
    for rows, turned in itertools.product((1, 33), (False, True)):
        test_products_read_weights_as_they_lie(dtype, rows, turned)
    for name in CONVOLUTIONS:
        test_convolutions_read_weights_as_they_lie(name, dtype)


@pytest.mark.usefixtures("vector_unit")
@pytest.mark.parametrize("vector_unit", ["", "-mno-avx512f", "-mno-avx"], indirect=True)
def test_columns_are_the_same_in_whatever_company() -> None:
    """A few rows take many columns at once, then half as many, and so on: each sum is the same, bit for bit."""
    rng = np.random.default_rng(5)
    w = numbers(rng, dtypes.f32, 300, 250)
    given = {rows: numbers(rng, dtypes.f32, rows, 300) for rows in (1, 2, 5, 7)}

    def product(columns: int) -> dict[int, Array]:
        b = Builder()
        x = b.input(TensorType(dtypes.f32, (symbol("n"), 300)))
        program = compiled_on(CPU, b.finish("product", [x], [b.matmul(x, b.constant(w[:, :columns]))]))
        assert [node.op for node in program.plan.graph.nodes] == ["cpu.matmul_panels"]
        return {rows: program.run([array])[0] for rows, array in given.items()}

    whole = product(250)
    for columns in (1, 15, 16, 17, 31, 32, 40, 48, 64, 72, 80, 112, 128, 144, 168, 208, 224, 240):
        for rows, found in product(columns).items():
            np.testing.assert_array_equal(found, whole[rows][:, :columns], f"{rows} rows, {columns} columns")


@pytest.mark.usefixtures("vector_unit")
@pytest.mark.parametrize("vector_unit", ["", "-mno-avx512f", "-mno-avx"], indirect=True)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.i32, dtypes.u8], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("fixed", [True, False])
def test_one_row_is_the_same_beside_another(dtype: DType, fixed: bool) -> None:
    """A matrix whose rows lie in one stretch each is read in another way for one row; its sums are the same."""
    rng = np.random.default_rng(6)

    def product(x: Array, w: Array) -> Array:
        b = Builder()
        rows: Dim = x.shape[0] if fixed else symbol("n")
        left, right = b.input(TensorType(dtype, (rows, x.shape[1]))), b.input(TensorType(dtype, w.shape))
        return placed_on(CPU, b.finish("product", [left, right], [b.matmul(left, right)])).run([x, w])[0]

    for depth, columns in ((1, 1), (7, 300), (128, 17), (129, 256), (400, 33), (411, 515), (0, 5)):
        x, w = (rng.normal(scale=9, size=size).astype(dtype.numpy) for size in ((2, depth), (depth, columns)))
        both = product(x, w)
        for row in (0, 1):
            np.testing.assert_array_equal(product(x[row : row + 1], w), both[row : row + 1], f"{depth} × {columns}")


# ---- sums are made of shorter sums --------------------------------------------------------------------------------

SUMS = 4096
"""Terms, all near 1: a plain sum of f32 numbers errs by hundreds of roundings, one of shorter sums by a few."""


def _sum_graphs() -> Iterator[tuple[str, Graph, list[Array], Array]]:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.5, 1.5, (4, SUMS)).astype(np.float32)
    w = rng.uniform(0.5, 1.5, (SUMS, 24)).astype(np.float32)
    image = rng.uniform(0.5, 1.5, (1, SUMS // 4, 6, 6)).astype(np.float32)
    kernel = rng.uniform(0.5, 1.5, (8, SUMS // 4, 2, 2)).astype(np.float32)
    wide = np.float64

    def made(name: str, arrays: list[Array], make: Any, wanted: Array) -> tuple[str, Graph, list[Array], Array]:
        b = Builder()
        inputs = [b.input(TensorType(dtypes.of(array), array.shape)) for array in arrays]
        return name, b.finish(name, inputs, [make(b, *inputs)]), arrays, wanted

    yield made("product", [x, w], lambda b, x, w: b.matmul(x, w), x.astype(wide) @ w)
    for rows in (1, 64):
        many = np.repeat(x, 16, 0)[:rows]
        yield made(f"product of {rows} rows", [many, w], lambda b, x, w: b.matmul(x, w), many.astype(wide) @ w)
    conv = np.einsum(
        "ncyxhw,ochw->noyx", np.lib.stride_tricks.sliding_window_view(image.astype(wide), (2, 2), (2, 3)), kernel
    )
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    yield made("convolution", [image, kernel], lambda b, x, w: b.conv(x, w, None, **attrs), conv)
    for axes in ((1,), (0,), (0, 1)):
        turned = x if axes != (0,) else np.ascontiguousarray(x.T)
        yield made(
            f"sum over {axes}",
            [turned],
            lambda b, x, axes=axes: b.reduce_sum(x, axes=axes, keepdims=False),
            turned.astype(wide).sum(axes),
        )
    yield made("mean", [x], lambda b, x: b.reduce_mean(x, axes=(1,), keepdims=False), x.astype(wide).mean(1))


@pytest.mark.parametrize(
    ("name", "graph", "arrays", "wanted"), [pytest.param(*row, id=row[0]) for row in _sum_graphs()]
)
def test_sums_are_as_good_as_those_of_shorter_ones(name: str, graph: Graph, arrays: list[Array], wanted: Array) -> None:
    (found,) = placed_on(CPU, graph).run(arrays)
    error = np.abs(np.asarray(found, np.float64) - wanted).max() / np.abs(wanted).max()
    assert error < 3 * epsilon(dtypes.f32), f"{name}: {error / epsilon(dtypes.f32):.1f} roundings"


@pytest.mark.parametrize("sizes", [(64, 64), (symbol("H"), symbol("W"))], ids=["fixed sizes", "symbolic sizes"])
def test_the_mean_of_a_convolution_is_as_good_whatever_is_known_of_its_sizes(sizes: tuple[Dim, Dim]) -> None:
    rng = np.random.default_rng(0)
    image = rng.uniform(0.5, 1.5, (2, 3, 64, 64)).astype(np.float32)
    kernel = rng.uniform(0.5, 1.5, (16, 3, 1, 1)).astype(np.float32)
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (2, 3, *sizes)))
    made = b.conv(x, b.constant(kernel), None, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=1)
    graph = b.finish("mean", [x], [b.reduce_mean(b.relu(made), axes=(2, 3), keepdims=False)])
    (found,) = placed_on(CPU, graph).run([image])
    wanted = np.einsum("nchw,oc->no", image.astype(np.float64), kernel[:, :, 0, 0]) / 64**2
    error = np.abs(np.asarray(found, np.float64) - wanted).max() / np.abs(wanted).max()
    assert error < 3 * epsilon(dtypes.f32)
