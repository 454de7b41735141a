"""What tests of hostile `.pt2` files share: a sound one, ways to change it, and what reading one must end with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frontends.torch.archives import Entry
from torch import Tensor, nn

import assay
from assay.errors import AssayError


class Model(nn.Module):
    """A weight, a buffer, a constant and a dynamic size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_buffer("shift", torch.ones(3))
        self.fixed = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.shift * self.fixed + x.shape[0]


X = np.ones((4, 3), np.float32)


def refusal(read: Callable[[], Any]) -> AssayError | None:
    """The error that reading a file ends with, which must be a typed one with a place and a hint; None without."""
    try:
        read()
    except AssayError as error:
        refused = error
    else:
        return None
    assert refused.where
    assert refused.hint
    return refused


def load_or_refuse(path: Path) -> AssayError | None:
    """The refusal of a file; None if it was loaded, and then it computes what the sound one does."""
    found: list[assay.Session] = []
    refused = refusal(lambda: found.append(assay.load(path)))
    for session in found:
        (result,) = session.run({"x": X}).values()
        np.testing.assert_allclose(result, Model()(torch.from_numpy(X)).detach().numpy())
    return refused


Records = dict[str, bytes]


PROGRAM = "models/model.json"


WEIGHTS = "data/weights/model_weights_config.json"


def edited(records: Records, name: str, change: Callable[[Any], None]) -> Records:
    document = json.loads(records[name])
    change(document)
    return {name: json.dumps(document).encode()}


Archive = tuple[list[Entry], dict[str, bytes]]


def replaced(clean: list[Entry], evil: list[Entry]) -> Archive:
    names = {entry.name for entry in evil}
    return [*(entry for entry in clean if entry.name not in names), *evil], {}
