"""What `assay inspect` says of a checkpoint: its tensors and facts."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.cli.output import CommandOutput
from assay.units import size

_LONGEST_TEXT, _LONGEST_LIST = 60, 4
"""Characters of a text, and entries of a list, that are shown."""


def inspect_checkpoint(report: CommandOutput, path: Path) -> None:
    """Show what a file or folder of weights holds."""
    from assay.frontends.checkpoint import open_checkpoint

    found = open_checkpoint(path)
    tensors: list[dict[str, Any]] = [
        {"name": name, "shape": list(each.shape), "format": str(each.format), "bytes": each.nbytes}
        for name, each in found.tensors.items()
    ]
    count = sum(math.prod(each.shape) for each in found.tensors.values())
    total = sum(each.nbytes for each in found.tensors.values())
    report.text(f"{path}: {found.kind}, {count:,} elements in {len(tensors)} tensors, {size(total)}")
    report.text()
    formats = Counter(each["format"] for each in tensors)
    report.table("Formats", ("format", ">tensors"), formats.most_common())
    if found.facts:
        report.text()
        report.table("Facts", ("name", "value"), [(name, _short(value)) for name, value in found.facts.items()])
    report.text()
    rows = [(each["name"], str(each["shape"]), each["format"], size(each["bytes"])) for each in tensors]
    report.table("Tensors", ("name", "shape", "format", ">bytes"), rows)
    facts = {name: _plain(value) for name, value in found.facts.items()}
    report.result({"model": str(path), "kind": found.kind, "tensors": tensors, "facts": facts})


def _short(value: Any) -> str:
    """A value in one short line."""
    if isinstance(value, list | np.ndarray):
        listed = cast(list[Any], value)
        first = ", ".join(_short(each) for each in listed[:_LONGEST_LIST])
        return f"{len(listed):,} of them: {first}{', …' if len(listed) > _LONGEST_LIST else ''}"
    text = value if isinstance(value, str) else repr(_plain(value))
    line = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]} …"


def _plain(value: Any) -> Any:
    """A value as JSON has it; bytes, and text that is none, as text."""
    if isinstance(value, np.ndarray | np.generic):
        return cast(Any, value).tolist()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return [_plain(each) for each in cast(list[Any], value)] if isinstance(value, list) else value
