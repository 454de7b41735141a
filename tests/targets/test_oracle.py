"""The oracle's two modes, its determinism, and how it treats memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from suites.budget_cases import CHAIN, feeds_of_chain, session_of

from assay.errors import LimitExceeded, OutOfMemory, RunFailed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import Limits
from assay.ops.builder import Builder
from assay.targets.base import Event
from assay.targets.reference import ReferenceTarget


def chain(dtype: DType, steps: int = 6) -> Graph:
    b = Builder()
    x = value = b.input(TensorType(dtype, (symbol("n"),)))
    for _ in range(steps):
        value = b.add(b.sin(value), b.div(value, 3.0))
    return b.finish("chain", [x], [value])


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=str)
def test_exact_rounds_at_every_op_and_precise_only_at_the_end(dtype: DType) -> None:
    x = np.linspace(0.1, 3, 50).astype(dtype.numpy)
    exact = ReferenceTarget("exact").compile(chain(dtype)).run([x])[0]
    precise = ReferenceTarget("precise").compile(chain(dtype)).run([x])[0]
    assert exact.dtype == precise.dtype == dtype.numpy
    value = x.astype(np.float64)
    for _ in range(6):
        value = np.sin(value) + value / 3.0
    np.testing.assert_array_equal(precise, value.astype(dtype.numpy))
    distance = np.abs(exact.astype(np.float64) - value).max()
    assert (
        (distance == 0) if dtype is dtypes.f64 else (0 < distance < 20 * float(dtypes.ml_dtypes.finfo(dtype.numpy).eps))
    )


def test_f32_results_are_correctly_rounded_sums() -> None:
    """Accumulation in f64: a sum that plain f32 accumulation gets wrong."""
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (4,)))
    graph = b.finish("sum", [x], [b.reduce_sum(x), b.matmul(x, b.constant(np.ones(4, np.float32)))])
    array = np.array([1e8, 1.0, 1.0, -1e8], np.float32)
    assert [float(r) for r in ReferenceTarget().compile(graph).run([array])] == [2.0, 2.0]


def test_runs_are_deterministic_bit_for_bit() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (64, 64)))
    graph = b.finish("mm", [x], [b.matmul(b.exp(x), b.tanh(x))])
    array = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    program = ReferenceTarget().compile(graph)
    first = program.run([array])[0].tobytes()
    assert all(program.run([array])[0].tobytes() == first for _ in range(5))


def test_values_are_freed_at_their_last_use() -> None:
    b = Builder()
    x = value = b.input(TensorType(dtypes.f32, (1000,)))
    for _ in range(10):
        value = b.exp(b.neg(value))
    events: list[Event] = []
    ReferenceTarget().compile(b.finish("c", [x], [value])).run([np.ones(1000, np.float32)], events.append)
    assert len(events) == 20
    assert max(event.live_bytes for event in events) <= 3 * 4000
    assert all(event.seconds > 0 for event in events)


def test_a_dynamic_result_is_sized_before_it_is_made() -> None:
    b = Builder()
    n = b.input(TensorType(dtypes.i64, (2,)))
    graph = b.finish("big", [n], [b.expand(1.0, n)])
    program = ReferenceTarget(limits=Limits(tensor_bytes=1 << 20)).compile(graph)
    assert program.run([np.array([4, 5])])[0].shape == (4, 5)
    with pytest.raises(LimitExceeded, match="1000000"):
        program.run([np.array([1_000_000, 1_000_000])])


def test_a_wrong_rule_is_caught_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from assay.ops.registry import CORE

    wrong: Any = replace(CORE["neg"], reference=lambda x: np.concatenate([x, x]))
    monkeypatch.setitem(CORE.table, "neg", wrong)
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (3,)))
    graph = b.finish("wrong", [x], [b.neg(x)])
    with pytest.raises(RunFailed, match="its rule says"):
        ReferenceTarget().compile(graph).run([np.ones(3, np.float32)])


def test_an_error_names_the_node_and_its_origin() -> None:
    b = Builder()
    x, i = b.input(TensorType(dtypes.f32, (3,))), b.input(TensorType(dtypes.i64, (1,)))
    from assay.ir.graph import Origin

    with b.origin(Origin("onnx.Gather", "lookup", file="model.py", line=7)):
        y = b.gather(x, i, axis=0)
    with pytest.raises(RunFailed, match=r"gather(.|\n)*lookup(.|\n)*model\.py:7"):
        ReferenceTarget().compile(b.finish("g", [x, i], [y])).run([np.ones(3, np.float32), np.array([9])])


def test_memory_that_the_system_refuses_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise MemoryError("Unable to allocate")

    expected = session_of(CHAIN, "reference").run(feeds_of_chain())["y"]
    with monkeypatch.context() as patched:
        for name in ("exp", "matmul"):
            patched.setattr(np, name, refuse)
        session = session_of(CHAIN, "reference")
        with pytest.raises(OutOfMemory) as caught:
            session.run(feeds_of_chain())
    assert caught.value.where
    np.testing.assert_array_equal(session_of(CHAIN, "reference").run(feeds_of_chain())["y"], expected)
