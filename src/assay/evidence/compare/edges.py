"""Ops with an edge: what each of them compares, and where rounding decides the answer.

relu compares with zero, max compares elements, floor compares with whole numbers. Where the two sides are nearer to
each other than the noise they carry, another correct run may choose otherwise: the result hardly moves, but a gradient
may jump. Such an element is *undecided*; a run whose comparison there has another sign has *flipped*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np

from assay.ir.dtypes import Array

OpArguments = Mapping[str, Any]
"""The arguments of a call by name: tensors as f64 arrays, everything else as it is."""


class ArgumentElements(NamedTuple):
    """Elements of an argument, by their flat index."""

    name: str
    at: Array

    def of(self, arguments: Mapping[str, Array]) -> Array:
        """The elements there."""
        return arguments[self.name].reshape(-1)[self.at]


class Pair(NamedTuple):
    """What an op compares: elements of an argument with elements of another, or with fixed numbers."""

    first: ArgumentElements
    second: ArgumentElements | Array | float


Compares = Callable[[OpArguments], Iterator[Pair]]


@dataclass(slots=True)
class Undecided:
    """For each argument which elements are within noise of an edge, and how many comparisons another run flipped."""

    near: dict[str, Array] = field(default_factory=dict[str, Array])
    flipped: int = 0


def undecided(op: str, exact: OpArguments, margin: Mapping[str, Array], other: Mapping[str, Array]) -> Undecided:
    """Where the op compares what is nearer than the margins of both sides; `other` are the arguments of another run.

    `op` must be in `EDGES`. `margin` and `other` have the tensors among the arguments that carry noise.
    """
    found = Undecided({name: np.zeros(each.shape, bool) for name, each in margin.items()})
    with np.errstate(all="ignore"):
        for pair in EDGES[op](exact):
            sides = [side for side in pair if isinstance(side, ArgumentElements) and side.name in margin]
            gap, there = (_gap(pair, values) for values in (exact, {**exact, **other}))
            reach = sum((side.of(margin) for side in sides), np.zeros(()))
            close = (np.abs(gap) <= reach) & (reach > 0)
            for side in sides:
                found.near[side.name].reshape(-1)[np.broadcast_to(side.at, close.shape)[close]] = True
            found.flipped += int(np.count_nonzero(close & (np.sign(gap) != np.sign(there))))
    return found


def _gap(pair: Pair, arguments: OpArguments) -> Array:
    first, second = (side.of(arguments) if isinstance(side, ArgumentElements) else side for side in pair)
    return np.asarray(first - second)


# --- what ops compare


def _all(arguments: OpArguments, name: str) -> ArgumentElements:
    array: Array = arguments[name]
    return ArgumentElements(name, np.arange(array.size).reshape(array.shape))


def _with(*numbers: float, name: str = "self") -> Compares:
    """Every element with fixed numbers."""

    def pairs(given: OpArguments) -> Iterator[Pair]:
        for number in numbers:
            yield Pair(_all(given, name), number)

    return pairs


def _with_arguments(*names: str, name: str = "self") -> Compares:
    """Every element with other arguments, which are numbers, tensors that fit or not given."""

    def pairs(given: OpArguments) -> Iterator[Pair]:
        for other in names:
            bound = given.get(other)
            if isinstance(bound, np.ndarray):
                yield _broadcast(given, name, other)
            elif bound is not None:
                yield Pair(_all(given, name), float(bound))

    return pairs


def _broadcast(given: OpArguments, first: str, second: str) -> Pair:
    one, two = np.broadcast_arrays(_all(given, first).at, _all(given, second).at)
    return Pair(ArgumentElements(first, one), ArgumentElements(second, two))


def _steps(offset: float, divisor: str = "") -> Compares:
    """Every element with the nearest of the numbers offset, offset ± 1, …; counted in units of a divisor, if any."""

    def pairs(given: OpArguments) -> Iterator[Pair]:
        unit = np.asarray(given[divisor] if divisor else 1.0, np.float64)
        yield Pair(_all(given, "self"), (np.rint(given["self"] / unit - offset) + offset) * unit)

    return pairs


def _order(given: OpArguments) -> Iterator[Pair]:
    """Along an axis (or all of them) every element with the next larger one; given two tensors, these."""
    if given.get("other") is not None:
        yield _broadcast(given, "self", "other")
        return
    x: Array = given["self"]
    axes = _axes(given.get("dim"), x.ndim)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows, columns = (math.prod(x.shape[axis] for axis in which) for which in (kept, axes))
    flat = _all(given, "self").at.transpose(*kept, *axes).reshape(rows, columns)
    ordered = np.take_along_axis(flat, np.argsort(x.reshape(-1)[flat], axis=1, kind="stable"), 1)
    yield Pair(ArgumentElements("self", ordered[:, 1:]), ArgumentElements("self", ordered[:, :-1]))


def _axes(dim: Any, rank: int) -> Sequence[int]:
    named: Sequence[int] = [] if dim is None else _several(dim)
    return [axis % rank for axis in named] if rank and named else range(rank)


def _windows(rank: int) -> Compares:
    """Every element with all that may share a pooling window with it, over the last axes."""

    def pairs(given: OpArguments) -> Iterator[Pair]:
        place = _all(given, "self").at
        sizes, apart = _each(given["kernel_size"], rank), _each(given.get("dilation") or 1, rank)
        for steps in product(*(range(1 - size, size) for size in sizes)):
            if steps > (0,) * rank:  # each pair once
                shifts = [step * wide for step, wide in zip(steps, apart, strict=True)]
                yield Pair(
                    ArgumentElements("self", _cut(place, shifts)),
                    ArgumentElements("self", _cut(place, [-shift for shift in shifts])),
                )

    return pairs


def _each(value: Any, rank: int) -> Sequence[int]:
    many = _several(value)
    return many if len(many) == rank else [many[0]] * rank


def _several(value: Any) -> Sequence[int]:
    return cast("Sequence[int]", value) if isinstance(value, list | tuple) else [value]


def _cut(place: Array, shifts: Sequence[int]) -> Array:
    """What is left of the last axes where as much is cut off: at the start, or for a negative shift at the end."""
    parts = [slice(shift, None) if shift >= 0 else slice(None, shift) for shift in shifts]
    return place[(..., *parts)]


_COMPARISON = _with_arguments("other")
_ZERO = _with(0.0)

EDGES: Mapping[str, Compares] = {
    **dict.fromkeys(("relu", "abs", "sign", "sgn", "heaviside", "nonzero"), _ZERO),
    **dict.fromkeys(("leaky_relu", "leaky_relu_backward", "elu", "_prelu_kernel"), _ZERO),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne", "maximum", "minimum", "fmax", "fmin"), _COMPARISON),
    **dict.fromkeys(("max", "min", "amax", "amin", "argmax", "argmin", "cummax", "cummin"), _order),
    **dict.fromkeys(("sort", "argsort", "topk", "median", "nanmedian", "kthvalue"), _order),
    **dict.fromkeys(("floor", "ceil", "trunc", "frac"), _steps(0.0)),
    **dict.fromkeys(("threshold", "threshold_backward"), _with_arguments("threshold")),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _with_arguments("min", "max")),
    **dict.fromkeys(("hardtanh", "hardtanh_backward"), _with_arguments("min_val", "max_val")),
    **dict.fromkeys(("hardswish", "hardswish_backward", "hardsigmoid", "hardsigmoid_backward"), _with(-3.0, 3.0)),
    **dict.fromkeys(("remainder", "fmod", "floor_divide"), _steps(0.0, "other")),
    "round": _steps(0.5),
    "max_pool1d_with_indices": _windows(1),
    "max_pool2d_with_indices": _windows(2),
    "max_pool3d_with_indices": _windows(3),
}
"""The aten ops with an edge, and what each compares; `where` chooses by a comparison, which has the edge."""
