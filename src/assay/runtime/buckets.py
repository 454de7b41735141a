"""Size buckets: a target that compiles for fixed sizes gets few programs for all sizes of a model.

Inputs are padded to the next bucket and results are cropped, for those symbolic sizes along which that is exact
(`passes/padding.py` has the rules). All other sizes are kept as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from assay.ir.dtypes import Array, is_array
from assay.ir.graph import Graph, Value
from assay.ir.types import shape_at, symbol_axes
from assay.runtime.device_tensors import fetched
from assay.runtime.partition import Plan
from assay.runtime.program import Program
from assay.runtime.runs import NOTHING_KEPT, Kept, ProgramRun
from assay.runtime.transfers import Ledger
from assay.targets.base import Buckets, Observer, ProgramNote
from assay.targets.budget import Allowance


class Padding:
    """How inputs of a model are padded to buckets, and its results cropped."""

    def __init__(self, graph: Graph, buckets: Buckets) -> None:
        """`graph` is the model in core ops with symbolic sizes."""
        self._buckets = buckets
        self.graph = graph
        self._sources: dict[str, tuple[int, int]] = {}
        for at, value in enumerate(graph.inputs):
            for name, axis in symbol_axes(value.type):
                self._sources.setdefault(name, (at, axis))
        self.padded = _paddable(graph, self._sources)

    def sizes(self, inputs: Sequence[Any]) -> dict[str, int]:
        """What the symbols stand for."""
        return {name: inputs[at].shape[axis] for name, (at, axis) in self._sources.items()}

    def bucket(self, inputs: Sequence[Any]) -> dict[str, int]:
        """What they stand for after padding."""
        return {name: self._rounded(name, size) for name, size in self.sizes(inputs).items()}

    def is_bounded(self, sizes: Mapping[str, int]) -> bool:
        """Whether all of these sizes are buckets, of which there are few."""
        return all(name in self.padded and size in self._buckets.sizes for name, size in sizes.items())

    def shape(self, at: int, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        """The shape of an input when its symbols stand for `sizes`; None if they do not tell."""
        return shape_at(self.graph.inputs[at].type, sizes)

    def padded_inputs(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs in the shapes of their bucket, zeros behind what they hold."""
        sizes = self.bucket(inputs)
        return [_padded(given, self.shape(at, sizes)) for at, given in enumerate(inputs)]

    def _rounded(self, name: str, size: int) -> int:
        return self._buckets.of(size) if name in self.padded else size


def _paddable(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """The sizes that may be padded, all of them at the same time."""
    from assay.passes.padding import padding_refusal

    alone = [name for name in names if not padding_refusal(graph, {name})]
    while alone and padding_refusal(graph, alone):
        alone.pop()
    return frozenset(alone)


def _padded(given: Any, shape: tuple[int, ...] | None) -> Any:
    if shape is None or not is_array(given) or given.shape == shape:
        return given
    made = np.zeros(shape, given.dtype)
    made[tuple(map(slice, given.shape))] = given
    return made


class PaddedProgram:
    """The program of a bucket: it takes inputs of all sizes in the bucket, and gives results of these sizes.

    Values that are observed are cropped, too, where the model with symbolic sizes has them under the same name.
    """

    def __init__(self, program: Program, padding: Padding, outputs: Sequence[Value | None]) -> None:
        """`outputs` are the values of the model with symbolic sizes that the outputs of the program are."""
        self._program, self._padding, self._wanted = program, padding, outputs

    @property
    def plan(self) -> Plan:
        """That of the program that runs."""
        return self._program.plan

    @property
    def targets(self) -> Mapping[Any, str]:
        """Where each node runs."""
        return self._program.targets

    @property
    def resident(self) -> Ledger | None:
        """What was moved to devices for all runs."""
        return self._program.resident

    def notes(self) -> list[ProgramNote]:
        """What the targets have to tell of their segments."""
        return self._program.notes()

    def observing(self, values: Collection[Value]) -> PaddedProgram:
        """The same program, with these values as further outputs."""
        inner = self._program.observing(values)
        names = {value: name for name, value in inner.plan.graph.names.items()}
        further = inner.plan.graph.outputs[len(self._wanted) :]
        general = [self._padding.graph.names.get(names.get(value, "")) for value in further]
        return PaddedProgram(inner, self._padding, (*self._wanted, *general))

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> ProgramRun:
        """Start a run of inputs that were padded."""
        inputs = fetched(inputs)
        run = self._program.submit(self._padding.padded_inputs(inputs), observer, allowance)
        sizes = self._padding.sizes(inputs)
        wanted = [None if value is None else shape_at(value.type, sizes) for value in self._wanted]
        return _CroppedRun(run, wanted)

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        """The outputs, waited for."""
        return self.submit(inputs, observer, allowance).outputs()


class _CroppedRun:
    """A run whose outputs are the corners of those of another one."""

    def __init__(self, run: ProgramRun, shapes: Sequence[tuple[int, ...] | None]) -> None:
        self._run, self._shapes = run, shapes

    def outputs(self, kept: Kept = NOTHING_KEPT) -> tuple[Any, ...]:
        """The outputs in their true sizes, which are cut out on the host."""
        return tuple(map(_cropped, self._run.outputs(), self._shapes))

    @property
    def peak_bytes(self) -> int | None:
        """That of the run."""
        return self._run.peak_bytes

    @property
    def transfers(self) -> Ledger | None:
        """Those of the run."""
        return self._run.transfers


def _cropped(result: Array, shape: tuple[int, ...] | None) -> Array:
    return result if shape is None or result.shape == shape else result[tuple(map(slice, shape))].copy()
