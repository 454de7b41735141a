"""Training through Assay: losses, gradients, optimizer steps and two processes, against eager from the same start."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.nn import functional as F  # noqa: N812

from assay.runtime.torch.graphs import recording


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Convolutional(nn.Sequential):
    """A small image classifier with everything that training asks for."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(2)),
            *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 5)),
        )


class Recurrent(nn.Module):
    """An embedding, an LSTM and a classifier of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cells, self.out = nn.Embedding(11, 6), nn.LSTM(6, 7, batch_first=True), nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.cells(self.embedding(x))[0][:, -1])


class Transformer(nn.Module):
    """One encoder layer over an embedded sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu")
        self.out = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(self.embedding(x)).mean(1))


def _images() -> torch.Tensor:
    return torch.randn(6, 1, 12, 12)


def _words() -> torch.Tensor:
    return torch.randint(0, 11, (6, 9))


MODELS: list[tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = [
    (Convolutional, _images),
    (Recurrent, _words),
    (Transformer, _words),
]
OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.AdamW(
        p, lr=0.01, eps=1e-3
    ),  # a small eps would magnify gradients that are zero but for rounding
]


@pytest.mark.parametrize(("build", "inputs"), MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adamw"])
def test_training_follows_eager(
    build: Callable[[], nn.Module],
    inputs: Callable[[], torch.Tensor],
    optimizer: Callable[[Any], torch.optim.Optimizer],
) -> None:
    theirs = build()
    mine = copy.deepcopy(theirs)
    batches = [(inputs(), torch.randint(0, 5, (6,))) for _ in range(4)]
    with recording() as graphs, torch._dynamo.config.patch(allow_rnn=True):
        losses = _train(mine, torch.compile(mine, backend="assay"), optimizer, batches)
    assert {"forward", "backward"} <= {graph.phase for graph in graphs}
    assert losses == pytest.approx(_train(theirs, theirs, optimizer, batches), rel=1e-4)
    for (name, a), (_, b) in zip(mine.state_dict().items(), theirs.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def _train(model: nn.Module, run: Callable[..., Any], make: Callable[[Any], Any], batches: Any) -> list[float]:
    optimizer, losses = make(model.parameters()), []
    torch.manual_seed(5)
    for x, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adamw"])
def test_the_optimizers_step_itself(optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
    theirs = nn.Linear(4, 3)
    mine = copy.deepcopy(theirs)
    steps: list[Callable[[], Any]] = []
    for model in (mine, theirs):
        steps.append(optimizer(model.parameters()).step)
    with recording() as graphs:
        compiled = torch.compile(steps[0], backend="assay")
        for _ in range(3):
            for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone()
            compiled()
            steps[1]()
    assert graphs, "dynamo handed over no graph"
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


WRITES: dict[str, Callable[[torch.nn.Parameter], Any]] = {
    "added to": lambda p: p.add_(1),
    "written in part": lambda p: p[1:].fill_(2),
    "through data": lambda p: p.data.mul_(0.5),
    "through a detached view": lambda p: p.detach().view(-1)[0].add_(3),
}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("used", ["not", "detached", "before", "after"])
@pytest.mark.parametrize("write", WRITES)
def test_a_parameter_that_is_written_has_the_gradient_that_eager_gives_it(write: str, used: str, target: str) -> None:
    """None if nothing of it is used: optimizers step over such parameters."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.counter = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.weight + (self.counter * 2 if used == "before" else 0)
            with torch.no_grad():
                WRITES[write](self.counter)
            return y + {"after": self.counter, "detached": self.counter.detach()}.get(used, 0)

    torch._dynamo.reset()
    told: list[Any] = []
    for compiled in (False, True):
        model = Model()
        run = torch.compile(model, backend="assay", options={"target": target}) if compiled else model
        for step in (1.0, 2.0):
            run(torch.full((3,), step)).sum().backward()
        told.append([model.counter.detach(), model.counter.grad, model.weight.grad])
    assert (told[0][1] is None) == (used in ("not", "detached"))
    for mine, theirs in zip(told[1], told[0], strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs)


def test_gradients_of_gradients_that_eager_refuses_are_refused() -> None:
    x = torch.randn(3, requires_grad=True)
    y = torch.compile(lambda x: (x**3).sum(), backend="assay")(x)
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


# --- two processes


class Feedforward(nn.Module):
    """Dynamo compiles what stands in the user's own modules, so this is one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.gelu(self.first(x)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _worker(rank: int, port: int, x: torch.Tensor, labels: torch.Tensor, results: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Feedforward()
    parallel = nn.parallel.DistributedDataParallel(model)
    run = torch.compile(parallel, backend="assay")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording() as graphs:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(run(x[rank::2]), labels[rank::2]).backward()
            optimizer.step()
    results[rank] = ([p.detach().clone() for p in model.parameters()], [graph.phase for graph in graphs])
    dist.destroy_process_group()


def test_two_processes_give_the_weights_of_one_with_the_joint_batch() -> None:
    x, labels = torch.randn(8, 6), torch.randint(0, 3, (8,))
    with processes.Manager() as manager:
        results = manager.dict()
        processes.spawn(_worker, (_free_port(), x, labels, results), nprocs=2)  # type: ignore[no-untyped-call]
        mine = [results[rank] for rank in range(2)]
    torch.manual_seed(0)
    model = Feedforward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
    for weights, phases in mine:
        assert {"forward", "backward"} <= set(phases)
        for a, b in zip(weights, model.parameters(), strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-5, atol=1e-6)
