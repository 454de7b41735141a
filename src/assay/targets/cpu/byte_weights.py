"""Weights that were quantised to bytes: where a graph has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np

from assay.ir.dtypes import f32, i8
from assay.ir.graph import Graph, Node, Origin, Value
from assay.passes.rewrite import Rewriting
from assay.targets.cpu.rewriting import is_single, known_dtype, known_shape


class ByteWeight(NamedTuple):
    """A weight that is `q` · `scale` (one, or one for each column), transposed if it is `turned`."""

    q: Value
    scale: Value
    turned: bool

    @property
    def columns(self) -> int:
        """The columns of the weight."""
        return known_shape(self.q)[0 if self.turned else 1]

    def matrix(self, packing: Rewriting, origin: Origin) -> Value:
        """The bytes in rows and columns as the weight has them."""
        return packing.emit(origin, "transpose", self.q, perm=(1, 0)) if self.turned else self.q

    def scales(self, packing: Rewriting, origin: Origin) -> Value:
        """The scale, or the scales of all columns, along the last axis."""
        return packing.once(self.scale, lambda: packing.reshape(origin, self.scale, (-1,)))


def byte_weight(packing: Rewriting, graph: Graph, makers: Mapping[Value, Node], w: Value) -> ByteWeight | None:
    """The f32 weight of two axes w as bytes, if it is dequantised from such without a zero point, or its transpose."""
    made = makers.get(w)
    turned = made is not None and made.op == "transpose" and made.attrs["perm"] == (1, 0)
    made = makers.get(cast(Value, made.inputs[0])) if made is not None and turned else made
    if made is None or made.op != "dequantize_linear":
        return None
    q, scale, *zeros = made.inputs
    plain = all(zero is None or not graph.constants.get(zero, np.ones(1)).any() for zero in zeros)
    if q is None or scale is None or not plain or not _are_bytes(packing, made, q, scale, turned):
        return None
    return ByteWeight(q, scale, turned)


def _are_bytes(packing: Rewriting, made: Node, q: Value, scale: Value, turned: bool) -> bool:
    """Whether a dequantisation is one of bytes with one scale, or one for each column."""
    known = q in packing.known and scale in packing.known and len(known_shape(q)) == 2
    kinds = [known_dtype(value) for value in (q, scale, *made.outputs)]
    each = len(known_shape(scale)) == 1 and made.attrs["axis"] % 2 == (0 if turned else 1)
    return known and kinds == [i8, f32, f32] and made.attrs["block"] == 0 and (is_single(scale) or each)
