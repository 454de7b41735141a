"""The oracle against the onnx reference evaluator on the light ResNet-50 and DenseNet-121, in turns in one run.

Prints the ratio of the medians (evaluator ÷ oracle); at least 5 is asked for. Both run a model that is
already loaded; loading is printed apart.
"""

from __future__ import annotations

import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx.reference import ReferenceEvaluator

import assay

ROUNDS = 3
MODELS = ("resnet50", "densenet121")


def light_model(name: str) -> Path:
    """Where the onnx package keeps a light model."""
    return Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    for name in MODELS:
        path = light_model(name)
        started = time.perf_counter()
        session = assay.InferenceSession(path)
        loading = time.perf_counter() - started
        evaluator = ReferenceEvaluator(onnx.load(path))
        info = session.get_inputs()[0]
        feeds = {info.name: np.random.default_rng(0).normal(size=info.shape).astype(np.float32)}  # type: ignore[arg-type]
        times: dict[str, list[float]] = {"oracle": [], "evaluator": []}
        for _ in range(ROUNDS):
            for who, run in (("oracle", session.run), ("evaluator", evaluator.run)):
                started = time.perf_counter()
                run(None, feeds)
                times[who].append(time.perf_counter() - started)
        oracle, peer = (statistics.median(times[who]) for who in ("oracle", "evaluator"))
        ratio = f"ratio {peer / oracle:.1f} (at least 5)"
        print(f"{name}: oracle {oracle:.2f} s, evaluator {peer:.2f} s, {ratio}; loading {loading:.2f} s")


if __name__ == "__main__":
    main()
