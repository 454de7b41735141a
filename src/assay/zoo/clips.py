"""Spoken clips, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from assay.ir.dtypes import Array
from assay.jobs.sound_files import sound_file
from assay.zoo.files import asset
from assay.zoo.moonshine import RATE, clip_path

CLIPS: Mapping[str, Callable[[], Path]] = {"beckett": clip_path, "jfk": lambda: asset("speech/jfk.wav")}
"""Where a clip lies: in a package, or where `make assets` put it."""

SAID: Mapping[str, str] = {
    "beckett": "Ever tried, ever failed. No matter, try again. Fail again. Fail better.",
    "jfk": "And so my fellow Americans ask not what your country can do for you ask what you can do for your country.",
}
"""What is said in each."""

FIVE_MINUTES = ("jfk", "beckett", "beckett", "jfk") * 7
"""Clips that make a speech of five minutes, one after the other."""


def read_clip(name: str) -> Array:
    """The samples of a clip at 16 kHz."""
    return sound_file(CLIPS[name]()).read()[0]


def composed(names: Sequence[str], pause: float = 1.0) -> tuple[Array, list[tuple[float, float]]]:
    """Clips one after the other, each with a pause behind it, and the seconds at which each begins and ends."""
    parts, spans, at = list[Array](), list[tuple[float, float]](), 0.0
    clips = {name: read_clip(name) for name in names}
    for name in names:
        seconds = len(clips[name]) / RATE
        parts += [clips[name], np.zeros(int(pause * RATE), np.float32)]
        spans.append((at, at + seconds))
        at += seconds + pause
    return np.concatenate(parts), spans
