"""Building jobs op by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Origin, Value
from assay.ir.types import LinkType, TensorType, Type
from assay.jobs.job import JobGraph
from assay.ops.builder import Builder
from assay.ops.definitions.control import loop_body

_NUMBER, _FLAG = TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ())

RoundBody: TypeAlias = "Callable[[JobBuilder, Value, Sequence[Value]], Sequence[Value]]"


class JobBuilder(Builder):
    """A job under construction: a builder of core ops and of those of jobs. `values` are its inputs and settings.

    Settings are constants of which nothing is known while the job is built, since a run may give others."""

    def __init__(self, name: str, settings: Mapping[str, Array], around: JobBuilder | None = None) -> None:
        super().__init__(parent=around)
        self._name, self._origin = name, Origin(name)
        self._inputs: dict[str, Value] = {}
        self._named: dict[str, Value] = {}
        self._settings: dict[Value, Array] = {}
        self.values: dict[str, Value] = around.values if around else {}
        for each, array in settings.items():
            value = self.values[each] = self._named[each] = self.input(TensorType(dtypes.of(array), array.shape))
            self._settings[value] = array

    def taken(self, name: str, kind: Type) -> Value:
        """A further input of the job."""
        value = self._inputs[name] = self.values[name] = self.input(kind)
        return value

    def link(self, name: str, kind: str, content: str = "") -> Value:
        """A model, tokenizer or stream as an input of the job."""
        return self.taken(name, LinkType(kind, content))

    def op(self, name: str, *inputs: Any, **attrs: Any) -> tuple[Value, ...]:
        """The results of an op of jobs."""
        with self.origin(Origin(self._name, name)):
            return self.emit(f"job.{name}", *inputs, **attrs)

    def named(self, name: str, value: Value) -> Value:
        """The value, which can be watched under this name."""
        self._named[name] = value
        return value

    def repeated(
        self, most: Value, carried: Sequence[Value], body: RoundBody, go: Value | None = None
    ) -> tuple[Value, ...]:
        """What a loop carries after at most so many rounds, or none unless `go`. `body` is given a builder, the number
        of the round and what is carried; it gives whether to go on, and what is carried on."""

        def built(kinds: Sequence[Type]) -> Graph:
            inside = JobBuilder(self._name, {}, self)
            given = [inside.input(kind) for kind in (_NUMBER, _FLAG, *kinds)]
            results = body(inside, given[0], given[2:])
            return inside.finish("round", given, results, names=inside._named, level="job")

        graph = loop_body(built, [value.type for value in carried])
        return self.emit("loop", most, go, *carried, regions=(graph,))

    def job(self, outputs: Mapping[str, Value]) -> JobGraph:
        """The job with these results."""
        graph = self.finish(
            self._name,
            tuple(self._inputs.values()),
            tuple(outputs.values()),
            names=self._named,
            input_names=tuple(self._inputs),
            output_names=tuple(outputs),
            level="job",
        )
        return JobGraph(replace(graph, constants={**graph.constants, **self._settings}))
