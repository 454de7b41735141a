"""Sounds: files of samples, and samples in memory. WAV files are read here; for others there is PyAV."""

from __future__ import annotations

import io
import itertools
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from assay.errors import BadArgument, FileMissing, ImportFailed, LimitExceeded
from assay.ir.dtypes import Array
from assay.memory import check_room
from assay.needs import require

LOWEST, HIGHEST = 1_000, 768_000
"""The fewest and the most samples in a second that a sound may have."""
MOST_CHANNELS, MOST_SECONDS = 64, 24 * 3600
_BLOCK = 1 << 20
"""So many samples are converted at once."""
_UNTOLD = 0x7FFFFFFF
"""A size from here on is that of a stream whose end was not known when it was begun."""


class Sound(Protocol):
    """What can be heard: samples in one channel, between −1 and 1, and how many there are in a second."""

    def read(self) -> tuple[Array, int]:
        """The samples."""
        ...


@dataclass(frozen=True, eq=False)
class SoundSamples:
    """Samples in memory."""

    samples: Array
    rate: int

    def read(self) -> tuple[Array, int]:
        """The samples. BadArgument if they are no sound."""
        if self.samples.ndim != 1 or self.samples.dtype.kind != "f" or not LOWEST <= self.rate <= HIGHEST:
            kind = f"{self.samples.dtype}{list(self.samples.shape)}"
            raise BadArgument(f"{kind} at {self.rate} Hz is no sound", hint="give floats in one dimension")
        return self.samples.astype(np.float32, copy=False), self.rate


