"""Views: how a tensor lies in memory. Movement ops change views and leave the memory alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.ir.dims import Dim, dim_max, dim_min, eq, evaluate, le, product, symbols
from assay.ir.dtypes import DType

TYPICAL = 97
"""What a symbol is taken for where sizes are only compared to choose a memory order."""


@dataclass(eq=False, slots=True)
class Storage:
    """A piece of memory; `given` if the caller of the program provides it, else it lies in the arena."""

    bytes: Dim
    given: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a storage. Strides and offset count elements."""

    storage: Storage
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps, as far as that can be proved."""
        return self.is_dense_in(range(self.rank))

    def is_dense_in(self, order: Sequence[int]) -> bool:
        """Whether the elements lie without gaps with the axes in `order` from the outermost to the innermost."""
        step: Dim = 1
        for axis in reversed(order):
            if self.shape[axis] == 1:
                continue
            if self.strides[axis] != step:
                return False
            step = step * self.shape[axis]
        return True

    def fills_storage(self, order: Sequence[int]) -> bool:
        """Whether the elements, with the axes in `order`, are all that there is in the storage."""
        bytes_taken = self.size * self.dtype.numpy.itemsize
        return self.offset == 0 and self.storage.bytes == bytes_taken and self.is_dense_in(order)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes from the outermost to the innermost in memory; broadcast axes and those of size 1 stay in place."""
        moving = [axis for axis in range(self.rank) if self.strides[axis] != 0 and self.shape[axis] != 1]
        ranked = iter(sorted(moving, key=lambda axis: (-_typical(self.strides[axis]), axis)))
        return tuple(next(ranked) if axis in moving else axis for axis in range(self.rank))

    def transposed(self, perm: Sequence[int]) -> View:
        """With the axes in the order `perm`."""
        return replace(self, shape=tuple(self.shape[a] for a in perm), strides=tuple(self.strides[a] for a in perm))

    def dropped(self, axis: int) -> View:
        """Without an axis, at the first place along it."""
        shape, strides = self.shape, self.strides
        return replace(self, shape=(*shape[:axis], *shape[axis + 1 :]), strides=(*strides[:axis], *strides[axis + 1 :]))

    def split(self, axis: int) -> View:
        """With an axis of size 1 before `axis`."""
        shape, strides = self.shape, self.strides
        return replace(self, shape=(*shape[:axis], 1, *shape[axis:]), strides=(*strides[:axis], 0, *strides[axis:]))

    def expanded(self, shape: Sequence[Dim]) -> View:
        """Broadcast to `shape`, which must be possible."""
        return replace(self, shape=tuple(shape), strides=broadcast_strides(self.shape, shape, self.strides))

    def sliced(self, axis: int, start: Dim, size: Dim, step: Dim = 1) -> View:
        """Every `step`-th element along `axis`, `size` of them from `start` on, none of it checked."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = size, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def reshaped(self, shape: Sequence[Dim]) -> View | None:
        """Under another shape of as many elements; None if that takes a copy, or cannot be seen not to."""
        if self.is_dense:
            return replace(self, shape=tuple(shape), strides=dense_strides(shape))
        strides = _split(_blocks(self.shape, self.strides), shape)
        return None if strides is None else replace(self, shape=tuple(shape), strides=strides)


def broadcast_strides(shape: Sequence[Dim], wanted: Sequence[Dim], strides: Sequence[Dim]) -> tuple[Dim, ...]:
    """The strides of a tensor that is broadcast to the shape `wanted`.

    Where only a run tells whether an axis is repeated, the run computes its stride: 0 if the size is 1.
    """
    new = len(wanted) - len(shape)
    return (*[0] * new, *map(_repeated, shape, wanted[new:], strides))


def _repeated(old: Dim, size: Dim, stride: Dim) -> Dim:
    """The stride of an axis that is broadcast from one size to another."""
    if old == 1:
        return stride if size == 1 else 0
    if old == size or eq(old, size) or le(2, old):
        return stride
    return stride * dim_min(dim_max(old - 1, 0), 1)


def dense_strides(shape: Sequence[Dim], order: Sequence[int] | None = None) -> tuple[Dim, ...]:
    """The strides of a tensor without gaps, its axes in `order` (row-major unless given)."""
    strides: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def _typical(dim: Dim) -> int:
    return evaluate(dim, dict.fromkeys(symbols(dim), TYPICAL)) or 0


def _blocks(shape: Sequence[Dim], strides: Sequence[Dim]) -> list[tuple[Dim, Dim]]:
    """Sizes and strides of the axes, neighbours joined that one stride steps through; those of size 1 left out."""
    blocks: list[tuple[Dim, Dim]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if blocks and eq(blocks[-1][1], stride * size):
            blocks[-1] = (blocks[-1][0] * size, stride)
        else:
            blocks.append((size, stride))
    return blocks


def _split(blocks: Sequence[tuple[Dim, Dim]], shape: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The strides of axes of `shape`, each run of which makes up one block; None if they do not."""
    strides: list[Dim] = [1] * len(shape)
    axis = len(shape) - 1
    for size, stride in reversed(blocks):
        step, made = stride, 1
        while not eq(made, size):
            if axis < 0:
                return None
            strides[axis] = step
            step, made = step * shape[axis], made * shape[axis]
            axis -= 1
    return tuple(strides) if all(shape[a] == 1 for a in range(axis + 1)) else None
