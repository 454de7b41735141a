"""What a kernel is told, and how that lies in memory."""

from __future__ import annotations

import struct as packing
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """How what a kernel is told lies in memory: places of operands, then numbers; as push constants if they fit."""

    operands: int
    numbers: int
    addresses: bool
    push_bytes: int

    @property
    def size(self) -> int:
        """The bytes of all."""
        return self.operands * (8 if self.addresses else 4) + self.numbers * 4

    @property
    def direct(self) -> bool:
        """Whether they are push constants; else a buffer holds them."""
        return self.size <= self.push_bytes

    @property
    def pushed(self) -> int:
        """The bytes of the push constants: all, or the address of the buffer."""
        return self.size if self.direct else 8 if self.addresses else 0

    @property
    def bindings(self) -> int:
        """The number of descriptors: one an operand, and one for the buffer of arguments."""
        return 0 if self.addresses else self.operands + (0 if self.direct else 1)

    def packed(self, places: Sequence[int], numbers: Sequence[int]) -> bytes:
        """The bytes for these addresses, or offsets in elements, and numbers."""
        letter = "Q" if self.addresses else "I"
        whole = [number & 0xFFFFFFFF for number in numbers]
        return packing.pack(f"<{self.operands}{letter}{self.numbers}I", *places, *whole)
