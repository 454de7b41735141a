"""Whisper tiny.en with OpenAI's weights: clips of which it is known what is said, alone and one after the other."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from assay.errors import NotFound
from assay.evidence.compare.words import word_errors, words
from assay.ir.dtypes import Array
from assay.jobs.sound_files import SoundSamples
from assay.jobs.speech import SpeechWriter, Transcription, open_speech_writer
from assay.runtime.options import SessionOptions
from assay.zoo.clips import FIVE_MINUTES, SAID, composed, read_clip

RATE = 16_000
LONG = pytest.mark.skipif("ASSAY_LONG" not in os.environ, reason="it takes minutes; set ASSAY_LONG")


@pytest.fixture(scope="module")
def writer() -> SpeechWriter:
    return open_speech_writer("whisper-tiny.en", SessionOptions(target="cpu"))


@pytest.fixture(scope="module")
def clips() -> dict[str, Array]:
    try:
        return {name: read_clip(name) for name in SAID}
    except NotFound as error:
        pytest.skip(f"{error.message}: run `make assets`")


def times_of_words(found: Transcription) -> list[float]:
    """When each word is said, those of a phrase spread evenly over it."""
    times: list[float] = []
    for each in found.phrases:
        count = len(words(each.text))
        times += [each.start + (each.end - each.start) * (at + 0.5) / count for at in range(count)]
    return times


def check_times(found: Transcription, names: Sequence[str], spans: list[tuple[float, float]]) -> None:
    """The words of every clip are there in order, and in the middle they are said while it lasts."""
    heard, times = words(" ".join(each.text for each in found.phrases)), times_of_words(found)
    at = 0
    for name, (start, end) in zip(names, spans, strict=True):
        said = words(SAID[name])
        places = range(max(at - 3, 0), min(at + 4, len(heard)))
        at = min(places, key=lambda place: word_errors(said, heard[place : place + len(said)]))
        assert word_errors(said, heard[at : at + len(said)]) <= 3, (name, start, heard[at : at + len(said)])
        middle = float(np.median(times[at : at + len(said)]))
        assert start - 1 <= middle <= end + 1, (name, start, end, middle)
        at += len(said)


@pytest.mark.parametrize("name", SAID)
def test_a_clip(writer: SpeechWriter, clips: dict[str, Array], name: str) -> None:
    found = writer(clips[name])
    assert words(found.text) == words(SAID[name])
    assert found.phrases[0].start < 0.5
    assert found.phrases[-1].end == pytest.approx(len(clips[name]) / RATE, abs=1.5)


def test_any_rate(writer: SpeechWriter, clips: dict[str, Array]) -> None:
    fast = np.interp(np.arange(0, len(clips["jfk"]), RATE / 44_100), np.arange(len(clips["jfk"])), clips["jfk"])
    found = writer(SoundSamples(fast.astype(np.float32), 44_100))
    assert words(found.text) == words(SAID["jfk"])


@pytest.mark.usefixtures("clips")
def test_clips_one_after_the_other(writer: SpeechWriter) -> None:
    names = ["jfk", "beckett", "jfk", "beckett"]
    sound, spans = composed(names)
    found = writer(sound)
    expected = [word for name in names for word in words(SAID[name])]
    assert word_errors(expected, words(found.text)) <= 0.05 * len(expected)
    check_times(found, names, spans)


@LONG
@pytest.mark.usefixtures("clips")
def test_five_minutes(writer: SpeechWriter) -> None:
    names = FIVE_MINUTES
    sound, spans = composed(names)
    assert len(sound) > 300 * RATE
    found = writer(sound)
    expected = [word for name in names for word in words(SAID[name])]
    wrong = word_errors(expected, words(found.text))
    print(f"{wrong} of {len(expected)} words wrong; {found.sound_seconds:.0f} s of sound in {found.seconds:.1f} s")
    assert wrong <= 0.05 * len(expected)
    check_times(found, names, spans)
