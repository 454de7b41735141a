"""Checkpoints: files of weights without a graph. `open_checkpoint` reads every kind, and runs nothing of them;
`load_model` makes graphs of those whose family has a recipe.

Recipes are imported with what needs them: who reads a file alone takes none."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.frontends.checkpoint.imported import ImportedModel as ImportedModel
from assay.frontends.checkpoint.imported import TokenizerSource as TokenizerSource
from assay.frontends.checkpoint.reading import is_checkpoint as is_checkpoint
from assay.frontends.checkpoint.reading import open_checkpoint as open_checkpoint
from assay.frontends.checkpoint.stored import Checkpoint as Checkpoint
from assay.frontends.checkpoint.stored import StoredTensor as StoredTensor

if TYPE_CHECKING:
    from assay.frontends.checkpoint.bundle import save_bundle as save_bundle
    from assay.frontends.checkpoint.models import load_model as load_model

_LAZY = {"load_model": "models", "save_bundle": "bundle"}


def __getattr__(name: str) -> Any:
    """What takes recipes, when it is first used."""
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
