"""Sound as models of speech take it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import Array, f32, i64
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType, Type
from assay.jobs.registry import JOB_OPS, check_link
from assay.jobs.sound_files import HIGHEST, LOWEST, Sound
from assay.ops.registry import Compute, Tolerance, op

RATE, WINDOW, HOP = 16_000, 400, 160
"""Samples in a second, in a window of the spectrogram, and between two of them."""
_BLOCK = 512
"""So many windows are transformed at once: they stay in a cache."""


def _samples(audio: Fact) -> list[Type]:
    check_link(audio, "audio", "audio")
    return [TensorType(f32, (UNKNOWN,)), TensorType(i64, ())]


@op("any -> any", into=JOB_OPS, types=_samples, host=True)
def read_sound(audio: Sound) -> tuple[Array, Array]:
    """The samples of a sound, its channels as one, between −1 and 1, and how many there are in a second."""
    samples, rate = audio.read()
    return samples, np.array(rate, np.int64)


def _resampled(sound: Fact, rate: Fact, *, to: int) -> list[Shape]:
    if type(to) is not int or not LOWEST <= to <= HIGHEST:
        raise ValueError(f"sound with {to} samples in a second is not to be had")
    return [(UNKNOWN,)]


@op("f32, i64 -> f32", into=JOB_OPS, shape=_resampled, host=True)
def resample(sound: Array, rate: Array, *, to: int = RATE) -> Array:
    """Sound with another number of samples in a second; what is too high for it is left out."""
    given = int(rate)
    if not LOWEST <= given <= HIGHEST:
        raise ValueError(f"sound has {LOWEST} to {HIGHEST} samples in a second, not {given}")
    if given == to or not sound.size:
        return sound
    step = math.gcd(given, to)
    return _stretched(sound.astype(np.float32), to // step, given // step)


_CROSSINGS, _SHAPE = 32, 9.0
"""The kernel: so many zeros of the sinc function on each side, under a Kaiser window of this shape."""


def _stretched(sound: Array, up: int, down: int) -> Array:
    """`up` samples for every `down` of the given ones: a sinc function under a window, put at each. Samples whose
    places between the given ones are the same are made by one product."""
    cut = 0.97 * min(1.0, up / down)
    reach = math.ceil(_CROSSINGS / cut)
    count = -(-len(sound) * up // down)
    padded = np.pad(sound, (reach, reach + down + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    result = np.empty(count, np.float32)
    taps = np.arange(-reach, reach + 1)
    for phase in range(min(up, count)):
        first, part = divmod(phase * down, up)
        away = taps - part / up
        inside = np.clip(1 - (away / (reach + 1)) ** 2, 0, 1)
        kernel = cut * np.sinc(cut * away) * np.i0(_SHAPE * np.sqrt(inside)) / np.i0(_SHAPE)
        own = result[phase::up]
        own[:] = windows[first::down][: len(own)] @ (kernel / kernel.sum()).astype(np.float32)
    return result


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
