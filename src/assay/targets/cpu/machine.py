"""The machine (`c/machine.c`) from Python: the tables that it reads, and what one run of it needs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from assay.errors import LimitExceeded, OutOfMemory
from assay.ir.dtypes import Array, address
from assay.memory import LARGE
from assay.targets.base import Finished
from assay.targets.budget import Allowance
from assay.targets.shared.artifacts import Kernel

MACHINE = Kernel('#include "machine.c"\n', entry="frame_run")
TOO_LITTLE = "there is not enough memory to run this"
_NO_MEMORY, _TOO_LARGE = -1, -2

_NUMBERS, _WIDE, _REALS = np.dtype("i4"), np.dtype("i8"), np.dtype("f8")
_SIZE_OP = np.dtype([("op", "i4"), ("a", "i4"), ("b", "i4")])
_BUFFER = np.dtype([("bytes", "i4"), ("from", "i4"), ("to", "i4")])
_OPERAND = np.dtype([("buffer", "i4"), ("offset", "i4"), ("width", "i4")])
_GRID = ("rows", "cols", "row_grain", "col_grain", "work", "scratch")
_PLACES = ("operands", "numbers", "floats", "then", "attached")
_STEP = np.dtype([("run", "u8"), *((name, "i4") for name in (*_PLACES, *_GRID, "control"))])

TABLES = (_SIZE_OP, _WIDE, _BUFFER, _OPERAND, _NUMBERS, _REALS, _STEP)
"""What the tables of a tape hold, in their order."""


class _Header(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("symbols", "size_ops", "buffers", "steps")),
        *((name, ctypes.c_int32) for name in ("operands", "numbers", "errors", "unused")),
        ("limit", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("size_op", "constant", "buffer", "operand", "number", "real", "step")),
    )


class TapeTables(NamedTuple):
    """A tape as the machine reads it, in the order of `TABLES`. A step's kernel is a number: its address, or what
    stands for it until `linked`."""

    size_ops: Array
    constants: Array
    buffers: Array
    operands: Array
    numbers: Array
    reals: Array
    steps: Array

    def linked(self, addresses: Sequence[int]) -> TapeTables:
        """The tables with the addresses of kernels in place of their numbers; 0 stands for none."""
        steps = self.steps.copy()
        steps["run"] = np.array([0, *addresses], np.uint64)[steps["run"]]
        return self._replace(steps=steps)

    def header(self, symbols: int, errors: int, limit: int) -> ctypes.Structure:
        """What points to the tables, which must stay. `limit` says how many bytes one buffer may have."""
        counted = (self.size_ops, self.buffers, self.steps, self.operands, self.numbers)
        return _Header(symbols, *map(len, counted), errors, 0, limit, *(each.ctypes.data for each in self))


class ResultPlace:
    """Where a result lies, in bytes."""

    __slots__ = ("dtype", "memory", "offset", "shape", "strides")

    def __init__(
        self, memory: int, dtype: np.dtype[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.memory, self.dtype, self.offset, self.shape, self.strides = memory, dtype, offset, shape, strides


class ResultLayout:
    """The sizes of the result blocks, and where the outputs lie in all memory, for one binding of the symbols."""

    __slots__ = ("blocks", "large", "outputs", "over")

    def __init__(self, blocks: list[int], outputs: list[ResultPlace], arena: int) -> None:
        self.blocks, self.outputs = blocks, outputs
        self.large = sum(blocks) + arena >= LARGE
        self.over = Finished(arena)
        """What stands for the runs of this layout."""


@dataclass(frozen=True)
class ResultSlots:
    """What to ask the machine for to know where results lie: the sizes of `blocks` blocks of memory, then for each view
    (its memory, dtype and rank) the offset, the sizes and the strides, in elements."""

    blocks: int
    views: tuple[tuple[int, np.dtype[Any], int], ...]
    slots: Array

    @cached_property
    def _scales(self) -> Array:
        widths = ((dtype.itemsize, rank) for _, dtype, rank in self.views)
        scales = [each for width, rank in widths for each in (width, *[1] * rank, *[width] * rank)]
        return np.array([*[1] * self.blocks, *scales], np.int64)

    def layout(self, sizes: Array, arena: int) -> ResultLayout:
        """The layout for the sizes that the machine gave for `slots`, beside an arena of so many bytes."""
        scaled: list[int] = (sizes * self._scales).tolist()
        outputs: list[ResultPlace] = []
        at = self.blocks
        for memory, dtype, rank in self.views:
            shape, end = at + 1 + rank, at + 1 + 2 * rank
            outputs.append(
                ResultPlace(memory, dtype, scaled[at], tuple(scaled[at + 1 : shape]), tuple(scaled[shape:end]))
            )
            at = end
        return ResultLayout(scaled[: self.blocks], outputs, arena)


class Frame:
    """What one run needs of its own."""

    def __init__(self, machine: ctypes.CDLL, tape: Any, addresses: Sequence[int]) -> None:
        """`addresses`: of the memory that is given to runs, which say where inputs and blocks lie."""
        self._machine, self._tape = machine, tape
        self._given = (ctypes.c_void_p * len(addresses))(*addresses)
        self._frame = machine.frame_new(tape)
        if not self._frame:
            raise OutOfMemory(TOO_LITTLE)
        self._fitted: tuple[int, ...] | None = None
        self._layout: ResultLayout | None = None
        self._arena = self._needed = self.touched = 0
        """Bytes of the arena, those that runs of the latest sizes use, and those that runs have used so far."""

    def fit(self, symbols: tuple[int, ...], results: ResultSlots) -> ResultLayout:
        """The layout of a run with these sizes."""
        if self._layout is not None and symbols == self._fitted:
            return self._layout
        values = np.array(symbols, np.int64)
        sizes = np.empty(len(results.slots), np.int64)
        count = len(results.slots)
        self._fitted = None
        arguments = (address(values), address(results.slots), count, address(sizes))
        failed = self._machine.frame_fit(self._tape, self._frame, *arguments)
        if failed == _TOO_LARGE:
            raise LimitExceeded("a tensor would exceed the limit", hint="check the sizes, or raise Limits.tensor_bytes")
        if failed:
            raise OutOfMemory(TOO_LITTLE)
        peak = self._needed = self.peak()
        if not self._arena // 4 <= peak <= self._arena:  # the machine took another arena
            self._arena, self.touched = peak, 0
        self._layout = results.layout(sizes, peak)
        self._fitted = symbols
        return self._layout

    def run(
        self,
        inputs: Sequence[int],
        results: Sequence[int],
        threads: int,
        times: Array | None,
        allowance: Allowance | None,
    ) -> int:
        """Run with the addresses of the inputs and of memory for the results."""
        given = self._given
        given[: len(inputs)] = inputs
        given[len(given) - len(results) :] = results
        noted = None if times is None else address(times)
        until = None if allowance is None else ctypes.addressof(allowance.stop)
        self.touched = max(self.touched, self._needed)
        failed = self._machine.frame_run(self._tape, self._frame, given, threads, noted, until)
        if failed == _NO_MEMORY:
            raise OutOfMemory(TOO_LITTLE)
        return failed

    def peak(self) -> int:
        """The bytes of the arena that a run of the latest sizes takes."""
        return self._machine.frame_peak(self._frame)

    def __del__(self) -> None:
        if getattr(self, "_frame", None):
            self._machine.frame_free(self._frame)


@cache
def _typed_functions() -> tuple[tuple[str, Any, tuple[Any, ...]], ...]:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    return (
        ("frame_new", pointer, (pointer,)),
        ("frame_free", None, (pointer,)),
        ("frame_fit", number, (pointer, pointer, pointer, pointer, number, pointer)),
        ("frame_run", ctypes.c_int64, (pointer, pointer, pointer, number, pointer, pointer)),
        ("frame_peak", ctypes.c_int64, (pointer,)),
    )


def typed(machine: ctypes.CDLL) -> ctypes.CDLL:
    """The machine's library with the types of its functions."""
    for name, result, arguments in _typed_functions():
        function = getattr(machine, name)
        function.restype, function.argtypes = result, arguments
    return machine
