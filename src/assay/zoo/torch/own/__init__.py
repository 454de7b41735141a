"""Networks that no library carries, written here: each small, in its own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.zoo.torch.model import Input, Model, image, noise
from assay.zoo.torch.own.autoencoder import ConvolutionalAutoencoder, LinearAutoencoder
from assay.zoo.torch.own.hand import HandLandmarks
from assay.zoo.torch.own.hardnet import HardNet
from assay.zoo.torch.own.mixer import MlpMixer
from assay.zoo.torch.own.mnist import Mnist
from assay.zoo.torch.own.unet import BrainUnet, CarvanaUnet


def _digits_loss(outputs: Tensor) -> Tensor:
    """How far the logarithms of probabilities are from digits that each image stands for."""
    return functional.nll_loss(outputs, torch.arange(len(outputs)) * 7 % 10)


def _own(
    name: str, family: str, kind: Callable[..., nn.Module], count: int, inputs: Mapping[str, Input], **more: Any
) -> Model:
    """A network of ours; its class is the full one unless it is told other sizes."""

    def make(settings: Mapping[str, Any]) -> nn.Module:
        return kind(**settings)

    return Model(
        name=name,
        library="own",
        family=family,
        constructor=kind.__name__,
        make=make,
        small=more.pop("small", {}),
        full={},
        inputs=inputs,
        count=count,
        **more,
    )


MODELS = (
    _own("Autoencoder (conv)", "autoencoder", ConvolutionalAutoencoder, 1495, {"x": image(64)}, lengths=(16, 24)),
    _own(
        "Autoencoder (linear)",
        "autoencoder",
        LinearAutoencoder,
        219891,
        {"x": Input(noise, (1, 784), lambda length: (length, 784))},
        lengths=(2, 5),
    ),
    _own(
        "Mnist",
        "mnist",
        Mnist,
        1199882,
        {"x": image(28, channels=1, small=4)},
        lengths=(28,),
        small={"channels": (4, 8), "hidden": 16},
        train_batch=64,
        loss=_digits_loss,
    ),
    _own(
        "HardNet",
        "hardnet",
        HardNet,
        17565348,
        {"x": image(224)},
        lengths=(64,),
        small={
            "stem": (8, 12),
            "widths": (16, 24, 32, 40, 48),
            "growth": (4, 4, 6, 6, 8),
            "layers": (4, 4, 4, 4, 4),
            "classes": 10,
        },
    ),
    _own(
        "MLPMixer",
        "mixer",
        MlpMixer,
        10394088,
        {"x": image(256)},
        lengths=(32,),
        small={"side": 32, "patch": 8, "width": 32, "depth": 2, "classes": 10},
    ),
    _own(
        "U-Net",
        "unet",
        BrainUnet,
        7763041,
        {"x": image(256)},
        lengths=(32, 48),
        small={"width": 4},
        aliases=("Unet-brain",),
    ),
    _own(
        "Unet-carvana",
        "unet",
        CarvanaUnet,
        31037698,
        {"x": image(224)},
        lengths=(32, 48),
        small={"width": 4},
    ),
    _own(
        "Hand Landmark",
        "blaze",
        HandLandmarks,
        561833,
        {"x": image(256, small=1)},
        lengths=(64, 96),
        small={"width": 8},
    ),
)
