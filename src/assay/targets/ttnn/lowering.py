"""A segment planned by the op table, and put to the library."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import CompileFailed
from assay.ir.graph import Graph, Value
from assay.targets.base import NodeRefused
from assay.targets.ttnn import attention_ops, collectives, ops, rows
from assay.targets.ttnn.formats import ENVIRONMENT
from assay.targets.ttnn.library import Checked, Library, LibraryFailed, RefusedCall, TensorSpec
from assay.targets.ttnn.parallel import Sharing
from assay.targets.ttnn.plan import CallPlanner, CallProgram, Given, on_card
from assay.targets.ttnn.rows.collectives import COLLECTIVES
from assay.targets.ttnn.table import TABLE, OpTable

__all__ = ["accepted", "attention_ops", "collectives", "ops", "planned", "rows"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A program that the library has taken, and what it said. The program's weights stay on the card while this is."""

    program: CallProgram
    checked: Checked
    given: Sequence[TensorSpec]
    joins: Sequence[tuple[int, int]] = ()
    sharing: Sharing | None = None

    @property
    def peak_bytes(self) -> int:
        """The most that the card's memory holds while the program runs, beside what the program is given."""
        before, *after = (dram + l1 for dram, l1 in self.checked.memory)
        return max((before, *after)) - before


def planned(
    graph: Graph,
    bound: Collection[Value] = (),
    floats: str = "bfloat16",
    table: OpTable = TABLE,
    matrices: str = "",
) -> CallProgram:
    """A segment, every node of which the table takes, in calls of the library; the inputs that are `bound` are given
    for all runs, and `matrices` is the format of those that products alone read, if it is another. CompileFailed if the
    content of a constant does not let it."""
    planner = CallPlanner(graph, floats, bound, matrices)
    for node in graph.nodes:
        row = (table if node.op in table.rows else COLLECTIVES).rows[node.op]
        planner.begin(node, row.layout)
        row.emit(planner, node)
    return planner.finished()


def accepted(
    program: CallProgram,
    library: Library,
    lasting: Mapping[Value, Any] | None = None,
    sharing: Sharing | None = None,
) -> Taken:
    """The program, if the library takes it. `lasting` is what the program is given for all runs: arrays of the host's,
    or buffers; `sharing` is how chips share it. NodeRefused, with the node and the library's words, if it does not take
    it, or if it gives something else than the table says; CompileFailed if it is no node's fault."""
    axes = sharing.given if sharing else dict[Value, int | None]()
    given = [_given(each, library, (lasting or {}).get(each.value), axes.get(each.value)) for each in program.given]
    ends = sharing.ends if sharing else []
    joins = [(ref.number, axis) for ref, axis in zip(program.outputs, ends, strict=False) if axis is not None]
    try:
        found = _checked(library, program.calls(), given, joins)
    except LibraryFailed as error:
        if error.step is None:
            raise CompileFailed(error.message, where=error.where, hint=error.hint) from error
        raise NodeRefused(error.message, program.steps[error.step].node, hint=error.hint) from error
    if isinstance(found, RefusedCall):
        if found.step < 0:
            raise CompileFailed(_without_room(program, found, library), hint=_NARROWER)
        step = program.steps[found.step]
        raise NodeRefused(f"the library refuses {step.op}: {found.reason}", step.node)
    made = {ref: at for at, step in enumerate(program.steps) for ref in step.results}
    for promise in program.promises:
        if promise.ref not in made:
            continue
        step = program.steps[made[promise.ref]]
        spec = found.specs[made[promise.ref]][step.results.index(promise.ref)]
        if str(spec) != str(promise):
            raise NodeRefused(f"{step.op} gives {spec} where the table says {promise}", step.node)
    return Taken(program, found, given, joins, sharing)


def _given(given: Given, library: Library, owner: Any, axis: int | None) -> TensorSpec:
    """What a program is given, as the library is told of it: what lasts has an `owner`, what chips share an axis."""
    shape, form = on_card(given.value), given.form
    stays = None if owner is None else library.residents.tensor(owner, shape, form.dtype, form.layout, axis)
    return TensorSpec(given.ref.number, shape, form.dtype, form.layout, stays, axis)


def _checked(
    library: Library, calls: Sequence[Any], given: Sequence[TensorSpec], joins: Sequence[tuple[int, int]]
) -> Checked | RefusedCall:
    """What the library says of a program. Programs that nobody has any more may still be in memory, and their weights
    on the card: if it refuses the program beside such, they are looked for, and it is asked again."""
    found = library.check(calls, given, joins)
    if isinstance(found, Checked) or not found.others:
        return found
    before = len(library.residents.live())
    gc.collect()
    return found if len(library.residents.live()) == before else library.check(calls, given, joins)


_NARROWER = f"give the model in parts, or with narrower weights ({ENVIRONMENT}=bfloat8_b)"


def _without_room(program: CallProgram, refused: RefusedCall, library: Library) -> str:
    """What there is to say if weights and inputs do not fit: their sum, and the node that reads the first too many."""
    need, size = program.given_bytes >> 20, library.about().dram >> 20
    ref = program.given[refused.given].ref
    reader = next((step.node for step in program.steps if ref in step.reads), None)
    whose = (
        "" if reader is None else f", from the one on that {reader.op} ({reader.origin.name or reader.origin.op}) reads"
    )
    beside = f", beside {refused.others >> 20:,} MiB of other programs" if refused.others else ""
    return (
        f"the card has no room: weights and inputs take {need:,} MiB of its {size:,} MiB{beside}{whose}. "
        f"{refused.reason}"
    )
