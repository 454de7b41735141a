"""Weights of modules that `torch.compile` made into programs: on targets with memory of their own they go there once,
and again when they have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from assay.ir.dtypes import Array, f32
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.runtime import transfers
from assay.runtime.writes import writes
from assay.targets.base import Target

pytestmark = pytest.mark.skipif(writes() is None, reason="the kernel does not tell of writes: nothing is kept")


class Network(nn.Module):
    """Weights that kernels read as they are: a table, a matrix, biases, factors of norms; and a counter of calls."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear, self.norm = nn.Embedding(50, 24), nn.Linear(24, 36), nn.LayerNorm(36)
        self.scale = nn.Parameter(torch.rand(36))
        self.register_buffer("calls", torch.zeros(36))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return self.norm(self.linear(self.table(tokens)).relu() * self.scale) + self.calls


@pytest.fixture
def uploaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what was moved to a device."""
    shapes: list[tuple[int, ...]] = []
    upload: Callable[[Any, Array], Any] = transfers.Metered.upload

    def noted(self: Any, array: Array) -> Any:
        shapes.append(array.shape)
        return upload(self, array)

    monkeypatch.setattr(transfers.Metered, "upload", noted)
    return shapes


def has_views(target: Target) -> bool:
    """Whether a target takes what stands for a weight that stays there."""
    b = Builder()
    x = b.input(TensorType(f32, (3, 4)))
    return target.support(b.finish("view", [x], [b.reshape(x, [4, 3])]).nodes[0]).ok


def test_weights_are_moved_once(target: Target, uploaded: list[tuple[int, ...]]) -> None:
    if not has_views(target):
        pytest.skip(f"{target.name} has no views")
    torch._dynamo.reset()
    model, tokens = Network().eval(), torch.randint(0, 50, (3, 7))
    compiled = torch.compile(model, backend="assay", options={"target": f"{target.name},cpu"})
    with torch.no_grad():
        for _ in range(3):
            compiled(tokens)
        uploaded.clear()
        found = compiled(tokens)
        model.calls -= 1
        torch.testing.assert_close(found, model(tokens), rtol=0.02, atol=0.02)
        assert set(uploaded) <= {(3, 7), (36,)}, "what a run is given, and the buffer that it writes"
        assert uploaded.count((36,)) <= 1
        uploaded.clear()
        np.asarray(model.scale.detach())[:] *= 2
        found = compiled(tokens)
        model.calls -= 1
        torch.testing.assert_close(found, model(tokens), rtol=0.02, atol=0.02)
