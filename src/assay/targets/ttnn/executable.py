"""Segments that the library has taken; who computes them is said elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.errors import CompileFailed
from assay.ir.graph import Graph, Value
from assay.limits import Limits
from assay.targets.base import Bodies, Device, Executable, Observer, ProgramNote, Run
from assay.targets.budget import Allowance
from assay.targets.ttnn import reports, scripts
from assay.targets.ttnn.description import description
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.lowering import Taken, accepted, planned
from assay.targets.ttnn.parallel import Sharing, sharing
from assay.targets.ttnn.tensor import layer_sharing

_NOTHING: Mapping[Value, Any] = {}


@dataclass(frozen=True)
class Setting:
    """What all executables of a segment share: the segment, the library that takes its programs, limits and bodies.
    `matrices` is the format of weights that products alone read, if it is another than that of other floats; `way` is
    what the chips of a card do together."""

    segment: Graph
    library: Library
    limits: Limits
    bodies: Bodies
    matrices: str = ""
    way: str = "none"


class TakenExecutable:
    """A segment that the library has taken. `resident` is on the card for all runs."""

    addressed: Collection[int] = ()

    def __init__(self, setting: Setting, taken: Taken, resident: Mapping[Value, Any]) -> None:
        self.setting, self.resident, self.taken = setting, resident, taken
        self.sharing = taken.sharing or Sharing(setting.segment, setting.segment)
        self.open = tuple(value for value in setting.segment.inputs if value not in resident)
        """The inputs that each run is given."""
        self._wanted = reports.chosen_folder(), scripts.chosen_folder()

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        """The same segment with some of its inputs on the card for good, in the forms that its program wants."""
        resident = {**self.resident, **{self.open[at]: each for at, each in statics.items()}}
        return type(self)(self.setting, take(self.setting, resident), resident)

    def started(self) -> None:
        """A run begins: with the first one, a report and scripts are written, if somebody wants them."""
        (report, script), self._wanted = self._wanted, (None, None)
        setting = self.setting
        if report is not None:
            reports.write_report(setting.segment.name, self.taken, setting.library, report)
        if script is not None:
            scripts.write_scripts(self.sharing.graph, setting.matrices, setting.limits, script)

    def notes(self) -> Sequence[ProgramNote]:
        """Calls, memory and conversions."""
        return description(self.sharing, self.taken, self.setting.library.about())

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Buffers in, buffers out."""
        raise NotImplementedError


class MakeExecutable(Protocol):
    """What makes an executable of a segment that the library has taken."""

    def __call__(self, setting: Setting, taken: Taken, resident: Mapping[Value, Any]) -> TakenExecutable: ...


def take(setting: Setting, resident: Mapping[Value, Any] = _NOTHING) -> Taken:
    """The program of a segment, some of whose inputs are `resident`, and what the library says of it. CompileFailed if
    the library does not take it.

    If it does not take what one of several chips is to do, every chip does everything."""
    shared = _shared(setting, resident)
    if shared.chips == 1:
        return _taken(setting, resident, shared)
    try:
        return _taken(setting, resident, shared)
    except CompileFailed as error:
        return _taken(setting, resident, Sharing(setting.segment, setting.segment, reason=error.message))


def _shared(setting: Setting, resident: Collection[Value]) -> Sharing:
    """How chips share the segment."""
    card = setting.library.mock
    if setting.way == "tensor":
        return layer_sharing(setting.segment, card.mesh)
    return sharing(setting.segment, resident, len(card.chips), setting.way)


def _taken(setting: Setting, resident: Mapping[Value, Any], shared: Sharing) -> Taken:
    local = shared.local
    bound = {local.get(value, value): each for value, each in resident.items()}
    program = planned(shared.graph, bound, matrices=setting.matrices)
    return accepted(program, setting.library, {**bound, **shared.graph.constants}, shared)


def compiled(setting: Setting, card: Device, make: MakeExecutable) -> TakenExecutable:
    """A segment made ready; its constants are on the card from now on, once for all programs that read them."""
    taken = take(setting)
    constants, residents = setting.segment.constants, setting.library.residents
    local = taken.sharing.local if taken.sharing else dict[Value, Value]()
    here = {local.get(value, value): value for value in constants}
    used = dict.fromkeys(here[each.value] for each in taken.program.given if each.value in here)
    return make(setting, taken, {value: residents.buffer(make, constants[value], card.upload) for value in used})
