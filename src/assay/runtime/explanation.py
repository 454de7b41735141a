"""What `session.explain()` tells: where every node runs, and in sum why some do not run where they were asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.ir.graph import Node
from assay.ir.types import TensorType
from assay.runtime.partition import Plan, waiting
from assay.runtime.placement import Placement, Refusal
from assay.targets.base import ProgramNote
from assay.units import counted

_INSIDE = "inside of "


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node as `explain` shows it: what it came from, what it is now, where it runs and why; if it has floats."""

    source: str
    name: str
    op: str
    target: str
    reason: str
    floats: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where every node of a session runs; `target` is the one that was asked for.

    As text: a table with a row for each node, totals, how many nodes each reason keeps from the target, and the notes
    of targets on their segments.
    """

    nodes: tuple[NodeReport, ...]
    segments: int
    transferred_bytes: int | None
    target: str
    notes: tuple[ProgramNote, ...] = ()

    def __str__(self) -> str:
        rows = [(node.source, node.name, node.op, node.target, node.reason) for node in self.nodes]
        table = aligned(("source", "name", "op", "target", "reason"), rows)
        return "\n".join([*table, "", *self._totals(), *self._elsewhere(), *self._noted()])

    def _totals(self) -> Iterator[str]:
        counts = Counter(node.target for node in self.nodes)
        places = ", ".join(f"{count} on {target}" for target, count in counts.most_common())
        yield f"{counted(len(self.nodes), 'node')} in {counted(self.segments, 'segment')}: {places or 'none'}"

    def _elsewhere(self) -> Iterator[str]:
        """The reasons why nodes run elsewhere, the one that keeps most of them first."""
        away = [node for node in self.nodes if node.target != self.target]
        if not away:
            return
        yield ""
        yield f"Why not on {self.target}:"
        rows = [
            (str(count), reason, ", ".join(sorted({node.op for node in away if node.reason == reason})))
            for reason, count in Counter(node.reason for node in away).most_common()
        ]
        yield from aligned((">nodes", "reason", "ops"), rows)

    def _noted(self) -> Iterator[str]:
        for note in self.notes:
            yield ""
            yield note.text
            yield from aligned(note.columns, note.rows) if note.rows else ()


def explained_nodes(plan: Plan) -> Iterator[NodeReport]:
    """Every node of a plan, those in bodies right after the nodes that have these."""
    for placement in all_placements(plan):
        node = placement.node
        yield NodeReport(
            node.origin.op, node.origin.name, op_name(node), placement.target, placement.reason, _has_floats(node)
        )


def all_placements(plan: Plan) -> Iterator[Placement]:
    """Where every node of a plan runs, those in bodies right after the nodes that have these."""
    for placement in plan.placements:
        yield from _placed(placement, plan)


def _placed(placement: Placement, plan: Plan) -> Iterator[Placement]:
    node = placement.node
    said = placement if placement.reason or node.op != "opaque" else placement._replace(note=str(node.attrs["reason"]))
    yield said
    if node.op == "deferred":
        return
    for body in node.regions:
        if body in plan.bodies:
            yield from all_placements(plan.bodies[body])
            continue
        for inner in body.nodes:
            yield from _placed(_inherited(inner, said), plan)


def _inherited(inner: Node, around: Placement) -> Placement:
    """Where a node of a body runs: with the node that has the body, for its reasons."""
    if waiting(inner) or not around.reason:
        return Placement(inner, around.target, (), waiting(inner))

    def inside(reason: str) -> str:
        return reason if reason.startswith(_INSIDE) else f"{_INSIDE}{op_name(around.node)}: {reason}"

    refusals = tuple(Refusal(each.target, inside(each.reason)) for each in around.refusals)
    return Placement(inner, around.target, refusals, inside(around.note) if around.note else "")


def op_name(node: Node) -> str:
    """The op that a node stands for, also while it waits to be lowered."""
    return node.regions[0].name if node.op == "deferred" else node.op


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns under their names; those whose name starts with '>' are aligned to the right."""
    names = [column.removeprefix(">") for column in columns]
    widths = [max(len(row[at]) for row in (names, *rows)) for at in range(len(columns))]
    right = [column.startswith(">") for column in columns]
    return [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in (names, *rows)
    ]


def _has_floats(node: Node) -> bool:
    """Whether a node reads or makes floats, complex ones included."""
    kinds = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    return any(isinstance(kind, TensorType) and kind.dtype.kind in ("float", "complex") for kind in kinds)
