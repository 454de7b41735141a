"""Spoken clips, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from assay.zoo.files import asset
from assay.zoo.moonshine import clip_path

CLIPS: Mapping[str, Callable[[], Path]] = {"beckett": clip_path, "jfk": lambda: asset("speech/jfk.wav")}
"""Where a clip lies: in a package, or where `make assets` put it."""
