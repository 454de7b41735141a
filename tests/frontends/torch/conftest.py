"""What tests of the torch front end share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from frontends.torch.hostile import (
    Model,
)
from torch.export import Dim, export


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "model.pt2"
    torch.export.save(export(Model(), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n")},)), path)
    return path


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What appears if something of a file was executed."""
    return tmp_path / "mark"
