"""Files of JSON lines: one record each, appended as soon as it is known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records in a file; what is none, such as a last line that was cut short, is left out."""
    with path.open(encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict) and "record" in line:
                yield cast("dict[str, Any]", line)


def written(lines: Iterable[Mapping[str, Any]]) -> str:
    """Records as text."""
    return "".join(json.dumps(line) + "\n" for line in lines)
