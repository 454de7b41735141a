"""How right results are: every figure of the schema, and the verdict against the noise floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from assay.evidence.compare.arrays import closeness, signal
from assay.evidence.compare.models import allowed_error
from assay.evidence.records import Output
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ops.registry import widen

_LEAST_CLASSES = 10
"""From so many elements on, the last axis may be scores of classes or tokens."""


def against(
    found: Mapping[str, Array],
    plain: Mapping[str, Array],
    exact: Mapping[str, Array] | None,
    noisy: Sequence[Mapping[str, Array]] = (),
) -> tuple[Output, ...]:
    """Every result judged; one that is missing or that torch does not give is wrong."""
    wide = {name: widen(array) for name, array in (exact or {}).items()}
    shared = [
        judged(name, found[name], plain[name], wide.get(name), [run[name] for run in noisy if name in run])
        for name in plain
        if name in found
    ]
    missing = [Output(name, "", False, "is missing") for name in plain if name not in found]
    surplus = [Output(name, "", False, "torch has no such result") for name in found if name not in plain]
    return (*shared, *missing, *surplus)


def judged(name: str, found: Array, plain: Array, exact: Array | None, noisy: Sequence[Array] = ()) -> Output:
    """A result beside torch's eager one and the exact one in f64.

    The noise floor is how far eager's is off, or the farthest of `noisy` runs of eager if there are any. Where no exact
    one is known, or torch's rounding alone makes another shape of it, eager's counts as exact and there is no noise
    floor. Whole numbers and truth values are right where they are the exact or the eager ones.
    """
    kind, wanted = _described(found), _described(plain)
    if kind != wanted:
        return Output(name, kind, False, f"is {kind} instead of {wanted}")
    known = exact is not None and exact.shape == plain.shape
    goal = exact if exact is not None and known else widen(plain)
    noise = closeness(widen(plain), goal)
    floor = max([noise.max_abs, *(closeness(widen(run), goal).max_abs for run in noisy)])
    unexplained = noise.nan + noise.inf
    rounded = dtypes.of(plain).kind in ("float", "complex")
    allowed = allowed_error(plain, floor) if rounded else 0.0
    goal = goal if rounded else np.where(found == plain, plain, goal)
    error = closeness(widen(found), goal, absolute=allowed)
    ok = error.ok or (bool(unexplained) and closeness(found, plain, absolute=2 * allowed).ok)
    like = signal(widen(found), goal)
    top1, top5 = _agreement(found, plain)
    return Output(
        name,
        kind,
        ok,
        "" if ok else str(error),
        error.count,
        _finite(error.max_abs),
        _finite(error.max_rel),
        _finite(closeness(found, plain).max_ulp),
        _finite(like.snr),
        _finite(like.pcc),
        error.nan,
        error.inf,
        _finite(floor) if known else None,
        _finite(allowed),
        top1,
        top5,
    )


def _described(array: Array) -> str:
    return f"{dtypes.of(array)}{list(array.shape)}"


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _agreement(found: Array, plain: Array) -> tuple[float | None, float | None]:
    """How often the largest and the five largest elements of a row are the same ones."""
    if not dtypes.of(plain).is_float or plain.ndim < 2 or plain.shape[-1] < _LEAST_CLASSES or not plain.size:
        return None, None
    rows = [widen(each).reshape(-1, plain.shape[-1]) for each in (found, plain)]
    first, second = (np.argpartition(-row, 5, axis=-1)[:, :5] for row in rows)
    largest, wanted = (row.argmax(-1) for row in rows)
    shared = (first[:, :, None] == second[:, None, :]).any(-1)
    return _part(largest == wanted), _part(shared)


def _part(flags: Array) -> float:
    """The part of them that is true."""
    return int(np.count_nonzero(flags)) / flags.size
