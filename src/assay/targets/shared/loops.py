"""Loop nests over elements: the fewest loops that visit all of them in the order in which results lie in memory.

Axes that every operand steps through evenly are joined; the innermost that remains are the columns of the grid, the
others its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.ir.dims import Dim, eq, product
from assay.targets.shared.tape import Step
from assay.targets.shared.views import View


@dataclass(frozen=True, slots=True)
class Loops:
    """A loop nest: sizes of the outer axes, the columns, and each operand's strides through these."""

    outer: tuple[Dim, ...]
    cols: Dim
    outer_strides: tuple[tuple[Dim, ...], ...]
    inner_strides: tuple[Dim, ...]

    @property
    def rows(self) -> Dim:
        """The number of rows of the grid."""
        return product(self.outer)

    @property
    def numbers(self) -> list[Dim]:
        """The numbers that a kernel gets: the outer sizes, then each operand's strides, the inner one last."""
        strides = [
            stride
            for outer, inner in zip(self.outer_strides, self.inner_strides, strict=True)
            for stride in (*outer, inner)
        ]
        return [*self.outer, *strides]


def loop_nest(shape: Sequence[Dim], order: Sequence[int], views: Sequence[View], host: Step | None) -> Loops | None:
    """The fewest loops that visit all elements in `order`; None if the grid cannot be that of `host`."""
    axes = [axis for axis in order if shape[axis] != 1]
    cut = None if host is None else _cut(shape, axes, host)
    if host is not None and cut is None:
        return None
    blocks: list[list[int]] = []
    for at, axis in enumerate(axes):
        if blocks and at != cut and _one_step(shape, views, blocks[-1][-1], axis):
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    if host is not None and cut is not None and (not blocks or blocks[-1][0] != axes[cut]):
        return None
    sizes = [product(shape[axis] for axis in block) for block in blocks] or [1]
    strides = [[view.strides[block[-1]] for block in blocks] or [1] for view in views]
    return Loops(tuple(sizes[:-1]), sizes[-1], tuple(tuple(s[:-1]) for s in strides), tuple(s[-1] for s in strides))


def _cut(shape: Sequence[Dim], axes: Sequence[int], host: Step) -> int | None:
    """The first of `axes` that belongs to the columns of `host`; None if no cut gives its rows and columns."""
    for cut in range(len(axes)):
        inner = product(shape[axis] for axis in axes[cut:])
        if eq(inner, host.cols):
            return cut if eq(product(shape[axis] for axis in axes[:cut]), host.rows) else None
    return None


def _one_step(shape: Sequence[Dim], views: Sequence[View], outer: int, inner: int) -> bool:
    return all(view.strides[outer] == view.strides[inner] * shape[inner] for view in views)
