"""Values of the programs that torch's graphs became, told by their names in those graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.ir.dtypes import Array, is_array, read_only
from assay.ir.graph import Origin, Value
from assay.runtime.program import Program

Observe = Callable[[str, Origin, Array], None]
"""Called with each value of an aten graph: its name there, where it came from, and its content."""


class Observed:
    """A program that gives the values that have a name as further results, and tells of them."""

    def __init__(self, program: Program, observe: Observe) -> None:
        graph, makers = program.plan.graph, program.plan.makers
        self._names: dict[Value, list[str]] = {}
        for name, value in graph.names.items():
            if value in makers:
                self._names.setdefault(value, []).append(name)
        self._origins = {value: makers[value].origin for value in makers if value in self._names}
        self._observe, self._count = observe, len(graph.outputs)
        self.program = program.observing(list(self._origins))

    def told(self, results: Sequence[Any]) -> Sequence[Any]:
        """The results that the program gives without being observed; the named values are told of, in order."""
        content = dict(zip(self.program.plan.graph.outputs, results, strict=True))
        for value, origin in self._origins.items():
            for name in self._names[value]:
                self._observe(name, origin, read_only(content[value]) if is_array(content[value]) else content[value])
        return results[: self._count]
