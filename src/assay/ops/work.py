"""Roughly how much there is to compute in a node: what placement weighs transfers against."""

from __future__ import annotations

import math
from collections.abc import Callable

from assay.ir.dims import evaluate, symbols
from assay.ir.graph import Node, Value
from assay.ir.types import TensorType

NOMINAL = 64
"""What a size that is not known before the run is taken for."""


def work_of(node: Node) -> int:
    """The arithmetic operations of a node, those in its bodies once; at least one for each element of its results."""
    own = _WORK.get(node.op, _elements)(node)
    return own + sum(work_of(inner) for region in node.regions for inner in region.nodes)


def nominal_shape(value: Value | None) -> tuple[int, ...]:
    """The sizes of a tensor, with NOMINAL for those that are not known; empty for anything else."""
    if value is None or not isinstance(value.type, TensorType):
        return ()
    dims = value.type.shape or ()
    return tuple(d if isinstance(d, int) else evaluate(d, dict.fromkeys(symbols(d), NOMINAL)) or NOMINAL for d in dims)


def nominal_bytes(value: Value) -> int:
    """The bytes of a tensor of these sizes."""
    if not isinstance(value.type, TensorType):
        return 0
    return math.prod(nominal_shape(value)) * value.type.dtype.numpy.itemsize


def _elements(node: Node) -> int:
    return sum(math.prod(nominal_shape(value)) for value in node.outputs)


def _product(node: Node) -> int:
    """Two operations for each element of the result and of the axis that is summed over."""
    return 2 * _elements(node) * (nominal_shape(node.inputs[0]) or (1,))[-1]


def _convolution(node: Node) -> int:
    """Two operations for each element of the result and of the weights of its channel."""
    return 2 * _elements(node) * math.prod(nominal_shape(node.inputs[1])[1:])


def _attention(node: Node) -> int:
    """Two products over queries and keys."""
    return 4 * math.prod(nominal_shape(node.inputs[0])) * (nominal_shape(node.inputs[1]) or (1, 1))[-2]


_WORK: dict[str, Callable[[Node], int]] = {
    "matmul": _product,
    "conv": _convolution,
    "conv_transpose": _convolution,
    "sdpa": _attention,
}
