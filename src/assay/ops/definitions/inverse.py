"""The inverse of matrices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, Array, DType, boolean
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.conditions import differ
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, draw

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _square_shape(x: Fact) -> list[Shape]:
    if x.shape is not None and (len(x.shape) < 2 or differ(x.shape[-1], x.shape[-2])):
        raise ValueError(f"a tensor of shape {list(x.shape)} does not hold square matrices")
    return [x.shape]


def _eliminated(b: Builder, step: Any, table: Any, rows: Any) -> Any:
    """`table` (batch, n, 2n) with column `step` made that of the unit matrix, the largest pivot taken first."""
    column = b.gather(table, step, axis=2)
    weight = b.where(b.le(step, rows), b.abs(column), -1.0)
    best = b.unsqueeze(b.arg_max(weight, axis=1), axes=(1,))
    order = b.where(b.eq(rows, step), best, b.where(b.eq(rows, best), step, rows))
    swapped = b.gather_nd(table, b.unsqueeze(order, axes=(2,)), batch_dims=1)
    row = b.gather(swapped, step, axis=1)
    scaled = b.unsqueeze(b.div(row, b.unsqueeze(b.gather(row, step, axis=1), axes=(1,))), axes=(1,))
    factors = b.unsqueeze(b.gather(swapped, step, axis=2), axes=(2,))
    own = b.unsqueeze(b.eq(rows, step), axes=(1,))
    return b.where(own, scaled, b.sub(swapped, b.mul(factors, scaled)))


def _inverse_parts(b: Builder, x: Any) -> Any:
    """Gauss-Jordan elimination beside the unit matrix."""
    dtype = b.dtype(x)
    wide = dtypes.f64 if dtype is dtypes.f64 else dtypes.f32
    size = b.reshape(b.vector(b.size(x, -1)), [])
    rows = b.iota(size)
    batch = b.reshape(b.cast(x, dtype=wide), b.vector(-1, size, size))
    unit = b.cast(b.eq(b.unsqueeze(rows, axes=(1,)), rows), dtype=wide)
    table = b.concat(batch, b.expand(unit, b.shape_of(batch)), axis=2)
    inner = b.child()
    counter, flag = inner.input(TensorType(dtypes.i64, ())), inner.input(TensorType(boolean, ()))
    carried = inner.input(table.type)
    step = _eliminated(inner, counter, carried, rows)
    body = inner.finish("eliminate", [counter, flag, carried], [inner.constant(np.True_), step])
    done = b.emit("loop", size, None, table, regions=(body,))[0]
    right = b.slice(done, b.vector(size), [2**62], [1], axes=(2,))
    return b.cast(b.reshape(right, b.shape_of(x)), dtype=dtype)


def _inverse_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape in [(1, 1), (3, 3), (2, 4, 4), (2, 1, 2, 2)]:
        dominant = 4.0 * np.eye(shape[-1])[rng.permutation(shape[-1])]
        invertible = draw(rng, dtype, shape, -1, 1).astype(np.float64) + dominant
        yield Sample((invertible.astype(dtype.numpy),), fixed=(0,))


@op(
    "T -> T",
    T=FLOATS,
    shape=_square_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_inverse_parts,
    samples=_inverse_samples,
)
def inverse(x: Array) -> Array:
    """The inverse of the matrices in the last two axes."""
    return np.linalg.inv(x)
