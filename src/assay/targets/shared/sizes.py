"""Sizes as data: dims that the machine computes from the symbols at run time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from assay.errors import CompileFailed
from assay.ir.dims import Atom, Dim, Expr


class SizeOp(IntEnum):
    """How one size is made of two others; of a constant, the first operand counts in the table of constants."""

    CONSTANT = 0
    ADD = 1
    MUL = 2
    FLOOR_DIV = 3
    MOD = 4
    MIN = 5
    MAX = 6


_COMPUTED: Mapping[SizeOp, Callable[[int, int], int]] = {
    SizeOp.ADD: operator.add,
    SizeOp.MUL: operator.mul,
    SizeOp.FLOOR_DIV: lambda a, b: a // b if b else 0,
    SizeOp.MOD: lambda a, b: a % b if b else 0,
    SizeOp.MIN: min,
    SizeOp.MAX: max,
}
_OPS = {"//": SizeOp.FLOOR_DIV, "%": SizeOp.MOD, "min": SizeOp.MIN, "max": SizeOp.MAX}


class Sizes:
    """Dims as a straight-line program over the symbols; every distinct dim is computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = {name: index for index, name in enumerate(symbols)}
        self.ops: list[tuple[SizeOp, int, int]] = []
        self.constants: list[int] = []
        self._slots: dict[Any, int] = {}

    def slot(self, dim: Dim) -> int:
        """Where the value of `dim` will be. CompileFailed if it is UNKNOWN, KeyError if it has a symbol that is not
        there."""
        found = self._slots.get(dim)
        if found is None:
            found = self._slots[dim] = self._constant(dim) if isinstance(dim, int) else self._sum(dim)
        return found

    def values(self, symbols: Sequence[int]) -> list[int]:
        """What every slot holds if the symbols have these values; what is divided by 0 is 0."""
        found = list(symbols)
        for op, a, b in self.ops:
            found.append(self.constants[a] if op is SizeOp.CONSTANT else _COMPUTED[op](found[a], found[b]))
        return found

    def _constant(self, number: int) -> int:
        self.constants.append(number)
        return self._emit(SizeOp.CONSTANT, len(self.constants) - 1, 0)

    def _sum(self, dim: Expr) -> int:
        total: int | None = None
        for factors, coefficient in dim.terms:
            term = None if coefficient == 1 and factors else self.slot(coefficient)
            for atom in factors:
                term = self._atom(atom) if term is None else self._emit(SizeOp.MUL, term, self._atom(atom))
            assert term is not None
            total = term if total is None else self._emit(SizeOp.ADD, total, term)
        if total is None:
            raise CompileFailed("a size is too involved to be computed when the program runs")
        return total

    def _atom(self, atom: Atom) -> int:
        if atom.op == "symbol":
            return self.symbols[atom.name]
        first, *rest = [self.slot(argument) for argument in atom.args]
        for other in rest:
            first = self._emit(_OPS[atom.op], first, other)
        return first

    def _emit(self, op: SizeOp, a: int, b: int) -> int:
        self.ops.append((op, a, b))
        return len(self.symbols) + len(self.ops) - 1
