"""What Tenstorrent's library says of a large model that generates: its programs, and the card's memory that they take.

    python tools/ttnngenerate.py MODEL [--steps 100] [--weights bfloat8_b]

MODEL is one of the zoo's (Hugging Face's, with or without an encoder), in its full size and bfloat16. Weights are
allocated, not filled, and nothing is computed: a program takes the prompt, one every later token. All are on the card
at the same time, with one copy of the weights.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from assay.errors import AssayError
from assay.runtime.options import SessionOptions
from assay.targets.ttnn.formats import ENVIRONMENT as WEIGHTS
from assay.targets.ttnn.numbers import ENVIRONMENT as NUMBERS

PROMPT = (1, 2, 3, 4)


def made(name: str) -> tuple[Any, dict[str, Any]]:
    """The model without content, and what its encoder is given."""
    import torch

    from assay.zoo.torch import find
    from assay.zoo.torch.model import default_dtype, without_initial_weights

    entry = find(name)
    with default_dtype(torch.bfloat16), without_initial_weights():
        model = entry.make(entry.settings("full")).eval().requires_grad_(False)
    if not model.config.is_encoder_decoder:
        return model, {}
    shapes = entry.shapes("full")
    if "input_features" in shapes:
        return model, {"input_features": np.zeros(shapes["input_features"], ml_dtypes.bfloat16)}
    return model, {"input_ids": np.ones(shapes["input_ids"], np.int64)}


def put(name: str, length: int, steps: int) -> None:
    """Make the programs, take the steps, and tell."""
    from assay.runtime.torch.generation import Generator

    started = time.perf_counter()
    model, inputs = made(name)
    generator = Generator(model, length, SessionOptions(target="ttnn,cpu"))
    heard = generator.encode(inputs) if inputs else None
    generator.step(PROMPT, 0, heard)
    generator.step(PROMPT[:1], len(PROMPT), heard)
    programs = len(generator.sessions)
    for place in range(len(PROMPT) + 1, len(PROMPT) + steps):
        generator.step(PROMPT[:1], place, heard)
    print(f"{name}: {programs} programs, {len(generator.sessions) - programs} more for {steps} steps of decoding")
    for session in generator.sessions:
        found = session.explain()
        away = sum(row.target != "ttnn" for row in found.nodes)
        sizes = [list(getattr(value.type, "shape", ())) for value in session.graph.inputs[:1]]
        print(f"  {sizes[0]}: {len(found.nodes)} nodes, {away} not on the card")
        for note in found.notes[:2]:
            print("   ", note.text, *(" ".join(row) for row in note.rows), sep="\n      ")
    print(f"  {time.perf_counter() - started:.0f} s")


def main() -> None:
    """Put a model to the library."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--length", type=int, default=448, help="tokens that the cache has room for")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--weights", default="", help="bfloat8_b or bfloat4_b")
    given = parser.parse_args()
    os.environ[NUMBERS], os.environ[WEIGHTS] = "none", given.weights
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".* runs on the target")  # what the card does not take is the answer
        try:
            put(given.model, given.length, given.steps)
        except (AssayError, RuntimeWarning) as refused:
            print(f"{given.model}: {refused}")


if __name__ == "__main__":
    main()
