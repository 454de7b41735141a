"""Small helpers that decompositions share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from assay.ir import dtypes
from assay.ir.dims import eq
from assay.ir.dtypes import DType

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def check_among(what: str, value: str, allowed: Iterable[str]) -> None:
    """ValueError if an attribute is none of the words that it may be."""
    words = list(allowed)
    if value not in words:
        raise ValueError(f"the {what} is '{value}', not one of {', '.join(words)}")


def converted(b: Builder, x: Any, dtype: DType) -> Any:
    """x as `dtype`."""
    return x if b.dtype(x) is dtype else b.cast(x, dtype=dtype)


def working(dtype: DType) -> DType:
    """The float dtype that parts compute in on values of `dtype`."""
    return dtypes.f64 if dtype is dtypes.f64 or dtype.is_integer else dtypes.f32


def scalar_size(b: Builder, x: Any, axis: int, dtype: DType = dtypes.i64) -> Any:
    """The size of an axis as a scalar of `dtype`."""
    size = b.size(x, axis)
    return b.constant(size, dtype) if isinstance(size, int) else converted(b, b.reshape(size, []), dtype)


def size_quotient(b: Builder, x: Any, y: Any) -> Any:
    """⌊x / y⌋ of sizes: what is known of them is known of the quotient. No size is near the ends of its range."""
    return b.div(b.sub(x, b.mod(x, y)), y)


def sized(b: Builder, x: Any, *like: tuple[Any, int]) -> Any:
    """x, each axis of which must be as long as that axis of another value: as it is where this is sure, else under the
    shape that it must have, so that a run of other sizes is an error and nothing broadcasts."""
    wanted = [b.dims(value)[axis] for value, axis in like]
    if all(eq(own, size) is True for own, size in zip(b.dims(x), wanted, strict=True)):
        return x
    return b.reshape(x, b.vector(*(b.size(value, axis) for value, axis in like)))


def volume(b: Builder, x: Any, *axes: int) -> Any:
    """The number of elements over some axes: a number if known, else a value of one element."""
    sizes = [b.size(x, axis) for axis in axes]
    known = math.prod(size for size in sizes if isinstance(size, int))
    open_sizes = [size for size in sizes if not isinstance(size, int)]
    return b.reduce_prod(b.vector(known, *open_sizes)) if open_sizes else known
