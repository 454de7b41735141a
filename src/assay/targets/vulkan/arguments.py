"""What a kernel is told, and how that lies in memory."""

from __future__ import annotations

import struct as packing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class KernelArguments:
    """How what a kernel is told lies in memory: places of operands, then numbers; as push constants if they fit."""

    operands: int
    numbers: int
    addresses: bool
    push_bytes: int

    @cached_property
    def _layout(self) -> packing.Struct:
        return packing.Struct(f"<{self.operands}{'Q' if self.addresses else 'I'}{self.numbers}i")

    @property
    def size(self) -> int:
        """The bytes of all."""
        return self._layout.size

    @cached_property
    def direct(self) -> bool:
        """Whether they are push constants; else a buffer holds them."""
        return self.size <= self.push_bytes

    @property
    def pushed(self) -> int:
        """The bytes of the push constants: all, or the address of the buffer."""
        return self.size if self.direct else 8 if self.addresses else 0

    @cached_property
    def bindings(self) -> int:
        """The number of descriptors: one an operand, and one for the buffer of arguments."""
        return 0 if self.addresses else self.operands + (0 if self.direct else 1)

    def packed(self, places: Sequence[int], numbers: Sequence[int]) -> bytes:
        """The bytes for these addresses, or offsets in elements, and numbers of 32 bits."""
        return self._layout.pack(*places, *numbers)
