"""Figures as people read them."""

from __future__ import annotations

import re


def size(count: float) -> str:
    """A number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def counted(count: int, what: str) -> str:
    """So many of something: `1 node`, `2 nodes`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def parsed_size(text: str) -> int:
    """The number of bytes that a text such as `1GiB`, `500 MB` or `4096` states; ValueError if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if found is None:
        raise ValueError(f"'{text}' is no number of bytes")
    return int(float(found[1]) * _UNITS[found[2] or ""])
