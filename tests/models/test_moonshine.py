"""Moonshine tiny (int8) transcribes a clip: both branches of its `If`, with the cache of keys and values."""

from __future__ import annotations

import re
from typing import cast

import numpy as np
import onnxruntime
import pytest

import assay
from assay.zoo.files import asset
from assay.zoo.moonshine import Moonshine, clip_path, read_speech

SAID = "ever tried ever failed no matter try again fail again fail better"
"""The words of the clip; where a sentence ends is the model's opinion."""


@pytest.fixture(scope="module")
def ours() -> Moonshine:
    return Moonshine(assay.InferenceSession)


def words(text: str) -> str:
    return re.sub(r"[^a-z ]", "", text.lower())


def test_the_clip_is_transcribed(ours: Moonshine) -> None:
    sound = read_speech(clip_path())
    peer = Moonshine(lambda path: onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
    assert words(ours.transcribe(sound).text) == words(peer.transcribe(sound).text) == SAID


def test_the_distance_to_onnxruntime_is_rounding() -> None:
    """Activations are quantised to 8 bits on the way, where a last digit flips a step and steps add up.

    How far rounding alone can go is the distance between the oracle's two modes.
    """
    path = str(asset("moonshine/encoder_model.onnx"))
    feeds = {"input_values": read_speech(clip_path())[None, :32000]}
    exact, precise = (assay.InferenceSession(path, mode=mode).run(None, feeds)[0] for mode in ("exact", "precise"))
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    floor = np.sqrt(np.mean((exact - precise) ** 2))
    assert 0 < np.sqrt(np.mean((exact - theirs) ** 2)) < 2 * floor


def test_both_branches_are_taken(ours: Moonshine) -> None:
    """The first step computes the cache of the encoder's output, the later ones leave it empty."""
    names = [i.name for i in ours.decoder.get_inputs()]
    assert "use_cache_branch" in names
    branches = [
        node for node in cast(assay.InferenceSession, ours.decoder).session.lowered.nodes if node.op == "branch"
    ]
    assert len(branches) == 1
    assert all(len(region.nodes) > 100 for region in branches[0].regions)
