"""Fusion: elementwise nodes over one shape become one unit of work, computed in one loop.

A node joins the unit of one of its inputs if all its other inputs are there before that unit starts. Every unit
therefore runs at the place of its first node, and no unit waits for a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.ir.dims import Dim
from assay.ir.graph import Node, Value
from assay.targets.shared.tensors import shape_of


@dataclass(slots=True)
class Unit:
    """Nodes that are planned together: elementwise ones over `shape`, or a single node of another kind."""

    index: int
    nodes: list[Node] = field(default_factory=list[Node])
    shape: tuple[Dim, ...] | None = None


def fuse(
    nodes: Sequence[Node], elementwise: Callable[[Node], bool], reads: Callable[[Node], Sequence[Value]]
) -> list[Unit]:
    """`nodes`, in an order in which they can run, as units in such an order."""
    units: list[Unit] = []
    maker: dict[Value, Unit] = {}
    for node in nodes:
        shape = shape_of(node.outputs[0]) if elementwise(node) else None
        unit = None if shape is None else _open_to(shape, [maker[value] for value in reads(node) if value in maker])
        if unit is None:
            unit = Unit(len(units), shape=shape)
            units.append(unit)
        unit.nodes.append(node)
        maker.update(dict.fromkeys(node.outputs, unit))
    return units


def _open_to(shape: tuple[Dim, ...], makers: Sequence[Unit]) -> Unit | None:
    """The latest of the units, if a node over `shape` may join it."""
    latest = max(makers, key=lambda unit: unit.index, default=None)
    return latest if latest is not None and latest.shape == shape else None
