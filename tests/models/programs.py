"""Programs written for ONNX Runtime, as they are: `python programs.py PROGRAM RUNTIME FOLDER` prints what they give.

RUNTIME `assay` puts Assay in ONNX Runtime's place; nothing else differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TEXT = "Assay tells the truth"
ARABIC = "السلام عليكم ورحمة الله"
SAMPLES = {
    "python": b"import os\n\n\ndef main():\n    print(os.getcwd())\n",
    "json": b'{"name": "assay", "size": 3, "parts": [1, 2, 3]}',
    "shell": b"#!/bin/sh\nset -e\nfor f in *.txt; do\n  echo $f\ndone\n",
    "markup": b"<!doctype html><html><body><p>Hello</p></body></html>",
    "text": b"It was the best of times, it was the worst of times, it was the age of wisdom.",
}


def rapidocr(folder: Path) -> Any:
    """What is written in a picture, where, and how sure that is."""
    from PIL import Image, ImageDraw, ImageFont
    from rapidocr import RapidOCR

    image = Image.new("RGB", (640, 200), "white")
    draw = ImageDraw.Draw(image)
    draw.text((30, 30), TEXT, fill="black", font=ImageFont.load_default(40))
    draw.text((30, 120), "Price: 42.50", fill="black", font=ImageFont.load_default(32))
    found: Any = RapidOCR()(np.asarray(image))
    return {"words": list(found.txts), "scores": list(found.scores), "boxes": np.array(found.boxes).tolist()}


def silero(folder: Path) -> Any:
    """Where somebody speaks."""
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    from assay.zoo.moonshine import clip_path, read_speech

    sound = torch.from_numpy(read_speech(clip_path()).copy())
    padded = torch.cat([torch.zeros(16000), sound, torch.zeros(16000)])
    return {"spoken": get_speech_timestamps(padded, load_silero_vad(onnx=True))}


def magika(folder: Path) -> Any:
    """What kinds of content these are."""
    from magika import Magika

    judge = Magika()
    found = {name: judge.identify_bytes(content) for name, content in SAMPLES.items()}
    return {name: [str(each.prediction.output.label), each.score] for name, each in found.items()}


def moonshine(folder: Path) -> Any:
    """What is said in a clip, token by token."""
    from moonshine_onnx import MoonshineOnnxModel, load_tokenizer

    from assay.zoo.moonshine import clip_path, read_speech

    model = MoonshineOnnxModel(models_dir=str(folder / "moonshine"), model_name="moonshine/tiny")
    tokens = model.generate(read_speech(clip_path())[None])
    return {"tokens": tokens, "text": load_tokenizer().decode_batch(tokens)}


def piper(folder: Path) -> Any:
    """A sentence spoken by a voice without noise (no two random streams are alike), and Arabic with its vowels."""
    from piper import PiperVoice, SynthesisConfig
    from piper.tashkeel import TashkeelDiacritizer

    voice = PiperVoice.load(folder / "voice.onnx")
    quiet = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, normalize_audio=False)
    spoken = [chunk.audio_float_array for chunk in voice.synthesize(TEXT, syn_config=quiet)]
    return {"sound": np.concatenate(spoken).tolist(), "vowels": TashkeelDiacritizer()(ARABIC)}


PROGRAMS: dict[str, Callable[[Path], Any]] = {
    program.__name__: program for program in (rapidocr, silero, magika, moonshine, piper)
}


def main(program: str, runtime: str, folder: str) -> None:
    """Print the results of one program as JSON."""
    if runtime == "assay":
        import assay

        sys.modules["onnxruntime"] = assay
    results = PROGRAMS[program](Path(folder))
    theirs = [name for name in sys.modules if name.startswith("onnxruntime.capi._pybind")]
    assert bool(theirs) == (runtime == "onnxruntime"), f"{runtime} was to run, yet there is {theirs}"
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
