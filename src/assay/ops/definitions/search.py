"""Where values belong in sorted sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.registry import FactMissing, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import need

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def _shape(edges: Fact, x: Fact, *, right: bool) -> list[Shape]:
    if edges.shape is not None and not edges.shape:
        raise ValueError("a scalar is searched, which is no sequence")
    if edges.shape is not None and x.shape is not None and len(edges.shape) > 1:
        need("the batch of sequences", edges.shape[:-1], x.shape[:-1])
    return [x.shape]


def _parts(b: Builder, edges: Any, x: Any, *, right: bool) -> Any:
    size = b.size(edges, -1)
    if not isinstance(size, int):
        raise FactMissing("the length of the sequences")
    low = b.expand(b.constant(0, dtypes.i64), b.shape_of(x))
    high = b.expand(b.constant(size, dtypes.i64), b.shape_of(x))
    for _ in range(size.bit_length()):
        middle = b.shift_right(b.add(low, high), 1)
        place = b.min(middle, size - 1)
        found = b.gather(edges, place, axis=0) if b.rank(edges) == 1 else b.gather_elements(edges, place, axis=-1)
        stays = b.lt(x, found) if right else b.le(x, found)
        open_ = b.lt(low, high)
        low, high = (
            b.where(b.bit_and(open_, b.bit_not(stays)), b.add(middle, 1), low),
            b.where(b.bit_and(open_, stays), middle, high),
        )
    return low


def _samples(rng: Rng, dtype: DType) -> Iterable[Any]:
    for edges, values in [((5,), (2, 3)), ((7,), ()), ((2, 3), (2, 6)), ((0,), (4,)), ((4,), (0,))]:
        for right in (True, False):
            yield (
                np.sort(draw(rng, dtype, edges).astype(np.float64)).astype(dtype.numpy),
                draw(rng, dtype, values),
                {"right": right},
            )
    if dtype.is_float:
        yield (
            np.array([-1, 0, 2, np.inf], dtype.numpy),
            np.array([np.nan, np.inf, 0, -0.0], dtype.numpy),
            {"right": True},
        )


@op("T, T -> i64", T=NUMERIC, shape=_shape, parts=_parts, samples=listed(_samples, 0))
def search_sorted(edges: Array, x: Array, *, right: bool = False) -> Array:
    """How many elements of the sorted last axis of `edges` lie before each x, with `right` also those equal to it. One
    sequence serves all of x, or one each row of its last axis. NaN comes after everything."""
    size = edges.shape[-1]
    low, high = np.zeros(x.shape, np.int64), np.full(x.shape, size, np.int64)
    for _ in range(size.bit_length()):
        middle = (low + high) >> 1
        place = np.minimum(middle, size - 1)
        found = edges[place] if edges.ndim == 1 else np.take_along_axis(edges, place, -1)
        stays = x < found if right else x <= found
        open_ = low < high
        low, high = np.where(open_ & ~stays, middle + 1, low), np.where(open_ & stays, middle, high)
    return low
