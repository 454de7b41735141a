"""The core ops as methods. Their signatures are in core_ops.pyi, which `tools/corestub.py` writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.ops.registry import CORE


class CoreOps:
    """Every core op as a method that emits it and gives its first result."""

    def emit(self, op: str, *inputs: Any, **attrs: Any) -> tuple[Any, ...]:
        """Emit one op and return its results."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CORE:
            raise AttributeError(f"no core op is called '{name}'")

        def call(*inputs: Any, **attrs: Any) -> Any:
            return self.emit(name, *inputs, **attrs)[0]

        return call
