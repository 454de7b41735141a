"""Islands: nodes on a device whose inputs come from other targets and whose results go to others.

Each island costs transfers in both directions. It moves to the next target of the chain that takes its nodes if what
the device saves in computing is less than the transfers cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.ir.graph import Graph, Node, Value, used
from assay.ops.work import nominal_bytes, work_of
from assay.runtime.placement import Placement, Refusal
from assay.targets.base import Target
from assay.units import size as as_size


def weighed(placements: Sequence[Placement], graph: Graph, chain: Sequence[Target]) -> tuple[Placement, ...]:
    """The placements, with islands that are not worth their transfers moved further down the chain."""
    current = tuple(placements)
    for at, target in enumerate(chain):
        if target.traits.own_memory:
            current = _without_poor_islands(current, graph, chain[at:])
    return current


def _without_poor_islands(
    placements: tuple[Placement, ...], graph: Graph, chain: Sequence[Target]
) -> tuple[Placement, ...]:
    """The same for the islands of the first target of `chain`; the others come after it."""
    target, *later = chain
    moved: dict[Node, Placement] = {}
    for island in _groups(placements, target.name):
        crossing = _crossing(island, placements, graph)
        if crossing is None:
            continue
        homes = {each.node: _next_home(each.node, later) for each in island}
        saved = sum(work_of(node) * _slower(home, target) for node, home in homes.items())
        cost = target.traits.transfers.of(list(map(nominal_bytes, crossing))) if target.traits.transfers else 0.0
        if saved < cost:
            reason = f"not worth its transfers: {as_size(sum(map(nominal_bytes, crossing)))} would cross"
            for each in island:
                refusals = (*each.refusals, Refusal(target.name, reason))
                moved[each.node] = each._replace(target=homes[each.node].name, refusals=refusals)
    return tuple(moved.get(each.node, each) for each in placements)


def _groups(placements: Sequence[Placement], target: str) -> list[list[Placement]]:
    """The nodes of a target in groups that hand values to each other, directly or by way of others of the group."""
    own = [each for each in placements if each.target == target]
    root = {each.node: each.node for each in own}

    def find(node: Node) -> Node:
        while root[node] is not node:
            node = root[node]
        return node

    makers = {value: each.node for each in own for value in each.node.outputs}
    for each in own:
        for value in used(each.node):
            if value in makers:
                root[find(makers[value])] = find(each.node)
    groups: dict[Node, list[Placement]] = {}
    for each in own:
        groups.setdefault(find(each.node), []).append(each)
    return list(groups.values())


def _crossing(island: Sequence[Placement], placements: Sequence[Placement], graph: Graph) -> list[Value] | None:
    """The values that an island takes from nodes of other targets and hands to such; None if it is no island."""
    inside = {each.node for each in island}
    makers: Mapping[Value, Node] = {value: each.node for each in placements for value in each.node.outputs}
    taken = {value for node in inside for value in used(node) if value in makers and makers[value] not in inside}
    made = {value for node in inside for value in node.outputs}
    given = {value for each in placements if each.node not in inside for value in used(each.node) if value in made}
    if not taken or not given or not made.isdisjoint(graph.outputs):
        return None
    return sorted((*taken, *given), key=lambda value: value.id)


def _next_home(node: Node, later: Sequence[Target]) -> Target:
    return next((target for target in later if target.support(node).ok), later[-1])


def _slower(home: Target, target: Target) -> float:
    """How many seconds more an operation takes elsewhere than on `target`."""
    return max(0.0, 1.0 / home.traits.operations_per_second - 1.0 / target.traits.operations_per_second)
