"""Sound as models of speech take it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.jobs.registry import JOB_OPS
from assay.ops.registry import Compute, Tolerance, op

RATE, WINDOW, HOP = 16_000, 400, 160
"""Samples in a second, in a window of the spectrogram, and between two of them."""
_BLOCK = 512
"""So many windows are transformed at once: they stay in a cache."""


def _frames(sound: Fact, *, mels: int, seconds: int) -> list[Shape]:
    if sound.shape is not None and len(sound.shape) != 1:
        raise ValueError(f"sound has one axis, not {len(sound.shape)}")
    if not (type(mels) is type(seconds) is int and 1 <= mels <= 512 and 1 <= seconds <= 3600):
        raise ValueError(f"a spectrogram of {mels} bands and {seconds} seconds is not to be had")
    return [(1, mels, seconds * RATE // HOP)]


@op(
    "f32 -> f32",
    into=JOB_OPS,
    shape=_frames,
    compute=Compute.WIDE,
    tolerance=Tolerance.FUNCTION,
    host=True,
)
def log_mel(sound: Array, *, mels: int = 80, seconds: int = 30) -> Array:
    """The spectrogram (1, mels, frames) of sound at 16 kHz, as Whisper takes it: what is missing of the seconds is
    silence, what is beyond them is left out."""
    whole = np.zeros(seconds * RATE)
    taken = min(len(sound), len(whole))
    whole[:taken] = sound[:taken]
    padded = np.pad(whole, WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:-1]
    audible = min(len(windows), (taken + WINDOW // 2) // HOP + 1)
    levels = np.full((mels, len(windows)), -10.0)
    for start in range(0, audible, _BLOCK):
        part = windows[start : min(start + _BLOCK, audible)] * _hann()
        spectrum = np.fft.rfft(part)
        power = spectrum.real**2 + spectrum.imag**2
        levels[:, start : start + len(part)] = np.log10(np.maximum(mel_filters(mels) @ power.T, 1e-10))
    return ((np.maximum(levels, levels.max() - 8) + 4) / 4)[None]


@cache
def _hann() -> Array:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)


@cache
def mel_filters(mels: int) -> Array:
    """(mels, bins): triangles of equal area that are evenly spaced on Slaney's mel scale from 0 to 8 kHz."""
    highest = 15 + 27 * math.log(RATE / 2000, 6.4)
    edges = _hertz(np.linspace(0, highest, mels + 2))
    at = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising = (at - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - at) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _hertz(mel: Array) -> Array:
    """Slaney's scale: linear up to 1 kHz, which is 15, and exponential above, 27 for every factor of 6.4."""
    return np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
