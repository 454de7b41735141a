"""Where onnxruntime 1.31 and the onnx package's reference evaluator differ from the ONNX standard: data for fuzzing.

A row is here because a shrunk model showed it and the standard says otherwise or nothing. `docs/fuzzing.md` lists
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ORT, REFERENCE = "onnxruntime", "onnx-reference"

Applies = Callable[[Mapping[str, Any], Sequence[Any]], bool]
"""Whether a node with these attributes and inputs shows the deviation."""


@dataclass(frozen=True)
class Deviation:
    """Nodes for which a peer's answer does not count, and why."""

    peer: str
    ops: tuple[str, ...]
    reason: str
    applies: Applies = lambda attrs, inputs: True


DEVIATIONS: tuple[Deviation, ...] = ()
"""Whose answer does not count; all rows that apply do."""

DECLINED = ("NOT_IMPLEMENTED", "NotImplemented", "is not currently registered or supported", "is not implemented")
"""Words by which a peer says that it does not have an op, which is no opinion on it."""
