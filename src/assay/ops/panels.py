"""Matrices laid out as panels: what kernels read fastest, prepared once for weights.

A panel is `width` neighbouring columns, row after row. To pack a matrix is an op like any other, so that a graph with
packed weights is still an ordinary graph: hoisting computes the panels once, and the oracle can run it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir.dims import ceildiv
from assay.ir.dtypes import FLOATS, NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed


def _packed_shape(w: Fact, *, width: int) -> list[Shape]:
    if width < 1 or (w.shape is not None and len(w.shape) < 2):
        raise ValueError("panels need matrices and a width of one or more")
    return [None if w.shape is None else (*w.shape[:-2], ceildiv(w.shape[-1], width), w.shape[-2], width)]


def _packed_parts(b: Any, w: Any, *, width: int) -> Any:
    rank = b.rank(w)
    columns = b.static_shape(w)[-1]
    padded = b.pad(w, b.vector(*[0] * (2 * rank - 1), -columns % width), b.cast(0, dtype=b.dtype(w)))
    lead = [b.size(w, axis) for axis in range(rank - 1)]
    split = b.reshape(padded, b.vector(*lead, -(-columns // width), width))
    return b.transpose(split, perm=(*range(rank - 2), rank - 1, rank - 2, rank))


def _packed_samples(rng: Rng, dtype: DType) -> Any:
    yield draw(rng, dtype, (3, 7)), {"width": 4}
    yield draw(rng, dtype, (2, 5, 8)), {"width": 4}


@op("T -> T", T=NUMERIC, shape=_packed_shape, parts=_packed_parts, samples=listed(_packed_samples))
def pack_panels(w: Array, *, width: int) -> Array:
    """Matrices (…, K, N) as panels (…, ⌈N / width⌉, K, width), zeros beyond the last column."""
    missing = -w.shape[-1] % width
    padded = np.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, missing)])
    split = padded.reshape(*w.shape[:-1], -1, width)
    return np.ascontiguousarray(np.moveaxis(split, -3, -2))


def _unpacked(panels: Array, columns: int) -> Array:
    matrices = np.moveaxis(panels, -3, -2)
    return matrices.reshape(*matrices.shape[:-2], -1)[..., :columns]


def unpacked_parts(b: Any, panels: Any, columns: int) -> Any:
    """The matrices that `panels` were made of."""
    rank = b.rank(panels)
    count, width = (b.static_shape(panels)[axis] for axis in (-3, -1))
    split = b.transpose(panels, perm=(*range(rank - 3), rank - 2, rank - 3, rank - 1))
    lead = [b.size(split, axis) for axis in range(rank - 2)]
    joined = b.reshape(split, b.vector(*lead, count * width))
    return b.slice(joined, [0], [columns], [1], axes=(rank - 2,))


def _product_shape(x: Fact, panels: Fact, *, columns: int) -> list[Shape]:
    if panels.shape is not None and len(panels.shape) != 3:
        raise ValueError("the panels of one matrix have three axes")
    if x.shape is None:
        return [None]
    if not x.shape:
        raise ValueError("a matrix product needs operands of rank one or more")
    return [(*x.shape[:-1], columns)]


def _product_parts(b: Any, x: Any, panels: Any, *, columns: int) -> Any:
    return b.matmul(x, unpacked_parts(b, panels, columns))


def _product_samples(rng: Rng, dtype: DType) -> Any:
    for shape in ((3, 5), (2, 3, 5), (5,)):
        panels = pack_panels.reference(draw(rng, dtype, (5, 7)), width=4)
        yield draw(rng, dtype, shape), panels, {"columns": 7}


@op(
    "T, T -> T",
    T=FLOATS,
    shape=_product_shape,
    parts=_product_parts,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    samples=listed(_product_samples),
)
def matmul_panels(x: Array, panels: Array, *, columns: int) -> Array:
    """`matmul` of x with the matrix of `columns` columns that `panels` (⌈columns / width⌉, K, width) hold."""
    return np.matmul(x, _unpacked(panels, columns))
