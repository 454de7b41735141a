"""What plans of loops and branches have in common: whether sizes stay the same, and results that are put in place."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import eq
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType, Type
from assay.targets.base import limitation
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View


def all_constants(graph: Graph) -> dict[Value, Array]:
    """The constants of a graph and of the bodies in it."""
    inner = (body.constants for node in graph.walk() for body in node.regions)
    return {value: array for each in (graph.constants, *inner) for value, array in each.items()}


def _same(a: Type, b: Type) -> bool:
    """Whether two types are one, as far as it can be proved."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape is None or b.shape is None:
        return False
    sizes = zip(a.shape, b.shape, strict=False)
    return a.dtype is b.dtype and len(a.shape) == len(b.shape) and all(eq(x, y) is True for x, y in sizes)


def equal_types(outer: Sequence[Value], inner: Sequence[Value]) -> bool:
    """Whether values are of the same types, as far as it can be proved; what one side has more does not matter."""
    return all(_same(a.type, b.type) for a, b in zip(outer, inner, strict=False))


def put(p: Planner, sources: Sequence[View], targets: Sequence[View]) -> None:
    """Copy all sources to their targets, as if at once: a target may be another one's source."""
    moves = [pair for pair in zip(sources, targets, strict=True) if pair[0] != pair[1]]
    overwritten = {target.storage for _, target in moves}
    safe = [p.copied(source) if source.storage in overwritten else source for source, _ in moves]
    for source, (_, target) in zip(safe, moves, strict=True):
        p.copy(source, target)


def carried_by(node: Node) -> list[Value]:
    """What a loop carries from round to round, before the first."""
    return [value for value in node.inputs[2:] if value is not None]


@limitation("what it carries from round to round differs in size")
def rounds_differ(node: Node) -> bool:
    """Whether a loop cannot keep what it carries at one place."""
    body = node.regions[0]
    return not all(equal_types(carried_by(node), each) for each in (body.inputs[2:], body.outputs[1:], node.outputs))


@limitation("what it collects differs in size")
def rows_differ(node: Node) -> bool:
    """Whether the place of a row that a loop collects is not known."""
    count = len(carried_by(node))
    stacks = [value.type for value in node.outputs[count:]]
    rows = [value.type for value in node.regions[0].outputs[1 + count :]]
    return not all(_same(stack, _stack_of(row, stack)) for row, stack in zip(rows, stacks, strict=True))


def _stack_of(row: Type, stack: Type) -> Type:
    """The type of as many rows as a stack has."""
    if not isinstance(row, TensorType) or not isinstance(stack, TensorType) or row.shape is None or not stack.shape:
        return row
    return TensorType(row.dtype, (stack.shape[0], *row.shape))
