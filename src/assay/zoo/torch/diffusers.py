"""Networks of the diffusers library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.zoo.torch.model import Input, Model, Shape, noise


def _unet(settings: Mapping[str, Any]) -> Any:
    return importlib.import_module("diffusers").UNet2DConditionModel(**settings)


def _step(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """One of the thousand steps from noise to image."""
    return torch.randint(1000, shape, generator=generator)


MODELS = (
    Model(
        name="Stable Diffusion V2",
        library="diffusers",
        family="diffusion",
        constructor="UNet2DConditionModel",
        make=_unet,
        small={
            "sample_size": 16,
            "cross_attention_dim": 24,
            "attention_head_dim": (2, 4, 4, 4),
            "use_linear_projection": True,
            "block_out_channels": (16, 16, 32, 32),
            "layers_per_block": 1,
            "norm_num_groups": 8,
        },
        full={
            "sample_size": 96,
            "cross_attention_dim": 1024,
            "attention_head_dim": (5, 10, 20, 20),
            "use_linear_projection": True,
        },
        inputs={
            "sample": Input(noise, (1, 4, 64, 64), lambda length: (2, 4, length, length)),
            "timestep": Input(_step, (), lambda length: ()),
            "encoder_hidden_states": Input(noise, (1, 77, 1024), lambda length: (2, 7, 24)),
        },
        lengths=(8, 16),
        count=865910724,
    ),
)
