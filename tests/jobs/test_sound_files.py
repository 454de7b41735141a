"""Files of sound: every kind of WAV beside what Python's own writer and torch make of it, and damaged ones."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from assay.errors import AssayError, BadArgument, FileMissing, ImportFailed, LimitExceeded
from assay.ir.dtypes import Array
from assay.jobs.definitions.sound import resample
from assay.jobs.sound_files import SoundBytes, SoundSamples, sound_file
from assay.ops.registry import evaluate


def tone(rate: int, hertz: float, seconds: float = 0.5, channels: int = 1) -> Array:
    wave_form = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    return np.stack([wave_form * (1 - 0.3 * at) for at in range(channels)], 1)


def whole(samples: Array, bits: int) -> bytes:
    """Samples as Python's `wave` writes them."""
    if bits == 8:
        return np.round(samples * 127 + 128).astype(np.uint8).tobytes()
    numbers = np.round(samples * (2 ** (bits - 1) - 1)).astype("<i4")
    raw = numbers.reshape(-1, 1).view(np.uint8)
    return raw[:, : bits // 8].tobytes()


def wav(samples: Array, rate: int, bits: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(whole(samples, bits))
    return out.getvalue()


def chunks(*parts: tuple[bytes, bytes], size: int | None = None) -> bytes:
    body = b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in parts)
    return b"RIFF" + struct.pack("<I", 4 + len(body) if size is None else size) + b"WAVE" + body


def form(kind: int, channels: int, rate: int, bits: int, more: bytes = b"") -> bytes:
    block = channels * -(-bits // 8)
    return struct.pack("<HHIIHH", kind, channels, rate, rate * block & 0xFFFFFFFF, block & 0xFFFF, bits) + more


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_every_width_and_number_of_channels(bits: int, channels: int) -> None:
    samples = tone(22_050, 440, channels=channels)
    found, rate = SoundBytes(wav(samples, 22_050, bits), "it").read()
    assert (rate, found.dtype) == (22_050, np.float32)
    np.testing.assert_allclose(found, samples.mean(1), atol=2.0 / 2 ** (bits - 1) + 1e-6)


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_floats_and_forms_that_are_extensible(kind: str) -> None:
    samples = tone(48_000, 100).astype(kind)
    bits = samples.dtype.itemsize * 8
    plain = chunks((b"fmt ", form(3, 1, 48_000, bits)), (b"data", samples.tobytes()))
    longer = struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", 3) + b"\0" * 14
    extensible = chunks(
        (b"LIST", b"odd"), (b"fmt ", form(0xFFFE, 1, 48_000, bits, longer)), (b"data", samples.tobytes())
    )
    for content in (plain, extensible):
        np.testing.assert_allclose(SoundBytes(content, "it").read()[0], samples[:, 0], atol=1e-7)


def test_companded_samples_are_those_of_the_standard() -> None:
    """Values of G.711: what the codes of silence and of the loudest sounds stand for."""
    codes = bytes([0x55, 0xD5, 0x2A, 0xAA])
    found, _ = SoundBytes(chunks((b"fmt ", form(6, 1, 8000, 8)), (b"data", codes)), "it").read()
    np.testing.assert_array_equal(found * 32768, [-8, 8, -32256, 32256])
    codes = bytes([0xFF, 0x7F, 0x00, 0x80])
    found, _ = SoundBytes(chunks((b"fmt ", form(7, 1, 8000, 8)), (b"data", codes)), "it").read()
    np.testing.assert_array_equal(found * 32768, [0, 0, -32124, 32124])


def test_a_stream_whose_end_was_not_known_is_read_to_its_end() -> None:
    content = wav(tone(16_000, 300), 16_000, 16)
    open_end = content.replace(b"data" + struct.pack("<I", 16_000), b"data\xff\xff\xff\xff")
    assert open_end != content
    np.testing.assert_array_equal(SoundBytes(open_end, "it").read()[0], SoundBytes(content, "it").read()[0])


def test_raw_samples() -> None:
    samples = tone(8000, 300)
    found, rate = SoundBytes(whole(samples, 16) + b"\1", "it", raw=8000).read()
    assert rate == 8000
    np.testing.assert_allclose(found, samples[:, 0], atol=1e-4)


DAMAGED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no sound that is known"),
    "a text": (b"This is a text, and no sound at all.", "no sound that is known"),
    "no samples": (chunks((b"fmt ", form(1, 1, 8000, 16))), "no samples"),
    "no form": (chunks((b"data", b"\0" * 8)), "before what describes them"),
    "a short form": (chunks((b"fmt ", b"\1\0"), (b"data", b"")), "2 bytes"),
    "no channel": (chunks((b"fmt ", form(1, 0, 8000, 16)), (b"data", b"")), "0 channels"),
    "many channels": (chunks((b"fmt ", form(1, 65535, 8000, 16)), (b"data", b"")), "65535 channels"),
    "no rate": (chunks((b"fmt ", form(1, 1, 0, 16)), (b"data", b"")), "0 samples in a second"),
    "an absurd rate": (chunks((b"fmt ", form(1, 1, 2**32 - 1, 16)), (b"data", b"")), "samples in a second"),
    "an unknown kind": (chunks((b"fmt ", form(85, 1, 8000, 16)), (b"data", b"")), "kind 85"),
    "an unknown width": (chunks((b"fmt ", form(1, 1, 8000, 60)), (b"data", b"")), "60 bits"),
    "cut off": (wav(tone(8000, 300), 8000, 16)[:-100], "ends after"),
    "a huge part": (chunks((b"fmt ", form(1, 1, 8000, 16))) + b"LIST\xff\xff\xff\xff", "no samples"),
    "no numbers": (
        chunks((b"fmt ", form(3, 1, 8000, 32)), (b"data", np.full(9, np.nan, "<f4").tobytes())),
        "no numbers",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_refused(name: str) -> None:
    content, says = DAMAGED[name]
    with pytest.raises(ImportFailed, match=says):
        SoundBytes(content, "it").read()


def test_length_is_checked_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.jobs.sound_files.MOST_SECONDS", 1)
    with pytest.raises(LimitExceeded, match="longer than"):
        SoundBytes(b"\0" * 2002, "it", raw=1000).read()


def test_damaged_files_give_typed_errors_or_samples() -> None:
    """Bytes of headers changed, files cut and lengthened, by a seed."""
    rng = np.random.default_rng(17)
    whole_files = [wav(tone(rate, 300, 0.01, channels), rate, bits) for rate, bits, channels in [
        (8000, 8, 1), (16_000, 16, 2), (44_100, 24, 1), (48_000, 32, 3)
    ]]  # fmt: skip
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3000):
        content = bytearray(whole_files[rng.integers(len(whole_files))])
        for _ in range(rng.integers(1, 5)):
            content[rng.integers(min(len(content), 48))] = rng.integers(256)
        if rng.random() < 0.3:
            del content[rng.integers(len(content)) :]
        try:
            found, rate = SoundBytes(bytes(content), "it").read()
            evaluate(resample, [found, np.array(rate)], {"to": 16_000}, [np.float32])
            outcomes["read"] += 1
        except AssayError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100, outcomes


def test_what_is_no_file_or_no_sound_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileMissing):
        sound_file(tmp_path / "nothing.wav")
    (tmp_path / "empty.wav").touch()
    with pytest.raises(ImportFailed, match="no sound that is known"):
        sound_file(tmp_path / "empty.wav").read()
    for samples, rate in ((np.zeros((2, 2), np.float32), 16_000), (np.zeros(2, np.int16), 16_000), (np.zeros(2), 1)):
        with pytest.raises(BadArgument, match="no sound"):
            SoundSamples(samples, rate).read()


def test_what_is_compressed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str, *more: Any) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", nothing)
    with pytest.raises(AssayError) as told:
        SoundBytes(b"fLaC" + b"\0" * 40, "it").read()
    assert "[jobs]" in told.value.hint


