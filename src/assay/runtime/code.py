"""What runs, as a hash: part of the keys of what is kept on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.store import digest

_PACKAGE = Path(__file__).parent.parent


def code_digest(parts: Sequence[str]) -> str:
    """A hash of the sources of parts of this package, files or folders, so that an edit makes new keys."""
    files = [path for part in parts for path in sorted(_sources(_PACKAGE / part))]
    return digest(*(item for path in files for item in (os.path.relpath(path, _PACKAGE), _hashed(path))))


def _sources(part: Path) -> Iterator[str]:
    if part.is_file():
        yield str(part)
    for folder, _, names in os.walk(part):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def _hashed(path: str) -> str:
    with open(path, "rb") as file:
        return digest(file.read())
