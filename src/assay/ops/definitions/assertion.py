"""Conditions that must hold while a program runs."""

from __future__ import annotations

import numpy as np

from assay.ir.dtypes import Array
from assay.ops.registry import op
from assay.ops.shapes import same


@op("bool -> bool", shape=same, host=True, effects=True)
def require(ok: Array, *, message: str, acts: bool = True) -> Array:
    """The condition itself, once all of it holds; an error that says `message` otherwise. It is never dropped."""
    if not np.all(ok):
        raise RuntimeError(message)
    return ok
