"""What a process of a sweep knows of its machine: memory, versions, the commit."""

from __future__ import annotations

import datetime
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import assay
from assay.evidence.machine import described, memory_of
from assay.evidence.records import Environment

_PACKAGES = ("torch", "numpy", "ml_dtypes", "torchvision", "timm", "transformers", "diffusers", "ultralytics")


def environment(command: str, threads: int, workers: int) -> Environment:
    """Where and when a sweep that starts now runs."""
    found = {"python": platform.python_version(), "assay": assay.__version__}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    now = datetime.datetime.now(datetime.UTC)
    return Environment(f"{now:%Y-%m-%dT%H:%M:%SZ}", command, commit(), found, described(), threads, workers)


def commit() -> str:
    """The commit of Assay's source, with a `+` if it was changed; empty where it is no repository."""
    folder = Path(assay.__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    with suppress(OSError, subprocess.CalledProcessError):
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    return ""


def peak_memory() -> int | None:
    """The most memory that this process had since the count began; None where the system does not tell."""
    return memory_of("self", "VmHWM")
