"""Tensors in host memory that grow from run to run: what a run puts behind one lies in the same memory.

The content of such a tensor never changes. Memory behind it is taken once: whoever continues a tensor that was
continued before gets a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from assay.ir.dtypes import Array


@dataclass(slots=True)
class Room:
    """Memory with `capacity` places along the axis that grows, of which the first `used` are taken."""

    memory: Array
    """For reading only: runs write by the address."""
    start: int
    place: int
    """Where it begins: in `memory`, and as an address."""
    capacity: int
    used: int


class GrownTensor:
    """A tensor that runs can continue, and the memory that it lies in. As an array, it is for reading only."""

    __slots__ = ("array", "room")

    def __init__(self, array: Array, room: Room | None = None) -> None:
        self.array, self.room = array, room

    @property
    def dtype(self) -> Any:
        """The NumPy dtype."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return self.array.ndim

    @property
    def nbytes(self) -> int:
        """The bytes that it takes, with the room behind it."""
        return self.array.nbytes if self.room is None else self.room.memory.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.array.copy() if copy else self.array
        return found if dtype is None else found.astype(dtype, copy=False)


@runtime_checkable
class Continuing(Protocol):
    """An executable that continues tensors in place."""

    @property
    def continued(self) -> dict[int, int]:
        """The inputs that outputs continue, and these. If all of them are `GrownTensor`s, so are the outputs."""
        ...
