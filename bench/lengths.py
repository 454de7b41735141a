"""One artifact for every length: GPT-2 small over 1 to 512 tokens, compiled once.

Each length is compared with torch eager. Prints the median time of both, and Assay's time per operation in parts of
that at 512 tokens: where it stays near 1, time grows as the work does. A few tokens cost more than their operations,
as every weight has to be read for them.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import torch

import assay
from assay.runtime.session import SessionOptions
from assay.targets.cpu.toolchain import Toolchain
from assay.zoo.torch.workloads import WORKLOADS

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512)
ROUNDS = 7


class Logits(torch.nn.Module):
    """The model with one named input and one output."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=input_ids).logits


def main() -> None:
    """Measure and print."""
    workload = WORKLOADS["gpt2-small"]
    module = workload.build()
    example = workload.example(module)
    length = {"input_ids": {1: torch.export.Dim("tokens", min=1, max=1024)}}
    with torch.no_grad():
        program = torch.export.export(Logits(module), (), example, strict=False, dynamic_shapes=length)
        session = assay.load(program, SessionOptions(target="cpu"))
        compiled = count_compilations()
        ids = {n: torch.randint(3, module.config.vocab_size, (1, n)) for n in LENGTHS}
        errors = {n: error(session, module, ids[n]) for n in LENGTHS}
        times = measured(session, module, ids)
    elsewhere = [node for node in session.explain().nodes if node.target != "cpu"]
    print(f"GPT-2 small, {torch.get_num_threads()} threads: {compiled()} kernels compiled after loading,", end=" ")
    print(f"{len(elsewhere)} nodes elsewhere than on cpu")
    print("tokens  Assay, ms  eager, ms  eager ÷ Assay  time ÷ work  error")
    full = times[LENGTHS[-1]][0] / work(module.config, LENGTHS[-1])
    for n, (mine, theirs) in times.items():
        per_work = mine / work(module.config, n) / full
        row = f"{n:6}  {mine * 1e3:9.2f}  {theirs * 1e3:9.2f}  {theirs / mine:13.2f}  {per_work:11.2f}  {errors[n]:.1e}"
        print(row)


def count_compilations() -> Callable[[], int]:
    """A function that tells how many kernels were asked for since now."""
    asked = 0
    load = Toolchain.load

    def counting(self: Toolchain, kernels: list[object]) -> object:
        nonlocal asked
        asked += len(kernels)
        return load(self, kernels)  # pyright: ignore[reportArgumentType]

    Toolchain.load = counting  # pyright: ignore[reportAttributeAccessIssue]
    return lambda: asked


def error(session: assay.Session, module: torch.nn.Module, ids: torch.Tensor) -> float:
    """The largest error of the logits in parts of the largest of them."""
    mine = next(iter(session.run({session.input_names[0]: ids.numpy()}).values()))
    theirs = module(input_ids=ids).logits.numpy()
    return float(np.abs(mine - theirs).max() / np.abs(theirs).max())


def measured(
    session: assay.Session, module: torch.nn.Module, ids: dict[int, torch.Tensor]
) -> dict[int, tuple[float, float]]:
    """Median seconds of Assay and of eager for each length, all in turns."""
    times: dict[int, tuple[list[float], list[float]]] = {n: ([], []) for n in ids}
    name = session.input_names[0]
    for _ in range(ROUNDS):
        for n, tokens in ids.items():
            mine, theirs = times[n]
            mine.append(seconds(partial(session.run, {name: tokens.numpy()})))
            theirs.append(seconds(partial(module, input_ids=tokens)))
    return {n: (statistics.median(mine), statistics.median(theirs)) for n, (mine, theirs) in times.items()}


def seconds(run: Callable[[], object]) -> float:
    """What the second of two runs takes."""
    run()
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def work(config: object, tokens: int) -> float:
    """The floating-point operations of one inference."""
    width, layers, vocabulary = (getattr(config, key) for key in ("n_embd", "n_layer", "vocab_size"))
    return 2.0 * tokens * (layers * (12 * width * width + 2 * tokens * width) + width * vocabulary)


if __name__ == "__main__":
    main()
