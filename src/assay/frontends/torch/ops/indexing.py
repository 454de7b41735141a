"""aten's advanced indexing: positions given as tensors, masks or nothing for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value


class _Plan(NamedTuple):
    """Positions […, k] into the first k axes of x, once its axes are in the order `perm`."""

    positions: Value
    perm: tuple[int, ...]
    spread: int
    """How many axes the positions have."""
    at: int
    """Where those axes stand in the result."""


def _plan(b: Builder, x: Value, indices: Sequence[Value | None]) -> _Plan:
    places = _places(b, indices)
    axes = [axis for axis, place in enumerate(places) if place is not None]
    given = [place for place in places if place is not None]
    shape = b.shape_of(reduce(lambda left, right: b.add(left, right), given))
    columns = [b.expand(place, shape) for place in given]
    spread = max(b.rank(place) for place in given)
    positions = b.concat(*(b.unsqueeze(column, axes=(spread,)) for column in columns), axis=spread)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    rest = [axis for axis in range(b.rank(x)) if axis not in axes]
    return _Plan(positions, (*axes, *rest), spread, axes[0] if adjacent else 0)


def _places(b: Builder, indices: Sequence[Value | None]) -> list[Value | None]:
    """One entry an axis; a mask becomes the positions where it holds, for each axis that it covers."""
    places: list[Value | None] = []
    for index in indices:
        if index is not None and b.dtype(index) in (dtypes.boolean, dtypes.u8):
            held = b.nonzero(index)
            places += [b.gather(held, axis, axis=0) for axis in range(b.rank(index))]
        else:
            places.append(None if index is None else tensor(b, index, dtypes.i64))
    return places


@aten("aten.index.Tensor")
def index(b: Builder, n: Call, x: Value, indices: Sequence[Value | None]) -> Results:
    plan = _plan(b, x, indices)
    found = b.gather_nd(b.transpose(x, perm=plan.perm), plan.positions)
    return b.transpose(found, perm=_moved(b.rank(found), plan))


def _moved(rank: int, plan: _Plan) -> tuple[int, ...]:
    """The order of axes that puts the positions' axes from the front to where they belong."""
    rest = list(range(plan.spread, rank))
    return (*rest[: plan.at], *range(plan.spread), *rest[plan.at :])


@aten("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    b: Builder, n: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Results:
    plan = _plan(b, x, indices)
    turned = b.transpose(x, perm=plan.perm)
    written_over = b.gather_nd(turned, plan.positions)
    order = _moved(b.rank(written_over), plan)
    shape = b.shape_of(b.transpose(written_over, perm=order))
    updates = b.transpose(b.expand(tensor(b, values, n.dtype), shape), perm=_inverse(order))
    written = b.scatter_nd(turned, plan.positions, updates, reduction="add" if accumulate else "none")
    return b.transpose(written, perm=_inverse(plan.perm))


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=lambda axis: perm[axis]))
