"""A record of the graphs that the torch backend compiles, for those who want to look at them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from torch import fx

from assay.frontends.torch.importer import Imported
from assay.ir.graph import Graph
from assay.ops.lowering import lower
from assay.runtime.placement import Placement
from assay.runtime.program import Program
from assay.targets.base import Observer

Phase: TypeAlias = Literal["inference", "forward", "backward"]


@dataclass(frozen=True)
class CompiledGraph:
    """One aten graph on its way: as torch gave it, imported, and placed.

    `prelude` holds what depends on parameters alone and runs only when one of them has changed.
    """

    phase: Phase
    fx: fx.GraphModule
    imported: Imported
    program: Program
    prelude: Program | None = None

    @cached_property
    def lowered(self) -> Graph:
        """The graph in core ops before the passes."""
        return lower(self.imported.graph, self.imported.facts)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where every core node runs, those of the prelude first."""
        early = () if self.prelude is None else self.prelude.plan.placements
        return (*early, *self.program.plan.placements)


_recorders: ContextVar[tuple[list[CompiledGraph], ...]] = ContextVar("recorders", default=())


@contextmanager
def recording() -> Generator[list[CompiledGraph]]:
    """Inside, every graph that the backend compiles is added to the list that this gives."""
    graphs: list[CompiledGraph] = []
    token = _recorders.set((*_recorders.get(), graphs))
    try:
        yield graphs
    finally:
        _recorders.reset(token)


def record(graph: CompiledGraph) -> None:
    """Give a compiled graph to everyone who is recording."""
    for graphs in _recorders.get():
        graphs.append(graph)


_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observing(observer: Observer) -> Generator[None]:
    """Inside, `observer` is called for every node that compiled graphs run."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def current_observer() -> Observer | None:
    """The observers of the nodes that run now."""
    return _observer.get()
