"""Models of the zoo in small form on a target, beside the oracle: by the time of processors, of one thread each.

The two take turns in one process. Prints, for each model, the median over the rounds of the target's time in parts of
the oracle's, the same of the least disturbed rounds, and these in milliseconds; below 1 the target is faster. Times are
of calls of what `torch.compile` makes, transfers included. By default some models with convolutions and some with
attention; `--all` takes the whole zoo and leaves out those that take the oracle less than `--least` milliseconds.

    python bench/zoo.py [MODEL ...] [--all] [--target NAME] [--least MS] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("LP_NUM_THREADS", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from assay.evidence.bench.models import arrays
from assay.limits import DEFAULT
from assay.runtime.targets import make_target
from assay.zoo.torch import MODELS, find

ORACLE = "reference"
SOME = ("DETR", "mobilenet_v2", "U-Net", "hrnet_w18.ms_aug_in1k", "SegFormer", "swin_t", "OpenPose V2")
LONGEST = 6.0
"""Seconds after which no further round begins."""


class Beside(NamedTuple):
    """A target's times, and the oracle's in the same rounds."""

    target: list[float]
    oracle: list[float]

    def __str__(self) -> str:
        median = statistics.median(ours / theirs for ours, theirs in zip(*self, strict=True))
        ours, theirs = min(self.target), min(self.oracle)
        return f"{median:6.2f}  {ours / theirs:6.2f}  {ours * 1e3:9.2f}  {theirs * 1e3:9.2f}"


def work(run: Callable[[], Any]) -> float:
    """The seconds of processors that a call takes."""
    started = time.process_time()
    run()
    return time.process_time() - started


def compiled(module: Any, example: dict[str, Any], target: str) -> Callable[[], Any]:
    """A call of a model on a target, which has run before."""
    torch.compiler.reset()
    model = torch.compile(module, backend="assay", options={"target": target})
    model(**example)
    return partial(model, **example)


def measured(name: str, target: str, least: float, rounds: int) -> Beside | None:
    """A model's times, after results were compared; None if the oracle takes less than `least` seconds."""
    model = find(name)
    module = model.build("small")
    example = model.example(module)
    oracle = compiled(module, example, ORACLE)
    if min(work(oracle) for _ in range(3)) < least:
        return None
    mine, found = compiled(module, example, target), Beside([], [])
    for made, right in zip(*(arrays(model.comparable(run())) for run in (mine, oracle)), strict=True):
        np.testing.assert_allclose(made, right, rtol=1e-2, atol=1e-3 * max(float(np.abs(right).max(initial=0)), 1e-3))
    while len(found.target) < rounds and sum(map(sum, found)) < LONGEST:
        found.target.append(work(mine))
        found.oracle.append(work(oracle))
    return found


def measure(names: Sequence[str], target: str, least: float, rounds: int) -> None:
    """Measure models and print; one that cannot be measured does not end the others."""
    print(f"{'':28}  median   least  {target:>9}  {ORACLE:>9}")
    for name in names:
        try:
            found = measured(name, target, least, rounds)
        except Exception as error:
            print(f"{name:28}  {type(error).__name__}: {str(error).strip().splitlines()[:1]}", flush=True)
            continue
        if found is not None:
            print(f"{name:28}  {found}", flush=True)


def main() -> None:
    """Read options, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--target", default="vulkan")
    parser.add_argument("--least", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    probe = make_target(options.target, "exact", DEFAULT).probe()
    if not probe.present:
        print(f"{options.target}: {probe.reason}")
        return
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    whole = [name for name, model in MODELS.items() if not model.unavailable]
    names = options.models or (whole if options.all else SOME)
    measure(names, options.target, options.least / 1e3 if options.all else 0.0, options.rounds)


if __name__ == "__main__":
    main()
