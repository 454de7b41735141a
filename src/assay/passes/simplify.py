"""Simplification: removes nodes that change nothing, joins what two neighbours do in one.

Exact rules, for any dtype and content:
- `cast` to the dtype it has; `reshape` and `expand` by a constant to the shape it has; `transpose` in order;
  `concat` of one; `pad` by zeros: the input itself. Shapes that a run computes stay: it has to look whether they fit.
- `fitting` of sizes that are known to fit: the input itself.
- `reshape` of a `reshape` that surely fits, `transpose` of a `transpose`: the latter alone, on the first one's input.
- `mul` and `div` by the constant 1, `sub` of the constant 0: the other operand, if it has the result's type.
- `gather` of what `block_dequantize` makes: of the blocks, so that only rows that are read are dequantised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from assay.ir.dims import eq, product
from assay.ir.dtypes import Array, u8
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, fresh_ids
from assay.ir.types import Shape, TensorType
from assay.ops import OPS
from assay.ops.conditions import noting
from assay.passes.rewrite import Replaced

Rule = Callable[["_Context", Node], "tuple[Node, ...] | Value | None"]
"""What stands for a node: nodes, of which the last makes its result, or a value that is there already."""


class _Context:
    """What a rule may ask: who made a value, what constants hold, and ids for new values."""

    def __init__(self, makers: dict[Value, Node], constants: Mapping[Value, Array], numbers: Iterator[int]) -> None:
        self.makers, self.constants, self.numbers = makers, constants, numbers

    def inside(self, body: Graph) -> _Context:
        """The same for a body of a node."""
        return _Context(self.makers, {**self.constants, **body.constants}, self.numbers)

    def maker(self, value: Value | None, op: str) -> Node | None:
        """The node that made `value`, if it applies `op`."""
        node = self.makers.get(value) if value is not None else None
        return node if node is not None and node.op == op else None

    def is_all(self, value: Value | None, number: int) -> bool:
        """True if `value` is a constant whose every element is `number`."""
        array = self.constants.get(value) if value is not None else None
        return array is not None and array.dtype != object and array.size <= 64 and bool(np.all(array == number))


def _if_same_type(ctx: _Context, node: Node) -> Value | None:
    source = node.inputs[0]
    static = getattr(node.outputs[0].type, "shape", None)
    known = node.inputs[1] in ctx.constants and static is not None and all(isinstance(d, int) for d in static)
    return source if source is not None and known and source.type == node.outputs[0].type else None


def _cast(ctx: _Context, node: Node) -> Value | None:
    source = node.inputs[0]
    return source if source is not None and source.type == node.outputs[0].type else None


def _fitting(ctx: _Context, node: Node) -> Value | None:
    facts = [None if value is None else Fact(value.type) for value in node.inputs]
    with noting() as open_questions, suppress(ValueError):
        OPS[node.op].infer(facts, node.attrs)
        return None if open_questions else node.inputs[0]
    return None


def _transpose(ctx: _Context, node: Node) -> tuple[Node, ...] | Value | None:
    perm, source = tuple(node.attrs["perm"]), node.inputs
    inner = ctx.maker(source[0], "transpose")
    if inner is not None:
        perm, source = tuple(inner.attrs["perm"][axis] for axis in perm), inner.inputs
    if perm == tuple(range(len(perm))):
        return source[0]
    if inner is None:
        return None
    return (replace(node, inputs=source, attrs={"perm": perm}),)


def _reshape(ctx: _Context, node: Node) -> tuple[Node, ...] | Value | None:
    unchanged = _if_same_type(ctx, node)
    inner = ctx.maker(node.inputs[0], "reshape")
    if unchanged is not None or inner is None or not _has_same_size(inner.inputs[0], inner.outputs[0]):
        return unchanged
    return (replace(node, inputs=(inner.inputs[0], node.inputs[1])),)


def _has_same_size(one: Value | None, other: Value) -> bool:
    """Whether two tensors surely have equally many elements."""
    sizes = _shape(one), _shape(other)
    return None not in sizes and eq(*(product(each or ()) for each in sizes)) is True


def _concat(ctx: _Context, node: Node) -> Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _pad(ctx: _Context, node: Node) -> Value | None:
    return node.inputs[0] if ctx.is_all(node.inputs[1], 0) else None


def _shape(value: Value | None) -> Shape:
    return value.type.shape if value is not None and isinstance(value.type, TensorType) else None


def _gather(ctx: _Context, node: Node) -> tuple[Node, ...] | None:
    made = ctx.maker(node.inputs[0], "block_dequantize")
    blocks, result = (None, None) if made is None else (_shape(made.inputs[0]), _shape(node.outputs[0]))
    if made is None or blocks is None or result is None or node.attrs["axis"] in (-1, len(blocks) - 1):
        return None
    rows = Value(next(ctx.numbers), TensorType(u8, (*result[:-1], blocks[-1])))
    gathered = replace(node, inputs=(made.inputs[0], *node.inputs[1:]), outputs=(rows,))
    return gathered, replace(node, op=made.op, inputs=(rows,), attrs=made.attrs)


def _neutral(number: int, either: bool) -> Rule:
    """Drops an operand that is all `number`; on the left side too if `either`."""

    def rule(ctx: _Context, node: Node) -> Value | None:
        left, right = node.inputs
        for operand, other in ((right, left), (left, right))[: 2 if either else 1]:
            if other is not None and other.type == node.outputs[0].type and ctx.is_all(operand, number):
                return other
        return None

    return rule


_RULES: dict[str, Rule] = {
    "cast": _cast,
    "reshape": _reshape,
    "expand": _if_same_type,
    "fitting": _fitting,
    "transpose": _transpose,
    "concat": _concat,
    "pad": _pad,
    "gather": _gather,
    "mul": _neutral(1, either=True),
    "div": _neutral(1, either=False),
    "sub": _neutral(0, either=False),
}


def simplify(graph: Graph) -> Graph:
    """`graph` without steps that change nothing."""
    return _simplify(graph, _Context({}, graph.constants, fresh_ids(graph)), Replaced())


def _simplify(graph: Graph, context: _Context, replaced: Replaced) -> Graph:
    nodes: list[Node] = []
    for original in graph.nodes:
        node = replaced.in_node(original)
        if node.regions and node.op != "deferred":
            node = replace(node, regions=tuple(_simplify(r, context.inside(r), replaced) for r in node.regions))
        rule = _RULES.get(node.op)
        better = rule(context, node) if rule is not None else None
        if isinstance(better, Value):
            replaced.note(node.outputs[0], better)
            continue
        for each in better or (node,):
            context.makers.update((value, each) for value in each.outputs)
            nodes.append(each)
    return replaced.in_graph(graph, nodes)
