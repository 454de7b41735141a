"""Conditions that must hold while a program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import TENSORS, Array
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.conditions import fitting_attrs
from assay.ops.registry import OPS, Effect, op
from assay.ops.samples import draw, listed
from assay.ops.shapes import same


@op("bool -> bool", shape=same, host=True, effect=Effect.OBSERVABLE)
def require(ok: Array, *, message: str) -> Array:
    """The condition itself, once all of it holds; an error that says `message` otherwise. It is never dropped."""
    if not np.all(ok):
        raise RuntimeError(message)
    return ok


def _check(facts: Sequence[Fact], rule: str, places: Sequence[int], attrs: Sequence[Any]) -> None:
    arguments: list[Fact | None] = [None] * (max(places) + 1)
    for place, fact in zip(places, facts, strict=True):
        arguments[place] = fact
    OPS[rule].check_sizes(arguments, dict(attrs))


def _fitting_shape(x: Fact, *others: Fact, rule: str, places: Sequence[int], attrs: Sequence[Any]) -> list[Shape]:
    _check((x, *others), rule, places, attrs)
    return [x.shape]


@op(
    "T, any* -> T",
    T=TENSORS,
    shape=_fitting_shape,
    samples=listed(
        lambda rng, dtype: [
            (draw(rng, dtype, (2, 3)), draw(rng, dtype, (3, 4)), fitting_attrs("matmul", (0, 1), {})),
            (draw(rng, dtype, (2, 0)), draw(rng, dtype, (2, 3)), fitting_attrs("concat", (0, 1), {"axis": 1})),
        ]
    ),
)
def fitting(x: Array, *others: Any, rule: str, places: Sequence[int], attrs: Sequence[Any]) -> Array:
    """`x` as it is, if the op `rule` with `attrs` takes these shapes at these `places` among its inputs.

    It stands before the parts of an op where only a run tells whether the sizes fit."""
    _check([Fact(TensorType(dtypes.of(each), each.shape)) for each in (x, *others)], rule, places, attrs)
    return x
