"""Targets as peers of random graphs: a chain of them, as a session uses it, with sizes that are known or symbols."""

from __future__ import annotations

from collections.abc import Sequence

from assay.evidence.fuzz.graph_cases import GraphCase
from assay.evidence.fuzz.graph_peers import LeftOut, PeerAnswer, described, symbols_of
from assay.ir.graph import Graph
from assay.limits import DEFAULT
from assay.ops.lowering import lower
from assay.runtime.explanation import all_placements
from assay.runtime.pipeline import compiled, optimized
from assay.runtime.program import Program
from assay.runtime.settings import Settings
from assay.runtime.targets import first_target, make_chain

ELSEWHERE = "elsewhere"
"""Of a node that a later target of the chain computed, with what the first one had against it."""
SYMBOLIC = ":symbolic"
"""What follows the name of a chain that is given graphs whose inputs have symbols as sizes."""


class TargetPeer:
    """A chain of targets; NotFound if it cannot be used here."""

    def __init__(self, name: str) -> None:
        """`name` is that of the chain, with `SYMBOLIC` behind it for symbolic sizes."""
        self.name = name
        chain = name.removesuffix(SYMBOLIC)
        self._first, self._settings = first_target(chain), Settings(make_chain(chain, "exact", DEFAULT))

    def ask(self, case: GraphCase) -> PeerAnswer:
        """Run the graph; what the first target did not compute is told, and judged as well."""
        try:
            program = self._program(case)
            results = program.run(case.inputs)
        except Exception as error:
            return PeerAnswer(failure=described(error))
        return PeerAnswer(dict(zip(case.graph.outputs, results, strict=True)), self._elsewhere(program))

    def _program(self, case: GraphCase) -> Program:
        return compiled(optimized(self._lowered(case), "exact"), self._settings).program

    def _lowered(self, case: GraphCase) -> Graph:
        return lower(case.graph, symbols_of(case)) if self.name.endswith(SYMBOLIC) else case.graph

    def _elsewhere(self, program: Program) -> Sequence[LeftOut]:
        placed = [each for each in all_placements(program.plan) if each.target != self._first]
        return [LeftOut(each.node, ELSEWHERE, f"{each.node.op}: {each.reason}") for each in placed]
