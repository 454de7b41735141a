"""What chips exchange: the ops that take the part of each chip and leave the same on all of them.

A program is that of one chip and names its own part alone, which then stands for all of them: such a node is there to
be put to the library. The device model names the parts of all chips.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir.dtypes import FLOATS, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.targets.ttnn.ops import TTNN_OPS


def _copies(given: int, chips: int) -> int:
    """How many chips each part stands for."""
    if not given or chips % given:
        raise ValueError(f"{given} parts are not those of {chips} chips")
    return chips // given


def _alike(parts: tuple[Fact, ...]) -> Shape:
    shape = parts[0].shape
    for other in (each.shape for each in parts[1:]):
        if shape is None or other is None:
            return None
        if len(shape) != len(other) or any(differ(one, two) for one, two in zip(shape, other, strict=True)):
            raise ValueError(f"parts {list(shape)} and {list(other)} differ")
    return shape


def _samples(rng: Rng, dtype: DType) -> Any:
    for chips, shape in ((2, (2, 3, 8)), (4, (5, 7))):
        yield *(draw(rng, dtype, shape) for _ in range(chips)), {"chips": chips, "axis": 1}
    yield draw(rng, dtype, (3, 4)), {"chips": 2, "axis": 0}


def _reduced_shape(*xs: Fact, chips: int, axis: int) -> list[Shape]:
    _copies(len(xs), chips)
    return [_alike(xs)]


def _reduced_parts(b: Any, *xs: Any, chips: int, axis: int) -> Any:
    first, *others = xs * _copies(len(xs), chips)
    for each in others:
        first = b.add(first, each)
    return first


@op(
    "T* -> T",
    into=TTNN_OPS,
    T=FLOATS,
    shape=_reduced_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_reduced_parts,
    samples=listed(_samples),
)
def all_reduce(*xs: Array, chips: int, axis: int) -> Array:
    """The sum of what the `chips` along an axis of the mesh have, rounded once."""
    return np.sum(np.stack(xs), axis=0) * _copies(len(xs), chips)


def _gathered_shape(*xs: Fact, chips: int, axis: int) -> list[Shape]:
    _copies(len(xs), chips)
    shape = _alike(xs)
    return [None if shape is None else (*shape[:-1], shape[-1] * chips)]


def _gathered_parts(b: Any, *xs: Any, chips: int, axis: int) -> Any:
    return b.concat(*xs * _copies(len(xs), chips), axis=-1)


@op(
    "T* -> T",
    into=TTNN_OPS,
    T=FLOATS,
    shape=_gathered_shape,
    parts=_gathered_parts,
    samples=listed(_samples),
)
def all_gather(*xs: Array, chips: int, axis: int) -> Array:
    """What the `chips` along an axis of the mesh have, side by side along the last axis."""
    return np.concatenate(xs * _copies(len(xs), chips), axis=-1)
