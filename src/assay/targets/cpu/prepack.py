"""Prepacking: products and convolutions with weights become ones with panels of these, which are computed once.

A weight depends on constants and static inputs alone. What packs it are ordinary nodes, so hoisting moves them out
of the way, and a weight that several nodes share is packed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay.ir.dtypes import FLOATS, Array, i64
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.registry import complete_attrs
from assay.passes.hoist import settled
from assay.targets.cpu.kernels.matmul import panel_width


@dataclass
class _Packing:
    """The new graph so far: its nodes, new constants, the packed weights, and numbers for new values."""

    known: Collection[Value]
    numbers: Iterator[int]
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    packed: dict[Any, Value] = field(default_factory=dict[Any, Value])

    def emit(self, origin: Origin, op: str, *inputs: Value, **attrs: Any) -> Value:
        """A node of one result."""
        full = complete_attrs(CORE[op], attrs)
        facts = [Fact(value.type, self.constants.get(value)) for value in inputs]
        result = Value(next(self.numbers), CORE[op].infer(facts, full)[0])
        self.nodes.append(Node(op, inputs, (result,), origin, full))
        return result

    def reshape(self, origin: Origin, x: Value, shape: Sequence[int]) -> Value:
        """x under another shape."""
        value = Value(next(self.numbers), TensorType(i64, (len(shape),)))
        self.constants[value] = np.array(shape, np.int64)
        return self.emit(origin, "reshape", x, value)

    def panels(self, origin: Origin, matrices: Value) -> Value:
        """Matrices as panels."""
        assert isinstance(matrices.type, TensorType)
        return self.emit(origin, "pack_panels", matrices, width=panel_width(matrices.type.dtype))

    def once(self, key: Any, make: Callable[[], Value]) -> Value:
        """What `make` makes, made the first time that `key` is asked for."""
        if key not in self.packed:
            self.packed[key] = make()
        return self.packed[key]


def prepack(graph: Graph, static: Collection[Value]) -> Graph:
    """`graph` with packed weights; `graph` itself if it has no weights."""
    highest = max((v.id for v in (*graph.inputs, *graph.constants, *_made(graph))), default=0)
    packing = _Packing(settled(graph, static), itertools.count(highest + 1))
    for node in graph.nodes:
        packing.nodes.append(_packed(packing, node) or node)
    if not packing.packed:
        return graph
    return replace(graph, nodes=tuple(packing.nodes), constants={**graph.constants, **packing.constants})


def _made(graph: Graph) -> Iterator[Value]:
    for node in graph.walk():
        yield from node.outputs
        for region in node.regions:
            yield from (*region.inputs, *region.constants)


def _packed(packing: _Packing, node: Node) -> Node | None:
    """The node with its weight packed, if its second operand is a weight of known shape and the first is none."""
    rule = _RULES.get(node.op)
    if rule is None:
        return None
    x, w = node.inputs[:2]
    if x is None or w is None or x in packing.known or w not in packing.known:
        return None
    known = _shape(w) and isinstance(w.type, TensorType) and w.type.dtype in FLOATS
    return rule(packing, node, x, w) if known else None


def _shape(w: Value) -> tuple[int, ...]:
    """The shape of a weight; empty unless it is known and has no axis of size 0."""
    shape = w.type.shape if isinstance(w.type, TensorType) else None
    sizes = tuple(size for size in shape or () if isinstance(size, int) and size)
    return sizes if shape is not None and len(sizes) == len(shape) else ()


def _product(packing: _Packing, node: Node, x: Value, w: Value) -> Node | None:
    """matmul(x, w) → matmul_panels(x, pack_panels(w)) for a weight of two axes."""
    shape = _shape(w)
    if len(shape) != 2:
        return None
    panels = packing.once(w, lambda: packing.panels(node.origin, w))
    return replace(node, op="matmul_panels", inputs=(x, panels), attrs={"columns": shape[1]})


def _convolution(packing: _Packing, node: Node, x: Value, w: Value) -> Node | None:
    """conv(x, w, bias) → conv_panels(x, panels of w) + bias."""
    channels, _, *kernel = _shape(w)
    groups = node.attrs["groups"]
    if not 1 <= len(kernel) <= 3:
        return None
    panels = packing.once((w, groups), lambda: _conv_panels(packing, node.origin, w, groups))
    attrs = {**node.attrs, "kernel": tuple(kernel), "channels": channels}
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return replace(node, op="conv_panels", inputs=(x, panels), attrs=attrs)
    result = Value(next(packing.numbers), node.outputs[0].type)
    packing.nodes.append(Node("conv_panels", (x, panels), (result,), node.origin, attrs))
    shaped = packing.once(bias, lambda: packing.reshape(node.origin, bias, (channels, *[1] * len(kernel))))
    return replace(node, op="add", inputs=(result, shaped), attrs={})


def _conv_panels(packing: _Packing, origin: Origin, w: Value, groups: int) -> Value:
    """The panels of the weights (M, C / groups, …) of a convolution, as `conv_panels` takes them."""
    channels, each, *kernel = _shape(w)
    if each == 1 and channels == groups:
        flat = packing.reshape(origin, w, (channels, math.prod(kernel)))
        return packing.panels(origin, packing.emit(origin, "transpose", flat, perm=(1, 0)))
    split = packing.reshape(origin, w, (groups, channels // groups, each, *kernel))
    turned = packing.emit(origin, "transpose", split, perm=(0, *range(3, 3 + len(kernel)), 2, 1))
    return packing.panels(
        origin, packing.reshape(origin, turned, (groups, math.prod(kernel) * each, channels // groups))
    )


_RULES: dict[str, Callable[[_Packing, Node, Value, Value], Node | None]] = {"matmul": _product, "conv": _convolution}
