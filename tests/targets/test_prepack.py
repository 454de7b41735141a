"""Packed weights: who gets them, and that results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

from assay.evidence.compare import closeness, epsilon
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
from assay.targets.cpu.prepack import prepack
from assay.targets.reference import ReferenceTarget

RNG = np.random.default_rng(5)


def network(dtype: DType) -> Graph:
    """Images of an open number and height through all kinds of convolutions, and two products with one weight."""
    b = Builder()
    x = b.input(TensorType(dtype, (symbol("n"), 3, symbol("h"), 9)))
    first, bias = b.input(TensorType(dtype, (20, 3, 3, 3))), b.input(TensorType(dtype, (20,)))
    each, grouped = b.input(TensorType(dtype, (20, 1, 3, 5))), b.input(TensorType(dtype, (12, 10, 3, 1)))
    point, weight = b.input(TensorType(dtype, (19, 12, 1, 1))), b.input(TensorType(dtype, (9, 9)))

    def conv(value: object, w: object, stride: int, pads: tuple[int, ...], groups: int, bias: object = None) -> object:
        return b.conv(value, w, bias, strides=(stride, 1), pads=pads, dilations=(1, 1), groups=groups)

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
    program = place_program(packed, target, "exact", DEFAULT)
    for sizes in ({"n": 2, "h": 13}, {"n": 1, "h": 40}, {"n": 0, "h": 8}):
        given = arrays(graph, **sizes)
        wanted = oracle.compile(graph).run(given)[0]
        found = closeness(program.run(given)[0], wanted, absolute=60 * epsilon(dtype) * np.abs(wanted).max(initial=1))
        assert found.ok, found


def test_weights_are_packed_once_and_ahead_of_the_run() -> None:
    graph = network(dtypes.f32)
    packed = prepack(graph, graph.inputs[1:])
    ops = [node.op for node in packed.nodes]
    assert (ops.count("pack_panels"), ops.count("conv_panels"), ops.count("matmul_panels")) == (5, 4, 2)
    assert "pack_panels" not in [node.op for node in hoist(packed, graph.inputs[1:]).rest.nodes]


def test_what_is_no_weight_stays() -> None:
    graph = network(dtypes.f32)
    assert prepack(graph, []) is graph
    whole = prepack(graph, graph.inputs)
    assert whole is graph
