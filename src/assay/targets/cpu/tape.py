"""A tape in the form that `c/machine.c` runs, which counts `SizeOp` and `Control` alike."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from assay.targets.shared.arena import arena_storages
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.tape import Step, Tape, liveness
from assay.targets.shared.views import Storage

_SIZE_OP = np.dtype([("op", "i4"), ("a", "i4"), ("b", "i4")])
_BUFFER = np.dtype([("bytes", "i4"), ("from", "i4"), ("to", "i4")])
_OPERAND = np.dtype([("buffer", "i4"), ("offset", "i4"), ("width", "i4")])
_GRID = ("rows", "cols", "row_grain", "col_grain", "work", "scratch")
_PLACES = ("operands", "numbers", "floats", "then", "attached")
_STEP = np.dtype([("run", "u8"), *((name, "i4") for name in (*_PLACES, *_GRID, "control"))])


class _Header(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("symbols", "size_ops", "buffers", "steps")),
        *((name, ctypes.c_int32) for name in ("operands", "numbers", "errors", "unused")),
        ("limit", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("size_op", "constant", "buffer", "operand", "number", "real", "step")),
    )


class Encoded(NamedTuple):
    """A tape as the machine reads it. `order` are the steps in the order in which their times are noted."""

    header: _Header
    order: tuple[Step, ...]
    tables: tuple[Any, ...]
    """What the header points to."""


def encode(tape: Tape, error_storage: Storage, addresses: dict[Kernel, int], limit: int) -> Encoded:
    """The tape as tables. `addresses` says where the kernels are, `limit` how many bytes one storage may have."""
    order = tape.order
    lives = liveness(tape)
    storages = [error_storage, *tape.given, *arena_storages(lives)]
    place = {storage: index for index, storage in enumerate(storages)}
    sizes = tape.sizes
    operands = [
        (place[view.storage], sizes.slot(view.offset), view.dtype.numpy.itemsize) for s in order for view in s.operands
    ]
    numbers = [sizes.slot(number) for s in order for number in s.numbers]
    reals = [number for s in order for number in s.floats]
    rows = _step_rows(order, sizes, addresses)
    table = [(sizes.slot(b.bytes), *((-1, -1) if b.given or b is error_storage else lives[b])) for b in storages]
    tables = (
        np.array(sizes.ops, _SIZE_OP),
        np.array(sizes.constants, np.int64),
        np.array(table, _BUFFER),
        np.array(operands, _OPERAND),
        np.array(numbers, np.int32),
        np.array(reals, np.float64),
        np.array(rows, _STEP),
    )
    counts = (len(sizes.symbols), len(sizes.ops), len(storages), len(order), len(operands), len(numbers))
    header = _Header(*counts, len(tape.errors), 0, limit, *(each.ctypes.data for each in tables))
    return Encoded(header, tuple(order), tables)


def _step_rows(order: Sequence[Step], sizes: Sizes, addresses: dict[Kernel, int]) -> list[tuple[int, ...]]:
    index = {id(step): at for at, step in enumerate(order)}
    attached = {id(step.epilogue) for step in order if step.epilogue is not None}
    rows: list[tuple[int, ...]] = []
    operands = numbers = floats = 0
    for s in order:
        grid = (s.rows, s.cols, s.row_grain, s.col_grain, s.work, s.scratch)
        next_step = s.target if s.epilogue is None else s.epilogue
        then = -1 if next_step is None else index[id(next_step)]
        address = 0 if s.kernel is None else addresses[s.kernel]
        start = (address, operands, numbers, floats, then, int(id(s) in attached))
        rows.append((*start, *(sizes.slot(each) for each in grid), s.control))
        operands += len(s.operands)
        numbers += len(s.numbers)
        floats += len(s.floats)
    return rows
