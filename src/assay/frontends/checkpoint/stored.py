"""What a checkpoint holds: named tensors that stay in their file until somebody reads them, and plain values."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import ImportFailed, LimitExceeded
from assay.ir.dtypes import Array, DType, read_only
from assay.limits import Limits
from assay.ops.block_formats import BlockFormat

_PIECE = 1 << 22


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor in a file. `memory` is what it lies in: its elements, or bytes (…, bytes of a row) in blocks."""

    shape: tuple[int, ...]
    format: DType | BlockFormat
    memory: Array

    @property
    def nbytes(self) -> int:
        """What it takes in the file."""
        return self.memory.nbytes

    def array(self) -> Array:
        """The elements, read-only and where they lie; f32 of those in blocks."""
        if isinstance(self.format, DType):
            return self.memory
        found = self.format.dequantized(self.memory)
        found.flags.writeable = False
        return found


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name and what the files say besides (`facts`), by dotted names. `memory` is the file, if it is one
    that is mapped as a whole."""

    kind: str
    files: tuple[Path, ...]
    tensors: Mapping[str, StoredTensor]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    memory: FileMemory | None = None

    def digest(self) -> str:
        """A hash of all that was read: the files' contents in their order. Of a file that is mapped, it is the hash of
        what tensors are read from, whatever has its name by now."""
        if self.memory is not None:
            return self.memory.digest()
        found = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    found.update(piece)
        return found.hexdigest()


class FileMemory:
    """A file mapped into memory, read-only. Parts are handed out after their place was checked.

    Nothing is read before somebody looks at it. A file that is cut off while it is mapped ends the process that reads
    beyond its new end, as with every mapped file.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        """LimitExceeded if the file is larger than models may be."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.model_bytes:
                raise LimitExceeded(f"the file has {size} bytes", hint="raise Limits.model_bytes")
            self._mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else None
        self.limits = limits
        self.bytes: Array = read_only(np.frombuffer(b"" if self._mapped is None else self._mapped, np.uint8))

    def digest(self) -> str:
        """The SHA-256 of the file, of the very memory that parts lie in. What is not needed otherwise does not stay in
        the memory of this process."""
        found = hashlib.sha256()
        for start in range(0, len(self.bytes), _PIECE):
            piece = self.bytes[start : start + _PIECE]
            found.update(piece.data)
            if self._mapped is not None:
                self._mapped.madvise(mmap.MADV_DONTNEED, start, len(piece))
        return found.hexdigest()

    def part(self, start: int, size: int) -> Array:
        """Bytes from `start` on; ImportFailed if they are not all there."""
        if start < 0 or size < 0 or start + size > len(self.bytes):
            raise ImportFailed(f"the file has {len(self.bytes)} bytes, and {size} are to lie at {start}")
        return self.bytes[start : start + size]

    def tensor(self, start: int, shape: Sequence[int], kind: DType | BlockFormat) -> StoredTensor:
        """A tensor whose rows lie one after the other. LimitExceeded if it is larger than tensors may be."""
        sizes = check_sizes(shape, self.limits)
        if isinstance(kind, DType):
            memory = self.part(start, math.prod(sizes) * kind.numpy.itemsize)
            return StoredTensor(sizes, kind, elements(memory, kind).reshape(sizes))
        try:
            row = kind.bytes_of(sizes[-1] if sizes else 1)
        except ValueError as error:
            raise ImportFailed(f"a tensor {list(sizes)} is stored as {kind.name}: {error}") from None
        memory = self.part(start, math.prod(sizes[:-1]) * row)
        return StoredTensor(sizes, kind, memory.reshape(*sizes[:-1], row))


def elements(memory: Array, dtype: DType) -> Array:
    """Bytes as elements, where they lie; a copy if that is at an odd address."""
    width = dtype.numpy.itemsize
    if memory.ctypes.data % width:
        memory = memory.copy()
        memory.flags.writeable = False
    return memory.view(dtype.numpy)


def check_sizes(shape: Sequence[int], limits: Limits) -> tuple[int, ...]:
    """The sizes of a tensor, if it may have them."""
    sizes = tuple(shape)
    if any(size < 0 for size in sizes):
        raise ImportFailed(f"a tensor has the sizes {list(sizes)}")
    if len(sizes) > limits.rank or math.prod(size or 1 for size in sizes) > limits.tensor_bytes:
        raise LimitExceeded(
            f"a tensor has the sizes {list(sizes)}", hint="check the file, or raise Limits.tensor_bytes"
        )
    return sizes
