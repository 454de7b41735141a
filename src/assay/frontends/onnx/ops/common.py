"""Small helpers that several families of lowerings share."""

from __future__ import annotations

from collections.abc import Sequence

from assay.frontends.onnx.registry import Builder, Source
from assay.ir import dtypes
from assay.ir.graph import Value


def as_i64(b: Builder, value: Value) -> Value:
    """An integer tensor as i64."""
    return value if b.dtype(value) is dtypes.i64 else b.cast(value, dtype=dtypes.i64)


def scalar(b: Builder, value: Value) -> Value:
    """A tensor of one element as one of rank zero."""
    return value if b.shape(value) == () else b.reshape(value, [])


def axes_operand(b: Builder, n: Source, value: Value | None, name: str = "axes") -> tuple[int, ...] | None:
    """Axes that older versions give as an attribute and newer ones as an input; None if absent."""
    if value is not None:
        return b.ints(value, name)
    return n.ints(name, None)


def ints_or_value(b: Builder, n: Source, value: Value | None, name: str) -> Value | None:
    """Integers given as an attribute or as an input, as an i64 tensor; None if absent."""
    if value is not None:
        return as_i64(b, value)
    given = n.ints(name, None)
    return None if given is None else b.constant(given, dtypes.i64)


def product_of_sizes(b: Builder, value: Value, axes: Sequence[int]) -> int | Value:
    """The number of elements over some axes."""
    sizes = [b.size(value, axis) for axis in axes]
    if all(isinstance(size, int) for size in sizes):
        total = 1
        for size in sizes:
            total *= size if isinstance(size, int) else 1
        return total
    return b.reduce_prod(b.vector(*sizes), keepdims=True)
