"""Segments that the library has taken; who computes them is said elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.ir.graph import Graph, Value
from assay.limits import Limits
from assay.targets.base import Bodies, Device, Executable, Observer, ProgramNote, Run
from assay.targets.budget import Allowance
from assay.targets.ttnn.description import description
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.lowering import Taken, accepted, planned


@dataclass(frozen=True)
class Setting:
    """What all executables of a segment share: the segment, the library that takes its programs, limits and bodies.
    `matrices` is the format of weights that products alone read, if it is another than that of other floats."""

    segment: Graph
    library: Library
    limits: Limits
    bodies: Bodies
    matrices: str = ""


class TakenExecutable:
    """A segment that the library has taken. `resident` is on the card for all runs."""

    addressed: Collection[int] = ()

    def __init__(self, setting: Setting, taken: Taken, resident: Mapping[Value, Any]) -> None:
        self.setting, self.resident, self.taken = setting, resident, taken
        self.open = tuple(value for value in setting.segment.inputs if value not in resident)
        """The inputs that each run is given."""

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        """The same segment with some of its inputs on the card for good, in the forms that its program wants."""
        resident = {**self.resident, **{self.open[at]: each for at, each in statics.items()}}
        return type(self)(self.setting, take(self.setting, resident), resident)

    def notes(self) -> Sequence[ProgramNote]:
        """Calls, memory and conversions."""
        return description(self.setting.segment, self.taken, self.setting.library.about())

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Buffers in, buffers out."""
        raise NotImplementedError


class MakeExecutable(Protocol):
    """What makes an executable of a segment that the library has taken."""

    def __call__(self, setting: Setting, taken: Taken, resident: Mapping[Value, Any]) -> TakenExecutable: ...


def take(setting: Setting, resident: Collection[Value] = ()) -> Taken:
    """The program of a segment, some of whose inputs are `resident`, and what the library says of it. CompileFailed if
    the library does not take it."""
    program = planned(setting.segment, resident, matrices=setting.matrices)
    return Taken(program, accepted(program, setting.library))


def compiled(setting: Setting, card: Device, make: MakeExecutable) -> TakenExecutable:
    """A segment made ready; its constants are on the card from now on."""
    taken = take(setting)
    constants = setting.segment.constants
    used = dict.fromkeys(each.value for each in taken.program.given if each.value in constants)
    return make(setting, taken, {value: card.upload(constants[value]) for value in used})
