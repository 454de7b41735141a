"""Norms in the weights of convolutions: which ones go there, and that results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

from assay.evidence.compare.arrays import closeness, epsilon
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.passes.hoist import hoist
from assay.runtime.session import place_program
from assay.targets.cpu import CpuTarget
from assay.targets.cpu.norms import fold_norms
from assay.targets.cpu.prepack import prepack
from assay.targets.reference import ReferenceTarget

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
    folded = fold_norms(graph, graph.inputs[1:])
    assert ops(hoist(folded, graph.inputs[1:]).rest) == ["conv", "relu"]
    program = place_program(folded, CpuTarget("exact", DEFAULT), "exact", DEFAULT)
    shapes = [(3, 4, 9, 7), (6, 2, 3, 3), *[(6,)] * 5]
    given = [RNG.uniform(0.5, 1, shape).astype(dtype.numpy) for shape in shapes]
    wanted = ReferenceTarget("precise", DEFAULT).compile(graph).run(given)[0]
    found = closeness(program.run(given)[0], wanted, absolute=60 * epsilon(dtype) * np.abs(wanted).max())
    assert found.ok, found


def test_a_convolution_that_others_read_keeps_its_weights() -> None:
    graph = network(dtypes.f32, shown=True)
    assert fold_norms(graph, graph.inputs[1:]) is graph


def test_what_changes_from_run_to_run_is_not_folded() -> None:
    graph = network(dtypes.f32)
    assert fold_norms(graph, []) is graph
    assert fold_norms(graph, graph.inputs[2:]) is graph
    assert fold_norms(graph, graph.inputs[1:3]) is graph


def test_weights_of_narrow_floats_are_not_rounded_again() -> None:
    graph = network(dtypes.bf16)
    assert fold_norms(graph, graph.inputs[1:]) is graph


def test_what_the_passes_make_and_change_carries_their_names() -> None:
    graph = network(dtypes.f32)
    folded = fold_norms(graph, graph.inputs[1:])
    assert {node.op: node.origin.passes for node in folded.nodes if node.op in ("conv", "relu")} == {
        "conv": ("fold_norms",),
        "relu": (),
    }
    made = prepack(folded, graph.inputs[1:])
    new = [node for node in made.nodes if node not in folded.nodes]
    assert new
    assert {node.origin.passes[-1] for node in new} == {"prepack"}
    assert all(node.origin.op for node in new)
