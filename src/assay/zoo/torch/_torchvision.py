"""torchvision where its compiled part does not load: a build for CUDA beside a torch for the CPU."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

_MISSING = ("nms", "qnms")
"""The operators that `import torchvision` demands, and with it `import transformers`."""


@cache
def declare_operators() -> Any:
    """Declare what torchvision asks for at import, unless its own library gives it; None where nothing is needed.

    To be called before torchvision, timm, diffusers or transformers are imported. Of the operators, `nms` can be run;
    what graphs have to know of its result, torchvision itself tells.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations or _loads(Path(spec.submodule_search_locations[0], "_C.so")):
        return None
    library = cast(Any, torch.library).Library("torchvision", "DEF")
    for name in _MISSING:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    return library


def torchvision(module: str) -> Any:
    """A module of torchvision, which then takes the declared operators for its own."""
    if declare_operators() is not None:
        importlib.import_module("torchvision.extension").__dict__["_has_ops"] = lambda: True
    return importlib.import_module(f"torchvision.{module}")


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of the boxes (x1, y1, x2, y2) that no better one overlaps by more than the threshold, best first."""
    order = scores.argsort(descending=True, stable=True)
    low, high = np.split(dets.detach()[order].numpy(), 2, 1)
    areas = (high - low).prod(1)
    kept: list[int] = []
    alive = np.ones(len(order), bool)
    for index in range(len(order)):
        if alive[index]:
            kept.append(index)
            sides = np.minimum(high[index], high) - np.maximum(low[index], low)
            shared = np.maximum(sides, 0).prod(1)
            alive &= shared <= iou_threshold * (areas[index] + areas - shared)
    return order[torch.tensor(kept, dtype=torch.long)]


def _loads(library: Path) -> bool:
    if not library.is_file():
        return False
    try:
        cast(Any, torch.ops).load_library(library)
    except OSError:
        return False
    return True
