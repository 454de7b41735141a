"""What it costs that weights may change: torch.compile beside the session of the same model's exported program.

The ways of torch.compile (as it comes, `frozen`, and without the kernel's account of writes, where nothing is kept) and
the session take turns in one process; a figure is the median over the rounds of the quotient within a round. By
default all models of the suite.

The column `torch` is what no backend can change: the session, and beside it torch.compile with a backend that computes
nothing, so guards and wrappers alone. These are looked at after a run of the session, as they would be in earnest: what
they read has to come from memory again.

    python bench/weights.py [MODEL ...] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

import assay
from assay.evidence.bench.models import BenchModel, arrays, torch_model
from assay.frontends.torch.private.dynamo import aot_autograd, boxed
from assay.zoo.torch.workloads import SUITES, Plain

WAYS: dict[str, dict[str, Any]] = {"default": {}, "frozen": {"frozen": True}, "untracked": {"tracking": False}}
TURN = 0.3
"""Seconds that one of them runs before the next has its turn."""


def turn(run: Callable[[], Any]) -> float:
    """The median time of a call."""
    run()
    times: list[float] = []
    while sum(times) < TURN or len(times) < 3:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def shell(module: torch.nn.Module) -> Callable[..., Any]:
    """A module compiled by a backend that hands out the results of its first call again and again."""

    def hand_out(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        results: list[Any] = []

        @boxed
        def run(arguments: list[Any]) -> list[Any]:
            if not results:
                results.extend(graph(*arguments))
            arguments.clear()
            return list(results)

        return run

    def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return aot_autograd(fw_compiler=hand_out, inference_compiler=hand_out)(graph, examples)

    return torch.compile(module, backend=backend, dynamic=False)


def contestants(name: str) -> dict[str, Callable[[], Any]]:
    """The same model in every way."""
    module, args, kwargs = torch_model(BenchModel(name))
    session = assay.load(torch.export.export(Plain(module), args, kwargs, strict=False))
    feeds = dict(zip(session.input_names, arrays((args, kwargs)), strict=True))
    idle = shell(module)
    found: dict[str, Callable[[], Any]] = {
        "session": lambda: session.run(feeds),
        "torch": lambda: (session.run(feeds), idle(*args, **kwargs)),
    }
    for way, options in WAYS.items():
        compiled = torch.compile(module, backend="assay", options=options, dynamic=False)
        found[way] = lambda compiled=compiled: compiled(*args, **kwargs)
    return found


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SUITES["cpu"]))
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print(f"{'':22} {'session, ms':>12}", *(f"{way:>9}" for way in ("torch", *WAYS)))
    for name in options.models:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            runs = contestants(name)
            rounds = [{way: turn(run) for way, run in runs.items()} for _ in range(options.rounds)]
        ratios = {way: statistics.median(each[way] / each["session"] for each in rounds) for way in runs}
        session = statistics.median(each["session"] for each in rounds) * 1e3
        print(f"{name:22} {session:12.3f}", *(f"{ratios[way]:9.3f}" for way in ("torch", *WAYS)), flush=True)


if __name__ == "__main__":
    main()
