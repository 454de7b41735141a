"""Magika names the type of files by their bytes."""

from __future__ import annotations

import io
import json
import sys
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.common import ROOT, both, package_file, run_both

FOLDER = "models/standard_v3_3"
SESSIONS = both(package_file("magika", f"{FOLDER}/model.onnx"))
CONFIG = json.loads(package_file("magika", f"{FOLDER}/config.min.json").read_text())


def features(content: bytes) -> np.ndarray:
    """The first and last 1,024 bytes without surrounding white space, padded, as the model wants them."""
    size, padding = CONFIG["beg_size"], CONFIG["padding_token"]
    block = CONFIG["block_size"]
    start = list(content[:block].lstrip()[:size])
    end = list(content[-block:].rstrip()[-size:])
    row = start + [padding] * (size - len(start)) + [padding] * (size - len(end)) + end
    return np.array([row], np.int32)


def png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as handle:
        handle.writestr("notes.txt", "some notes\n" * 200)
    return buffer.getvalue()


def sound() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(16000)
        clip.writeframes(np.zeros(4000, np.int16).tobytes())
    return buffer.getvalue()


FILES = {
    "python": (ROOT / "src/assay/ir/dims.py").read_bytes(),
    "markdown": (ROOT / "docs/architecture.md").read_bytes(),
    "makefile": (ROOT / "Makefile").read_bytes(),
    "toml": (ROOT / "pyproject.toml").read_bytes(),
    "elf": Path(sys.executable).resolve().read_bytes(),
    "png": png(),
    "zip": archive(),
    "wav": sound(),
    "json": json.dumps({f"key {i}": [i, i / 3, None, "text"] for i in range(200)}, indent=1).encode(),
}


@pytest.mark.parametrize("label", FILES)
def test_the_type_of_a_file_is_found(label: str) -> None:
    scores = run_both(SESSIONS, {"bytes": features(FILES[label])}, rtol=1e-3, atol=1e-5)[0]
    assert CONFIG["target_labels_space"][int(scores[0].argmax())] == label


def test_a_batch_gives_what_its_rows_give() -> None:
    rows = [features(content) for content in FILES.values()]
    together = run_both(SESSIONS, {"bytes": np.concatenate(rows)}, rtol=1e-3, atol=1e-5)[0]
    for row, scores in zip(rows, together, strict=True):
        np.testing.assert_allclose(SESSIONS[0].run(None, {"bytes": row})[0][0], scores, rtol=1e-5, atol=1e-7)
