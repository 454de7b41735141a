"""Whisper tiny.en with OpenAI's weights: clips of which it is known what is said, alone and one after the other."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from assay.errors import NotFound
from assay.ir.dtypes import Array
from assay.jobs.sound_files import sound_file
from assay.jobs.speech import SpeechWriter, Transcription, open_speech_writer
from assay.runtime.options import SessionOptions
from assay.zoo.clips import CLIPS

SAID = {
    "beckett": "Ever tried, ever failed. No matter, try again. Fail again. Fail better.",
    "jfk": "And so my fellow Americans ask not what your country can do for you ask what you can do for your country.",
}
RATE = 16_000
LONG = pytest.mark.skipif("ASSAY_LONG" not in os.environ, reason="it takes minutes; set ASSAY_LONG")


@pytest.fixture(scope="module")
def writer() -> SpeechWriter:
    return open_speech_writer("whisper-tiny.en", SessionOptions(target="cpu"))


@pytest.fixture(scope="module")
def clips() -> dict[str, Array]:
    try:
        return {name: sound_file(find()).read()[0] for name, find in CLIPS.items()}
    except NotFound as error:
        pytest.skip(f"{error.message}: run `make assets`")


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def errors(expected: list[str], found: list[str]) -> int:
    """The fewest words that must be changed, added or left out."""
    row = list(range(len(found) + 1))
    for at, word in enumerate(expected, 1):
        before, row[0] = row[0], at
        for index, other in enumerate(found, 1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (word != other))
    return row[-1]


def composed(clips: dict[str, Array], names: list[str], pause: float = 1.0) -> tuple[Array, list[tuple[float, float]]]:
    """Clips one after the other with pauses, and when each begins and ends."""
    parts, spans, at = list[Array](), list[tuple[float, float]](), 0.0
    for name in names:
        seconds = len(clips[name]) / RATE
        parts += [clips[name], np.zeros(int(pause * RATE), np.float32)]
        spans.append((at, at + seconds))
        at += seconds + pause
    return np.concatenate(parts), spans


def times_of_words(found: Transcription) -> list[float]:
    """When each word is said, those of a phrase spread evenly over it."""
    times: list[float] = []
    for each in found.phrases:
        count = len(words(each.text))
        times += [each.start + (each.end - each.start) * (at + 0.5) / count for at in range(count)]
    return times


def check_times(found: Transcription, names: list[str], spans: list[tuple[float, float]]) -> None:
    """The words of every clip are there in order, and in the middle they are said while it lasts."""
    heard, times = words(" ".join(each.text for each in found.phrases)), times_of_words(found)
    at = 0
    for name, (start, end) in zip(names, spans, strict=True):
        said = words(SAID[name])
        places = range(max(at - 3, 0), min(at + 4, len(heard)))
        at = min(places, key=lambda place: errors(said, heard[place : place + len(said)]))
        assert errors(said, heard[at : at + len(said)]) <= 3, (name, start, heard[at : at + len(said)])
        middle = float(np.median(times[at : at + len(said)]))
        assert start - 1 <= middle <= end + 1, (name, start, end, middle)
        at += len(said)


@pytest.mark.parametrize("name", SAID)
def test_a_clip(writer: SpeechWriter, clips: dict[str, Array], name: str) -> None:
    found = writer(clips[name])
    assert words(found.text) == words(SAID[name])
    assert found.phrases[0].start < 0.5
    assert found.phrases[-1].end == pytest.approx(len(clips[name]) / RATE, abs=1.5)


def test_any_rate_and_number_of_channels(writer: SpeechWriter, clips: dict[str, Array], tmp_path: object) -> None:
    from assay.jobs.sound_files import SoundSamples

    fast = np.interp(np.arange(0, len(clips["jfk"]), RATE / 44_100), np.arange(len(clips["jfk"])), clips["jfk"])
    found = writer(SoundSamples(fast.astype(np.float32), 44_100))
    assert words(found.text) == words(SAID["jfk"])


def test_clips_one_after_the_other(writer: SpeechWriter, clips: dict[str, Array]) -> None:
    names = ["jfk", "beckett", "jfk", "beckett"]
    sound, spans = composed(clips, names)
    found = writer(sound)
    expected = [word for name in names for word in words(SAID[name])]
    assert errors(expected, words(found.text)) <= 0.05 * len(expected)
    check_times(found, names, spans)


@LONG
def test_five_minutes(writer: SpeechWriter, clips: dict[str, Array]) -> None:
    names = ["jfk", "beckett", "beckett", "jfk"] * 7
    sound, spans = composed(clips, names)
    assert len(sound) > 300 * RATE
    found = writer(sound)
    expected = [word for name in names for word in words(SAID[name])]
    wrong = errors(expected, words(found.text))
    print(f"{wrong} of {len(expected)} words wrong; {found.sound_seconds:.0f} s of sound in {found.seconds:.1f} s")
    assert wrong <= 0.05 * len(expected)
    check_times(found, names, spans)
