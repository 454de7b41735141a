"""Programs of core graphs on one target, as tests want them."""

from __future__ import annotations

from assay.evidence.compare.arrays import epsilon
from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.runtime.pipeline import compiled, optimized, placed
from assay.runtime.program import Program
from assay.runtime.settings import Settings
from assay.targets.base import Target
from assay.targets.reference import ReferenceTarget


def settings_for(target: Target) -> Settings:
    """A chain of the target and the oracle."""
    return Settings((target,) if target.name == "reference" else (target, ReferenceTarget()))


def placed_on(target: Target, graph: Graph) -> Program:
    """The graph as it is."""
    return placed(graph, settings_for(target))


def compiled_on(target: Target, graph: Graph) -> Program:
    """The graph after all passes."""
    return compiled(optimized(graph, "exact"), settings_for(target)).program


def tolerance(target: Target, f32: float) -> dict[str, float]:
    """The relative and absolute tolerance of results of f32: wider if the target rounds to a narrower dtype."""
    rounds_to = target.traits.rounds_to
    coarse = 1.0 if rounds_to is None else epsilon(rounds_to) / epsilon(dtypes.f32)
    return {"rtol": f32 * coarse, "atol": f32 * coarse}
