"""A small graph over a symbolic length, as models have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.ops.builder import Builder


def block(width: int = 48) -> Graph:
    """A bit of a transformer over a symbolic length: products, softmax, norm, fused elementwise ends."""
    b = Builder()
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Value:
        return b.constant(rng.normal(size=shape, scale=0.2).astype(np.float32))

    x = b.input(TensorType(dtypes.f32, (symbol("n", 1), width)))
    hidden = b.gelu(b.add(b.matmul(x, weight(width, 70)), weight(70)))
    mixed = b.matmul(b.softmax(b.matmul(hidden, b.transpose(hidden, perm=(1, 0))), axis=1), hidden)
    out = b.layer_norm(b.add(x, b.matmul(mixed, weight(70, width))), weight(width), weight(width), axis=1)
    return b.finish("block", [x], [out, b.reduce_max(out, axes=(0,))])


def rows(count: int, width: int = 48) -> Any:
    return np.random.default_rng(count).normal(size=(count, width)).astype(np.float32)
