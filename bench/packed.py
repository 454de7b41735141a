"""Products with packed weights beside products with the same weights in f32, at the sizes of SmolLM2-135M.

The formats and f32 take turns in one process; a figure is the median over the rounds. *Speed* is f32's time ÷ the
format's. *Bandwidth* is how many bytes of weights are read in a second, as a share of what f32 reads: where it is 1,
the time is that of the memory alone. Layers are many different ones, so that a cache does not hold them; formats with
blocks of 256 elements take the layers whose rows are whole blocks.

    python bench/packed.py [FORMAT ...] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.block_formats import BLOCK_FORMATS
from assay.ops.builder import Builder
from assay.ops.definitions.blocks import drawn_blocks
from assay.runtime.pipeline import compiled, optimized
from assay.runtime.program import Program
from assay.runtime.settings import Settings
from assay.targets.cpu import CpuTarget
from assay.targets.reference import ReferenceTarget

FORMATS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q4_K", "Q6_K")
ROWS = (1, 8, 128)


class Weights(NamedTuple):
    """`layers` matrices of outputs × inputs."""

    layers: int
    inputs: int
    outputs: int

    def __str__(self) -> str:
        return f"{self.layers} × ({self.inputs} → {self.outputs})"


WEIGHTS = (Weights(60, 576, 1536), Weights(60, 1536, 576), Weights(1, 576, 49152))


class Contestant(NamedTuple):
    """A program, what it is given, and the bytes of its weights."""

    program: Program
    given: list[Any]
    size: int

    def time(self) -> float:
        """How long one run takes."""
        started = time.perf_counter()
        self.program.run(self.given)
        return time.perf_counter() - started


def contestant(weights: Weights, rows: int, name: str) -> Contestant:
    """The products of one input with all matrices, of each the largest element."""
    rng, form = np.random.default_rng(0), BLOCK_FORMATS.get(name)
    b, size = Builder(), 0
    x = b.input(TensorType(dtypes.f32, (rows, weights.inputs)))
    results: list[Value] = []
    for _ in range(weights.layers):
        if form is None:
            matrix = rng.normal(size=(weights.outputs, weights.inputs)).astype(np.float32)
            dense = b.constant(matrix)
        else:
            matrix = drawn_blocks(rng, form, weights.outputs, weights.inputs // form.elements)
            dense = b.block_dequantize(b.constant(matrix), format=name)
        size += matrix.nbytes
        results.append(b.reduce_max(b.matmul(x, b.transpose(dense, perm=(1, 0))), axes=(1,)))
    graph = b.finish(name, [x], results)
    settings = Settings((CpuTarget("exact", DEFAULT), ReferenceTarget()))
    program = compiled(optimized(graph, "exact"), settings).program
    return Contestant(program, [rng.normal(size=(rows, weights.inputs)).astype(np.float32)], size)


def fitting(weights: Weights, formats: list[str]) -> Iterator[str]:
    """The formats in which rows of these weights are whole blocks."""
    return (name for name in formats if weights.inputs % BLOCK_FORMATS[name].elements == 0)


def main() -> None:
    """Print a line for each size, number of rows and format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", default=list(FORMATS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{'weights':20} {'rows':>5} {'format':>7} {'ms':>9} {'GB/s':>7} {'speed':>7} {'bandwidth':>10}")
    for weights in WEIGHTS:
        for rows in ROWS:
            runs = {name: contestant(weights, rows, name) for name in ("f32", *fitting(weights, options.formats))}
            for each in runs.values():
                each.time()
            rounds = [{name: each.time() for name, each in runs.items()} for _ in range(options.rounds)]
            times = {name: statistics.median(each[name] for each in rounds) for name in runs}
            for name, each in runs.items():
                speed, smaller = times["f32"] / times[name], runs["f32"].size / each.size
                figures = f"{times[name] * 1e3:9.3f} {each.size / times[name] / 1e9:7.1f} {speed:7.2f}"
                print(f"{weights!s:20} {rows:5} {name:>7} {figures} {speed / smaller:10.2f}", flush=True)


if __name__ == "__main__":
    main()
