"""The sessions of this checkout beside those of another one: what a change did to speed and start.

Both get the same ONNX file and inputs, each in a process of its own that finds its own sources. Sessions take turns; a
figure is the median over the rounds of the other's time divided by this one's, so above 1 this one is faster. Cold and
warm starts (loading and a first run, with an empty cache and with what the first start left there) take turns too, and
are told the other way round: this one's time divided by the other's. Outputs must agree. By default all models of the
suite.

    python tools/checkouts.py FOLDER [MODEL ...] [--rounds N] [--starts N]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.evidence.bench.models import BenchModel, make_material
from assay.zoo.torch.workloads import SUITES

HERE = Path(__file__).parents[1]
TURN = 0.3
"""Seconds that one of them runs before the next has its turn."""

CHILD = """
import json, statistics, sys, time
import numpy as np
import onnx, assay
path, data = sys.argv[1:]
inputs = [*np.load(data).values()]
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
session = assay.load(path)
feeds = dict(zip(session.input_names, inputs))
outputs = session.run(feeds)
print(json.dumps(time.perf_counter() - began), flush=True)
np.savez(sys.stdin.readline().strip(), *[np.asarray(each) for each in outputs.values()])
print("saved", flush=True)
for line in sys.stdin:
    session.run(feeds)
    times = []
    while sum(times) < float(line) or len(times) < 3:
        started = time.perf_counter()
        session.run(feeds)
        times.append(time.perf_counter() - started)
    print(json.dumps(statistics.median(times)), flush=True)
"""


class Checkout:
    """A process with the sources of one checkout that has the libraries imported, and waits to be told to load."""

    def __init__(self, root: Path, cache: Path, model: Path, inputs: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "ASSAY_CACHE_DIR": str(cache)}
        command = [sys.executable, "-c", CHILD, str(model), str(inputs)]
        self._process = subprocess.Popen(
            command, env=environment, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._heard() == "ready"

    def asked(self, text: str) -> str:
        """What it says to a line."""
        assert self._process.stdin is not None
        print(text, file=self._process.stdin, flush=True)
        return self._heard()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a process ended with {self._process.wait()}")
        return line.strip()

    def end(self) -> None:
        """Let it go."""
        self._process.communicate()


def compared(name: str, other: Path, rounds: int, starts: int) -> dict[str, float]:
    """The figures of one model."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        material, _ = make_material(BenchModel(name), folder, with_onnx=True)
        assert material.onnx is not None, material.missing
        sides = {"this": HERE, "other": other}
        inputs = next(folder.glob("*.npz"))
        began: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
        runs: dict[str, Checkout] = {}
        for number in range(starts):
            for temperature, times in began.items():
                for run in runs.values():
                    run.end()
                caches = {side: folder / f"{side}-{number}" for side in sides}
                runs = {side: Checkout(sides[side], caches[side], material.onnx, inputs) for side in sides}
                order = sorted(runs, reverse=bool(number % 2))
                times.append({side: json.loads(runs[side].asked("load")) for side in order})
                outputs = {side: _outputs(run, folder / f"{side}.npz") for side, run in runs.items()}
                _agree(name, temperature, outputs["this"], outputs["other"])
        turns = [{side: json.loads(run.asked(str(TURN))) for side, run in runs.items()} for _ in range(rounds)]
        for run in runs.values():
            run.end()
    speed = statistics.median(each["other"] / each["this"] for each in turns)
    ratios = {key: statistics.median(each["this"] / each["other"] for each in times) for key, times in began.items()}
    return {"speed": speed, **ratios}


def _outputs(run: Checkout, path: Path) -> list[Any]:
    run.asked(str(path))
    return [*np.load(path).values()]


def _agree(name: str, when: str, some: Sequence[Any], others: Sequence[Any]) -> None:
    """SystemExit unless outputs are equal but for rounding."""
    for one, two in zip(some, others, strict=True):
        if not np.allclose(one, two, rtol=1e-3, atol=1e-4 * float(np.abs(two).max(initial=0))):
            raise SystemExit(f"{name}: the outputs of the two differ ({when})")


def main() -> None:
    """Print a line for each model, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("models", nargs="*", default=list(SUITES["cpu"]))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    columns = ("speed", "cold", "warm")
    print(f"{'':22}", *(f"{column:>8}" for column in columns))
    rows: list[dict[str, float]] = []
    for name in options.models:
        rows.append(compared(name, options.other.resolve(), options.rounds, options.starts))
        print(f"{name:22}", *(f"{rows[-1][column]:8.3f}" for column in columns), flush=True)
    means = (math.exp(statistics.fmean(math.log(row[column]) for row in rows)) for column in columns)
    print(f"{'geometric mean':22}", *(f"{mean:8.3f}" for mean in means))


if __name__ == "__main__":
    main()
