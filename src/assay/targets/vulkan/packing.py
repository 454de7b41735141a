"""Products with packed weights: where a graph has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from assay.ir.graph import Graph, Node, Value
from assay.passes.dce import dce


def block_products(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products with the transpose of dequantised blocks become products with the blocks as they are."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    nodes = tuple(_with_blocks(makers, node) or node for node in graph.nodes)
    return graph if nodes == graph.nodes else dce(replace(graph, nodes=nodes))


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
