"""Control flow: bodies become steps of the same tape, between steps that say which one comes next."""

from __future__ import annotations

from assay.ir.dtypes import boolean, i64
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.bodies import equal_types, put, rounds_differ, rows_differ
from assay.targets.shared.planner import Planner
from assay.targets.shared.tape import Control
from assay.targets.shared.views import View


@limitation("the results of its branches differ in size")
def _branches_differ(node: Node) -> bool:
    return not all(equal_types(node.outputs, region.outputs) for region in node.regions)


@emits("branch", unless=(_branches_differ,))
def branch(p: Planner, node: Node) -> None:
    """Either body, which puts its results where those of the other one would be."""
    results = [p.result(value) for value in node.outputs]
    first, second = node.regions
    start = p.control(Control.IF, [p.view(node.inputs[0])])
    p.body(first)
    put(p, [p.view(value) for value in first.outputs], results)
    middle = start.target = p.control(Control.ELSE)
    p.body(second)
    put(p, [p.view(value) for value in second.outputs], results)
    middle.target = p.control(Control.END)


@emits("loop", unless=(rounds_differ, rows_differ))
def loop(p: Planner, node: Node) -> None:
    """The body between two control steps. What it carries lies in the memory of the results."""
    trip, go, *carried = node.inputs
    body, count = node.regions[0], len(carried)
    results = [p.result(value) for value in node.outputs]
    states, stacks = results[:count], results[count:]
    put(p, [p.view(value) for value in carried], states)
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
    put(p, [goes_on, *made[:count]], [running, *states])
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
