"""Products of quantised numbers: exact sums of bytes, of which processors make four at a time.

A product of numbers that were quantised to bytes, (x − zero) · scale, with such a weight is
(the product of the bytes − zero · the sums of the weight's columns) · both scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from assay.ir.dtypes import DType, f32, i8, i32, i64, u8
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.ops import OPS
from assay.ops.registry import complete_attrs
from assay.passes.rewrite import Rewriting
from assay.targets.cpu.byte_weights import byte_weight
from assay.targets.cpu.kernels.matmul import QUADS
from assay.targets.cpu.ops import QUAD
from assay.targets.cpu.rewriting import is_single, known_dtype, known_shape

_DEEPEST = 1 << 16
"""The most products of bytes whose sum is sure to fit into 32 bits."""
_UNITS = ("avx512_vnni", "avx_vnni")


class _Bytes(NamedTuple):
    """Numbers that are (bytes − zero) · scale; no zero is 0, no scale is 1."""

    content: Value
    zero: Value | None
    scale: Value | None


@cache
def has_byte_products() -> bool:
    """Whether the processor has an instruction for products of bytes."""
    try:
        return any(unit in Path("/proc/cpuinfo").read_text() for unit in _UNITS)
    except OSError:
        return False


def with_quads(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node) -> Node | None:
    """matmul(x, w) of quantised numbers by way of matmul_quads; None if it is no such product, or nothing is gained."""
    x, w = node.inputs[:2] if node.op == "matmul" else (None, None)
    if x is None or w is None or x in packing.known or w not in packing.known or not has_byte_products():
        return None
    left = of_integers(makers, x) or _of_floats(makers, x)
    if left is None or known_dtype(left.content) is not u8 or not 0 < _depth(w) <= _DEEPEST:
        return None
    if left.scale is None:
        return _of_constant(packing, graph, node, left, x, w)
    weight = byte_weight(packing, graph, makers, w)
    if weight is None:
        return None
    matrix = packing.once(weight, lambda: weight.matrix(packing, node.origin))
    exact = Value(next(packing.numbers), TensorType(i32, cast(TensorType, node.outputs[0].type).shape))
    packing.nodes.append(replace(_product(packing, node, left, matrix), outputs=(exact,)))
    scale = packing.reshape(node.origin, left.scale, ())
    scales = packing.emit(node.origin, "mul", weight.scales(packing, node.origin), scale)
    wide = packing.emit(node.origin, "cast", exact, dtype=f32)
    return replace(node, op="mul", inputs=(wide, scales), attrs={})


def _product(packing: Rewriting, node: Node, left: _Bytes, matrix: Value) -> Node:
    """The exact product of (bytes − zero) and a matrix of bytes, in place of the node."""
    origin, columns = node.origin, known_shape(matrix)[1]
    panels = packing.once((matrix, QUADS), lambda: _panels(packing, origin, matrix))
    if left.zero is None:
        attrs = complete_attrs(OPS["cpu.matmul_quads"], {"columns": columns})
        return replace(node, op="cpu.matmul_quads", inputs=(left.content, panels), attrs=attrs)
    made = packing.emit(origin, "cpu.matmul_quads", left.content, panels, columns=columns)
    sums = packing.once((matrix, i32), lambda: _column_sums(packing, origin, matrix))
    zero = packing.emit(origin, "cast", packing.reshape(origin, left.zero, ()), dtype=i32)
    return replace(node, op="sub", inputs=(made, packing.emit(origin, "mul", sums, zero)), attrs={})


def _panels(packing: Rewriting, origin: Origin, matrix: Value) -> Value:
    """A matrix of bytes as panels of quads."""
    rows, columns = known_shape(matrix)
    missing = -rows % QUAD
    if missing:
        pads = packing.constant(np.array([0, 0, missing, 0]), TensorType(i64, (4,)))
        matrix = packing.emit(origin, "pad", matrix, pads, packing.constant(np.array(0, np.int8), TensorType(i8, ())))
    split = packing.reshape(origin, matrix, ((rows + missing) // QUAD, QUAD, columns))
    turned = packing.emit(origin, "transpose", split, perm=(0, 2, 1))
    flat = packing.reshape(origin, turned, ((rows + missing) // QUAD, QUAD * columns))
    return packing.emit(origin, "cpu.pack_panels", flat, width=QUADS)


def _column_sums(packing: Rewriting, origin: Origin, matrix: Value) -> Value:
    return packing.emit(origin, "reduce_sum", packing.emit(origin, "cast", matrix, dtype=i32), axes=(0,))


def _of_constant(packing: Rewriting, graph: Graph, node: Node, left: _Bytes, x: Value, w: Value) -> Node | None:
    """The product of x, whose bytes are `left`, with a constant of i32 numbers that are bytes once a number is
    taken off each; what that number adds to a row is added afterwards."""
    content = graph.constants.get(w)
    if content is None or content.dtype != np.int32:
        return None
    low, high = int(content.min()), int(content.max())
    if high - low > 255:
        return None
    shift = 0 if low >= -128 and high <= 127 else low + 128
    matrix = packing.once((w, i8), lambda: packing.constant((content - shift).astype(np.int8), _kind(i8, w)))
    if not shift:
        return _product(packing, node, left, matrix)
    exact = Value(next(packing.numbers), node.outputs[0].type)
    packing.nodes.append(replace(_product(packing, node, left, matrix), outputs=(exact,)))
    by = packing.constant(np.array(shift, np.int32), TensorType(i32, ()))
    rows = packing.emit(node.origin, "reduce_sum", x, axes=(-1,), keepdims=True)
    return replace(node, op="add", inputs=(exact, packing.emit(node.origin, "mul", rows, by)), attrs={})


def _kind(dtype: DType, like: Value) -> TensorType:
    return TensorType(dtype, known_shape(like))


def of_integers(makers: Mapping[Value, Node], x: Value) -> _Bytes | None:
    """x as bytes: a cast of them to i32, perhaps with a zero point taken off."""
    made = makers.get(x)
    if made is None or known_dtype(x) is not i32:
        return None
    if made.op == "cast":
        return _Bytes(cast(Value, made.inputs[0]), None, None)
    value, zero = made.inputs if made.op == "sub" else (None, None)
    inner = None if value is None else of_integers(makers, value)
    taken = inner is not None and inner.zero is None and zero is not None and is_single(zero)
    return _Bytes(inner.content, zero, None) if inner is not None and taken else None


def _of_floats(makers: Mapping[Value, Node], x: Value) -> _Bytes | None:
    """x as bytes that were dequantised with one scale."""
    made = makers.get(x)
    if made is None or made.op != "dequantize_linear" or made.attrs["block"] != 0 or known_dtype(x) is not f32:
        return None
    q, scale, *zeros = made.inputs
    zero = zeros[0] if zeros else None
    if q is None or scale is None or not is_single(scale) or known_dtype(scale) is not f32:
        return None
    return _Bytes(q, zero, scale) if zero is None or is_single(zero) else None


def _depth(w: Value) -> int:
    shape = known_shape(w)
    return shape[0] if len(shape) == 2 else 0
