"""The records of a torch archive, a zip file, read so that there is only one way to understand it.

torch looks records up without regard to case, takes the first of several with one name and decompresses as it
reads; Python's reader does neither. Here a file is refused unless both must find the same bytes under every name.
"""

from __future__ import annotations

import io
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping
from typing import IO

from assay.errors import ImportFailed, LimitExceeded
from assay.limits import Limits
from assay.units import size as as_size

_NAME = re.compile(r"(?:(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f]+(?:/(?!$)|$)){2,}")
"""Two parts or more between single slashes, none of them `.` or `..`."""
_PIECE = 1 << 20
_ENCRYPTED = 0x1
_LOCAL_HEADER, _LENGTHS_AT, _LENGTHS = 30, 26, struct.Struct("<HH")
"""Bytes of the header in front of a record, and where in it the lengths of the two texts that follow it are."""
_WRITE_IT = "write the file with torch.export.save of this torch"


class ArchiveRecords:
    """The content of a torch archive by name, without the folder that all of it lies in."""

    def __init__(self, file: IO[bytes], limits: Limits) -> None:
        """ImportFailed unless names are plain and unique and records are stored as they are."""
        size = file.seek(0, io.SEEK_END)
        if size > limits.model_bytes:
            raise LimitExceeded(f"the file has more than {limits.model_bytes} bytes", hint="raise Limits.model_bytes")
        self._archive = zipfile.ZipFile(file)
        self._file, self._size, self._limits = file, size, limits
        self._entries = _by_name(self._archive.infolist())
        total = sum(entry.file_size for entry in self._entries.values())
        if total > size:
            raise ImportFailed(f"the records of the archive overlap: {as_size(total)} in {as_size(size)}")

    def names(self) -> list[str]:
        """What is there, in the order of the archive."""
        return list(self._entries)

    def text(self, name: str) -> str:
        """A record that is text; LimitExceeded if it is longer than texts may be."""
        return self.text_bytes(name).decode("utf-8")

    def text_bytes(self, name: str) -> bytes:
        """The bytes of a record that is to be understood, not only read; LimitExceeded as for texts."""
        size = self._entry(name).file_size
        if size > self._limits.text_bytes:
            raise LimitExceeded(f"'{name}' has {as_size(size)} of text", hint="raise Limits.text_bytes")
        return bytes(self.data(name))

    def data(self, name: str) -> bytearray:
        """A record's bytes. ImportFailed if it is not there or does not fit its checksum."""
        entry = self._entry(name)
        content = bytearray(entry.file_size)
        at = 0
        with self._archive.open(entry) as file:
            while piece := file.read(_PIECE):
                content[at : at + len(piece)] = piece
                at += len(piece)
        if at != entry.file_size:
            raise ImportFailed(f"the archive's '{name}' ends early")
        return content

    def place(self, name: str) -> tuple[int, int]:
        """Where a record lies in the file, and how many bytes it has: for those who map it. Nothing is checked of its
        content."""
        entry = self._entry(name)
        self._file.seek(entry.header_offset + _LENGTHS_AT)
        lengths = self._file.read(_LENGTHS.size)
        if len(lengths) < _LENGTHS.size:
            raise ImportFailed(f"the archive's '{name}' ends early")
        start = entry.header_offset + _LOCAL_HEADER + sum(_LENGTHS.unpack(lengths))
        if start + entry.file_size > self._size:
            raise ImportFailed(f"the archive's '{name}' ends early")
        return start, entry.file_size

    def _entry(self, name: str) -> zipfile.ZipInfo:
        entry = self._entries.get(name)
        if entry is None:
            raise ImportFailed(f"the archive has no '{name}'", hint=_WRITE_IT)
        return entry


def rewritten(records: Mapping[str, bytes | bytearray]) -> io.BytesIO:
    """An archive for torch's reader with nothing in it but these records."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(f"archive/{name}", content)
    file.seek(0)
    return file


def _by_name(entries: Iterable[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    seen: set[str] = set()
    roots: set[str] = set()
    for entry in entries:
        _check(entry)
        root, _, name = entry.filename.partition("/")
        if name.casefold() in seen:
            raise ImportFailed(f"the archive has two records called '{name}', or names that differ in case alone")
        seen.add(name.casefold())
        roots.add(root)
        found[name] = entry
    if len(roots) > 1:
        raise ImportFailed(f"the archive has {len(roots)} folders where one holds all", hint=_WRITE_IT)
    return found


def _check(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename
    if name != entry.filename or not _NAME.fullmatch(name):
        raise ImportFailed(f"the archive has a record with an odd name: {name[:60]!r}", hint=_WRITE_IT)
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
        raise ImportFailed(f"'{name}' in the archive is a link or folder", hint=_WRITE_IT)
    if entry.flag_bits & _ENCRYPTED:
        raise ImportFailed(f"'{name}' in the archive is encrypted", hint=_WRITE_IT)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ImportFailed(f"'{name}' in the archive is compressed", hint=f"{_WRITE_IT}, which compresses nothing")
