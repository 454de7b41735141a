"""Programs written for ONNX Runtime give the same results with Assay in its place, unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from models.common import ROOT
from models.programs import ARABIC, PROGRAMS, TEXT

VOICE = {
    "audio": {"sample_rate": 16000},
    "espeak": {"voice": "en-us"},
    "num_symbols": 256,
    "num_speakers": 1,
    "phoneme_id_map": {chr(code): [code % 253 + 3] for code in range(32, 1000)} | {"_": [0], "^": [1], "$": [2]},
}


def export_voice(path: Path) -> None:
    """A small voice of Piper's own network, exported as Piper does it. No package carries a trained one."""
    import torch
    from piper.train.vits.models import SynthesizerTrn

    torch.manual_seed(0)
    network = SynthesizerTrn(
        n_vocab=256,
        spec_channels=513,
        segment_size=32,
        inter_channels=32,
        hidden_channels=32,
        filter_channels=64,
        n_heads=2,
        n_layers=2,
        kernel_size=3,
        p_dropout=0.1,
        resblock="2",
        resblock_kernel_sizes=(3, 5),
        resblock_dilation_sizes=((1, 2), (2, 6)),
        upsample_rates=(8, 8, 4),
        upsample_initial_channel=64,
        upsample_kernel_sizes=(16, 16, 8),
    )
    network.eval()
    network.dec.remove_weight_norm()

    def infer(text: Any, lengths: Any, scales: Any, speaker: Any = None) -> Any:
        noise, slower, uneven = scales
        return network.infer(text, lengths, noise_scale=noise, length_scale=slower, noise_scale_w=uneven, sid=speaker)[
            0
        ].unsqueeze(1)

    cast(Any, network).forward = infer
    arguments = (torch.randint(0, 256, (1, 50)), torch.tensor([50]), torch.tensor([0.667, 1.0, 0.8]), None)
    torch.onnx.export(
        network,
        arguments,
        path,
        opset_version=15,
        input_names=["input", "input_lengths", "scales", "sid"],
        output_names=["output"],
        dynamic_axes={
            "input": {0: "batch_size", 1: "phonemes"},
            "input_lengths": {0: "batch_size"},
            "output": {0: "batch_size", 2: "time"},
        },
        dynamo=False,
    )
    path.with_name(f"{path.name}.json").write_text(json.dumps(VOICE))


def run(program: str, runtime: str, folder: Path) -> Any:
    command = [sys.executable, "-P", str(ROOT / "tests" / "models" / "programs.py"), program, runtime, str(folder)]
    environment = {**os.environ, "ASSAY_TARGET": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compared(mine: Any, theirs: Any, tolerance: float) -> None:
    """Words and whole numbers are the same, floats nearly."""
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for key in theirs:
            compared(mine[key], theirs[key], tolerance)
    elif isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            compared(a, b, tolerance)
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, abs=tolerance)
    else:
        assert mine == theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gives_what_it_gives_with_onnxruntime(program: str, tmp_path: Path) -> None:
    if program == "piper":
        export_voice(tmp_path / "voice.onnx")
    if program == "moonshine":
        shutil.copytree(ROOT / ".assets" / "moonshine", tmp_path / "moonshine")
    mine, theirs = (run(program, runtime, tmp_path) for runtime in ("assay", "onnxruntime"))
    compared(mine, theirs, 2e-3)
    known = {
        "rapidocr": lambda found: TEXT in " ".join(found["words"]),
        "silero": lambda found: len(found["spoken"]) > 0,
        "magika": lambda found: found["python"][0] == "python",
        "moonshine": lambda found: len(found["text"][0].split()) > 5,
        "piper": lambda found: len(found["sound"]) > 1000 and len(found["vowels"]) > len(ARABIC),
    }
    assert known[program](mine), mine
