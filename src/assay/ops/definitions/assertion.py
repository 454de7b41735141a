"""Conditions that must hold while a program runs."""

from __future__ import annotations

import numpy as np

from assay.ir.dtypes import Array
from assay.ops.registry import Effect, op
from assay.ops.shapes import same


@op("bool -> bool", shape=same, host=True, effect=Effect.OBSERVABLE)
def require(ok: Array, *, message: str) -> Array:
    """The condition itself, once all of it holds; an error that says `message` otherwise. It is never dropped."""
    if not np.all(ok):
        raise RuntimeError(message)
    return ok
