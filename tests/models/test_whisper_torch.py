"""Whisper tiny.en with OpenAI's weights transcribes a clip through `torch.compile(backend="assay")`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli import main
from assay.errors import BadFeed
from assay.jobs.definitions.sound import mel_filters
from assay.zoo.moonshine import clip_path, read_speech
from assay.zoo.whisper import (
    Transcriber,
    WhisperTranscription,
    detokenized,
    load_whisper,
    spectrogram,
    suppressed,
    vocabulary,
)

SAID = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."


@pytest.fixture(scope="module")
def eager() -> WhisperTranscription:
    return Transcriber(load_whisper()).transcribe(read_speech(clip_path()))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `assay demo` tells of the compiled model."""
    result = tmp_path_factory.mktemp("demo") / "result.json"
    torch._dynamo.reset()
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--target", "cpu", "--json", str(result)])
    assert stopped.value.code == 0
    return json.loads(result.read_text())


def test_the_clip_is_transcribed(told: dict[str, Any]) -> None:
    assert told["text"] == SAID


def test_tokens_and_scores_are_eagers(told: dict[str, Any], eager: WhisperTranscription) -> None:
    assert tuple(told["tokens"]) == eager.tokens
    found = told["eager"]
    assert found["agrees"]
    assert found["same_tokens"]
    assert found["steps"] == len(eager.tokens)
    assert found["max_abs"] < 1e-3


def test_three_graphs_serve_all_lengths(told: dict[str, Any]) -> None:
    """One listens, one takes the first tokens, one every later token, however many came before."""
    assert told["graphs"] == 3


def test_every_op_is_accounted_for(told: dict[str, Any]) -> None:
    assert sum(row["nodes"] for row in told["ops"]) > 500
    for row in told["ops"]:
        assert row["converted"] + row["removed"] + row["opaque"] + row["fallback"] == row["nodes"]


def test_the_stages_are_told_apart(told: dict[str, Any]) -> None:
    first = told["seconds"]["first"]
    assert list(first) == ["trace", "import", "lower", "compile", "run"]
    assert all(seconds > 0 for seconds in first.values())
    assert 0 < told["seconds"]["second"] < sum(first.values())


def test_what_runs_elsewhere_has_a_reason(told: dict[str, Any]) -> None:
    for row in told["ops"]:
        assert bool(row["reasons"]) == bool(row["opaque"] + row["fallback"])
        assert all(row["reasons"])


def test_decoding_without_a_cache_is_the_same(eager: WhisperTranscription) -> None:
    again = Transcriber(load_whisper()).transcribe(read_speech(clip_path()), most=6, cached=False)
    assert again.tokens == eager.tokens[:6]
    for mine, theirs in zip(again.logits, eager.logits, strict=False):
        np.testing.assert_allclose(mine, theirs, atol=1e-3)


def test_the_filters_are_whispers() -> None:
    """Values of the filter bank that OpenAI publishes."""
    filters = mel_filters(80)
    assert filters.shape == (80, 201)
    assert filters[0, 1] == pytest.approx(0.024862595)
    assert filters[10, 11] == pytest.approx(0.004954375)
    assert filters[79, 199] == pytest.approx(0.000448759)
    assert filters.sum() == pytest.approx(1.9990242)


def test_the_spectrogram_is_that_of_torchs_transform() -> None:
    sound = read_speech(clip_path())
    whole = torch.nn.functional.pad(torch.from_numpy(sound), (0, 480_000 - len(sound)))
    spectrum = torch.stft(whole, 400, 160, window=torch.hann_window(400), return_complex=True)[:, :-1]
    levels = torch.log10(torch.clamp(torch.from_numpy(mel_filters(80)).float() @ spectrum.abs() ** 2, min=1e-10))
    expected = (torch.maximum(levels, levels.max() - 8) + 4) / 4
    np.testing.assert_allclose(spectrogram(sound), expected.numpy(), atol=1e-4)


def test_tokens_that_are_never_chosen() -> None:
    """How many OpenAI's rules give for English, and some of them."""
    assert len(suppressed()) == 90
    assert {1, 2, 7, 357, 366, 438, 532, 6329, 17992, 49146, 50257, 50361} <= suppressed()


def test_tokens_are_bytes_of_text() -> None:
    assert len(vocabulary()) == 50256
    hello, comma = vocabulary()[b"Hello"], vocabulary()[b","]
    split = vocabulary()[b"\xe2\x99"], vocabulary()[b"\xaa"]
    assert detokenized((hello, comma, *split, 50256, 50362)) == "Hello,♪"


def test_sound_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadFeed, match="sound of shape"):
        spectrogram(np.zeros(480_001, np.float32))
