"""Weights in the form that kernels read: what a graph has of them, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import TypeAlias

from assay.ir.dtypes import f32, i8, i32, u8
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.passes.dce import dce
from assay.passes.rewrite import Rewriting, begin
from assay.targets.shared.tensors import dtype_of, known_shape, shape_of


def block_products(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products with the transpose of dequantised blocks become products with the blocks as they are."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    nodes = tuple(_with_blocks(makers, node) or node for node in graph.nodes)
    return graph if nodes == graph.nodes else dce(replace(graph, nodes=nodes))


def integer_products(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products of i32 with weights that are bytes, perhaps less a zero point, become products with the bytes."""
    return _bytes_stay(graph, static, numbers, _with_integers)


def byte_products(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products of f32 with weights that are dequantised bytes become products with the bytes, which are scaled."""
    return _bytes_stay(graph, static, numbers, _with_scaled_bytes)


_Makers: TypeAlias = Mapping[Value, Node]
_Rule: TypeAlias = Callable[[Rewriting, _Makers, Node, Value, Node], Node | None]
"""What stands for a product with x, given what made its weight; nodes before it are added to the rewriting."""


def _bytes_stay(graph: Graph, static: Collection[Value], numbers: Iterator[int], rule: _Rule) -> Graph:
    rewriting = begin(graph, static, numbers)
    makers = {value: node for node in graph.nodes for value in node.outputs}
    for node in graph.nodes:
        x, w = node.inputs[:2] if node.op == "matmul" else (None, None)
        made = _maker(makers, w)
        if x is None or made is None or w not in rewriting.known or x in rewriting.known:
            rewriting.nodes.append(node)
        else:
            rewriting.nodes.append(rule(rewriting, makers, node, x, made) or node)
    unchanged = len(rewriting.nodes) == len(graph.nodes) and all(map(is_, rewriting.nodes, graph.nodes))
    return graph if unchanged else dce(rewriting.finished(graph))


def _with_integers(r: Rewriting, makers: _Makers, node: Node, x: Value, made: Node) -> Node | None:
    """matmul(x, cast(q) − zero) → matmul_bytes(x, q) − the sums of rows of x · zero."""
    cast, zero = (_maker(makers, made.inputs[0]), made.inputs[1]) if made.op == "sub" else (made, None)
    if cast is None or cast.op != "cast" or dtype_of(x) is not i32 or not _is_byte_matrix(cast.inputs[0]):
        return None
    q = cast.inputs[0]
    if zero is None:
        return replace(node, op="vulkan.matmul_bytes", inputs=(x, q), attrs={})
    if not _is_for_columns(zero, q):
        return None
    assert q is not None
    exact = r.emit(node.origin, "vulkan.matmul_bytes", x, q)
    rows = r.emit(node.origin, "reduce_sum", x, axes=(-1,), keepdims=len(shape_of(x)) > 1)
    return replace(node, op="sub", inputs=(exact, r.emit(node.origin, "mul", rows, zero)), attrs={})


def _with_scaled_bytes(r: Rewriting, makers: _Makers, node: Node, x: Value, made: Node) -> Node | None:
    """matmul(x, dequantize_linear(q, scale)) → matmul_bytes(x, q) · scale."""
    if made.op != "dequantize_linear" or made.attrs["block"] or dtype_of(x) is not f32:
        return None
    q, scale, *zero = made.inputs
    by_columns = made.attrs["axis"] in (1, -1) and _is_for_columns(scale, q)
    if any(zero) or scale is None or not _is_byte_matrix(q) or not (_is_single(scale) or by_columns):
        return None
    assert q is not None
    return replace(node, op="mul", inputs=(r.emit(node.origin, "vulkan.matmul_bytes", x, q), scale), attrs={})


def _is_single(value: Value) -> bool:
    """Whether a tensor surely has one element and at most one axis: one number for all."""
    return isinstance(value.type, TensorType) and value.type.shape in ((), (1,))


def _is_byte_matrix(q: Value | None) -> bool:
    return q is not None and len(known_shape(q)) == 2 and dtype_of(q) in (i8, u8)


def _is_for_columns(value: Value | None, q: Value | None) -> bool:
    """Whether there is one number for all columns of a matrix, or one for each."""
    shape = None if value is None or not isinstance(value.type, TensorType) else value.type.shape
    return q is not None and shape in ((), (1,), known_shape(q)[1:])


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
