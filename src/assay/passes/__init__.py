"""Passes: one file each, one public function `graph -> graph`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.ir.building import collector_paused
from assay.ir.graph import Graph
from assay.passes.cse import cse
from assay.passes.dce import dce
from assay.passes.fold import fold
from assay.passes.simplify import simplify

Pass = Callable[[Graph], Graph]

STANDARD: tuple[Pass, ...] = (dce, fold, simplify, cse, dce)
"""What every session runs."""

UNFOLDED: tuple[Pass, ...] = (dce, simplify, cse, dce)
"""The same without folding, which would round in `exact` mode what `precise` mode must not round."""


@collector_paused()
def apply(graph: Graph, passes: Sequence[Pass], check: Callable[[Graph], None] | None = None) -> Graph:
    """`graph` after `passes`; `check` (the verifier, in tests) sees it after each."""
    for each in passes:
        graph = each(graph)
        if check is not None:
            check(graph)
    return graph
