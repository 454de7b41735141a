"""What a declared model is, and how its weights are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

Variant = Literal["small", "full"]
Inputs = dict[str, torch.Tensor]

_QUERY = 0.125
"""1/√64, as 64 is the usual size of a head."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model: how it is made, of what size, and what it is called with."""

    name: str
    family: str
    make: Callable[[Mapping[str, Any]], Any]
    """From a configuration to a module."""
    inputs: Callable[[Any, int, torch.Generator], Inputs]
    """Keyword inputs for a module at a length (of text, of sound, of an image's side)."""
    small: Mapping[str, Any]
    full: Mapping[str, Any]
    lengths: tuple[int, ...]
    """Lengths that the small variant takes, all different from its other sizes."""
    unscaled: str = "no such weight"
    """How the names of query projections end whose attention divides by no √size: their weights must do that."""

    def build(self, variant: Variant = "small", seed: int = 0) -> Any:
        """The module in eval mode; equal arguments give equal weights."""
        module = self.make(self.small if variant == "small" else self.full).eval()
        fill(module, seed, self.unscaled)
        return module

    def example(self, module: Any, length: int, seed: int = 0) -> Inputs:
        """Inputs of a length; equal arguments give equal inputs."""
        return self.inputs(module, length, torch.Generator().manual_seed(seed))


@torch.no_grad()
def fill(module: nn.Module, seed: int, unscaled: str) -> None:
    """Random parameters that keep a signal's size: matrices by their fan-in, scales near 1, biases near 0.

    Unlike the usual initial weights these make outputs differ clearly, so that a choice of the largest is not a tie.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            spread = (parameter.shape[0] / parameter.numel()) ** 0.5 * (_QUERY if name.endswith(unscaled) else 1.0)
            parameter.normal_(0, spread, generator=generator)
        else:
            parameter.normal_(1.0 if name.endswith("weight") else 0.0, 0.1, generator=generator)
