"""The pass `linear`: a product with a matrix, which may be stored transposed, what is added to each row, and the
function that follows, as one call.

The rows of such a layer are those of all axes but the last. So what the axes were joined for in front of a product, and
taken apart for behind it, is not done: the layer takes and gives them as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from assay.ir.graph import Graph, Node, Origin, Value
from assay.passes.dce import dce
from assay.passes.rewrite import begin, renamed
from assay.targets.shared.tensors import shape_of
from assay.targets.ttnn.ops import ACTIVATIONS

_SHAPING = ("reshape", "squeeze", "unsqueeze")


@dataclass(frozen=True)
class Layer:
    """A layer: its product, the nodes that became part of it in their order, and what it is made of."""

    product: Node
    absorbed: tuple[Node, ...]
    weights: Value
    transposed: bool
    bias: Value | None
    activation: str

    @property
    def result(self) -> Value:
        """The value of its last node."""
        return (self.product, *self.absorbed)[-1].outputs[0]

    @property
    def origin(self) -> Origin:
        """That of the product, with those of the others."""
        return replace(self.product.origin, merged=tuple(each.origin for each in self.absorbed))


def fuse_linear(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """Products with a transposed matrix, and those that something is added to or that are passed through a function,
    are `ttnn.linear`."""
    readers = _readers(graph)
    turned = {each.outputs[0]: each.inputs[0] for each in graph.nodes if each.op == "transpose"}
    layers = [layer for node in graph.nodes if (layer := _layer(node, readers, turned)) is not None]
    if not layers:
        return graph
    rewriting = begin(graph, static, numbers)
    ends = {(layer.product, *layer.absorbed)[-1]: layer for layer in layers}
    inside = {node for layer in layers for node in (layer.product, *layer.absorbed)}
    sources = {each.outputs[0]: each.inputs[0] for each in graph.nodes if each.op in _SHAPING and each not in inside}
    for node in graph.nodes:
        layer = ends.get(node)
        if layer is None:
            rewriting.nodes += [] if node in inside else [node]
            continue
        x, weights = _rows_of(layer.product, sources), layer.weights
        given = (x, weights) if layer.bias is None else (x, weights, layer.bias)
        attrs = {"activation": layer.activation, "transposed": layer.transposed}
        made = rewriting.emit(layer.origin, "ttnn.linear", *given, **attrs)
        shape = _known(layer.result)
        if shape_of(made) != shape:
            sources[layer.result] = made
            made = rewriting.reshape(layer.origin, made, shape)
        last = rewriting.nodes.pop()
        rewriting.nodes += renamed([last], {made: layer.result})
    return dce(rewriting.finished(graph))


def _readers(graph: Graph) -> Mapping[Value, list[Node]]:
    """Who reads each value; what the segment gives away has no reader here."""
    found: dict[Value, list[Node]] = {}
    given_away = set(graph.outputs)
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value not in given_away:
                found.setdefault(value, []).append(node)
    return found


def _layer(product: Node, readers: Mapping[Value, list[Node]], turned: Mapping[Value, Value | None]) -> Layer | None:
    """The layer that begins with a product; None if it is none, or there is nothing that a layer has beside that.
    `turned` says what a value is the transpose of."""
    if product.op != "matmul" or not _is_layer_product(product):
        return None
    absorbed: list[Node] = []
    bias, activation = None, ""
    while True:
        value = (product, *absorbed)[-1].outputs[0]
        following = readers.get(value, [])
        if len(following) != 1:
            break
        node = following[0]
        if node.op == "add" and not absorbed and (bias := _row_beside(node, value)) is not None:
            absorbed.append(node)
        elif node.op in ACTIVATIONS and not activation:
            activation = node.op
            absorbed.append(node)
        elif node.op in _SHAPING and value is node.inputs[0]:
            absorbed.append(node)
        else:
            break
    weights = product.inputs[1]
    assert weights is not None
    source = turned.get(weights)
    if bias is None and not activation and source is None:
        return None
    return Layer(product, tuple(absorbed), source or weights, source is not None, bias, activation)


def _is_layer_product(node: Node) -> bool:
    x, weights = node.inputs
    assert x is not None
    assert weights is not None
    known = all(isinstance(dim, int) for value in (x, weights) for dim in shape_of(value))
    return known and len(shape_of(x)) > 1 and len(shape_of(weights)) == 2


def _row_beside(node: Node, value: Value) -> Value | None:
    """What is added to every row of `value`; None if something else is added."""
    (other,) = [each for each in node.inputs if each is not value] or [None]
    width = shape_of(value)[-1]
    row = other is not None and shape_of(other)[-1:] == (width,) and prod(_known(other)) == width
    return other if row and shape_of(node.outputs[0]) == shape_of(value) else None


def _rows_of(product: Node, sources: Mapping[Value, Value | None]) -> Value:
    """What a product multiplies, with its axes as they were before they were joined; `sources` says what a value is
    another shape of."""
    x = product.inputs[0]
    assert x is not None
    while (source := sources.get(x)) is not None:
        if len(shape_of(source)) < 2 or shape_of(source)[-1] != shape_of(x)[-1]:
            break
        x = source
    return x


def _known(value: Value) -> tuple[int, ...]:
    return tuple(dim for dim in shape_of(value) if isinstance(dim, int))
