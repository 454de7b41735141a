"""What is known of a value before it is computed: its type and, for small tensors, its content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from assay.ir.dims import Dim, Expr
from assay.ir.dtypes import Array, boolean
from assay.ir.types import Shape, TensorType, Type

SMALL = 1024
"""Contents of more elements than this are not tracked."""


@dataclass(frozen=True, slots=True)
class Fact:
    """`value` is the content if known: a plain array, or an object array of dims for integer tensors."""

    type: Type
    value: Array | None = None

    @property
    def shape(self) -> Shape:
        """The dims of a tensor; None for unknown rank and for what is no tensor."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def concrete(self) -> Array | None:
        """The content as a plain array, None unless every element is known as a number."""
        return None if self.value is None or is_symbolic(self) else self.value

    @property
    def dims(self) -> tuple[Dim, ...] | None:
        """The content of a one-dimensional integer tensor as dims (unknown elements are `UNKNOWN`)."""
        if self.value is None or self.value.ndim != 1:
            return None
        return tuple(cast("list[Dim]", self.value.tolist()))


def is_symbolic(fact: Fact) -> bool:
    """True where the content is an array of dims that are not all numbers."""
    tensor = fact.type
    return (
        fact.value is not None
        and fact.value.dtype == object
        and isinstance(tensor, TensorType)
        and (tensor.dtype.is_integer or tensor.dtype is boolean)
    )


def tracked(tensor: TensorType, value: Array) -> Fact:
    """The fact that a tensor has this content; dims that are all plain numbers become a plain array."""
    if value.dtype == object and tensor.dtype.kind != "string":
        items = cast("list[Dim]", value.ravel().tolist())
        if not any(isinstance(item, Expr) for item in items):
            plain = np.array(items, dtype=tensor.dtype.numpy).reshape(value.shape)
            return Fact(tensor, plain)
    return Fact(tensor, value)
