"""Nested containers as tables with dotted names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from assay.errors import ImportFailed, LimitExceeded
from assay.frontends.checkpoint.plain_pickle import STATE_DICT, PickledName
from assay.frontends.checkpoint.stored import StoredTensor


@dataclass
class FlatContent:
    """Tensors and other values of nested containers, by dotted names. LimitExceeded after so many."""

    left: int
    tensors: dict[str, StoredTensor] = field(default_factory=dict[str, StoredTensor])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, name: str, content: Any, depth: int = 0) -> None:
        """All that a value holds."""
        self.left -= 1
        if self.left < 0 or depth > _DEEPEST:
            raise LimitExceeded("the containers hold more than models may have", hint="raise Limits.nodes")
        entries = _entries(content)
        if entries is None:
            self._note(name, content)
            return
        for key, value in entries:
            self.add(f"{name}.{key}" if name else str(key), value, depth + 1)

    def _note(self, name: str, content: Any) -> None:
        if not isinstance(content, StoredTensor | int | float | str | bytes | None):
            raise ImportFailed("it is no tensor, number or text", where=f"'{name}'", hint=STATE_DICT)
        if name in self.tensors or name in self.facts:
            raise ImportFailed(f"'{name}' is there twice")
        into: dict[str, Any] = self.tensors if isinstance(content, StoredTensor) else self.facts
        into[name] = content


_DEEPEST = 64


def _entries(content: Any) -> list[tuple[Any, Any]] | None:
    """What a container holds; None if it is none."""
    if isinstance(content, dict):
        return list(cast(dict[Any, Any], content).items())
    plain = isinstance(content, list | tuple) and not isinstance(content, PickledName)
    return list(enumerate(cast(list[Any], content))) if plain else None
