"""What the tests of real models share: where installed files lie, sound, and the comparison with ONNX Runtime."""

from __future__ import annotations

import importlib.util
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import assay

ROOT = Path(__file__).parents[2]


def package_file(package: str, name: str) -> Path:
    """A file inside an installed package, which itself is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"{package} is not installed: run `make venv`"
    path = Path(spec.submodule_search_locations[0]) / name
    assert path.is_file(), f"{package} has no {name}"
    return path


def asset(name: str) -> Path:
    """A file that `make assets` fetched."""
    path = ROOT / ".assets" / name
    assert path.is_file(), f"{path} is missing: run `make assets`"
    return path


def speech() -> np.ndarray:
    """A clip of speech at 16 kHz: «Ever tried, ever failed. No matter, try again. Fail again. Fail better.»"""
    with wave.open(str(package_file("moonshine_onnx", "assets/beckett.wav"))) as clip:
        assert clip.getframerate() == 16000 and clip.getnchannels() == 1
        frames = np.frombuffer(clip.readframes(clip.getnframes()), np.int16)
    return frames.astype(np.float32) / 32768


def both(path: Path) -> tuple[assay.InferenceSession, onnxruntime.InferenceSession]:
    """The model in Assay and in ONNX Runtime."""
    return assay.InferenceSession(str(path)), onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run_both(sessions: tuple[Any, Any], feeds: dict[str, Any], rtol: float, atol: float) -> list[Any]:
    """Assay's outputs, after they were found close to ONNX Runtime's."""
    ours, theirs = (session.run(None, feeds) for session in sessions)
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.dtype == expected.dtype and mine.shape == expected.shape
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)
    return ours
