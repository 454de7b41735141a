"""Prepacking: products and convolutions with weights become ones with panels of these, which are computed once.

A weight depends on constants and static inputs alone. What packs it are ordinary nodes, so hoisting moves them out
of the way, and a weight that several nodes share is packed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import TypeAlias, cast

from assay.ir.dtypes import FLOATS, f32, i32
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.registry import complete_attrs
from assay.passes.dce import dce
from assay.passes.rewrite import Rewriting, begin
from assay.targets.cpu.byte_weights import ByteWeight, byte_weight
from assay.targets.cpu.exact_floats import in_floats
from assay.targets.cpu.kernels.conv import is_of_dots
from assay.targets.cpu.kernels.matmul import panel_width
from assay.targets.cpu.quads import with_quads
from assay.targets.cpu.rewriting import known_shape

_Rule: TypeAlias = Callable[[Rewriting, Graph, Mapping[Value, Node], Node], Node | None]
"""What stands for a node of a graph, given the makers of its values; None if the rule is none for this node."""


def quad_panels(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products of quantised numbers become exact sums of bytes, where processors have an instruction for them."""
    return _rewritten(graph, begin(graph, static, numbers), with_quads)


def byte_panels(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products with dequantised weights become products with the bytes themselves, in panels."""
    return _rewritten(graph, begin(graph, static, numbers), _with_bytes)


def block_products(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products with the transpose of dequantised blocks become products with the blocks as they are."""
    return _rewritten(graph, begin(graph, static, numbers), _with_blocks)


def sums_in_floats(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products and convolutions of bytes in i32 become ones of f32 where that holds every sum."""
    return _rewritten(graph, begin(graph, static, numbers), _with_floats)


def panels(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products and convolutions with weights become ones with panels of these, in bodies too."""
    return _rewritten(graph, begin(graph, static, numbers), _with_panels, in_bodies=True)


def _rewritten(graph: Graph, packing: Rewriting, rule: _Rule, *, in_bodies: bool = False) -> Graph:
    """`graph` with the rule applied to every node; `graph` itself if it applies to none."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    for node in graph.nodes:
        inside = _with_bodies(packing, graph, makers, node, rule) if in_bodies and node.regions else node
        packing.nodes.append(rule(packing, graph, makers, inside) or inside)
    unchanged = len(packing.nodes) == len(graph.nodes) and all(map(is_, packing.nodes, graph.nodes))
    return graph if unchanged else dce(packing.finished(graph))


def _with_bodies(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node, rule: _Rule) -> Node:
    """The node with the rule applied in its bodies. What is made of weights alone stands before it, not in them."""
    outer, regions = packing.nodes, list(node.regions)
    for at, body in enumerate(node.regions):
        inner = packing.nodes = list[Node]()
        known = {**makers, **{value: each for each in body.nodes for value in each.outputs}}
        for each in body.nodes:
            inside = _with_bodies(packing, graph, known, each, rule) if each.regions else each
            packing.nodes.append(rule(packing, graph, known, inside) or inside)
        if len(inner) != len(body.nodes) or not all(map(is_, inner, body.nodes)):
            early = [each for each in inner if each.outputs and packing.known.issuperset(each.outputs)]
            outer += early
            regions[at] = replace(body, nodes=tuple(each for each in inner if each not in early))
    packing.nodes = outer
    return node if all(map(is_, regions, node.regions)) else replace(node, regions=tuple(regions))


def _with_floats(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node) -> Node | None:
    """A product or convolution of bytes in i32 as one of floats, if that is exact."""
    floats = in_floats(packing, graph, makers, node)
    if floats is None:
        return None
    packing.nodes.append(floats)
    return replace(node, op="cast", inputs=floats.outputs, attrs=complete_attrs(CORE["cast"], {"dtype": i32}))


def _with_panels(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node) -> Node | None:
    return _packed(packing, node)


def _packed(packing: Rewriting, node: Node) -> Node | None:
    """The node with its weight packed, if its second operand is a weight of known shape and the first is none."""
    rule = _RULES.get(node.op)
    if rule is None:
        return None
    x, w = node.inputs[:2]
    if x is None or w is None or x in packing.known or w not in packing.known:
        return None
    known = known_shape(w) and isinstance(w.type, TensorType) and w.type.dtype in FLOATS
    return rule(packing, node, x, w) if known else None


def _panels(packing: Rewriting, origin: Origin, matrices: Value) -> Value:
    """Matrices as panels."""
    assert isinstance(matrices.type, TensorType)
    return packing.emit(origin, "cpu.pack_panels", matrices, width=panel_width(matrices.type.dtype))


def _product(packing: Rewriting, node: Node, x: Value, w: Value) -> Node | None:
    """matmul(x, w) → matmul_panels(x, pack_panels(w)) for a weight of two axes."""
    shape = known_shape(w)
    if len(shape) != 2:
        return None
    panels = packing.once(w, lambda: _panels(packing, node.origin, w))
    return replace(node, op="cpu.matmul_panels", inputs=(x, panels), attrs={"columns": shape[1]})


def _with_bytes(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node) -> Node | None:
    """matmul(x, dequantize_linear(q, scale)) → matmul_bytes(x, pack_panels(q)) · scale: a weight stays narrow."""
    x, w = node.inputs[:2] if node.op == "matmul" else (None, None)
    weight = None if x is None or w is None or x in packing.known else byte_weight(packing, graph, makers, w)
    if x is None or weight is None:
        return None
    panels = packing.once((weight, f32), lambda: _byte_panels(packing, node.origin, weight))
    result = packing.emit(node.origin, "cpu.matmul_bytes", x, panels, columns=weight.columns)
    return replace(node, op="mul", inputs=(result, weight.scales(packing, node.origin)), attrs={})


def _byte_panels(packing: Rewriting, origin: Origin, weight: ByteWeight) -> Value:
    return packing.emit(origin, "cpu.pack_panels", weight.matrix(packing, origin), width=panel_width(f32))


def _with_blocks(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node) -> Node | None:
    """matmul(x, transpose(block_dequantize(blocks))) → matmul_blocks(x, blocks): nobody makes floats of a weight."""
    turned = makers.get(cast(Value, node.inputs[1])) if node.op == "matmul" else None
    if turned is None or turned.op != "transpose" or turned.attrs["perm"] != (1, 0):
        return None
    made = makers.get(cast(Value, turned.inputs[0]))
    if made is None or made.op != "block_dequantize":
        return None
    return replace(node, op="cpu.matmul_blocks", inputs=(node.inputs[0], made.inputs[0]), attrs=made.attrs)


def _convolution(packing: Rewriting, node: Node, x: Value, w: Value) -> Node | None:
    """conv(x, w, bias) → conv_panels(x, panels of w) + bias."""
    channels, _, *kernel = known_shape(w)
    groups = node.attrs["groups"]
    assert isinstance(w.type, TensorType)
    if not 1 <= len(kernel) <= 3 or is_of_dots(known_shape(w), groups, node.attrs["dilations"], w.type.dtype):
        return None
    panels = packing.once((w, groups), lambda: _conv_panels(packing, node.origin, w, groups))
    attrs = {**node.attrs, "kernel": tuple(kernel), "channels": channels}
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return replace(node, op="cpu.conv_panels", inputs=(x, panels), attrs=attrs)
    result = Value(next(packing.numbers), node.outputs[0].type)
    packing.nodes.append(Node("cpu.conv_panels", (x, panels), (result,), node.origin, attrs))
    shaped = packing.once(bias, lambda: packing.reshape(node.origin, bias, (channels, *[1] * len(kernel))))
    return replace(node, op="add", inputs=(result, shaped), attrs={})


def _conv_panels(packing: Rewriting, origin: Origin, w: Value, groups: int) -> Value:
    """The panels of the weights (M, C / groups, …) of a convolution, as `conv_panels` takes them."""
    channels, each, *kernel = known_shape(w)
    if each == 1 and channels == groups:
        flat = packing.reshape(origin, w, (channels, math.prod(kernel)))
        return _panels(packing, origin, packing.emit(origin, "transpose", flat, perm=(1, 0)))
    split = packing.reshape(origin, w, (groups, channels // groups, each, *kernel))
    turned = packing.emit(origin, "transpose", split, perm=(0, *range(3, 3 + len(kernel)), 2, 1))
    return _panels(
        packing, origin, packing.reshape(origin, turned, (groups, math.prod(kernel) * each, channels // groups))
    )


_RULES: dict[str, Callable[[Rewriting, Node, Value, Value], Node | None]] = {"matmul": _product, "conv": _convolution}
