"""The native CPU target: segments become tapes of C kernels, compiled once for the machine at hand.

What makes tapes is imported with `CpuTarget`; a program that was kept runs without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.targets.cpu.target import CpuTarget as CpuTarget

__all__ = ["CpuTarget"]


def __getattr__(name: str) -> Any:
    """The target itself, when it is first used."""
    if name == "CpuTarget":
        return importlib.import_module(f"{__name__}.target").CpuTarget
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
