"""The tape: kernel calls in the form that `c/machine.c` runs, for all sizes at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from assay.ir.dims import Atom, Dim, Expr
from assay.ir.graph import Node
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.views import Buffer, View

_OPS = {"constant": 0, "+": 1, "*": 2, "//": 3, "%": 4, "min": 5, "max": 6}
_SIZE_OP = np.dtype([("op", "i4"), ("a", "i4"), ("b", "i4")])
_BUFFER = np.dtype([("bytes", "i4"), ("from", "i4"), ("to", "i4")])
_OPERAND = np.dtype([("buffer", "i4"), ("offset", "i4"), ("width", "i4")])
_GRID = ("rows", "cols", "row_grain", "col_grain", "work", "scratch")
_PLACES = ("operands", "numbers", "floats", "then", "attached")
_STEP = np.dtype([("run", "u8"), *((name, "i4") for name in (*_PLACES, *_GRID, "control"))])


class Sizes:
    """Dims as a straight-line program over the symbols; every distinct dim is computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = {name: index for index, name in enumerate(symbols)}
        self.ops: list[tuple[int, int, int]] = []
        self.constants: list[int] = []
        self._slots: dict[Any, int] = {}

    def slot(self, dim: Dim) -> int:
        """Where the value of `dim` will be. KeyError if it has a symbol that is not there."""
        found = self._slots.get(dim)
        if found is None:
            found = self._slots[dim] = self._constant(dim) if isinstance(dim, int) else self._sum(dim)
        return found

    def _constant(self, number: int) -> int:
        self.constants.append(number)
        return self._emit("constant", len(self.constants) - 1, 0)

    def _sum(self, dim: Expr) -> int:
        total: int | None = None
        for factors, coefficient in dim.terms:
            term = None if coefficient == 1 and factors else self.slot(coefficient)
            for atom in factors:
                term = self._atom(atom) if term is None else self._emit("*", term, self._atom(atom))
            assert term is not None
            total = term if total is None else self._emit("+", total, term)
        if total is None:
            raise KeyError("?")
        return total

    def _atom(self, atom: Atom) -> int:
        if atom.op == "symbol":
            return self.symbols[atom.name]
        first, *rest = [self.slot(argument) for argument in atom.args]
        for other in rest:
            first = self._emit(atom.op, first, other)
        return first

    def _emit(self, op: str, a: int, b: int) -> int:
        self.ops.append((_OPS[op], a, b))
        return len(self.symbols) + len(self.ops) - 1


class Control(IntEnum):
    """What a step does to the order of steps; c/machine.c says how."""

    RUN = 0
    LOOP = 1
    NEXT = 2
    IF = 3
    ELSE = 4
    END = 5
    CHECK = 6


@dataclass(slots=True)
class Step:
    """One kernel call; the last `writes` operands are written, the others read.

    A kernel that `may_continue` hands each part of its result on to `continued`, if there is such a call. A step with
    another `control` than RUN calls no kernel; it may go on at `target`.
    """

    kernel: Kernel | None
    operands: list[View]
    numbers: list[Dim]
    floats: list[float]
    rows: Dim
    cols: Dim
    row_grain: Dim
    col_grain: Dim
    work: Dim
    scratch: Dim
    writes: int = 1
    may_continue: bool = False
    nodes: tuple[Node, ...] = ()
    continued: Step | None = None
    control: Control = Control.RUN
    target: Step | None = None

    def touches(self, buffer: Buffer) -> bool:
        """Whether the call reads or writes `buffer`."""
        return any(view.buffer is buffer for view in self.operands)

    def written(self) -> list[Buffer]:
        """The buffers that the call writes to."""
        return [view.buffer for view in self.operands[len(self.operands) - self.writes :]]


@dataclass(slots=True)
class Tape:
    """Steps with the memory they work on; `given` lists the caller's buffers in the order it must provide them."""

    sizes: Sizes
    steps: list[Step] = field(default_factory=list[Step])
    given: list[Buffer] = field(default_factory=list[Buffer])
    errors: list[tuple[Node, str]] = field(default_factory=list[tuple[Node, str]])
    """What each error cell stands for."""


