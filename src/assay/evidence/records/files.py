"""Files of records: appended one line at a time, safe against crashes and against several writers at once."""

from __future__ import annotations

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from assay.errors import BadFeed, NotFound
from assay.evidence.records.schema import FORMAT, STAGES, STATUS_AT, Record

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Record)
COMPRESSED = ".gz"
"""How the names of compressed files end."""


class _Versioned(msgspec.Struct):
    format: int = 0


_VERSION = msgspec.json.Decoder(_Versioned)


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no valid record."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Records:
    """What a file holds: the valid records in their order, and what is wrong with the other lines."""

    records: tuple[Record, ...]
    damaged: tuple[Damage, ...] = ()


def append(path: Path, record: Record) -> None:
    """Add a record to a file. When this returns the line is on disk; nothing can leave half a line among others.

    BadFeed for a compressed file: those are written whole.
    """
    if path.suffix == COMPRESSED:
        raise BadFeed(f"nothing can be appended to the compressed file '{path}'", hint="merge into it instead")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _end_line(descriptor)
        _write(descriptor, encoded(record) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_line(descriptor: int) -> None:
    """Set apart a line that a killed writer left unfinished."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        _write(descriptor, b"\n")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def encoded(record: Record) -> bytes:
    """A record as one line of JSON."""
    return _ENCODER.encode(record)


def decoded(line: bytes) -> Record:
    """The record of a line; BadFeed names the field that does not fit."""
    try:
        version = _VERSION.decode(line).format
        if version != FORMAT:
            raise BadFeed(f"records of format {version or 'unknown'}", hint=f"this version reads format {FORMAT}")
        record = _DECODER.decode(line)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadFeed(str(error), hint="docs/records.md has every field") from None
    complaint = inconsistency(record)
    if complaint:
        raise BadFeed(complaint, hint="docs/records.md has the rules")
    return record


def inconsistency(record: Record) -> str:
    """What contradicts itself in a record; empty if nothing does."""
    if record.stage not in record.stages:
        return f"the stage '{record.stage}' is none of {', '.join(record.stages)}"
    if record.green and record.cause is not None:
        return "a pass has a cause"
    if not record.green and record.cause is None:
        return f"the status {record.status} has no cause"
    wrong = [each.name for each in (*record.outputs, *record.gradients) if not each.ok]
    if record.green and wrong:
        return f"a pass has the wrong output '{wrong[0]}'"
    if record.green and record.gradients_right != record.gradient_count:
        return f"a pass has {record.gradients_right} right gradients of {record.gradient_count}"
    if record.verdict and not record.green:
        return f"the status {record.status} has a verdict that explains a pass"
    if record.status == "pass" and (record.breaks or any(use.remaining for use in record.ops)):
        return "a pass without fallback has ops that ran elsewhere"
    usual = STATUS_AT.get(record.stage) if record.stages == tuple(STAGES) else None
    if record.status.startswith("fail") and usual not in (None, record.status):
        return f"the status {record.status} does not go with the stage {record.stage}"
    for use in record.ops:
        if use.converted + use.removed + use.opaque + use.fallback != use.count:
            return f"the nodes of {use.op} do not add up to {use.count}"
    return ""


def _content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == COMPRESSED else data
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no file of records '{path}'", hint="check the path; `assay sweep` makes one"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise NotFound(
            f"'{path}' cannot be read: {error}", hint="give files of records, .jsonl or .jsonl.gz"
        ) from error


def read(paths: Path | Iterable[Path]) -> Records:
    """The records of a file or of several, compressed ones (`.gz`) too; NotFound for a file that is not there."""
    records: list[Record] = []
    damaged: list[Damage] = []
    for path in [paths] if isinstance(paths, Path) else paths:
        lines = _content(path).split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                records.append(decoded(line))
            except BadFeed as error:
                damaged.append(Damage(str(path), number, error.message))
    return Records(tuple(records), tuple(damaged))
