"""Pages of which a part is generated: the part stands between two marks, the rest is written by hand."""

from __future__ import annotations

from pathlib import Path

from assay.errors import NotFound


def has_place(path: Path, begin: str, end: str) -> bool:
    """Whether a page is there and has both marks."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return begin in text and end in text


def put_between(path: Path, begin: str, end: str, block: str) -> None:
    """Put a block between its marks into a page; NotFound if that has no place for it."""
    if not has_place(path, begin, end):
        raise NotFound(f"'{path}' has no place for the tables", hint=f"it needs the lines {begin} and {end}")
    text = path.read_text(encoding="utf-8")
    head, tail = text[: text.index(begin) + len(begin)], text[text.index(end) :]
    path.write_text(f"{head}\n{block}\n{tail}", encoding="utf-8")
