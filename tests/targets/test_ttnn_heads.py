"""The pass `heads`: what surrounds attention becomes the library's own calls, and means the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.reference.interpreter import Interpreter
from assay.targets.ttnn.heads import fuse_heads

Made = Callable[[Builder], Graph]


def fused(graph: Graph) -> Graph:
    return fuse_heads(graph, (), count(10_000))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def same(graph: Graph, other: Graph) -> None:
    rng = np.random.default_rng(0)
    given: list[Any] = []
    for value in graph.inputs:
        assert isinstance(value.type, TensorType)
        shape = tuple(int(size) for size in value.type.shape or ())  # pyright: ignore[reportArgumentType]
        whole = not value.type.dtype.is_float
        given.append(rng.integers(0, 4, shape) if whole else rng.normal(size=shape).astype(np.float32))
    found, right = (Interpreter(each, "exact", DEFAULT, {}).submit(given)[0] for each in (other, graph))
    for one, two in zip(found, right, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def floats(b: Builder, *shape: int) -> Any:
    return b.input(TensorType(dtypes.f32, shape))


def joined(b: Builder, shape: tuple[int, ...]) -> Graph:
    x = floats(b, 2, 3, 5, 32)
    return b.finish("g", [x], [b.reshape(b.transpose(x, perm=(0, 2, 1, 3)), list(shape))])


@pytest.mark.parametrize("shape", [(2, 5, 96), (10, 96)])
def test_heads_side_by_side(shape: tuple[int, ...]) -> None:
    graph = joined(Builder(), shape)
    assert ops(fused(graph)) == ["ttnn.concat_heads"] + ["reshape"] * (len(shape) == 2)
    same(graph, fused(graph))


def split(b: Builder, heads: int = 3, width: int = 32) -> Graph:
    x = floats(b, 2, 5, 3 * heads * width)
    part = heads * width
    parts = [b.slice(x, [at * part], [(at + 1) * part], [1], axes=(2,)) for at in range(3)]
    turned = [b.transpose(b.reshape(part, [2, 5, heads, width]), perm=(0, 2, 1, 3)) for part in parts]
    return b.finish("g", [x], turned)


def unbound(b: Builder) -> Graph:
    x = floats(b, 2, 5, 3 * 4 * 32)
    turned = b.transpose(b.reshape(x, [2, 5, 3, 4, 32]), perm=(2, 0, 3, 1, 4))
    return b.finish("g", [x], [b.gather(turned, b.constant(np.array(at)), axis=0) for at in (0, 1, -1)])


@pytest.mark.parametrize("made", [split, unbound])
def test_queries_keys_and_values(made: Made) -> None:
    graph = made(Builder())
    assert ops(fused(graph)) == ["ttnn.split_heads"]
    same(graph, fused(graph))


def test_heads_that_are_no_whole_tiles_are_left() -> None:
    graph = split(Builder(), width=24)
    assert fused(graph) is graph


def turned(b: Builder, swapped: bool = False, high_first: bool = True) -> Graph:
    x, cos, sin = floats(b, 2, 3, 5, 64), floats(b, 1, 1, 5, 64), floats(b, 5, 64)
    low, high = (b.slice(x, [start], [start + 32], [1], axes=(3,)) for start in (0, 32))
    halves = (b.neg(high), low) if high_first else (b.neg(low), high)
    straight, crossed = b.mul(x, cos), b.mul(sin, b.concat(*halves, axis=3))
    return b.finish("g", [x, cos, sin], [b.add(crossed, straight) if swapped else b.add(straight, crossed)])


@pytest.mark.parametrize("swapped", [False, True])
def test_rotations(swapped: bool) -> None:
    graph = turned(Builder(), swapped)
    assert ops(fused(graph)) == ["ttnn.rotary"]
    same(graph, fused(graph))


def test_what_is_turned_the_other_way_is_left() -> None:
    graph = turned(Builder(), high_first=False)
    assert fused(graph) is graph


def angles(b: Builder, other: bool = False) -> Graph:
    places = b.input(TensorType(dtypes.i64, (1, 5, 1)))
    frequencies = b.constant(10000.0 ** -(np.arange(16, dtype=np.float32) / 16))
    turns = b.mul(b.cast(places, dtype=dtypes.f32), frequencies)
    both = b.concat(turns, turns, axis=2)
    return b.finish("g", [places], [b.cos(both), b.exp(both) if other else b.sin(both)])


def test_angles_of_far_places_are_not_rounded() -> None:
    graph = angles(Builder())
    assert ops(fused(graph)) == ["ttnn.rotations"]
    same(graph, fused(graph))
    places = np.array([0, 255, 257, 1001, 4099]).reshape(1, 5, 1)
    right = Interpreter(graph, "precise", DEFAULT, {}).submit([places])[0]
    for found, wanted in zip(Interpreter(fused(graph), "bf16", DEFAULT, {}).submit([places])[0], right, strict=True):
        np.testing.assert_allclose(found, wanted, atol=2**-8)
    coarse = Interpreter(graph, "bf16", DEFAULT, {}).submit([places])[0]
    assert abs(np.asarray(coarse) - np.asarray(right)).max() > 0.1, "without the pass"


def test_angles_that_something_else_reads_are_left() -> None:
    graph = angles(Builder(), other=True)
    assert fused(graph) is graph


def cached(b: Builder, again: bool = False, rows: int = 1) -> Graph:
    cache, new = floats(b, 2, 3, 64, 32), floats(b, rows, 2, 3, 32)
    places = b.input(TensorType(dtypes.i64, (rows,)))
    written = b.scatter_nd(b.transpose(cache, perm=(2, 0, 1, 3)), b.unsqueeze(places, axes=(1,)), new)
    more = [b.exp(cache)] if again else []
    return b.finish("g", [cache, new, places], [b.transpose(written, perm=(1, 2, 0, 3)), *more])


def test_a_row_of_a_cache() -> None:
    graph = cached(Builder())
    assert ops(fused(graph)) == ["ttnn.update_cache"]
    same(graph, fused(graph))


@pytest.mark.parametrize("case", [{"again": True}, {"rows": 2}])
def test_a_cache_that_is_read_once_more_or_gets_several_rows_is_left(case: dict[str, Any]) -> None:
    graph = cached(Builder(), **case)
    assert "ttnn.update_cache" not in ops(fused(graph))


def shared(b: Builder, swapped: bool = False) -> Graph:
    q, k, v = floats(b, 2, 6, 5, 32), floats(b, 2, 3, 7, 32), floats(b, 2, 3, 7, 32)
    spread = [2, 2, 3, 7, 32] if swapped else [2, 3, 2, 7, 32]
    apart = (b.expand(b.unsqueeze(each, axes=(1 if swapped else 2,)), b.constant(np.array(spread))) for each in (k, v))
    return b.finish("g", [q, k, v], [b.sdpa(q, *(b.reshape(each, [2, 6, 7, 32]) for each in apart))])


def test_keys_and_values_that_heads_share_are_not_repeated() -> None:
    graph = shared(Builder())
    assert ops(fused(graph)) == ["sdpa"]
    same(graph, fused(graph))


def test_heads_that_are_repeated_as_a_whole_are_left() -> None:
    graph = shared(Builder(), swapped=True)
    assert fused(graph) is graph
