"""Native code as plain data: a table for JSON and arrays, from which another process makes the same code again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.parser import parse_type
from assay.ir.types import TensorType
from assay.targets.cpu.growing import CachePlace, CachePlaces
from assay.targets.cpu.machine import TABLES, ResultSlots, TapeTables
from assay.targets.cpu.native import NativeCode, RunError
from assay.targets.shared.artifacts import Kernel

_SLOTS = np.dtype(np.int32)
KINDS = (*TABLES, _SLOTS)
"""What the arrays of native code hold, in their order."""


def as_table(code: NativeCode) -> tuple[dict[str, Any], list[Array]]:
    """The code as a table of plain values, and its arrays, which are of `KINDS`."""
    caches = code.caches
    sizes = None if caches is None else str(TensorType(dtypes.i64, (caches.before, caches.after)))
    views = [(memory, dtypes.of(np.empty(0, dtype)).name, rank) for memory, dtype, rank in code.results.views]
    table = {
        "inputs": code.inputs,
        "kernels": [(kernel.source, kernel.entry) for kernel in code.kernels],
        "sources": code.sources,
        "addressed": code.addressed,
        "blocks": code.results.blocks,
        "views": views,
        "caches": caches and (caches.places, caches.symbols, sizes),
        "errors": code.errors,
        "limit": code.limit,
    }
    return table, [*code.tables, code.results.slots]


def from_table(table: dict[str, Any], arrays: Sequence[Array]) -> NativeCode:
    """The code that a table and arrays describe. ValueError, TypeError or LookupError if they are none."""
    *tables, slots = arrays
    return NativeCode(
        int(table["inputs"]),
        tuple(Kernel(source, entry) for source, entry in table["kernels"]),
        TapeTables(*tables),
        tuple((at, axis) for at, axis in table["sources"]),
        tuple(table["addressed"]),
        ResultSlots(
            int(table["blocks"]),
            tuple((memory, dtypes.by_name(name).numpy, rank) for memory, name, rank in table["views"]),
            slots,
        ),
        None if table["caches"] is None else _caches(*table["caches"]),
        tuple(RunError(*each) for each in table["errors"]),
        int(table["limit"]),
    )


def _caches(places: Sequence[Sequence[int]], symbols: Sequence[str], sizes: str) -> CachePlaces:
    shape = cast(TensorType, parse_type(sizes)).shape
    if shape is None or len(shape) != 2:
        raise ValueError("caches have two sizes")
    return CachePlaces(tuple(CachePlace(*each) for each in places), tuple(symbols), *shape)
