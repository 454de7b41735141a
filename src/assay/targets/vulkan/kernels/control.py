"""Loops whose rounds can be counted before a run: the calls of a round are recorded as often as it takes."""

from __future__ import annotations

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import boolean, i64
from assay.ir.graph import Node
from assay.ir.types import TensorType
from assay.targets.base import limitation
from assay.targets.shared.bodies import carried_by, put, rounds_differ, rows_differ
from assay.targets.shared.planner import Planner
from assay.targets.shared.tape import Control
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader
from assay.targets.vulkan.templates import template


@limitation("how often it runs is known only when it does")
def _unclear_rounds(node: Node) -> bool:
    """What a loop collects has as many rows as it has rounds, if nothing but their number ends it."""
    stacks = [value.type for value in node.outputs[len(carried_by(node)) :]]
    return not any(isinstance(kind, TensorType) and kind.shape and kind.shape[0] is not UNKNOWN for kind in stacks)


@emits("loop", unless=(_unclear_rounds, rounds_differ, rows_differ), reads=None)
def loop(p: Planner, node: Node) -> None:
    """The body between two control steps. What it carries lies in the memory of the results."""
    carried = carried_by(node)
    body, count = node.regions[0], len(carried)
    results = [p.result(value) for value in node.outputs]
    states, stacks = results[:count], results[count:]
    put(p, [p.view(value) for value in carried], states)
    counter, running = p.temporary(i64, ()), p.temporary(boolean, ())
    p.step(template(write_start, [i64, boolean], 0), [counter, running], [], rows=1, writes=2)
    rounds = shape_of(node.outputs[-1])[0]
    error = p.error_cell(node, "it ran too often (Limits.loop_iterations)")
    begin = p.control(Control.LOOP, [error], [rounds])
    for value, view in zip(body.inputs, (counter, running, *states), strict=True):
        p.alias(value, view)
    p.round(body)
    made = [p.view(value) for value in body.outputs[1:]]
    for row, stack in zip(made[count:], stacks, strict=True):
        _stack(p, row, counter, stack)
    put(p, made[:count], states)
    p.step(template(write_count, [i64], 0), [counter], [], rows=1)
    begin.target = p.control(Control.NEXT, [counter, running], [], target=begin)


def _stack(p: Planner, row: View, counter: View, stack: View) -> None:
    dense = row if row.is_dense else p.copied(row)
    kernel = template(write_row, [row.dtype, i64, stack.dtype], 0)
    p.step(kernel, [dense, counter, stack], [], rows=dense.size)


def write_start(s: Shader) -> None:
    """Before the first round."""
    counter, running = s.operands
    with s.items(s.rows) as item:
        counter.store(item, s.value(0, counter.kind))
        running.store(item, s.value(True, running.kind))


def write_count(s: Shader) -> None:
    """After a round."""
    (counter,) = s.operands
    with s.items(s.rows) as item:
        counter.store(item, counter.load(item) + 1)


def write_row(s: Shader) -> None:
    """Put a row into its place among those that were collected."""
    row, counter, stack = s.operands
    number = s.cast(counter.load(s.value(0, "u32")), "u32")
    with s.items(s.rows) as item:
        stack.put_bits(number * s.rows + item, row.bits(item))
