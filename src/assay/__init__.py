"""Assay compiles any PyTorch or ONNX model to the hardware at hand and tells, op by op, whether the result is right."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError as AssayError
from assay.limits import Limits as Limits
from assay.needs import explained
from assay.runtime.ort.names import MODULE as _ONNXRUNTIME

if TYPE_CHECKING:
    from assay import capi as capi
    from assay import onnx_backend as onnx_backend
    from assay.jobs.pipelines import pipeline as pipeline
    from assay.runtime.load import load as load
    from assay.runtime.ort.api import *  # noqa: F403
    from assay.runtime.session import Session as Session
    from assay.runtime.torch.backend import Options as Options
    from assay.runtime.torch.backend import backend as backend
    from assay.runtime.torch.explain import explain as explain
    from assay.runtime.torch.trace import trace as trace
    from assay.targets.budget import Budget as Budget

__version__ = "0.1.0"

_MODULES = ("capi", "onnx_backend")
_LAZY = {
    "Budget": "assay.targets.budget",
    "Session": "assay.runtime.session",
    "backend": "assay.runtime.torch.backend",
    "explain": "assay.runtime.torch.explain",
    "load": "assay.runtime.load",
    "pipeline": "assay.jobs.pipelines",
    "Options": "assay.runtime.torch.backend",
    "trace": "assay.runtime.torch.trace",
    **dict.fromkeys(_ONNXRUNTIME.keys() - _MODULES, "assay.runtime.ort.api"),
}

__all__ = sorted(["AssayError", "Limits", "__version__", *_MODULES, *_LAZY])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """What needs more than NumPy is imported when it is first used."""
    with explained():
        if name in _MODULES:
            return importlib.import_module(f"assay.{name}")
        if name in _LAZY:
            return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'assay' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]
