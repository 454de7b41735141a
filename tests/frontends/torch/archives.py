"""Zip files with every part under control: how one may be written so that two readers do not see the same in it."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

STREAMED = 0x8
UTF8 = 0x800


@dataclass(frozen=True)
class Entry:
    """One record: as the directory names it, and as its own header does."""

    name: str
    content: bytes
    local_name: str | None = None
    method: int = zipfile.ZIP_STORED
    flags: int = UTF8
    attributes: int = 0
    zip64: bool = False
    comment: bytes = b""
    stated_size: int | None = None
    crc: int | None = None
    at: int | None = None
    """The place of another record's header that this one claims for itself."""


def read(path: Path) -> list[Entry]:
    """The records of a sound archive."""
    with zipfile.ZipFile(path) as archive:
        return [Entry(name, archive.read(name)) for name in archive.namelist()]


def write(
    path: Path, entries: Sequence[Entry], *, before: bytes = b"", after: bytes = b"", comment: bytes = b""
) -> Path:
    """An archive of these records, in this order."""
    body, directory = bytearray(before), bytearray()
    for entry in entries:
        place = len(body) if entry.at is None else entry.at
        header, tail = _headers(entry, place)
        directory += tail
        body += header if entry.at is None else b""
    place = len(body)
    ending = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(entries), len(entries), len(directory), place, len(comment))
    path.write_bytes(bytes(body + directory) + ending + comment + after)
    return path


def _headers(entry: Entry, place: int) -> tuple[bytes, bytes]:
    """A record with its header, and its row in the directory."""
    packed = entry.content
    if entry.method == zipfile.ZIP_DEFLATED:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = packer.compress(entry.content) + packer.flush()
    crc = zlib.crc32(entry.content) if entry.crc is None else entry.crc
    size = len(entry.content) if entry.stated_size is None else entry.stated_size
    local_name, name = ((entry.local_name or entry.name).encode(), entry.name.encode())
    extra = struct.pack("<HHQQ", 1, 16, size, len(packed)) if entry.zip64 else b""
    stated = (0xFFFFFFFF, 0xFFFFFFFF) if entry.zip64 else (len(packed), size)
    common = (45 if entry.zip64 else 20, entry.flags, entry.method, 0, 0x21)
    streamed = entry.flags & STREAMED
    told = (0, 0, 0) if streamed and not entry.zip64 else (crc, *stated)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", *common, *told, len(local_name), len(extra)) + local_name + extra
    described = struct.pack("<4s3L", b"PK\7\10", crc, len(packed), size) if streamed else b""
    row = struct.pack(
        "<4sH5H3L5H2L",
        *(b"PK\1\2", 3 << 8, *common, crc, *stated, len(name), len(extra), len(entry.comment), 0, 0),
        *(entry.attributes, place),
    )
    return local + packed + described, row + name + extra + entry.comment


def renamed(entry: Entry, name: str) -> Entry:
    """The record under another name."""
    return replace(entry, name=name)
