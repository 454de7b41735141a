"""What the tests of real models share: where installed files lie, sound, and the comparison with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import assay
from assay.ir.dtypes import Array
from assay.zoo.files import package_file as package_file
from assay.zoo.moonshine import clip_path, read_speech

ROOT = Path(__file__).parents[2]


def speech() -> Array:
    """A clip of speech at 16 kHz."""
    return read_speech(clip_path())


def both(path: Path) -> tuple[assay.InferenceSession, onnxruntime.InferenceSession]:
    """The model in Assay and in ONNX Runtime."""
    return assay.InferenceSession(str(path)), onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )


def run_both(sessions: tuple[Any, Any], feeds: dict[str, Any], rtol: float, atol: float) -> list[Any]:
    """Assay's outputs, after they were found close to ONNX Runtime's."""
    ours, theirs = (session.run(None, feeds) for session in sessions)
    for mine, expected in zip(ours, theirs, strict=True):
        assert (mine.dtype, mine.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)
    return ours
