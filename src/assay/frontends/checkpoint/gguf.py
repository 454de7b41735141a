"""GGUF files, versions 2 and 3: facts, tensors, then their data."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import AssayError, ImportFailed, LimitExceeded
from assay.frontends.checkpoint.stored import Checkpoint, FileMemory, StoredTensor
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.limits import Limits
from assay.ops.block_formats import BLOCK_FORMATS, BlockFormat

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_MOST_ALIGNMENT = 1 << 20
_SHORTEST_FACT, _SHORTEST_TENSOR = 13, 24
"""Bytes that the shortest of them takes: the number of them is checked by these before anything is read."""

_PLAIN: Mapping[int, DType] = {
    0: dtypes.f32,
    1: dtypes.f16,
    24: dtypes.i8,
    25: dtypes.i16,
    26: dtypes.i32,
    27: dtypes.i64,
    28: dtypes.f64,
    30: dtypes.bf16,
}
_FORMATS: Mapping[int, DType | BlockFormat] = {**_PLAIN, **{each.code: each for each in BLOCK_FORMATS.values()}}

_NUMBERS: Mapping[int, str] = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""Kinds of facts that are numbers."""
_TEXT, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_WINDOW = 1 << 18
"""Bytes of lists of texts that are looked at at once."""


def read_gguf(path: Path, limits: Limits) -> Checkpoint:
    """The checkpoint in a file. ImportFailed if it is damaged, or of another version or byte order."""
    memory = FileMemory(path, limits)
    cursor = _Cursor(memory)
    if cursor.bytes(4) != MAGIC:
        raise ImportFailed("this is no GGUF file")
    version = cursor.number("<u4")
    if version not in _VERSIONS:
        hint = "convert the file with a current llama.cpp, on a machine of this byte order"
        raise ImportFailed(f"GGUF of version {version} is not read, {_VERSIONS} are", hint=hint)
    tensors, facts = cursor.count(_SHORTEST_TENSOR), cursor.count(_SHORTEST_FACT)
    found = _unique((_fact(cursor) for _ in range(facts)), "fact")
    listed = _unique((_listed(cursor) for _ in range(tensors)), "tensor")
    start = _aligned(cursor.at, found.get(_ALIGNMENT, 32))
    placed = {name: _placed(memory, name, start, entry) for name, entry in listed.items()}
    return Checkpoint("gguf", (path,), placed, found, memory)


def _unique(pairs: Iterable[tuple[str, Any]], what: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ImportFailed(f"the {what} '{name}' is there twice")
        found[name] = value
    return found


def _aligned(at: int, alignment: Any) -> int:
    """Where data begins after the lists that end at `at`."""
    if not isinstance(alignment, int) or not 0 < alignment <= _MOST_ALIGNMENT or alignment % 8:
        raise ImportFailed(f"data is aligned to {alignment}", where=_ALIGNMENT)
    return -(-at // alignment) * alignment


class _Cursor:
    """Reads a file from its beginning. ImportFailed at its end."""

    def __init__(self, memory: FileMemory) -> None:
        self._memory, self.limits, self.at = memory, memory.limits, 0

    def part(self, size: int) -> Any:
        """The next bytes, as an array."""
        found = self._memory.part(self.at, size)
        self.at += size
        return found

    def bytes(self, size: int) -> bytes:
        """The next bytes."""
        return self.part(size).tobytes()

    def number(self, kind: str) -> Any:
        """The next number."""
        dtype = np.dtype(kind)
        return np.frombuffer(self.bytes(dtype.itemsize), dtype)[0].item()

    def count(self, shortest: int) -> int:
        """A number of things that follow, of which the shortest takes so many bytes."""
        count = self.number("<u8")
        self._check_count(count, shortest, self.at)
        return count

    def _check_count(self, count: int, shortest: int, at: int) -> None:
        if count * shortest > len(self._memory.bytes) - at:
            raise ImportFailed(f"{count} entries are said to follow, and the file is too short for them")
        if count > self.limits.sequence_length:
            raise LimitExceeded(f"a list of {count} entries", hint="raise Limits.sequence_length")

    def texts(self) -> list[str]:
        """The next list of texts. Vocabularies have very many, so they are read by the window: what is not whole there,
        or too long, is read by itself."""
        found: list[str] = []
        count = self.count(8)
        while len(found) < count:
            window = self._memory.bytes[self.at : self.at + _WINDOW].tobytes()
            read = _whole_texts(window, count - len(found), self.limits.sequence_length, found)
            self.at += read
            if not read:
                found.append(self.text("surrogateescape"))
        return found

    def text(self, errors: str = "strict") -> str:
        """The next text."""
        try:
            return self.bytes(self.count(1)).decode("utf-8", errors)
        except UnicodeDecodeError:
            raise ImportFailed("a name is no UTF-8 text") from None


def _whole_texts(window: bytes, count: int, longest: int, found: list[str]) -> int:
    """Add up to `count` texts that a window begins with to those found, before one that it does not hold or that is
    longer than allowed; how many bytes they take."""
    at, size, unpack = 0, len(window), _LENGTH.unpack_from
    for _ in range(count):
        if at + 8 > size:
            break
        (length,) = unpack(window, at)
        end = at + 8 + length
        if end > size or length > longest:
            break
        found.append(window[at + 8 : end].decode("utf-8", "surrogateescape"))
        at = end
    return at


def _fact(cursor: _Cursor) -> tuple[str, Any]:
    name = cursor.text()
    try:
        return name, _value(cursor, cursor.number("<u4"))
    except AssayError as error:
        raise error.located(f"fact '{name}'") from None


def _value(cursor: _Cursor, kind: int) -> Any:
    if kind in _NUMBERS:
        return cursor.number(_NUMBERS[kind])
    if kind == _TEXT:
        return cursor.text("surrogateescape")
    if kind == _ARRAY:
        return _values(cursor, cursor.number("<u4"))
    raise ImportFailed(f"a fact is of the unknown kind {kind}")


def _values(cursor: _Cursor, kind: int) -> Any:
    """A list of facts of one kind: an array of numbers, or a list of texts."""
    if kind == _TEXT:
        return cursor.texts()
    if kind not in _NUMBERS:
        raise ImportFailed(f"a list holds facts of the kind {kind}")
    dtype = np.dtype(_NUMBERS[kind])
    return np.frombuffer(cursor.bytes(cursor.count(dtype.itemsize) * dtype.itemsize), dtype)


_TensorEntry = tuple[tuple[int, ...], int, int]
"""Sizes from the outermost to the innermost, kind, and where data begins among the data."""


def _listed(cursor: _Cursor) -> tuple[str, _TensorEntry]:
    name = cursor.text()
    rank = cursor.number("<u4")
    if rank > cursor.limits.rank:
        raise LimitExceeded(
            f"it has {rank} axes", where=f"tensor '{name}'", hint="check the file, or raise Limits.rank"
        )
    sizes = struct.unpack(f"<{rank}Q", cursor.bytes(8 * rank))
    return name, (tuple(reversed(sizes)), cursor.number("<u4"), cursor.number("<u8"))


def _placed(memory: FileMemory, name: str, start: int, entry: _TensorEntry) -> StoredTensor:
    sizes, kind, offset = entry
    try:
        if kind not in _FORMATS:
            known = ", ".join(map(str, _FORMATS.values()))
            raise ImportFailed(f"its data is of the kind {kind}", hint=f"convert the file to one of {known}")
        return memory.tensor(start + offset, sizes, _FORMATS[kind])
    except AssayError as error:
        raise error.located(f"tensor '{name}'") from None
