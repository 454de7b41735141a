"""Programs on every target: sizes, threads, errors, observation, and how inputs lie in memory."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from programs import compiled_on, placed_on, tolerance
from suites.program_cases import block, rows

from assay.errors import LimitExceeded, RunFailed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import DType
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.targets.base import Event, Target
from assay.targets.reference import ReferenceTarget


def test_one_program_serves_every_length(target: Target) -> None:
    graph = block()
    program, oracle = compiled_on(target, graph), ReferenceTarget().compile(graph)
    for count in (1, 2, 7, 33, 200, 5):
        for mine, right in zip(program.run([rows(count)]), oracle.run([rows(count)]), strict=True):
            np.testing.assert_allclose(mine, right, **tolerance(target, 2e-5))


def test_a_view_without_elements(target_name: str) -> None:
    compiled = torch.compile(lambda x: x.flip(0, 2), backend="assay", options={"target": target_name}, dynamic=True)
    for shape in ((5, 3, 10), (5, 0, 10)):
        x = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
        torch.testing.assert_close(compiled(x), x.flip(0, 2))


def test_threads_may_share_a_program(target: Target) -> None:
    program = compiled_on(target, block())
    alone = {count: program.run([rows(count)])[0].tobytes() for count in range(1, 40)}
    with ThreadPoolExecutor(8) as workers:
        shared = dict(workers.map(lambda count: (count, program.run([rows(count)])[0].tobytes()), range(1, 40)))
    assert shared == alone


def test_an_observer_is_told_of_every_node_and_its_true_value(target: Target) -> None:
    events: list[Event] = []
    right: list[Event] = []
    program = placed_on(target, block())
    program.run([rows(9)], events.append)
    ReferenceTarget().compile(program.plan.graph).run([rows(9)], right.append)
    wanted = {event.node: event.results[0] for event in right}
    assert len(events) == len(right)
    for event in events:
        np.testing.assert_allclose(event.results[0], wanted.pop(event.node), **tolerance(target, 2e-5))
    assert not wanted
    assert sum(event.seconds for event in events) > 0


def test_what_a_product_still_reads_is_not_overwritten(target: Target) -> None:
    """x + x·w, whose sum could lie where x does if all of the product were there first."""
    b = Builder()
    x, w = (b.input(TensorType(dtypes.f32, (300, 300))) for _ in range(2))
    y = b.softmax(x, axis=1)
    graph = b.finish("residual", [x, w], [b.softmax(b.add(y, b.matmul(y, w)), axis=0)])
    arrays = [np.random.default_rng(seed).normal(size=(300, 300)).astype(np.float32) for seed in range(2)]
    (right,) = ReferenceTarget().compile(graph).run(arrays)
    np.testing.assert_allclose(compiled_on(target, graph).run(arrays)[0], right, **tolerance(target, 2e-5))


@pytest.mark.parametrize("source", [dtypes.i8, dtypes.i32, dtypes.u32, dtypes.f32])
@pytest.mark.parametrize("dtype", [dtypes.i64, dtypes.i16, dtypes.f64])
def test_a_number_keeps_its_sign_on_the_way_to_another_dtype(source: DType, dtype: DType, target: Target) -> None:
    """What a driver or a compiler makes of a conversion and a comparison together."""
    b = Builder()
    x = b.input(TensorType(source, (symbol("n", 1),)))
    wide = b.cast(x, dtype=dtype)
    results = [b.lt(wide, b.constant(0, dtype)), b.ge(wide, b.constant(3, dtype)), b.mod(wide, b.constant(-2, dtype))]
    graph, numbers = b.finish("casts", [x], results), np.array([-7, -1, 0, 2, 3, 9]).astype(source.numpy)
    oracle = ReferenceTarget().compile(graph).run([numbers])
    for mine, right in zip(compiled_on(target, graph).run([numbers]), oracle, strict=True):
        np.testing.assert_array_equal(mine, right)


def test_a_position_outside_is_an_error_that_names_the_node(target: Target) -> None:
    b = Builder()
    x, positions = b.input(TensorType(dtypes.f32, (5, 2))), b.input(TensorType(dtypes.i64, (3,)))
    program = compiled_on(target, b.finish("g", [x, positions], [b.gather(x, positions, axis=0)]))
    data = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(program.run([data, np.array([0, 4, -1])])[0], data[[0, 4, -1]])
    with pytest.raises(RunFailed, match="gather"):
        program.run([data, np.array([0, 5, 1])])
    np.testing.assert_array_equal(program.run([data, np.array([0, 4, -1])])[0], data[[0, 4, -1]])


def test_sizes_are_checked_before_memory_is_asked_for(target: Target) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n", 1),)))
    cube = b.add(b.add(x, b.unsqueeze(x, axes=(1,))), b.unsqueeze(x, axes=(1, 2)))
    program = compiled_on(target, b.finish("g", [x], [cube]))
    assert program.run([np.ones(3, np.float32)])[0].tolist() == np.full((3, 3, 3), 3.0).tolist()
    for count in (3000, 3_000_000):  # 108 GB; more bytes than 64 bits count
        with pytest.raises(LimitExceeded):
            program.run([np.ones(count, np.float32)])


def test_inputs_may_lie_anyhow_and_are_left_alone(target: Target) -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (4, 6)))
    program = compiled_on(target, b.finish("g", [x], [b.add(x, 1.0), b.transpose(x, perm=(1, 0)), b.relu(b.neg(x))]))
    whole = np.arange(48, dtype=np.float32).reshape(6, 8) - 20
    for array in (whole[:, 2:6].T, whole[::-1, :4].T, np.broadcast_to(whole[0, :6], (4, 6))):
        before = array.copy()
        plus, turned, cut = program.run([array])
        np.testing.assert_array_equal(plus, array + 1)
        np.testing.assert_array_equal(turned, array.T)
        np.testing.assert_array_equal(cut, np.maximum(-array, 0))
        np.testing.assert_array_equal(array, before)
