"""What compiling costs: Assay's own time, from aten graph to runnable program, over that of dynamo and AOTAutograd.

Both are taken in the same compilation of the same model, inference graphs, as medians of interleaved rounds: cold with
an empty cache (what is then written to it included), warm with a full one. CPU time stands beside wall time, as other
processes disturb it less.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.nn import functional as F  # noqa: N812

from assay.frontends.torch.decompositions import decompositions
from assay.limits import DEFAULT
from assay.runtime.targets import make_chain
from assay.runtime.torch.backend import Options, compile_graph
from assay.zoo.torch.transformers import library

ROUNDS = 3
COLD, WARM = 1.0, 0.2
"""The most that Assay may take, in parts of dynamo's and AOTAutograd's time."""

Clock = tuple[float, float]
"""Seconds of wall time and of CPU time."""


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((width_in, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.shortcut = nn.Sequential()
        if stride != 1 or width_in != 4 * width:
            self.shortcut.extend([nn.Conv2d(width_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)])

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = norm(convolution(y))
            y = F.relu(y) if index < 2 else y
        return F.relu(y + self.shortcut(x))


class ResNet50(nn.Module):
    """The ResNet of 50 layers."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        width_in = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                blocks.append(Bottleneck(width_in, width, stride if index == 0 else 1))
                width_in = 4 * width
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        self.body = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@dataclass
class Case:
    """A model with its inputs, and what was measured: dynamo with AOTAutograd, Assay cold, Assay warm."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[nn.Module], dict[str, Any]]
    dynamic: bool = False
    model: nn.Module | None = None
    times: dict[str, list[Clock]] = field(default_factory=lambda: {"frame": [], "cold": [], "warm": []})


def bert() -> nn.Module:
    """BERT-base."""
    return library().BertModel(library().BertConfig())


def gpt2() -> nn.Module:
    """GPT-2 of 124 million parameters."""
    return library().GPT2LMHeadModel(library().GPT2Config())


def one_more_token(model: Any) -> dict[str, Any]:
    """A decode step after 16 tokens, which are in the cache of keys and values."""
    past = library().DynamicCache(config=model.config)
    for layer in range(model.config.n_layer):
        past.update(*(torch.randn(1, 12, 16, 64) for _ in range(2)), layer)
    return {"input_ids": torch.ones(1, 1, dtype=torch.long), "past_key_values": past, "use_cache": True}


CASES = (
    Case("BERT-base", bert, lambda _: {"input_ids": torch.ones(1, 128, dtype=torch.long)}),
    Case("ResNet-50", ResNet50, lambda _: {"x": torch.randn(1, 3, 224, 224)}),
    Case("GPT-2 decode step", gpt2, one_more_token, dynamic=True),
)


def empty(make: Callable[[], nn.Module]) -> nn.Module:
    """The model with zeros for weights: only the graph matters."""
    with torch.device("meta"):
        model = make().eval().requires_grad_(False)
    model = model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.zero_()
    return model


def now() -> Clock:
    return time.perf_counter(), time.process_time()


def since(start: Clock, *less: Clock) -> Clock:
    wall, cpu = (end - begin for end, begin in zip(now(), start, strict=True))
    return wall - sum(each[0] for each in less), cpu - sum(each[1] for each in less)


def measure(case: Case) -> None:
    """One compilation of the model, in which Assay compiles its graph twice: cold, then warm."""
    assert case.model is not None
    chain = make_chain("reference", "exact", DEFAULT)
    inside: list[Clock] = []
    ready: list[Clock] = []

    def compiler(module: Any, examples: Sequence[Any]) -> Any:
        entered = now()
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("cold", "warm"):
                gc.collect()
                begun = now()
                compile_graph(module, Options(cache=folder), chain)
                case.times[kind].append(since(begun))
        inside.append(since(entered))

        def first_run(*arguments: Any) -> Any:
            ready.append(since(started, *inside))
            return module.forward(*arguments)

        return make_boxed_func(first_run)

    def backend(module: Any, inputs: Sequence[Any]) -> Any:
        compilers = {"fw_compiler": compiler, "inference_compiler": compiler}
        return aot_autograd(**compilers, decompositions=decompositions())(module, inputs)

    torch._dynamo.reset()
    inputs = case.inputs(case.model)
    gc.collect()
    started = now()
    with torch.no_grad():
        torch.compile(case.model, backend=backend, dynamic=case.dynamic, fullgraph=True)(**inputs)
    case.times["frame"] += ready


def report(case: Case) -> None:
    """Print the ratios of one model."""
    middle = {
        kind: [statistics.median(clock) for clock in zip(*clocks, strict=True)] for kind, clocks in case.times.items()
    }
    frame = middle.pop("frame")
    for (kind, times), bar in zip(middle.items(), (COLD, WARM), strict=True):
        ratios = [mine / theirs for mine, theirs in zip(times, frame, strict=True)]
        print(
            f"{case.name}, {kind} cache: ratio {ratios[0]:.3f}, in CPU time {ratios[1]:.3f} (at most {bar}); "
            f"Assay {times[0] * 1e3:.0f} ms, dynamo and AOTAutograd {frame[0] * 1e3:.0f} ms"
        )


def main() -> None:
    """Measure and print."""
    for case in CASES:
        case.model = empty(case.make)
    for _ in range(ROUNDS):
        for case in CASES:
            measure(case)
    for case in CASES:
        report(case)


if __name__ == "__main__":
    main()