# --- what is compressed


class Codec(NamedTuple):
    """How a sound is compressed: the container, the codec, the form of its samples, and how far they may be off."""

    container: str
    codec: str
    form: str
    off: float


CODECS = (
    Codec("flac", "flac", "s16", 2**-15),
    Codec("ogg", "flac", "s16", 2**-15),
    Codec("ogg", "libopus", "flt", 0.03),
    Codec("mp3", "libmp3lame", "fltp", 0.03),
)
VORBIS = Codec("ogg", "vorbis", "fltp", 0.03)
"""FFmpeg's own writer has two channels."""


def compressed(samples: Array, rate: int, codec: Codec) -> bytes:
    """Samples (n, channels) as FFmpeg's libraries compress them."""
    av: Any = pytest.importorskip("av")
    out, layout = io.BytesIO(), {1: "mono", 2: "stereo"}[samples.shape[1]]
    numbers = np.round(samples * 32767).astype(np.int16) if codec.form == "s16" else samples.astype(np.float32)
    planes = numbers.T if codec.form.endswith("p") else numbers.reshape(1, -1)
    with av.open(out, "w", format=codec.container) as container:
        stream = container.add_stream(codec.codec, rate=rate, layout=layout, options={"strict": "experimental"})
        stream.bit_rate = 192_000
        given = av.AudioFrame.from_ndarray(np.ascontiguousarray(planes), codec.form, layout)
        given.sample_rate, given.pts = rate, 0
        for frame in (given, None):
            for packet in stream.encode(frame):
                container.mux(packet)
    return out.getvalue()


