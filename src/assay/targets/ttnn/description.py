"""What is to be told of a program that the library has taken: its calls, the card's memory, each conversion and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.ir.graph import Graph, Node, Value
from assay.targets.base import ProgramNote
from assay.targets.ttnn.library import About
from assay.targets.ttnn.lowering import Taken
from assay.targets.ttnn.parallel import Sharing
from assay.targets.ttnn.plan import Conversion, Form

_MIB = 1 << 20


def description(shared: Sharing, taken: Taken, card: About) -> list[ProgramNote]:
    """The notes on a segment's program; figures of memory are the library's own, for one chip."""
    segment = shared.graph
    steps = taken.program.steps
    once = sum(step.once for step in steps)
    converted = [each for each in taken.program.conversions if not each.once]
    names = _names(segment)
    return [
        ProgramNote(f"{segment.name}: {len(steps) - once} calls of the library in each run, {once} once for all runs"),
        ProgramNote(
            f"Memory of the card{_beside(taken.checked.others)}:",
            ("", ">given MiB", ">most MiB", ">of MiB", "most at"),
            [
                _memory_row(taken, at, kind, size)
                for at, (kind, size) in enumerate((("DRAM", card.dram), ("L1", card.l1)))
            ],
        ),
        ProgramNote(
            "Conversions on the card in each run:" + ("" if converted else " none"),
            ("value", "from", "to", "why"),
            [(names[each.value], *_change(each.have, each.want), _why(each)) for each in converted],
        ),
        *_chips(shared, names),
    ]


def _chips(shared: Sharing, names: Mapping[Value, str]) -> list[ProgramNote]:
    """How several chips share the work, or why they do not."""
    if shared.reason:
        return [ProgramNote(f"Every chip computes everything: {shared.reason}")]
    if shared.chips == 1:
        return []
    what, titles, rows = shared.told(names)
    return [ProgramNote(f"{shared.chips} chips share {what}", titles, rows)]


def _beside(others: int) -> str:
    """What other programs had on the card when this one was taken."""
    return f", beside {others / _MIB:,.2f} MiB of DRAM with the weights of other programs" if others else ""


def _memory_row(taken: Taken, kind: int, name: str, size: int) -> Sequence[str]:
    """What the program is given (weights and inputs), the most while it runs, what the card has, and where that is."""
    used = [each[kind] for each in taken.checked.memory]
    at = used.index(max(used))
    figures = (f"{each / _MIB:,.2f}" for each in (used[0], used[at], size))
    return name, *figures, _named(taken.program.steps[at - 1].node) if at else "the start"


def _change(have: Form, want: Form) -> tuple[str, str]:
    """What changes, before and after."""
    if have.dtype != want.dtype:
        return have.dtype, want.dtype
    return (have.lies, want.lies) if have.layout != want.layout else (have.order, want.order)


def _why(conversion: Conversion) -> str:
    taker = "what follows the segment" if conversion.reader is None else _named(conversion.reader)
    return f"{taker} takes {conversion.goal}"


def _named(node: Node) -> str:
    return f"{node.op} ({node.origin.name or node.origin.op})"


def _names(segment: Graph) -> Mapping[Value, str]:
    """What values are called: as in the source, else after who makes them."""
    inputs = {value: f"input {at}" for at, value in enumerate(segment.inputs)}
    constants = dict.fromkeys(segment.constants, "a constant")
    made = {value: _named(node) for node in segment.nodes for value in node.outputs}
    return {**inputs, **constants, **made, **{value: name for name, value in segment.names.items()}}
