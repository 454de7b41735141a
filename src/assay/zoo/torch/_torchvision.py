"""torchvision where its compiled part does not load: a build for CUDA beside a torch for the CPU."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch

_MISSING = ("nms", "qnms")
"""The operators that `import torchvision` demands, and with it `import transformers`."""


@cache
def declare_operators() -> Any:
    """Declare what torchvision asks for at import, unless its own library gives it; None where nothing is needed.

    To be called before torchvision or transformers are imported. The declared operators have no kernels.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations or _loads(Path(spec.submodule_search_locations[0], "_C.so")):
        return None
    library = cast(Any, torch.library).Library("torchvision", "DEF")
    for name in _MISSING:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def _loads(library: Path) -> bool:
    if not library.is_file():
        return False
    try:
        cast(Any, torch.ops).load_library(library)
    except OSError:
        return False
    return True
