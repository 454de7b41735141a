"""Passes: one file each, one public function `graph -> graph`. A pass goes by the name of its function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from assay.ir.building import collector_paused
from assay.ir.graph import Graph
from assay.passes.cse import cse
from assay.passes.dce import dce
from assay.passes.fold import fold
from assay.passes.invariants import invariants
from assay.passes.simplify import simplify
from assay.passes.stamp import stamped

Pass = Callable[[Graph], Graph]

STANDARD: tuple[Pass, ...] = (dce, invariants, fold, simplify, cse, dce)
"""What every session runs."""

UNFOLDED: tuple[Pass, ...] = (dce, invariants, simplify, cse, dce)
"""The same without folding, which would round in `exact` mode what `precise` mode must not round."""


def standard_passes(mode: str) -> tuple[Pass, ...]:
    """The passes that every graph goes through in this mode."""
    return STANDARD if mode == "exact" else UNFOLDED


@collector_paused()
def apply(
    graph: Graph,
    passes: Sequence[Pass],
    check: Callable[[Graph], None] | None = None,
    *,
    disabled: Collection[str] = (),
) -> Graph:
    """`graph` after `passes`, less the `disabled` ones; `check` (the verifier, in tests) sees it after each."""
    for each in passes:
        if each.__name__ in disabled:
            continue
        graph = stamped(graph, each(graph), each.__name__)
        if check is not None:
            check(graph)
    return graph
