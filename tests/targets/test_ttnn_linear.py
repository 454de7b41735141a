"""The pass `linear` of the Tenstorrent target: what becomes one call, what does not, and that it means the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assay.ir.dtypes import f32
from assay.ir.graph import Graph, Value, fresh_ids
from assay.ir.types import TensorType
from assay.ir.verify import verify
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.reference.interpreter import Interpreter
from assay.targets.ttnn.linear import fuse_linear

RNG = np.random.default_rng(0)
W = RNG.normal(size=(8, 6)).astype(np.float32)
BIAS = RNG.normal(size=6).astype(np.float32)


def built(make: Callable[[Builder, Value], list[Any]], shape: tuple[int, ...] = (2, 3, 8)) -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, shape))
    return b.finish("g", [x], make(b, x))


def layer(b: Builder, x: Value, function: str = "gelu") -> Any:
    """A linear layer as torch gives it: joined rows, a product, a row added, taken apart, passed through."""
    joined = b.reshape(x, [6, 8])
    return b.emit(function, b.reshape(b.add(b.matmul(joined, W), BIAS), [2, 3, 6]))[0]


FUSED: dict[str, Callable[[Builder, Value], list[Any]]] = {
    "a layer": lambda b, x: [layer(b, x)],
    "the row comes first": lambda b, x: [b.add(b.constant(BIAS), b.matmul(x, W))],
    "no row": lambda b, x: [b.relu(b.matmul(x, W))],
    "apart in another way": lambda b, x: [b.reshape(layer(b, x, "silu"), [2, 3, 2, 3])],
    "a matrix that is transposed": lambda b, x: [b.neg(b.matmul(x, b.transpose(b.constant(W.T.copy()), perm=(1, 0))))],
    "two layers": lambda b, x: [b.relu(b.add(b.matmul(layer(b, x), W.T.copy()), np.ones(8, np.float32)))],
    "two layers, joined": lambda b, x: [
        layer(b, b.reshape(b.relu(b.matmul(b.reshape(layer(b, x), [6, 6]), W.T.copy())), [2, 3, 8]))
    ],
}
APART: dict[str, Callable[[Builder, Value], list[Any]]] = {
    "the product has two readers": lambda b, x: [b.mul(y := b.matmul(x, W), b.relu(y))],
    "the product is a result": lambda b, x: [y := b.matmul(x, W), b.relu(y)],
    "a column is added": lambda b, x: [b.add(b.matmul(x, W), np.ones((2, 3, 1), np.float32))],
    "a vector is multiplied": lambda b, x: [b.relu(b.matmul(b.reshape(x, [48]), np.ones((48, 5), np.float32)))],
    "many matrices": lambda b, x: [b.relu(b.matmul(x, b.transpose(x, perm=(0, 2, 1))))],
}


@pytest.mark.parametrize("name", FUSED)
def test_a_layer_is_one_call_and_means_the_same(name: str) -> None:
    graph = built(FUSED[name])
    fused = fuse_linear(graph, (), fresh_ids(graph))
    verify(fused)
    ops = [node.op for node in fused.nodes]
    assert ops.count("ttnn.linear") == {"two layers": 2, "two layers, joined": 3}.get(name, 1)
    assert not {"matmul", "add", "relu", "gelu", "silu", "transpose"} & set(ops)
    assert ops.count("reshape") == (name == "apart in another way"), "rows are not joined and taken apart"
    x = RNG.normal(size=(2, 3, 8)).astype(np.float32)
    (found,), _ = Interpreter(fused, "precise", DEFAULT, {}).submit([x])
    (right,), _ = Interpreter(graph, "precise", DEFAULT, {}).submit([x])
    np.testing.assert_allclose(found, right, rtol=1e-12)


@pytest.mark.parametrize("name", APART)
def test_what_is_no_layer_stays(name: str) -> None:
    graph = built(APART[name])
    assert fuse_linear(graph, (), fresh_ids(graph)) is graph


def test_a_layer_tells_where_all_of_it_came_from() -> None:
    graph = built(lambda b, x: [b.relu(b.add(b.matmul(x, W), BIAS))])
    (node,) = fuse_linear(graph, (), fresh_ids(graph)).nodes
    assert len(node.origin.merged) == 2
