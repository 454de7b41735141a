"""Silero VAD hears where somebody speaks; its graph branches on the sampling rate."""

from __future__ import annotations

import numpy as np
import pytest

from models.common import both, package_file, run_both, speech

WINDOW, CONTEXT = 512, 64


def probabilities(name: str, sound: np.ndarray, rate: int | None) -> np.ndarray:
    """The probability of speech in each window, the state carried along; checked against ONNX Runtime."""
    sessions = both(package_file("silero_vad", f"data/{name}"))
    state = np.zeros((2, 1, 128), np.float32)
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    found: list[float] = []
    for start in range(0, len(sound) - WINDOW, WINDOW):
        feeds = {"input": padded[None, start : start + CONTEXT + WINDOW], "state": state}
        if rate is not None:
            feeds["sr"] = np.array(rate, np.int64)
        output, state = run_both(sessions, feeds, rtol=1e-3, atol=1e-4)
        found.append(float(output[0, 0]))
    return np.array(found)


@pytest.mark.parametrize(("name", "rate"), [("silero_vad.onnx", 16000), ("silero_vad_half.onnx", None)])
def test_speech_is_told_from_silence(name: str, rate: int | None) -> None:
    clip = speech()[: 3 * 16000]
    quiet = np.random.default_rng(0).normal(scale=1e-4, size=16000).astype(np.float32)
    spoken = probabilities(name, clip, rate)
    silent = probabilities(name, quiet, rate)
    assert (spoken > 0.5).mean() > 0.5
    assert silent.max() < 0.2


def test_both_branches_of_the_sampling_rate_run() -> None:
    sessions = both(package_file("silero_vad", "data/silero_vad.onnx"))
    state = np.zeros((2, 1, 128), np.float32)
    sound = speech()[8000:]
    for rate, size in ((16000, 576), (8000, 288)):
        feeds = {"input": sound[None, :size], "state": state, "sr": np.array(rate, np.int64)}
        run_both(sessions, feeds, rtol=1e-3, atol=1e-4)
    assert {node.op for node in sessions[0].session.lowered.nodes} >= {"branch"}
