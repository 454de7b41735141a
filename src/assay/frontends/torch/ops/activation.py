"""aten activations that arrive whole and are no plain elementwise op."""

from __future__ import annotations

from typing import Any

from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir.graph import Value


@aten("aten.rrelu_with_noise_functional.default")
def rrelu(
    b: Builder,
    n: Call,
    x: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Results:
    if training:
        raise ValueError("in training the slopes come from torch's generator")
    return b.leaky_relu(x, slope=(float(lower) + float(upper)) / 2), noise
