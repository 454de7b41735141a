"""Tasks with known answers, for models with the weights that they were trained to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.zoo.files import package_file
from assay.zoo.torch.model import Inputs, Task

_PHOTOGRAPHS = {"chelsea.png": 285, "coffee.png": 967, "camera.png": 872}
"""Photographs that scikit-image carries, with ImageNet's numbers of what they show: Egyptian cat, espresso, tripod."""
_SHORT_SIDE = 256
_CROP = 224

Channels = tuple[float, float, float]


def photographs(mean: Channels, deviation: Channels, filter: Image.Resampling) -> Task:
    """Tell what photographs show: the middle of each, shrunk by a filter, without the channels' mean and deviation."""
    return Task(partial(_photographs, mean, deviation, filter), classified)


def _photographs(mean: Channels, deviation: Channels, filter: Image.Resampling) -> list[Inputs]:
    return [{"x": _pixels(name, filter).sub(_planes(mean)).div(_planes(deviation))} for name in _PHOTOGRAPHS]


def _planes(channels: Channels) -> Tensor:
    return torch.tensor(channels)[:, None, None]


def _pixels(name: str, filter: Image.Resampling) -> Tensor:
    """The middle of a photograph as (1, 3, 224, 224), from 0 to 1."""
    picture = Image.open(package_file("skimage", f"data/{name}")).convert("RGB")
    scale = _SHORT_SIDE / min(picture.size)
    width, height = (int(side * scale) for side in picture.size)
    left, top = round((width - _CROP) / 2), round((height - _CROP) / 2)
    shown = picture.resize((width, height), filter).crop((left, top, left + _CROP, top + _CROP))
    return torch.tensor(np.asarray(shown, np.float32) / 255).permute(2, 0, 1)[None].contiguous()


def classified(answers: Sequence[Any]) -> dict[str, float]:
    """The part of the photographs whose class has the highest score, and one of the five highest."""
    best = [answer[0].topk(5).indices.tolist() for answer in answers]
    ranks = [
        found.index(wanted) if wanted in found else 5 for found, wanted in zip(best, _PHOTOGRAPHS.values(), strict=True)
    ]
    return {f"top{k}": sum(rank < k for rank in ranks) / len(ranks) for k in (1, 5)}
