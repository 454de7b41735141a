"""Products and convolutions of bytes in i32 whose sums f32 holds exactly: those of floats are much faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from assay.ir.dtypes import Array, f32, i8, i32, u8
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.passes.rewrite import Rewriting
from assay.targets.cpu.quads import of_integers
from assay.targets.cpu.rewriting import known_dtype

_EXACT = 1 << 24
"""All integers below it are numbers of f32."""
_LARGEST = 255
"""What a byte less another one can be."""


def _of_columns(w: Array) -> int:
    return int(np.abs(w.astype(np.int64)).sum(-2).max(initial=0))


def _of_channels(w: Array) -> int:
    return int(np.abs(w.astype(np.int64)).reshape(w.shape[0], -1).sum(1).max(initial=0))


_SUMS: Mapping[str, Callable[[Array], int]] = {"matmul": _of_columns, "conv": _of_channels}
"""The largest sum of the sizes of the weights that one result is made of."""


def in_floats(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], node: Node) -> Node | None:
    """A product or convolution of bytes and constant weights in f32, and its result; None if sums may not be exact.

    The node that is returned has a result of its own; what reads the result of `node` is to read a cast of it.
    """
    if node.op not in _SUMS or known_dtype(node.outputs[0]) is not i32 or len([v for v in node.inputs if v]) != 2:
        return None
    x, w = node.inputs[:2]
    content = None if w is None else graph.constants.get(w)
    if x is None or w is None or content is None or not content.ndim >= 2 or not _is_of_bytes(makers, x):
        return None
    if _LARGEST * _SUMS[node.op](content) >= _EXACT:
        return None
    kind = node.outputs[0].type
    assert isinstance(kind, TensorType)
    sides = (packing.emit(node.origin, "cast", x, dtype=f32), packing.emit(node.origin, "cast", w, dtype=f32))
    result = Value(next(packing.numbers), TensorType(f32, kind.shape))
    return replace(node, inputs=(*sides, *node.inputs[2:]), outputs=(result,))


def _is_of_bytes(makers: Mapping[Value, Node], x: Value) -> bool:
    """Whether x is bytes, perhaps less a byte, in i32."""
    found = of_integers(makers, x)
    if found is None or known_dtype(found.content) not in (u8, i8):
        return False
    made = None if found.zero is None else makers.get(found.zero)
    source = made.inputs[0] if made is not None and made.op == "cast" else None
    return found.zero is None or (source is not None and known_dtype(source) is known_dtype(found.content))
