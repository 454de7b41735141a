"""Norms with given statistics go into the weights of the convolutions that they follow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from assay.ir.dtypes import Array, f32, f64
from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import TensorType
from assay.passes.rewrite import Rewriting, begin
from assay.targets.base import Limitation
from assay.targets.shared.tensors import known_shape


def fold_norms(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """`graph` with batch_norm(conv(x, w, b), …) as one convolution where nothing else reads that of x, also with
    conv(x, w, b) · factor and conv(x, w, b) + shift where these have a number for each channel; `graph` itself if there
    is none of these. Narrow floats are left alone: their weights would be rounded once more. So are factors that are
    known to bring weights out of range."""
    rewriting = begin(graph, static, numbers)
    reads = Counter(value for node in graph.nodes for value in used(node)) + Counter(graph.outputs)
    convs: dict[Value, Node] = {}
    gone: set[Node] = set()
    for node in graph.nodes:
        step = _step_after(node, convs, rewriting.known, graph.constants)
        made = node if step is None else step.fold(rewriting, step.conv, node)
        rewriting.nodes.append(made)
        if step is not None:
            gone.add(step.conv)
        if made.op == "conv" and reads[made.outputs[0]] == 1:
            convs[made.outputs[0]] = made
    if not gone:
        return graph
    rewriting.nodes = [node for node in rewriting.nodes if node not in gone]
    left = {name: value for name, value in graph.names.items() if not any(value in conv.outputs for conv in gone)}
    return replace(rewriting.finished(graph), names=left)


def is_foldable(node: Node) -> bool:
    """Whether a norm is one that `fold_norms` looks for, and has parts with kernels where that finds no use for it."""
    if node.op != "batch_norm" or node.inputs[0] is None or node.inputs[1] is None:
        return False
    x, channels = node.inputs[0].type, known_shape(node.inputs[1])
    if not isinstance(x, TensorType) or x.dtype not in (f32, f64) or not x.is_sized:
        return False
    return bool(channels) and (x.shape or ())[1:2] == channels


def kept_for_folding(row: Limitation) -> Limitation:
    """A limitation of kernels, as one of a target that folds norms: those that are folded need no kernel."""

    def applies(node: Node) -> bool:
        return row.applies(node) and not is_foldable(node)

    return replace(row, applies=applies)


class _Step(NamedTuple):
    """What goes into the weights of a convolution, and how: from it and the node to the convolution that does both."""

    conv: Node
    fold: Callable[[Rewriting, Node, Node], Node]


def _step_after(
    node: Node, convs: Mapping[Value, Node], known: Collection[Value], constants: Mapping[Value, Array]
) -> _Step | None:
    """What a node does with the result of a convolution, if that goes into its weights."""
    if node.op not in _FOLDS:
        return None
    taken = node.inputs[:1] if node.op == "batch_norm" else node.inputs
    found = next((value for value in taken if value is not None and value in convs), None)
    if found is None:
        return None
    conv, others = convs[found], [value for value in node.inputs if value is not None and value is not found]
    weights = [value for value in (*conv.inputs[1:], *others) if value is not None]
    wide = isinstance(weights[0].type, TensorType) and weights[0].type.dtype in (f32, f64)
    if not wide or len(known_shape(weights[0])) < 3 or not all(value in known for value in weights):
        return None
    if node.op != "batch_norm" and not all(_is_by_channel(value, known_shape(weights[0])) for value in others):
        return None
    if node.op == "mul" and any(value in constants and not _is_moderate(constants[value]) for value in others):
        return None
    return _Step(conv, _FOLDS[node.op])


def _is_by_channel(value: Value, weights: Sequence[int]) -> bool:
    """Whether a tensor that is broadcast has a number for each channel that such weights make."""
    shape = known_shape(value)
    return len(weights) - 1 <= len(shape) <= len(weights) and math.prod(shape) == weights[0] == shape[1 - len(weights)]


def _is_moderate(factors: Array) -> bool:
    """Whether weights times these stay numbers, and none becomes 0."""
    sizes = np.abs(factors)
    return bool(((sizes == 0) | ((sizes > 2.0**-32) & (sizes < 2.0**32))).all())


def _scaled(r: Rewriting, conv: Node, node: Node) -> Node:
    """The convolution with w · factor and b · factor."""
    x, w, *rest = conv.inputs
    assert w is not None
    channels, *others = known_shape(w)
    factor = _other(conv, node)
    weights = r.emit(node.origin, "mul", w, r.reshape(node.origin, factor, (channels, *[1] * len(others))))
    given = next((value for value in rest if value is not None), None)
    flat = None if given is None else r.emit(node.origin, "mul", given, r.reshape(node.origin, factor, (channels,)))
    return replace(conv, inputs=(x, weights, *([] if flat is None else [flat])), outputs=node.outputs)


def _shifted(r: Rewriting, conv: Node, node: Node) -> Node:
    """The convolution with b + shift."""
    x, w, *rest = conv.inputs
    assert w is not None
    shift = r.reshape(node.origin, _other(conv, node), known_shape(w)[:1])
    given = next((value for value in rest if value is not None), None)
    whole = shift if given is None else r.emit(node.origin, "add", given, shift)
    return replace(conv, inputs=(x, w, whole), outputs=node.outputs)


def _other(conv: Node, node: Node) -> Value:
    """What a node takes besides the result of a convolution."""
    return next(value for value in node.inputs if value is not None and value is not conv.outputs[0])


def _joined(r: Rewriting, conv: Node, norm: Node) -> Node:
    """The convolution with w · factor and (b − mean) · factor + bias, where factor is scale / √(variance + ε)."""
    origin = norm.origin
    x, w, *rest = conv.inputs
    _, mean, variance, scale, bias = (*norm.inputs, None, None)[:5]
    assert w is not None
    assert mean is not None
    assert variance is not None
    assert isinstance(w.type, TensorType)
    epsilon = r.constant(np.array(norm.attrs["epsilon"], w.type.dtype.numpy), TensorType(w.type.dtype, ()))
    deviation = r.emit(origin, "sqrt", r.emit(origin, "add", variance, epsilon))
    factor = r.emit(origin, "reciprocal", deviation) if scale is None else r.emit(origin, "div", scale, deviation)
    channels, *others = known_shape(w)
    weights = r.emit(origin, "mul", w, r.reshape(origin, factor, (channels, *[1] * len(others))))
    given = next((value for value in rest if value is not None), None)
    centre = r.emit(origin, "neg", mean) if given is None else r.emit(origin, "sub", given, mean)
    shift = r.emit(origin, "mul", centre, factor)
    shift = shift if bias is None else r.emit(origin, "add", shift, bias)
    return replace(conv, inputs=(x, weights, shift), outputs=norm.outputs)


_FOLDS: Mapping[str, Callable[[Rewriting, Node, Node], Node]] = {
    "batch_norm": _joined,
    "mul": _scaled,
    "add": _shifted,
}
"""Nodes that go into the weights of the convolution before them."""
