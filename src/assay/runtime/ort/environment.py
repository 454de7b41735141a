"""ONNX Runtime's functions that concern the process: version, device, logging, seeds."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import assay
from assay.ops.definitions.random import SEEDS
from assay.runtime.ort.errors import Misfit
from assay.runtime.ort.providers import get_available_providers

package_name = "assay"
version = assay.__version__
cuda_version = ""
import_capi_exception = None


def get_device() -> str:
    """Where models run."""
    return "CPU"


def get_version_string() -> str:
    """Assay's version."""
    return version


def get_build_info() -> str:
    """What Assay is and what it runs on."""
    return f"Assay {version}, Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}"


def print_debug_info() -> None:
    """Print what a report of a fault needs."""
    print(get_build_info())
    print(f"{platform.platform()}; providers: {', '.join(get_available_providers())}")


def has_collective_ops() -> bool:
    """There are none."""
    return False


def set_seed(seed: int) -> None:
    """Random ops without a seed of their own draw from the sequence that this number begins."""
    SEEDS.begin(int(seed))


def set_default_logger_severity(severity: int) -> None:
    """Does nothing: Assay writes no log. Misfit unless the severity is one of ONNX Runtime's."""
    if severity not in range(5):
        raise Misfit(f"a severity is 0 to 4, got {severity!r}")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Does nothing: Assay writes no log."""


def enable_telemetry_events() -> None:
    """Does nothing: Assay sends nothing to anybody."""


def disable_telemetry_events() -> None:
    """Does nothing: Assay sends nothing to anybody."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Does nothing: there are no such libraries."""