@dataclass(frozen=True, eq=False)
class SoundBytes:
    """The content of a file of sound; `name` is for errors. With `raw`, it is samples of 16 bits in one channel, so
    many in a second."""

    content: bytes | mmap.mmap
    name: str
    raw: int = 0

    def read(self) -> tuple[Array, int]:
        """The samples. ImportFailed if the content is damaged or no sound."""
        if self.raw:
            form = _Form(_PCM, 1, self.raw, 2)
            return _converted(memoryview(self.content)[: len(self.content) // 2 * 2], form, self.name), self.raw
        head = bytes(self.content[:12])
        if head[:4] in (b"RIFF", b"RF64") and head[8:] == b"WAVE":
            return _wav(memoryview(self.content), self.name)
        if head.startswith(_COMPRESSED):
            return _by_av(self.content, self.name)
        raise ImportFailed("this is no sound that is known", where=self.name, hint="known are WAV, FLAC, OGG and MP3")


_COMPRESSED = (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")


def sound_file(path: str | Path, raw: int = 0) -> SoundBytes:
    """The sound in a file, which is mapped and not read yet."""
    given = Path(path)
    if not given.is_file():
        raise FileMissing(f"there is no file '{given}'")
    with given.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if given.stat().st_size else b""
    return SoundBytes(content, str(given), raw)


# --- WAV

_PCM, _FLOAT, _ALAW, _ULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE


class _Form(NamedTuple):
    """How samples lie: their kind, channels, how many of each in a second, and bytes of one."""

    kind: int
    channels: int
    rate: int
    width: int


def _wav(content: memoryview, name: str) -> tuple[Array, int]:
    """The samples of a WAV file: its chunks one after the other, up to the one with the samples."""
    form, at = None, 12
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<4sI", content, at)
        body = content[at + 8 : at + 8 + size]
        if kind == b"fmt ":
            form = _form(body, name)
        elif kind == b"data":
            if form is None:
                raise ImportFailed("the samples come before what describes them", where=name)
            if len(body) < size < _UNTOLD:
                raise ImportFailed(f"the file ends after {len(body)} of {size} bytes of samples", where=name)
            whole = form.width * form.channels
            return _converted(body[: len(body) // whole * whole], form, name), form.rate
        at += 8 + size + size % 2
    raise ImportFailed("the file has no samples", where=name, hint="its part 'data' is missing")


def _form(body: memoryview, name: str) -> _Form:
    if len(body) < 16:
        raise ImportFailed(f"what describes the samples has {len(body)} bytes, not 16", where=name)
    kind, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", body)
    if kind == _EXTENSIBLE and len(body) >= 26:
        kind = struct.unpack_from("<H", body, 24)[0]
    if not 1 <= channels <= MOST_CHANNELS:
        raise ImportFailed(f"the sound has {channels} channels", where=name, hint=f"1 to {MOST_CHANNELS} can be read")
    if not LOWEST <= rate <= HIGHEST:
        hint = f"{LOWEST} to {HIGHEST} can be read"
        raise ImportFailed(f"the sound has {rate} samples in a second", where=name, hint=hint)
    width = -(-bits // 8)
    if (kind, width) not in _DECODERS or block != width * channels:
        raise ImportFailed(f"samples of the kind {kind} with {bits} bits cannot be read", where=name)
    return _Form(kind, channels, rate, width)


def _converted(content: memoryview, form: _Form, name: str) -> Array:
    """Samples as f32 in one channel: the mean of all. Their number is checked before memory is taken."""
    decode, whole = _DECODERS[form.kind, form.width], form.width * form.channels
    count = len(content) // whole
    if count > MOST_SECONDS * form.rate:
        raise LimitExceeded(f"the sound is longer than {MOST_SECONDS // 3600} hours", where=name)
    result = np.empty(count, np.float32)
    for start in range(0, count, _BLOCK):
        part = decode(np.frombuffer(content[start * whole : (start + _BLOCK) * whole], np.uint8))
        rows = part.reshape(-1, form.channels)
        result[start : start + len(rows)] = rows[:, 0] if form.channels == 1 else rows.mean(1)
    if not np.isfinite(result).all():
        raise ImportFailed("there are samples that are no numbers", where=name)
    return result


def _of_24_bits(content: Array) -> Array:
    wide = np.zeros((len(content) // 3, 4), np.uint8)
    wide[:, 1:] = content.reshape(-1, 3)
    return wide.view("<i4")[:, 0].astype(np.float32) / 2**31


def _of_alaw(content: Array) -> Array:
    code = content.astype(np.int32) ^ 0x55
    power, low = (code >> 4) & 7, code & 15
    size = np.where(power == 0, (low << 4) + 8, ((low << 4) + 0x108) << np.maximum(power - 1, 0))
    return np.where(code & 0x80, size, -size).astype(np.float32) / 32768


def _of_ulaw(content: Array) -> Array:
    code = ~content.astype(np.int32) & 0xFF
    size = ((((code & 15) << 3) + 0x84) << ((code >> 4) & 7)) - 0x84
    return np.where(code & 0x80, -size, size).astype(np.float32) / 32768


_DECODERS: Mapping[tuple[int, int], Callable[[Array], Array]] = {
    (_PCM, 1): lambda content: (content.astype(np.float32) - 128) / 128,
    (_PCM, 2): lambda content: content.view("<i2").astype(np.float32) / 2**15,
    (_PCM, 3): _of_24_bits,
    (_PCM, 4): lambda content: (content.view("<i4") / 2.0**31).astype(np.float32),
    (_FLOAT, 4): lambda content: content.view("<f4"),
    (_FLOAT, 8): lambda content: content.view("<f8").astype(np.float32),
    (_ALAW, 1): _of_alaw,
    (_ULAW, 1): _of_ulaw,
}
"""How bytes become samples, by their kind and how many bytes each has."""


# --- what is compressed


def _by_av(content: Any, name: str) -> tuple[Array, int]:
    """FLAC, OGG and MP3, which FFmpeg's libraries read."""
    require("av")
    import av  # pyright: ignore[reportMissingImports]

    library: Any = av
    try:
        with library.open(io.BytesIO(bytes(content)), metadata_errors="ignore") as container:
            stream = container.streams.audio[0]
            rate, channels = int(stream.rate), int(stream.channels)
            if not LOWEST <= rate <= HIGHEST or not 1 <= channels <= MOST_CHANNELS:
                raise ImportFailed(f"the sound has {rate} samples in a second and {channels} channels", where=name)
            floats = library.AudioResampler(format="fltp", layout=stream.layout, rate=rate)
            frames = itertools.chain(container.decode(audio=0), [None])
            parts = (part.to_ndarray().mean(0) for frame in frames for part in floats.resample(frame))
            return _gathered(parts, rate, name), rate
    except (library.FFmpegError, IndexError, ValueError) as error:
        raise ImportFailed(f"the sound cannot be read: {error}", where=name) from error


def _gathered(parts: Iterator[Array], rate: int, name: str) -> Array:
    """Parts as one, of which nobody knows how many come: their size is looked at while they do."""
    kept, count, looked_at = list[Array](), 0, 0
    for part in parts:
        kept.append(part)
        count += part.size
        if count > MOST_SECONDS * rate:
            raise LimitExceeded(f"the sound is longer than {MOST_SECONDS // 3600} hours", where=name)
        if count - looked_at > _BLOCK:
            check_room(4 * count, "putting the sound together")
            looked_at = count
    result = np.concatenate([*kept, np.zeros(0, np.float32)]).astype(np.float32, copy=False)
    if not np.isfinite(result).all():
        raise ImportFailed("there are samples that are no numbers", where=name)
    return result
