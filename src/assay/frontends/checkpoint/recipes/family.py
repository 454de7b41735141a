"""What a family of models is to the importer: how its files are told, read and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.network import GraphOptions, Naming, Tensors
from assay.ir.graph import Graph

HUGGING_FACE, GGUF, TORCH = "folder", "gguf", "torch"
"""Kinds of checkpoints."""


@dataclass(frozen=True)
class FileLayout:
    """One form in which files hold models of a family.

    `kind` is that of the checkpoint. `architectures` are the words by which a configuration names such models; files
    of torch have none, and are told by a tensor that they have, `mark`. `read` makes the typed configuration of what
    the file says; `naming` is how it calls tensors. Tensors that match a pattern in `ignored` are left aside.
    """

    kind: str
    read: Callable[[Fields, Tensors], Any]
    architectures: tuple[str, ...] = ()
    mark: str = ""
    naming: Naming = str
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """A family of models: its name, the forms of its files, and what makes its graphs, by name."""

    name: str
    layouts: tuple[FileLayout, ...]
    build: Callable[[Tensors, Any, GraphOptions], Mapping[str, Graph]]