class _Header(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("symbols", "size_ops", "buffers", "steps")),
        *((name, ctypes.c_int32) for name in ("operands", "numbers", "errors", "unused")),
        ("limit", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("size_op", "constant", "buffer", "operand", "number", "real", "step")),
    )


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tape as the machine reads it. `order` are the steps in the order in which their times are noted."""

    header: _Header
    order: tuple[Step, ...]
    tables: tuple[Any, ...]
    """What the header points to."""


def encode(tape: Tape, error_buffer: Buffer, addresses: dict[Kernel, int], limit: int) -> Encoded:
    """The tape as tables. `addresses` says where the kernels are, `limit` how many bytes one buffer may have."""
    order = [part for step in tape.steps for part in _with_continuation(step)]
    lives = _lives(tape, order)
    arena = sorted((b for b in lives if not b.given), key=lambda buffer: lives[buffer][0])
    buffers = [error_buffer, *tape.given, *arena]
    place = {buffer: index for index, buffer in enumerate(buffers)}
    sizes = tape.sizes
    operands = [
        (place[view.buffer], sizes.slot(view.offset), view.dtype.numpy.itemsize) for s in order for view in s.operands
    ]
    numbers = [sizes.slot(number) for s in order for number in s.numbers]
    reals = [number for s in order for number in s.floats]
    rows = _step_rows(order, sizes, addresses)
    table = [(sizes.slot(b.bytes), *((-1, -1) if b.given or b is error_buffer else lives[b])) for b in buffers]
    tables = (
        np.array(sizes.ops, _SIZE_OP),
        np.array(sizes.constants, np.int64),
        np.array(table, _BUFFER),
        np.array(operands, _OPERAND),
        np.array(numbers, np.int32),
        np.array(reals, np.float64),
        np.array(rows, _STEP),
    )
    counts = (len(sizes.symbols), len(sizes.ops), len(buffers), len(order), len(operands), len(numbers))
    header = _Header(*counts, len(tape.errors), 0, limit, *(each.ctypes.data for each in tables))
    return Encoded(header, tuple(order), tables)


def _with_continuation(step: Step) -> list[Step]:
    return [step] if step.continued is None else [step, step.continued]


def _lives(tape: Tape, order: Sequence[Step]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last step that touches each buffer; a continuation counts from the step it belongs to.

    What is touched within a loop and outside of it lives for all of the loop: another round may read it.
    """
    index = {id(step): at for at, step in enumerate(order)}
    lives: dict[Buffer, tuple[int, int]] = {}
    for step in tape.steps:
        for part in _with_continuation(step):
            for view in part.operands:
                first, last = lives.get(view.buffer, (index[id(step)], 0))
                lives[view.buffer] = first, max(last, index[id(part)])
    loops = [(index[id(step.target)], index[id(step)]) for step in order if step.control is Control.NEXT]
    for begin, end in loops:  # those inside of others first, as they end first
        for buffer, (first, last) in lives.items():
            if first <= end and last >= begin and not begin < first <= last < end:
                lives[buffer] = min(first, begin), max(last, end)
    return lives


def _step_rows(order: Sequence[Step], sizes: Sizes, addresses: dict[Kernel, int]) -> list[tuple[int, ...]]:
    index = {id(step): at for at, step in enumerate(order)}
    attached = {id(step.continued) for step in order if step.continued is not None}
    rows: list[tuple[int, ...]] = []
    operands = numbers = floats = 0
    for s in order:
        grid = (s.rows, s.cols, s.row_grain, s.col_grain, s.work, s.scratch)
        next_step = s.target if s.continued is None else s.continued
        then = -1 if next_step is None else index[id(next_step)]
        address = 0 if s.kernel is None else addresses[s.kernel]
        start = (address, operands, numbers, floats, then, int(id(s) in attached))
        rows.append((*start, *(sizes.slot(each) for each in grid), s.control))
        operands += len(s.operands)
        numbers += len(s.numbers)
        floats += len(s.floats)
    return rows
