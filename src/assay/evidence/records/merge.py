"""Several runs as one: the latest record of each case."""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import NotFound
from assay.evidence.records.files import COMPRESSED, encoded
from assay.evidence.records.schema import Case, Record


def moment(record: Record) -> datetime:
    """When a record was made; the earliest moment there is if its date is none."""
    try:
        found = datetime.fromisoformat(record.environment.date)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def merged(records: Iterable[Record]) -> tuple[Record, ...]:
    """The latest record of each case by its date, of equal dates the later in the files; in the order of the cases."""
    latest: dict[Case, Record] = {}
    for record in records:
        before = latest.get(record.case)
        if before is None or moment(record) >= moment(before):
            latest[record.case] = record
    return tuple(latest[case] for case in sorted(latest))


def write(path: Path, records: Iterable[Record]) -> None:
    """Write records to a file, compressed if its name ends in `.gz`: it has all of them or, if something goes wrong, is
    what it was before. Equal records make equal files."""
    lines = b"".join(encoded(record) + b"\n" for record in records)
    content = gzip.compress(lines, mtime=0) if path.suffix == COMPRESSED else lines
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise NotFound(f"'{path}' cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def copy_reproducers(files: Iterable[Path], records: Iterable[Record], output: Path) -> None:
    """Copy the files that show the failures of records from beside their files to beside `output`."""
    names = [record.reproducer for record in records if record.reproducer]
    inside = [name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts]
    for file, name in itertools.product(files, inside):
        source, goal = file.parent / name, output.parent / name
        if source.is_file() and source.resolve() != goal.resolve():
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, goal)
