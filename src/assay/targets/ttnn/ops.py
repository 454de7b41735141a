"""The ops that this target owns."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir.dtypes import FLOATS, TENSORS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ
from assay.ops.definitions.linear import exact_matmul
from assay.ops.parts import check_among
from assay.ops.registry import OPS, Compute, Tolerance, op
from assay.ops.samples import Rng, draw, elementwise, listed

TTNN_OPS = OPS.owned_by("ttnn")


def _same_shape(x: Fact, *, matrix: bool) -> list[Shape]:
    return [x.shape]


def _same_parts(b: Any, x: Any, *, matrix: bool) -> Any:
    return b.expand(x, b.constant(np.zeros(0, np.int64)))


@op("T -> T", into=TTNN_OPS, T=TENSORS, shape=_same_shape, parts=_same_parts, samples=elementwise())
def resident(x: Array, *, matrix: bool = False) -> Array:
    """x itself. Of a weight it is computed once, so that the weight is on the card before the first run; a `matrix` is
    there for products alone."""
    return x


ACTIVATIONS = ("relu", "gelu", "silu")
"""The functions that the library takes into a product."""


def _linear_shape(x: Fact, w: Fact, bias: Fact | None = None, *, activation: str, transposed: bool) -> list[Shape]:
    check_among("activation", activation, ("", *ACTIVATIONS))
    if x.shape is None or w.shape is None:
        return [None]
    if len(x.shape) < 2 or len(w.shape) != 2 or differ(x.shape[-1], w.shape[int(transposed)]):
        raise ValueError(f"rows of {list(x.shape)} do not fit a matrix {list(w.shape)}")
    return [(*x.shape[:-1], w.shape[int(not transposed)])]


def _linear_parts(b: Any, x: Any, w: Any, bias: Any = None, *, activation: str, transposed: bool) -> Any:
    product = b.matmul(x, b.transpose(w, perm=(1, 0)) if transposed else w)
    total = product if bias is None else b.add(product, b.reshape(bias, [-1]))
    return b.emit(activation, total)[0] if activation else total


def _linear_samples(rng: Rng, dtype: DType) -> Any:
    x, w, bias = draw(rng, dtype, (2, 3, 8)), draw(rng, dtype, (8, 5)), draw(rng, dtype, (5,))
    for activation in ("", *ACTIVATIONS):
        yield x, w, bias, {"activation": activation}
    yield x[0], w, None, {"activation": "relu"}
    yield x, w, bias[None], {"activation": ""}
    yield x, draw(rng, dtype, (5, 8)), bias, {"activation": "", "transposed": True}


@op(
    "T, T, T? -> T",
    into=TTNN_OPS,
    T=FLOATS,
    shape=_linear_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_linear_parts,
    samples=listed(_linear_samples),
)
def linear(x: Array, w: Array, bias: Array | None = None, *, activation: str = "", transposed: bool = False) -> Array:
    """A layer: rows (…, K) by a matrix (K, N), or (N, K) if it is `transposed`, a row added to each, passed through a
    function; rounded once."""
    product = exact_matmul(x, w.T if transposed else w)
    total = product if bias is None else product + bias.reshape(-1)
    return OPS[activation].reference(total) if activation else total
