"""Why a compiled target refuses a node, whatever its kernels are: data, not exceptions. Empty is no reason."""

from __future__ import annotations

from assay.ir.dtypes import string
from assay.ir.graph import Node
from assay.ir.types import TensorType
from assay.targets.shared.tensors import shape_of, unclear_broadcast


def untyped(node: Node) -> str:
    """A reason to refuse a node of whose tensors too little is known."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    values += [value for region in node.regions for value in (*region.inputs, *region.outputs)]
    for value in values:
        if not isinstance(value.type, TensorType):
            return f"a {value.type} is no tensor"
        if value.type.dtype is string:
            return "strings do not lie in the memory of their tensor"
        if not value.type.is_sized:
            return "a size is known only when the program runs"
    return ""


def unclear_operands(node: Node) -> str:
    """A reason to refuse an elementwise node of which only a run tells whether an axis is repeated."""
    shapes = [shape_of(value) for value in node.inputs if value is not None]
    reasons = (unclear_broadcast(shape, shape_of(node.outputs[0])) for shape in shapes)
    return next(filter(None, reasons), "")
