"""PP-OCR finds and reads text that was rendered here."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from PIL import Image, ImageDraw, ImageFont

from models.common import both, package_file, run_both

DETECTOR = package_file("rapidocr", "models/PP-OCRv6_det_small.onnx")
READER = package_file("rapidocr", "models/PP-OCRv6_rec_small.onnx")
TURNER = package_file("rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx")


def rendered(text: str, size: tuple[int, int], at: tuple[int, int], height: int) -> Image.Image:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text(at, text, fill="black", font=ImageFont.load_default(height))
    return image


def pixels(image: Image.Image) -> np.ndarray:
    """(1, 3, H, W) in −1 … 1."""
    return (np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 255 - 0.5) / 0.5


def alphabet() -> list[str]:
    """What the reader's classes stand for: class 0 is the blank of CTC."""
    properties = {p.key: p.value for p in onnx.load(str(READER), load_external_data=False).metadata_props}
    return ["", *properties["character"].split("\n"), " "]


def decoded(scores: np.ndarray) -> str:
    """Greedy CTC: repeated classes merge, blanks go."""
    letters, path = alphabet(), scores[0].argmax(1)
    kept = [c for i, c in enumerate(path) if c != 0 and (i == 0 or c != path[i - 1])]
    return "".join(letters[c] for c in kept)


@pytest.mark.parametrize("text", ["Hello World 2026", "Assay tells the truth", "Price: 42.50"])
def test_a_line_is_read(text: str) -> None:
    image = rendered(text, (320, 48), (6, 6), 30)
    scores = run_both(both(READER), {"x": pixels(image)}, rtol=2e-2, atol=2e-3)[0]
    assert decoded(scores) == text


def test_text_is_found_where_it_was_put() -> None:
    image = rendered("Find me", (320, 256), (90, 120), 36)
    heat = run_both(both(DETECTOR), {"x": pixels(image)}, rtol=2e-2, atol=5e-3)[0][0, 0]
    rows, columns = np.nonzero(heat > 0.3)
    ink_rows, ink_columns = np.nonzero(np.asarray(image.convert("L")) < 128)
    assert abs(rows.mean() - ink_rows.mean()) < 6
    assert abs(columns.mean() - ink_columns.mean()) < 10


def test_text_upside_down_is_noticed() -> None:
    line = rendered("Which way is up", (192, 48), (4, 8), 24)
    upright, turned = (
        run_both(both(TURNER), {"x": pixels(image)}, rtol=1e-2, atol=1e-3)[0][0] for image in (line, line.rotate(180))
    )
    assert upright[0] > 0.5 > upright[1]
    assert turned[1] > turned[0]
