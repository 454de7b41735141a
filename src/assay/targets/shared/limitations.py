"""What no compiled target takes, whatever its kernels are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

from assay.ir.dims import UNKNOWN, Dim, product
from assay.ir.dtypes import DType, f32, f64, string
from assay.ir.graph import Node
from assay.ir.types import TensorType, Type
from assay.targets.base import Limitation, Limitations, limitation
from assay.targets.shared.tensors import dtype_of, is_checked_broadcast, is_clear_broadcast, shape_of


@cache
def taking_nothing(reason: str) -> Limitations:
    """Those of a target that takes no node, and why."""
    return Limitations((Limitation(reason),))


def other_mode(mode: str) -> Limitations:
    """Those of a target that computes in the mode `exact` alone, in another one."""
    return taking_nothing(f"the mode '{mode}' is the oracle's")


def _types(node: Node) -> Iterator[Type]:
    """The types of all that a node reads and makes, and of what its bodies are given and give."""
    ends = ((*region.inputs, *region.outputs) for region in node.regions)
    values = (*node.inputs, *node.outputs, *(value for each in ends for value in each))
    return (value.type for value in values if value is not None)


@limitation("sequences, optionals and what has no known type are no tensors")
def _no_tensor(node: Node) -> bool:
    return not all(isinstance(kind, TensorType) for kind in _types(node))


@limitation("strings do not lie in the memory of their tensor")
def _strings(node: Node) -> bool:
    return any(isinstance(kind, TensorType) and kind.dtype is string for kind in _types(node))


@limitation("a size is known only when the program runs")
def _unsized(node: Node) -> bool:
    return not all(isinstance(kind, TensorType) and kind.is_sized for kind in _types(node))


@limitation("sizes are too involved to be multiplied")
def _involved(node: Node) -> bool:
    """Memory cannot be planned: strides and the number of elements are products of sizes."""
    return any(isinstance(kind, TensorType) and product(kind.shape or ()) is UNKNOWN for kind in _types(node))


UNTYPED = (_no_tensor, _strings, _unsized, _involved)
"""Too little is known of the node's tensors. Rows that come after these may rely on `tensors.py`."""


Broadcasts: TypeAlias = Sequence[tuple[Sequence[Dim], Sequence[Dim]]]
"""Shapes, each with the one that it is broadcast to."""


def unclear_broadcast(broadcasts: Callable[[Node], Broadcasts]) -> Limitation:
    """Nodes of which it cannot be proved which axes are repeated."""

    @limitation("only a run tells whether an axis is broadcast")
    def unclear(node: Node) -> bool:
        return not all(is_clear_broadcast(shape, wanted) for shape, wanted in broadcasts(node))

    return unclear


@limitation("nothing tells whether an axis is broadcast")
def unchecked_operands(node: Node) -> bool:
    """Elementwise nodes whose sizes are too involved to be compared in a run."""
    wanted = shape_of(node.outputs[0])
    return not all(is_checked_broadcast(shape_of(value), wanted) for value in node.inputs if value is not None)


def no_kernel_for(dtypes: Sequence[DType], op: str) -> Limitation:
    """Nodes of `op` whose first tensor is of one of these dtypes."""

    @limitation(f"there is no kernel for {', '.join(map(str, dtypes))}", op)
    def other_dtype(node: Node) -> bool:
        return dtype_of(next(value for value in (*node.inputs, *node.outputs) if value is not None)) in dtypes

    return other_dtype


def other_roundings(*names: str) -> Limitation:
    """Nodes whose attributes `names` ask for other roundings than those of their own dtype."""

    @limitation(f"steps are not rounded as {', '.join(names[:-1])} or {names[-1]} may ask for")
    def asked(node: Node) -> bool:
        return not all(_is_met(node, name) for name in names)

    return asked


def _is_met(node: Node, name: str) -> bool:
    wanted = node.attrs[name]
    return wanted in (None, f64) or (wanted is f32 and dtype_of(node.inputs[0]) is not f64 and name != "accumulate")
