"""What a run moves between host and devices, as its plan says; nothing where a target works in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from assay.ir.dtypes import f32, i64
from assay.ir.graph import Graph
from assay.ir.types import TensorType, size_in_bytes
from assay.ops.builder import Builder
from assay.runtime.partition import Plan
from assay.runtime.session import Session, SessionOptions
from assay.targets.base import Target

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def whole() -> Graph:
    """Elementwise ops and a product."""
    b = Builder()
    x = b.input(TensorType(f32, (3, 4)))
    y = b.relu(b.add(b.matmul(x, b.constant(np.ones((4, 4), np.float32))), x))
    return b.finish("whole", [x], [y], input_names=("x",), output_names=("y",))


def parted() -> Graph:
    """A host op between two ops that devices have; what the second needs of the first is read again."""
    b = Builder()
    x = b.input(TensorType(f32, (3, 4)))
    first = b.mul(x, x)
    y = b.add(first, b.cast(b.gcd(b.cast(first, dtype=i64), 6), dtype=f32))
    return b.finish("parted", [x], [y, first], input_names=("x",), output_names=("y", "first"))


@pytest.mark.parametrize("make", [whole, parted])
def test_a_run_moves_what_its_plan_says(make: Callable[[], Graph], target: Target) -> None:
    session = Session(make(), SessionOptions(target=target.name))
    found = session.run({"x": X})
    for name, right in Session(make(), SessionOptions(target="reference")).run({"x": X}).items():
        np.testing.assert_allclose(found[name], right, rtol=1e-5)
    moved = session.transfers
    assert (moved is not None) == target.traits.own_memory
    if moved is not None:
        entries = sorted((each.source, each.destination, each.bytes) for each in moved.entries)
        assert entries == sorted(expected(session._latest.plan))
        assert all(each.seconds > 0 for each in moved.entries)


def expected(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Each value is moved to where it is needed, once, from where it was made."""
    where = {value: {"host"} for value in plan.graph.inputs}
    for segment in plan.segments:
        place = segment.target.name if segment.target.traits.own_memory else "host"
        for value in segment.graph.inputs:
            if place not in where[value]:
                yield next(iter(where[value])), place, size_in_bytes(value.type) or 0
                where[value].add(place)
        where.update({value: {place} for value in segment.graph.outputs})
    for value in plan.graph.outputs:
        if "host" not in where[value]:
            yield next(iter(where[value])), "host", size_in_bytes(value.type) or 0
            where[value].add("host")
