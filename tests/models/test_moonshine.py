"""Moonshine tiny (int8) transcribes a clip: both branches of its `If`, with the cache of keys and values."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest

import assay
from assay.zoo.moonshine import Moonshine, clip_path, read_speech

SAID = "ever tried ever failed no matter try again fail again fail better"
"""The words of the clip; where a sentence ends is the model's opinion."""


@pytest.fixture(scope="module")
def ours() -> Moonshine:
    return Moonshine(assay.InferenceSession)


def test_the_clip_is_transcribed_as_onnxruntime_does(ours: Moonshine) -> None:
    sound = read_speech(clip_path())
    heard = ours.transcribe(sound)
    peer = Moonshine(lambda path: onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
    expected = peer.transcribe(sound)
    assert re.sub(r"[^a-z ]", "", heard.text.lower()) == SAID
    assert heard.tokens == expected.tokens
    # Activations are quantised to 8 bits on the way, where a last-digit difference may flip a step.
    for mine, theirs in zip(heard.logits, expected.logits, strict=True):
        assert np.corrcoef(mine, theirs)[0, 1] > 0.99


def test_both_branches_are_taken(ours: Moonshine) -> None:
    """The first step computes the cache of the encoder's output, the later ones leave it empty."""
    names = [i.name for i in ours.decoder.get_inputs()]
    assert "use_cache_branch" in names
    branches = [node for node in ours.decoder.session.lowered.nodes if node.op == "branch"]
    assert len(branches) == 1
    assert all(len(region.nodes) > 100 for region in branches[0].regions)
