"""Which linear layers chips can share, each with its part of the weights.

Two layers are a *pair* if what the first one gives reaches the second alone, through ops that keep the elements of a
row apart. The weights of the first are shared out by columns, those of the second by rows: then a chip's part of the
first result is all that its part of the second needs, and the sum of what chips make is the result. Several first
layers may meet on the way, as in a gated one. Any other layer can be shared out by columns, the parts of its result
side by side.

Parts are whole tiles of the card, as others take no less of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assay.ir.graph import Graph, Node, Value
from assay.targets.ttnn.formats import TILE
from assay.targets.ttnn.plan import sizes
from assay.targets.ttnn.shares import ELEMENTWISE, NotShared

COLUMNS, ADDED, GATHERED = "columns", "rows, added up", "columns, side by side"
"""How a layer is shared out: the first of a pair, the last of one, and one that is alone."""


@dataclass(frozen=True)
class MatrixLayer:
    """A product with a matrix, and what is added to each row."""

    node: Node

    @property
    def x(self) -> Value:
        """The rows."""
        return _there(self.node.inputs[0])

    @property
    def weights(self) -> Value:
        """The matrix."""
        return _there(self.node.inputs[1])

    @property
    def bias(self) -> Value | None:
        """What is added to each row."""
        return (*self.node.inputs, None)[2]

    @property
    def columns(self) -> int:
        """The axis of the matrix whose elements make one column of the result each."""
        return 0 if self.node.attrs.get("transposed") else 1


@dataclass(frozen=True)
class LayerShares:
    """How layers are shared out: the axis of each value of which chips have parts, in which way each layer is, and of
    those that are whole on every chip why."""

    axes: Mapping[Value, int]
    ways: Mapping[Node, str]
    whole: Mapping[Node, str]


def shared_layers(graph: Graph, chips: int) -> LayerShares:
    """The layers that chips share. NotShared, with the reason of the first that they cannot, if there is none."""
    layers = [layer for node in graph.nodes if (layer := layer_of(node)) is not None]
    found = _Found(graph, chips, {layer.node: layer for layer in layers})
    reasons = {layer.node: _complaint(found.pair, layer) for layer in layers}
    for layer in layers:
        if layer.node not in found.ways and (alone := _complaint(found.alone, layer)):
            before = reasons[layer.node]
            reasons[layer.node] = before if before == alone else f"{before}; by columns, {alone}"
    whole = {node: reason for node, reason in reasons.items() if node not in found.ways}
    if not found.ways:
        told = [f"{node.op} ({node.origin.name or node.origin.op}): {reason}" for node, reason in whole.items()]
        raise NotShared(told[0] if told else "there is no linear layer")
    return LayerShares(found.axes, found.ways, whole)


def _complaint(look: Callable[[MatrixLayer], None], layer: MatrixLayer) -> str:
    """Why a layer is not shared out in a way; empty if it is."""
    try:
        look(layer)
    except NotShared as reason:
        return str(reason)
    return ""


def layer_of(node: Node) -> MatrixLayer | None:
    """The layer that a node is; None if it is none."""
    if node.op not in _PRODUCTS or len(sizes(node.inputs[0])) < 2 or len(sizes(node.inputs[1])) != 2:
        return None
    return MatrixLayer(node)


_PRODUCTS = ("ttnn.linear", "matmul")


@dataclass
class _Found:
    """What is known so far of a graph."""

    graph: Graph
    chips: int
    layers: Mapping[Node, MatrixLayer]
    axes: dict[Value, int] = field(default_factory=dict[Value, int])
    ways: dict[Node, str] = field(default_factory=dict[Node, str])

    def __post_init__(self) -> None:
        self.makers: Mapping[Value, Node] = {value: node for node in self.graph.nodes for value in node.outputs}
        self.given = {*self.graph.inputs, *self.graph.constants}
        self.ends = set(self.graph.outputs)
        self.readers: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers.setdefault(value, []).append(node)

    def pair(self, last: MatrixLayer) -> None:
        """See that a layer is the last of a pair. NotShared if it is not."""
        if last.bias is not None and len(sizes(last.bias)) > len(sizes(last.node.outputs[0])):
            raise NotShared("what is added has more axes than the result")
        way = _Way(self, last)
        way.part(last.weights, 1 - last.columns)
        way.before(last.x)
        if not any(node in self.layers for node in way.nodes):
            raise NotShared("no linear layer leads to it alone")
        way.check_readers()
        self._keep(way, {**{node: COLUMNS for node in way.nodes if node in self.layers}, last.node: ADDED})

    def alone(self, layer: MatrixLayer) -> None:
        """See that a layer that is in no pair is shared out by columns. NotShared if it cannot be."""
        way = _Way(self, layer)
        way.first(layer)
        way.check_readers()
        self._keep(way, {layer.node: GATHERED})

    def _keep(self, way: _Way, ways: Mapping[Node, str]) -> None:
        self.axes.update(way.axes)
        self.ways.update(ways)


@dataclass
class _Way:
    """What leads to the last layer of a pair: nodes, and values of which chips have parts."""

    found: _Found
    last: MatrixLayer
    axes: dict[Value, int] = field(default_factory=dict[Value, int])
    nodes: set[Node] = field(default_factory=set[Node])

    def part(self, value: Value, axis: int) -> None:
        """Chips have parts of something that is given."""
        if value not in self.found.given:
            raise NotShared("its weights are computed")
        size, chips = sizes(value)[axis], self.found.chips
        if size % (chips * TILE):
            raise NotShared(f"{chips} chips cannot share {size} in whole tiles")
        if self.axes.setdefault(value, axis) != axis:
            raise NotShared("its weights are shared out by rows and by columns")

    def before(self, value: Value) -> None:
        """Chips have parts of the rows of a value: so they have of what it is made of."""
        if value in self.axes:
            return
        maker = self.found.makers.get(value)
        if maker is None:
            self.part(value, len(sizes(value)) - 1)
            return
        self.axes[value] = len(sizes(value)) - 1
        self.nodes.add(maker)
        layer = self.found.layers.get(maker)
        if layer is not None:
            self.first(layer)
            return
        step = _STEPS.get(maker.op)
        if step is None:
            raise NotShared(f"{maker.op} before it is not known to keep columns apart")
        step(self, maker)

    def first(self, layer: MatrixLayer) -> None:
        """A layer is shared out by columns."""
        if layer.node in self.found.ways:
            raise NotShared("the layer before it is shared out in another way")
        self.nodes.add(layer.node)
        self.part(layer.weights, layer.columns)
        if layer.bias is not None:
            self.part(layer.bias, len(sizes(layer.bias)) - 1)

    def check_readers(self) -> None:
        """NotShared if somebody else reads what chips have parts of."""
        own = {*self.nodes, self.last.node}
        for value in self.axes:
            if value in self.found.ends or not own.issuperset(self.found.readers[value]):
                raise NotShared("others read its weights or what leads to it")


def _operands(way: _Way, node: Node) -> None:
    """Of an elementwise op: all operands that are not the same for all columns."""
    width = sizes(node.outputs[0])[-1]
    for value in node.inputs:
        if value is not None and sizes(value)[-1:] == (width,):
            way.before(value)


def _same_columns(way: _Way, node: Node) -> None:
    """Of a reshape: it must leave the last axis as it is."""
    x = _there(node.inputs[0])
    if sizes(x)[-1:] != sizes(node.outputs[0])[-1:]:
        raise NotShared(f"{node.op} before it mixes columns")
    way.before(x)


_STEPS: Mapping[str, Callable[[_Way, Node], None]] = {
    **dict.fromkeys(ELEMENTWISE, _operands),
    "reshape": _same_columns,
}


def _there(value: Value | None) -> Value:
    assert value is not None
    return value
