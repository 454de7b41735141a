"""distil-large-v3 by its configuration, in bf16 with random weights: 100 steps of the decoder.

Shows how long reading, listening to 30 s of sound, the first step and the others take, how long compiling took while
they ran (one program serves all), and the memory of the process beside the size of the weights.

    python bench/whisper_large.py [--steps N] [--target TARGET] [--layers N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from assay.evidence.machine import forget_peak, memory_of
from assay.frontends.checkpoint import load_model
from assay.frontends.checkpoint.safetensors import write_safetensors
from assay.ir import dtypes
from assay.jobs.models import JobModel
from assay.runtime.options import SessionOptions
from assay.runtime.stages import Clock, timing

CONFIGURATION: dict[str, Any] = {
    "model_type": "whisper",
    "vocab_size": 51866,
    "num_mel_bins": 128,
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_layers": 2,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "max_source_positions": 1500,
    "max_target_positions": 448,
}


def write_model(folder: Path, configuration: dict[str, Any]) -> int:
    """A folder with random weights; how many bytes they take."""
    import torch
    import transformers

    with torch.device("meta"):
        model: Any = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**configuration))
    rng = np.random.default_rng(0)
    drawn = (rng.standard_normal(1 << 20) * 0.02).astype(ml_dtypes.bfloat16).view(np.uint16)
    shapes = {name: tuple(each.shape) for name, each in model.state_dict().items() if name != "proj_out.weight"}
    weights = {name: np.resize(drawn, shape).view(ml_dtypes.bfloat16) for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(configuration))
    return sum(each.nbytes for each in weights.values())


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--layers", type=int, default=CONFIGURATION["encoder_layers"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = write_model(Path(folder), {**CONFIGURATION, "encoder_layers": given.layers})
        forget_peak()
        started = time.perf_counter()
        model = load_model(folder, logits="last", dtype=dtypes.bf16)
        options = SessionOptions(target=given.target)
        encoder, decoder = (JobModel(model.graphs[name], name, options) for name in ("encoder", "decoder"))
        print(f"read and compiled: {time.perf_counter() - started:.1f} s; weights {size / 2**30:.2f} GiB", flush=True)
        features = np.random.default_rng(1).standard_normal((1, 128, 3000)).astype(ml_dtypes.bfloat16)
        started = time.perf_counter()
        state = decoder.begin_with(encoder, features)
        print(f"30 s of sound heard: {time.perf_counter() - started:.1f} s", flush=True)
        times, clock, token = list[float](), Clock(lambda stage: None, "run"), 50258
        with timing(clock):
            for _ in range(given.steps):
                started = time.perf_counter()
                scores, state = decoder.step(state, np.array([[token]]))
                times.append(time.perf_counter() - started)
                token = int(scores[0].argmax())
        peak = (memory_of("self", "VmHWM") or 0) / 2**30
        others = statistics.median(times[1:])
        print(f"{given.steps} steps: the first {times[0] * 1e3:.0f} ms, the others {others * 1e3:.1f} ms (median)")
        print(f"compiled meanwhile: {clock.seconds.get('compile', 0.0):.1f} s")
        print(f"memory {peak:.2f} GiB at most; the state {state.nbytes / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
