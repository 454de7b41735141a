"""Control flow: bodies become steps of the same tape, between steps that say which one comes next."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import eq
from assay.ir.dtypes import boolean, i64
from assay.ir.graph import Node, Value
from assay.ir.types import TensorType, Type
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.tape import Control
from assay.targets.shared.views import View


def _same(a: Type, b: Type) -> bool:
    """Whether two types are one, as far as it can be proved."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape is None or b.shape is None:
        return False
    sizes = zip(a.shape, b.shape, strict=False)
    return a.dtype is b.dtype and len(a.shape) == len(b.shape) and all(eq(x, y) is True for x, y in sizes)


def _equal(outer: Sequence[Value], inner: Sequence[Value]) -> bool:
    return all(_same(a.type, b.type) for a, b in zip(outer, inner, strict=False))


@limitation("the results of its branches differ in size")
def _branches_differ(node: Node) -> bool:
    return not all(_equal(node.outputs, region.outputs) for region in node.regions)


@emits("branch", unless=(_branches_differ,))
def branch(p: Planner, node: Node) -> None:
    """Either body, which puts its results where those of the other one would be."""
    results = [p.result(value) for value in node.outputs]
    first, second = node.regions
    start = p.control(Control.IF, [p.view(node.inputs[0])])
    p.body(first)
    _put(p, [p.view(value) for value in first.outputs], results)
    middle = start.target = p.control(Control.ELSE)
    p.body(second)
    _put(p, [p.view(value) for value in second.outputs], results)
    middle.target = p.control(Control.END)


def _put(p: Planner, sources: Sequence[View], targets: Sequence[View]) -> None:
    """Copy all sources to their targets, as if at once: a target may be another one's source."""
    moves = [pair for pair in zip(sources, targets, strict=True) if pair[0] != pair[1]]
    overwritten = {target.storage for _, target in moves}
    safe = [p.copied(source) if source.storage in overwritten else source for source, _ in moves]
    for source, (_, target) in zip(safe, moves, strict=True):
        p.copy(source, target)


def _carried(node: Node) -> list[Value]:
    return [value for value in node.inputs[2:] if value is not None]


@limitation("what it carries from round to round differs in size")
def _rounds_differ(node: Node) -> bool:
    body = node.regions[0]
    return not all(_equal(_carried(node), each) for each in (body.inputs[2:], body.outputs[1:], node.outputs))


@limitation("what it collects differs in size")
def _rows_differ(node: Node) -> bool:
    count = len(_carried(node))
    stacks = [value.type for value in node.outputs[count:]]
    rows = [value.type for value in node.regions[0].outputs[1 + count :]]
    return not all(_same(stack, _stack_of(row, stack)) for row, stack in zip(rows, stacks, strict=True))


def _stack_of(row: Type, stack: Type) -> Type:
    """The type of as many rows as a stack has."""
    if not isinstance(row, TensorType) or not isinstance(stack, TensorType) or row.shape is None or not stack.shape:
        return row
    return TensorType(row.dtype, (stack.shape[0], *row.shape))


@emits("loop", unless=(_rounds_differ, _rows_differ))
def loop(p: Planner, node: Node) -> None:
    """The body between two control steps. What it carries lies in the memory of the results."""
    trip, go, *carried = node.inputs
    body, count = node.regions[0], len(carried)
    results = [p.result(value) for value in node.outputs]
    states, stacks = results[:count], results[count:]
    _put(p, [p.view(value) for value in carried], states)
    counter, running = p.temporary(i64, ()), p.temporary(boolean, ())
    error = p.error_cell(node, "it ran too often (Limits.loop_iterations)")
    given = [] if trip is None else [p.view(trip)]
    first = [] if go is None else [p.view(go)]
    begin = p.control(Control.LOOP, [counter, running, error, *given, *first], [len(given), len(first)])
    for value, view in zip(body.inputs, (counter, running, *states), strict=True):
        p.alias(value, view)
    p.round(body)
    goes_on, *made = (p.view(value) for value in body.outputs)
    for row, stack in zip(made[count:], stacks, strict=True):
        _stack(p, row, counter, stack)
    _put(p, [goes_on, *made[:count]], [running, *states])
    most = p.limits.loop_iterations
    begin.target = p.control(Control.NEXT, [counter, running, error, *given], [len(given), most], target=begin)


def _stack(p: Planner, row: View, counter: View, stack: View) -> None:
    dense = row if row.is_dense else p.copied(row)
    p.step(
        template("put.h", T=scalar.bits(row.dtype)),
        [dense, counter, stack],
        [dense.size, stack.shape[0]],
        rows=1,
        cols=dense.size,
        col_grain=64,
    )
