"""Broadcasts of which only a run tells which axes are repeated: strides are chosen when sizes are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from programs import compiled_on

from assay.errors import RunFailed
from assay.ir.dims import Dim, floordiv, symbol
from assay.ir.dtypes import f32
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.program import Program
from assay.targets.base import Target
from assay.targets.cpu import CpuTarget
from assay.targets.vulkan import VulkanTarget

pytestmark = pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")

A, B = symbol("a"), symbol("b")
TARGETS: dict[str, Target] = {"cpu": CpuTarget("exact", DEFAULT), "vulkan": VulkanTarget("exact", DEFAULT)}
SIZES = (0, 1, 2, 4)
Make = Callable[..., Any]


def add(b: Builder, x: Any, y: Any) -> Any:
    return b.add(x, y)


def fused(b: Builder, x: Any, y: Any) -> Any:
    """A unit of several nodes, one operand of which is read twice."""
    return b.mul(b.relu(b.sub(x, y)), b.exp(x))


def chosen(b: Builder, x: Any, y: Any) -> Any:
    return b.where(b.lt(x, y), x, 0.5)


def normed(b: Builder, x: Any, y: Any) -> Any:
    """Something that goes on with the sum, its axes in another order."""
    return b.softmax(b.transpose(b.add(x, y), perm=(2, 0, 1)), axis=-1)


MAKES: list[Make] = [add, fused, chosen, normed]


@pytest.fixture(params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    """The targets that plan for all sizes at once."""
    probe = TARGETS[request.param].probe()
    if not probe.present:
        pytest.skip(f"the target {request.param} is not here: {probe.reason}")
    return request.param


def program_on(name: str, graph: Graph) -> Program:
    program = compiled_on(TARGETS[name], graph)
    assert {each.target for each in program.plan.placements} == {name}
    return program


def program_of(name: str, make: Make, left: Sequence[Dim], right: Sequence[Dim]) -> Program:
    b = Builder()
    x, y = (b.input(TensorType(f32, tuple(shape))) for shape in (left, right))
    return program_on(name, b.finish("g", [x, y], [make(b, x, y)]))


def right_result(make: Make, x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        if make is add:
            return x + y
        if make is fused:
            return np.maximum(x - y, 0) * np.exp(x)
        if make is chosen:
            return np.where(x < y, x, np.float32(0.5))
        scores = (x + y).transpose(2, 0, 1)
        shifted = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return shifted / shifted.sum(axis=-1, keepdims=True)


def check(program: Program, make: Make, left: Sequence[int], right: Sequence[int]) -> None:
    rng = np.random.default_rng(sum(left) * 100 + sum(right))
    x, y = (rng.normal(size=tuple(shape)).astype(np.float32) for shape in (left, right))
    try:
        wanted = right_result(make, x, y)
    except ValueError:
        with pytest.raises(RunFailed, match="must be equal, or one of them 1"):
            program.run([x, y])
        return
    (found,) = program.run([x, y])
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def numbers(shape: Sequence[Dim], size: int) -> list[int]:
    """A shape with this number in place of its symbol."""
    return [dim if isinstance(dim, int) else size for dim in shape]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("axis", range(3))
def test_two_sizes_that_a_run_tells(name: str, make: Make, axis: int) -> None:
    left: list[Dim] = [2, 3, 5]
    right: list[Dim] = [2, 3, 5]
    left[axis], right[axis] = A, B
    program = program_of(name, make, left, right)
    for a, b in itertools.product(SIZES, SIZES):
        check(program, make, numbers(left, a), numbers(right, b))


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("first", [True, False])
def test_a_size_that_a_run_tells_beside_a_number(name: str, make: Make, axis: int, first: bool) -> None:
    shapes: list[list[Dim]] = [[2, 3, 5], [2, 3, 5]]
    shapes[0 if first else 1][axis] = A
    program = program_of(name, make, *shapes)
    for size in (*SIZES, 3, 5):
        check(program, make, *(numbers(shape, size) for shape in shapes))


def test_all_axes_at_once_and_ranks_that_differ(name: str) -> None:
    program = program_of(name, add, [A, 3, B], [symbol("c"), symbol("d")])
    for a, b, c, d in itertools.product((1, 4), SIZES, (1, 3), SIZES):
        check(program, add, [a, 3, b], [c, d])


def test_a_size_that_is_never_one_is_not_repeated(name: str) -> None:
    """Then it must be equal, and its elements lie as they always do."""
    big = symbol("n", 2)
    program = program_of(name, add, [big, 5], [7, 5])
    check(program, add, [7, 5], [7, 5])
    check(program, add, [6, 5], [7, 5])


def test_three_operands(name: str) -> None:
    b = Builder()
    dims = [symbol(name) for name in "abc"]
    x, y, z = (b.input(TensorType(f32, (dim, 6))) for dim in dims)
    graph = b.finish("g", [x, y, z], [b.where(b.lt(x, y), y, z)])
    program = program_on(name, graph)
    for sizes in itertools.product(SIZES, repeat=3):
        arrays = [np.random.default_rng(at).normal(size=(n, 6)).astype(np.float32) for at, n in enumerate(sizes)]
        try:
            wanted = np.where(arrays[0] < arrays[1], arrays[1], arrays[2])
        except ValueError:
            with pytest.raises(RunFailed, match="must be equal, or one of them 1"):
                program.run(arrays)
            continue
        np.testing.assert_array_equal(program.run(arrays)[0], wanted)


# --- sizes that are too involved

LONG, LONGER = symbol("l" * 1015), symbol("m" * 1015)
"""Their product can be computed with, but not much more of it."""


@pytest.mark.parametrize(
    ("other", "reason"),
    [(B, "sizes are too involved to be multiplied"), (4, "nothing tells whether an axis is broadcast")],
)
def test_sums_whose_sizes_or_strides_cannot_be_computed_are_refused(name: str, other: Dim, reason: str) -> None:
    """They run on the oracle, and say why."""
    b = Builder()
    x, y = (b.input(TensorType(f32, (dim, LONG, LONGER))) for dim in (A, other))
    program = compiled_on(TARGETS[name], b.finish("g", [x, y], [b.add(x, y)]))
    assert [each.reason for placement in program.plan.placements for each in placement.refusals] == [reason]
    left, right = np.full((1, 2, 3), -1, np.float32), np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.testing.assert_array_equal(program.run([left, right])[0], left + right)


def test_a_view_whose_strides_are_too_involved_is_copied(name: str) -> None:
    b = Builder()
    x, y = b.input(TensorType(f32, (A, LONG, LONGER))), b.input(TensorType(f32, (LONG, LONGER, 4)))
    program = program_on(name, b.finish("g", [x, y], [b.add(b.transpose(x, perm=(1, 2, 0)), y)]))
    right = np.ones((2, 3, 4), np.float32)
    for size in (1, 4):
        left = np.arange(size * 6, dtype=np.float32).reshape(size, 2, 3)
        np.testing.assert_array_equal(program.run([left, right])[0], left.transpose(1, 2, 0) + right)
    with pytest.raises(RunFailed, match="must be equal, or one of them 1"):
        program.run([np.ones((2, 2, 3), np.float32), right])


def test_sizes_that_grow_with_every_sum_stay_computable(target: Target) -> None:
    """As in networks that add maps of several scales, each rounded up to a multiple of another number."""
    b = Builder()
    n = symbol("a_size_with_a_name")
    sizes = [floordiv(n + (1 << k) - 1, 1 << k) * (1 << k) for k in range(5)]
    inputs = [b.input(TensorType(f32, (size,) * 3)) for size in sizes]
    total = inputs[0]
    for each in inputs[1:]:
        total = b.add(total, each)
    program = compiled_on(target, b.finish("g", inputs, [b.relu(total)]))
    arrays = [np.full((16,) * 3, k, np.float32) for k in range(5)]
    np.testing.assert_array_equal(program.run(arrays)[0], np.full((16,) * 3, 10, np.float32))
    with pytest.raises(RunFailed, match=r"must be equal, or one of them 1|do not broadcast"):
        program.run([np.ones((-(-9 // (1 << k)) * (1 << k),) * 3, np.float32) for k in range(5)])
