"""Norms in the weights of convolutions: which ones go there, and that results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
from programs import placed_on

from assay.evidence.compare.arrays import closeness, epsilon
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import DType
from assay.ir.graph import Graph, fresh_ids
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.passes.hoist import hoist
from assay.targets.cpu import CpuTarget
from assay.targets.reference import ReferenceTarget
from assay.targets.shared.norms import fold_norms

RNG = np.random.default_rng(6)


def network(dtype: DType, *, affine: bool = True, bias: bool = False, shown: bool = False) -> Graph:
    """A convolution and its norm, of which the result may be shown before the norm, too."""
    b = Builder()
    x, w = b.input(TensorType(dtype, (symbol("n"), 4, 9, 7))), b.input(TensorType(dtype, (6, 2, 3, 3)))
    mean, variance, scale, offset, given = (b.input(TensorType(dtype, (6,))) for _ in range(5))
    made = b.conv(x, w, given if bias else None, strides=(2, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=2)
    normal = b.batch_norm(made, mean, variance, *([scale, offset] if affine else []), epsilon=1e-3)
    outputs = [b.relu(normal), *([made] if shown else [])]
    return b.finish("network", [x, w, mean, variance, scale, offset, given], outputs)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_results_are_those_of_the_oracle(dtype: DType, affine: bool, bias: bool) -> None:
    graph = network(dtype, affine=affine, bias=bias)
    folded = fold_norms(graph, graph.inputs[1:], fresh_ids(graph))
    assert ops(hoist(folded, graph.inputs[1:]).rest) == ["conv", "relu"]
    program = placed_on(CpuTarget("exact", DEFAULT), folded)
    shapes = [(3, 4, 9, 7), (6, 2, 3, 3), *[(6,)] * 5]
    given = [RNG.uniform(0.5, 1, shape).astype(dtype.numpy) for shape in shapes]
    wanted = ReferenceTarget("precise", DEFAULT).compile(graph).run(given)[0]
    found = closeness(program.run(given)[0], wanted, absolute=60 * epsilon(dtype) * np.abs(wanted).max())
    assert found.ok, found


@pytest.mark.parametrize("bias", [False, True])
def test_factors_and_shifts_of_channels_go_there_too(bias: bool) -> None:
    b = Builder()
    shapes = [(3, 4, 9, 7), (6, 2, 3, 3), (6,), (1, 6, 1, 1), (6, 1, 1)]
    x, w, given, factor, shift = inputs = [b.input(TensorType(dtypes.f32, shape)) for shape in shapes]
    y = b.conv(x, w, given if bias else None, strides=(2, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=2)
    graph = b.finish("network", inputs, [b.relu(b.add(shift, b.mul(y, factor)))])
    folded = fold_norms(graph, graph.inputs[1:], fresh_ids(graph))
    assert ops(hoist(folded, graph.inputs[1:]).rest) == ["conv", "relu"]
    arrays = [RNG.uniform(0.5, 1, shape).astype(np.float32) for shape in shapes]
    wanted = ReferenceTarget("precise", DEFAULT).compile(graph).run(arrays)[0]
    found = placed_on(CpuTarget("exact", DEFAULT), folded).run(arrays)[0]
    assert closeness(found, wanted, absolute=60 * epsilon(dtypes.f32) * np.abs(wanted).max()).ok


@pytest.mark.parametrize("shape", [(6,), (9, 1), (1,), (6, 9, 1), (3, 6, 1, 1), (1, 1, 6, 1, 1)])
def test_what_is_not_by_channel_stays(shape: tuple[int, ...]) -> None:
    b = Builder()
    x, w = b.input(TensorType(dtypes.f32, (3, 4, 9, 7))), b.input(TensorType(dtypes.f32, (6, 4, 3, 3)))
    factor = b.input(TensorType(dtypes.f32, shape))
    y = b.conv(x, w, strides=(1, 1), pads=(1, 0, 1, 1), dilations=(1, 1), groups=1)
    graph = b.finish("network", [x, w, factor], [b.mul(y, factor)])
    assert fold_norms(graph, graph.inputs[1:], fresh_ids(graph)) is graph


@pytest.mark.parametrize(
    ("factor", "folds"), [(3.0, True), (0.0, True), (np.inf, False), (np.nan, False), (1e30, False)]
)
def test_factors_that_bring_weights_out_of_range_stay(factor: float, folds: bool) -> None:
    b = Builder()
    x, w = b.input(TensorType(dtypes.f32, (3, 4, 9, 7))), b.input(TensorType(dtypes.f32, (6, 4, 3, 3)))
    y = b.conv(x, w, strides=(1, 1), pads=(1, 0, 1, 1), dilations=(1, 1), groups=1)
    factors = np.array([1, 2, -3, 4, 5, factor], np.float32).reshape(6, 1, 1)
    graph = b.finish("network", [x, w], [b.mul(y, b.constant(factors))])
    assert (fold_norms(graph, [w], fresh_ids(graph)) is not graph) is folds


def test_a_convolution_that_others_read_keeps_its_weights() -> None:
    graph = network(dtypes.f32, shown=True)
    assert fold_norms(graph, graph.inputs[1:], fresh_ids(graph)) is graph


def test_what_changes_from_run_to_run_is_not_folded() -> None:
    graph = network(dtypes.f32)
    assert fold_norms(graph, [], fresh_ids(graph)) is graph
    assert fold_norms(graph, graph.inputs[2:], fresh_ids(graph)) is graph
    assert fold_norms(graph, graph.inputs[1:3], fresh_ids(graph)) is graph


def test_weights_of_narrow_floats_are_not_rounded_again() -> None:
    graph = network(dtypes.bf16)
    assert fold_norms(graph, graph.inputs[1:], fresh_ids(graph)) is graph
