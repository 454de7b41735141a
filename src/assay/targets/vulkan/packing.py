"""Weights in the form that kernels read: what a graph has of them, and what it becomes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from assay.ir.graph import Graph, Node, Value
from assay.passes.dce import dce
from assay.passes.rewrite import Rewriting, begin
from assay.targets.shared.tensors import known_shape


def block_products(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products with the transpose of dequantised blocks become products with the blocks as they are."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    nodes = tuple(_with_blocks(makers, node) or node for node in graph.nodes)
    return graph if nodes == graph.nodes else dce(replace(graph, nodes=nodes))


def added_biases(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Biases of convolutions that are products become additions, which these make along with their results."""
    rewriting = begin(graph, static, numbers)
    for node in graph.nodes:
        rewriting.nodes += _with_added_bias(rewriting, node)
    return graph if len(rewriting.nodes) == len(graph.nodes) else rewriting.finished(graph)


def _with_added_bias(rewriting: Rewriting, node: Node) -> list[Node]:
    """conv(x, w, bias) → conv(x, w) + bias for a window of one element that goes from place to place."""
    bias = node.inputs[2] if node.op == "conv" and node.inputs[2:] else None
    shape = known_shape(node.inputs[1]) if bias is not None and node.inputs[1] is not None else ()
    if bias is None or not shape or not _is_pointwise(node, shape):
        return [node]
    shaped = rewriting.reshape(node.origin, bias, (shape[0], *[1] * len(shape[2:])))
    made = Value(next(rewriting.numbers), node.outputs[0].type)
    return [
        replace(node, inputs=node.inputs[:2], outputs=(made,)),
        replace(node, op="add", inputs=(made, shaped), attrs={}),
    ]


def _is_pointwise(node: Node, shape: Sequence[int]) -> bool:
    ones = all(size == 1 for size in (*shape[2:], *node.attrs["strides"], node.attrs["groups"]))
    return ones and not any(node.attrs["pads"])


def _with_blocks(makers: Mapping[Value, Node], node: Node) -> Node | None:
    """matmul(x, transpose(block_dequantize(blocks))) → matmul_blocks(x, blocks): nobody makes floats of a weight."""
    if node.op != "matmul":
        return None
    turned = _maker(makers, node.inputs[1])
    if turned is None or turned.op != "transpose" or turned.attrs["perm"] != (1, 0):
        return None
    made = _maker(makers, turned.inputs[0])
    if made is None or made.op != "block_dequantize":
        return None
    return replace(node, op="vulkan.matmul_blocks", inputs=(node.inputs[0], made.inputs[0]), attrs=made.attrs)


def _maker(makers: Mapping[Value, Node], value: Value | None) -> Node | None:
    return None if value is None else makers.get(value)
