"""A tape in the form that `c/machine.c` runs, which counts `SizeOp` and `Control` alike."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from assay.targets.cpu.machine import TABLES, TapeTables
from assay.targets.shared.arena import arena_storages
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.tape import Step, Tape, liveness
from assay.targets.shared.views import Storage


class Encoded(NamedTuple):
    """A tape as the machine reads it. `order` are the steps in the order in which their times are noted."""

    header: ctypes.Structure
    order: tuple[Step, ...]
    tables: TapeTables
    """What the header points to."""


def encode(tape: Tape, error_storage: Storage, addresses: Mapping[Kernel, int], limit: int) -> Encoded:
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
    buffers = [(sizes.slot(b.bytes), *((-1, -1) if b.given or b is error_storage else lives[b])) for b in storages]
    contents = (sizes.ops, sizes.constants, buffers, operands, numbers, reals, rows)
    tables = TapeTables(*(np.array(each, kind) for each, kind in zip(contents, TABLES, strict=True)))
    return Encoded(tables.header(len(sizes.symbols), len(tape.errors), limit), tuple(order), tables)


def _step_rows(order: Sequence[Step], sizes: Sizes, addresses: Mapping[Kernel, int]) -> list[tuple[int, ...]]:
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
