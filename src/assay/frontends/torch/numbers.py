"""Numbers that a traced graph states in terms of symbols, worked out for the arguments of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.frontends.torch.types import dim_of
from assay.ir.dims import UNKNOWN, Dim, evaluate, symbol_name, symbols


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers in terms of the symbols that arguments give."""

    dims: tuple[Dim, ...]
    symbols: tuple[tuple[str, int, int | None], ...]
    """A symbol, the argument that has it, and which size of that it is; None if the argument is the number."""
    others: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """By their places, those that our algebra has no words for, in torch's (SymPy's), such as the floor of a product
    with a fraction."""

    def of(self, arguments: Sequence[Any]) -> list[int] | None:
        """The numbers for these arguments; None where a symbol is not among what they show."""
        if not self.symbols:
            plain = [dim for dim in self.dims if isinstance(dim, int)]
            return plain if len(plain) == len(self.dims) else None
        values = {
            name: arguments[index] if axis is None else arguments[index].shape[axis]
            for name, index, axis in self.symbols
        }
        numbers = [
            _value(self.others[at], values) if at in self.others else evaluate(dim, values)
            for at, dim in enumerate(self.dims)
        ]
        known = [number for number in numbers if number is not None]
        return known if len(known) == len(numbers) else None

    @property
    def names(self) -> frozenset[str]:
        """The symbols in them."""
        theirs = (str(each) for number in self.others.values() for each in number.free_symbols)
        return frozenset(theirs).union(*(symbols(dim) for at, dim in enumerate(self.dims) if at not in self.others))


def _value(expression: Any, values: Mapping[str, int]) -> int | None:
    """What torch's expression comes to; None if it has other symbols."""
    found = expression.subs({each: values[str(each)] for each in expression.free_symbols if str(each) in values})
    return int(found) if found.is_Integer else None


def numbers_of(found: Sequence[Any], inputs: Sequence[Any]) -> Numbers:
    """What a trace with these inputs states, to be worked out for others."""
    dims = tuple(dim_of(number) for number in found)
    others = {at: found[at].node.expr for at, dim in enumerate(dims) if dim is UNKNOWN}
    numbers = Numbers(dims, (), others)
    return replace(numbers, symbols=tuple(_sources(inputs, numbers.names)))


def _sources(inputs: Sequence[Any], wanted: frozenset[str]) -> Iterator[tuple[str, int, int | None]]:
    """Which argument, or which of its sizes, is a symbol as it stands."""
    for index, value in enumerate(inputs):
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for axis, size in sizes:
            name = symbol_name(dim_of(size)) if isinstance(size, torch.SymInt) else None
            if name is not None and name in wanted:
                yield name, index, axis