@pytest.mark.parametrize(
    ("codec", "rate", "channels"),
    [(each, *kind) for each in CODECS for kind in ((16_000, 1), (48_000, 2))] + [(VORBIS, 48_000, 2)],
    ids=str,
)
def test_what_is_compressed_is_nearly_what_it_was(codec: Codec, rate: int, channels: int) -> None:
    """Samples are those of a WAV file, as far as the codec keeps them; silence may follow."""
    samples = tone(rate, 440, channels=channels) * np.hanning(rate // 2)[:, None]
    expected, _ = SoundBytes(wav(samples, rate, 16), "it").read()
    found, told = SoundBytes(compressed(samples, rate, codec), "it").read()
    assert (found.dtype, told) == (np.float32, 48_000 if codec.codec == "libopus" else rate)
    expected = resampled(expected, rate, told)
    assert len(expected) <= len(found) < len(expected) + 0.05 * told
    np.testing.assert_allclose(found[: len(expected)], expected, atol=codec.off)
    np.testing.assert_allclose(found[len(expected) :], 0, atol=codec.off)


def test_damaged_sounds_that_are_compressed_are_refused_or_heard_in_part() -> None:
    rng = np.random.default_rng(5)
    outcomes = {"read": 0, "refused": 0}
    for codec in CODECS:
        whole_file = compressed(tone(16_000, 440), 16_000, codec)
        for _ in range(40):
            content = bytearray(whole_file)
            for place in rng.integers(len(content), size=rng.integers(1, 9)):
                content[place] = rng.integers(256)
            cut = rng.integers(1, len(content) + 1)
            try:
                found, _ = SoundBytes(bytes(content[:cut]), "it").read()
                assert np.isfinite(found).all()
                outcomes["read"] += 1
            except AssayError:
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 10, outcomes


# --- another rate


def resampled(sound: Array, rate: int, to: int = 16_000) -> Array:
    (found,) = evaluate(resample, [sound.astype(np.float32), np.array(rate)], {"to": to}, [np.float32])
    return found


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 44_101, 48_000, 96_000, 768_000])
def test_a_tone_stays_a_tone(rate: int) -> None:
    found = resampled(tone(rate, 1000)[:, 0], rate)
    expected = tone(16_000, 1000)[:, 0]
    assert abs(len(found) - len(expected)) <= 1
    inner = slice(400, 7000)
    np.testing.assert_allclose(found[inner], expected[inner], atol=2e-4)


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000])
def test_what_is_too_high_is_left_out(rate: int) -> None:
    found = resampled(tone(rate, 9500)[:, 0], rate)[400:7000]
    assert np.abs(found).max() < 1e-3


def test_absurd_rates_are_refused() -> None:
    for rate in (0, -5, 10**9):
        with pytest.raises(ValueError, match="samples in a second"):
            resampled(np.zeros(10), rate)
