"""What the tests of PyTorch models share: a clean compiler, and the proof that Assay did the work."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from assay.runtime.torch.graphs import CompiledGraph, observing, recording
from assay.targets.base import Event


@dataclass
class Work:
    """What Assay did: the graphs that it compiled and how many of their nodes it ran."""

    graphs: list[CompiledGraph] = field(default_factory=list[CompiledGraph])
    nodes_run: int = 0

    def opaque(self) -> set[str]:
        """The aten ops that torch ran instead of Assay."""
        nodes = (node for graph in self.graphs for node in graph.lowered.walk())
        return {node.attrs["target"] for node in nodes if node.op == "opaque"}


@contextmanager
def watched() -> Generator[Work]:
    """Notes what Assay does inside."""
    work = Work()

    def note(event: Event) -> None:
        work.nodes_run += 1

    with recording() as graphs, observing(note), torch.no_grad():
        work.graphs = graphs
        yield work


@pytest.fixture(autouse=True)
def clean_compiler() -> Generator[None]:
    """No graph of another test; floats are constants at once, where dynamo else finds that out and starts again."""
    torch._dynamo.reset()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(specialize_float=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def tensors(outcome: Any) -> list[torch.Tensor]:
    """The tensors of a model's result; the caches in it are left out."""
    parts = tuple(outcome.values()) if hasattr(outcome, "values") else outcome
    return [leaf for leaf in tree_leaves(parts) if isinstance(leaf, torch.Tensor)]
