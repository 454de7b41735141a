"""Programs for several chips, each with its part of the weights of linear layers; they exchange what they make.

The library is given the graph of one chip. The device model computes another one, in which the parts of all chips are
values of their own, so that every part is rounded as on its chip before parts are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Value, fresh_ids
from assay.passes.rewrite import Rewriting, begin, renamed
from assay.targets.base import Event, Observer
from assay.targets.ttnn.layer_shares import ADDED, GATHERED, LayerShares, MatrixLayer, shared_layers
from assay.targets.ttnn.parallel import Local, Sharing
from assay.targets.ttnn.shares import NotShared


@dataclass(frozen=True)
class Exchanged:
    """What some chips compute: the graph, what each value of which they have parts is on each of them, and the node of
    the segment that each node of the graph is made for."""

    graph: Graph
    parts: Mapping[Value, tuple[Value, ...]]
    owners: Mapping[Node, Node]


@dataclass(frozen=True)
class LayerSharing(Sharing):
    """A segment whose linear layers chips share: `one` is what one chip computes, `all` what they compute together."""

    one: Exchanged = field(kw_only=True)
    all: Exchanged = field(kw_only=True)
    layers: LayerShares = field(kw_only=True)

    @property
    def modelled(self) -> Graph:
        """What all chips compute together."""
        return self.all.graph

    @property
    def given(self) -> Mapping[Value, int | None]:
        """The axis of each input and each constant of the graph that a chip computes."""
        return {self.local[value]: self.axes.get(value) for value in (*self.segment.inputs, *self.segment.constants)}

    @cached_property
    def local(self) -> Mapping[Value, Value]:
        """What is given to the segment, in the graph that a chip computes."""
        given = (*self.segment.inputs, *self.segment.constants)
        return {value: self.one.parts.get(value, (value,))[0] for value in given}

    def told(self, names: Mapping[Value, str]) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """The layers, and by what their weights are shared out, or why they are not."""
        whole = {node: f"not shared: {reason}" for node, reason in self.layers.whole.items()}
        ways = {**self.layers.ways, **whole}
        rows = [(_named(node), ways[node]) for node in self.segment.nodes if node in ways]
        return "linear layers; each has a part of the weights:", ("layer", "by"), rows

    def places(self, value: Value) -> tuple[Value, ...]:
        """The parts of all chips, or the value itself if it is whole."""
        return self.all.parts.get(value, (value,))

    def rounds(self, values: Sequence[Value], contents: Sequence[Array]) -> list[list[Array]]:
        """One run, which is given the parts of all chips."""
        given = zip(values, contents, strict=True)
        return [[each for value, content in given for each in self.shares(value, content)[: len(self.places(value))]]]

    def watched(self) -> ExchangedEvents:
        """What collects events of all chips."""
        return ExchangedEvents(self)


def _named(node: Node) -> str:
    return f"{node.op} ({node.origin.name or node.origin.op})"


class ExchangedEvents:
    """An observer of what chips compute together, which then tells another one of the nodes of the segment."""

    def __init__(self, sharing: LayerSharing) -> None:
        self._sharing = sharing
        self._seen: dict[Node, list[Event]] = {}

    def __call__(self, event: Event) -> None:
        """A node has been computed."""
        self._seen.setdefault(self._sharing.all.owners[event.node], []).append(event)

    def tell(self, observer: Observer) -> None:
        """What chips have computed, node by node of the segment; parts are joined."""
        for node in self._sharing.segment.nodes:
            events = self._seen[node]
            made = {
                value: each for event in events for value, each in zip(event.node.outputs, event.results, strict=True)
            }
            results = tuple(self._joined(value, made) for value in node.outputs)
            observer(Event(node, results, sum(e.seconds for e in events), max(e.live_bytes for e in events)))

    def _joined(self, value: Value, made: Mapping[Value, Array]) -> Array:
        parts = [made[each] for each in self._sharing.places(value)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self._sharing.axes[value])


def layer_sharing(segment: Graph, mesh: tuple[int, int]) -> Sharing:
    """How the chips of a mesh share the linear layers of a segment; every chip computes everything if they cannot."""
    chips = mesh[0] * mesh[1]
    if chips == 1:
        return Sharing(segment, segment)
    try:
        found = shared_layers(segment, chips)
    except NotShared as reason:
        return Sharing(segment, segment, reason=str(reason))
    one, together = (exchanged(segment, found, mesh, count) for count in (1, chips))
    return LayerSharing(segment, one.graph, chips, found.axes, one=one, all=together, layers=found)


def exchanged(segment: Graph, found: LayerShares, mesh: tuple[int, int], count: int) -> Exchanged:
    """What the first `count` chips compute: one, or all of them."""
    return _Chips(segment, found, mesh, count).exchanged()


class _Chips:
    """Chips and the graph that they compute, so far."""

    def __init__(self, segment: Graph, found: LayerShares, mesh: tuple[int, int], count: int) -> None:
        self._segment, self._found, self._mesh = segment, found, mesh
        self._total = mesh[0] * mesh[1]
        self._new: Rewriting = begin(segment, (), fresh_ids(segment))
        self._chips = [Local(segment, found.axes, self._total, self._new.numbers) for _ in range(count)]
        self._parts = {value: tuple(chip.of(value) for chip in self._chips) for value in found.axes}

    def exchanged(self) -> Exchanged:
        """The graph, with all nodes."""
        owners: dict[Node, Node] = {}
        for node in self._segment.nodes:
            before = len(self._new.nodes)
            self._add(node)
            owners.update(dict.fromkeys(self._new.nodes[before:], node))
        return Exchanged(self._graph(), self._parts, owners)

    def _add(self, node: Node) -> None:
        way = self._found.ways.get(node, "")
        if way in _EXCHANGES:
            made = _EXCHANGES[way](self, MatrixLayer(node))
            last = self._new.nodes.pop()
            self._new.nodes += renamed([last], {made: node.outputs[0]})
        elif node.outputs[0] in self._parts:
            self._new.nodes += [chip.node(node) for chip in self._chips]
        else:
            self._new.nodes.append(node)

    def added(self, layer: MatrixLayer) -> Value:
        """A layer shared out by rows: parts are added, then comes what is added to each row and the function, once."""
        node, emit = layer.node, self._new.emit
        plain = {**node.attrs, "activation": ""} if "activation" in node.attrs else node.attrs
        parts = [emit(node.origin, node.op, chip.of(layer.x), chip.of(layer.weights), **plain) for chip in self._chips]
        total = self._over_mesh(node, "ttnn.all_reduce", parts)
        if layer.bias is not None:
            total = emit(node.origin, "add", total, layer.bias)
        function = node.attrs.get("activation")
        return emit(node.origin, function, total) if function else total

    def gathered(self, layer: MatrixLayer) -> Value:
        """A layer shared out by columns that is in no pair: parts are put side by side."""
        node = layer.node
        given = [value for value in node.inputs if value is not None]
        parts = [self._new.emit(node.origin, node.op, *map(chip.of, given), **node.attrs) for chip in self._chips]
        return self._over_mesh(node, "ttnn.all_gather", parts)

    def _over_mesh(self, node: Node, op: str, parts: Sequence[Value]) -> Value:
        """What chips exchange, along one axis of the mesh after the other; chips are in the order of its rows."""
        for axis in (1, 0):
            chips = self._mesh[axis]
            if chips > 1:
                lines = (parts[at : at + chips] for at in range(0, len(parts), chips))
                parts = [self._new.emit(node.origin, op, *line, chips=chips, axis=axis) for line in lines]
        (whole,) = parts
        return whole

    def _graph(self) -> Graph:
        segment = self._segment
        kept = {value: each for value, each in segment.constants.items() if value not in self._parts}
        for value in self._parts.keys() & segment.constants.keys():
            shares = np.split(segment.constants[value], self._total, self._found.axes[value])
            kept.update(zip(self._parts[value], shares, strict=False))
        told = {value: each for chip in self._chips for value, each in chip.constants.items()}
        return replace(
            segment,
            inputs=tuple(part for value in segment.inputs for part in self._parts.get(value, (value,))),
            input_names=(),
            nodes=tuple(self._new.nodes),
            constants={**kept, **self._new.constants, **told},
            names={name: self._parts.get(value, (value,))[0] for name, value in segment.names.items()},
        )


_EXCHANGES = {ADDED: _Chips.added, GATHERED: _Chips.gathered}
