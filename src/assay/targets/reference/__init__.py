"""The reference target: always there, takes every op, defines what is right."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from assay.ir.building import collector_paused
from assay.ir.graph import Graph, Node
from assay.limits import DEFAULT, Limits
from assay.ops import OPS
from assay.targets.base import Bodies, Device, Limitation, Limitations, NamedPass, Probe, Support, Traits
from assay.targets.reference.interpreter import Interpreter, Mode

_NONE: Bodies = {}
_LIMITATIONS = Limitations((Limitation("an op that nobody defines", lambda node: node.op not in OPS),))


class ReferenceTarget:
    """The oracle as a target; `mode` is `exact` or `precise`."""

    name = "reference"

    def __init__(self, mode: Mode = "exact", limits: Limits = DEFAULT) -> None:
        self.mode: Mode = mode
        self.limits = limits

    def probe(self) -> Probe:
        """Always present."""
        return Probe(True, details={"numpy": np.__version__, "mode": self.mode})

    def limitations(self) -> Limitations:
        """Every op that has a definition is taken."""
        return _LIMITATIONS

    def support(self, node: Node) -> Support:
        """Every op that has a definition."""
        return self.limitations().support(node)

    @property
    def traits(self) -> Traits:
        """Host memory, any size; NumPy takes its time."""
        return Traits(operations_per_second=1e8)

    def passes(self) -> Sequence[NamedPass]:
        """None: the oracle runs graphs as they are."""
        return ()

    def open(self) -> Device | None:
        """It works in host memory."""
        return None

    def compile(
        self, segment: Graph, bodies: Bodies = _NONE, disabled: Collection[str] = (), device: Device | None = None
    ) -> Interpreter:
        """Make the segment ready for the interpreter."""
        with collector_paused():
            return Interpreter(segment, self.mode, self.limits, bodies)
