"""Types of values: tensors with symbolic dims, sequences, optionals, maps, and what jobs pass around besides."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from assay.ir.dims import UNKNOWN, Dim, evaluate, symbol_name
from assay.ir.dtypes import DType

Shape: TypeAlias = "tuple[Dim, ...] | None"
"""The dims of a tensor; None where even the rank is unknown."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of `dtype`; a dim is an int, an expression over symbols, or `UNKNOWN`."""

    dtype: DType
    shape: Shape = None

    @property
    def is_sized(self) -> bool:
        """Whether every size is known, as a number or in terms of symbols."""
        return self.shape is not None and all(dim is not UNKNOWN for dim in self.shape)

    def __str__(self) -> str:
        dims = "[*]" if self.shape is None else "[" + ", ".join(str(d) for d in self.shape) + "]"
        return f"{self.dtype}{dims}"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    elem: Type

    def __str__(self) -> str:
        return f"seq<{self.elem}>"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value of `elem`, or nothing."""

    elem: Type

    def __str__(self) -> str:
        return f"opt<{self.elem}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary from scalars of dtype `key` to values of type `value`."""

    key: DType
    value: Type

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


LINKS = frozenset({"audio", "image", "model", "state", "stream", "tokenizer"})
"""What may pass between the parts of a job and is no tensor."""

_HASH = re.compile(r"[A-Za-z0-9:._-]{0,200}")


@dataclass(frozen=True, slots=True)
class LinkType:
    """One of `LINKS`. `content` names the very thing by a hash of what it holds; empty where any will do."""

    kind: str
    content: str = ""

    def __post_init__(self) -> None:
        """ValueError for what is no link, or has a hash that is none."""
        if self.kind not in LINKS or not _HASH.fullmatch(self.content):
            raise ValueError(f"there is no link {self.kind!r} with the content {self.content!r}")

    def __str__(self) -> str:
        return f'{self.kind}<"{self.content}">' if self.content else self.kind


@dataclass(frozen=True, slots=True)
class UnknownType:
    """The type of a symbolic value that the source did not declare."""

    def __str__(self) -> str:
        return "?"


Type: TypeAlias = TensorType | SequenceType | OptionalType | MapType | LinkType | UnknownType


def size_in_bytes(kind: Type) -> int | None:
    """The memory of a tensor, each element in one of its dtype's array; None if a size is no number."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    sizes = [dim for dim in kind.shape if isinstance(dim, int)]
    return math.prod(sizes) * kind.dtype.numpy.itemsize if len(sizes) == len(kind.shape) else None


def symbol_axes(kind: Type) -> Iterator[tuple[str, int]]:
    """The symbols that are sizes of a tensor, each with its axis."""
    for axis, dim in enumerate((kind.shape or ()) if isinstance(kind, TensorType) else ()):
        name = symbol_name(dim)
        if name is not None:
            yield name, axis


def shape_at(kind: Type, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of a tensor where symbols stand for these sizes; None if they do not tell it."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    known = [dim if isinstance(dim, int) else evaluate(dim, sizes) for dim in kind.shape]
    numbers = tuple(size for size in known if size is not None)
    return numbers if len(numbers) == len(known) else None
