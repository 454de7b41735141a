"""Norms with given statistics go into the weights of the convolutions that they follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from assay.ir.dtypes import f32, f64
from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import TensorType
from assay.passes.rewrite import Rewriting, begin
from assay.targets.base import Limitation
from assay.targets.shared.tensors import known_shape


def fold_norms(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """`graph` with batch_norm(conv(x, w, b), …) as one convolution where nothing else reads that of x; `graph` itself
    if there is no such norm. Narrow floats are left alone: their weights would be rounded once more."""
    rewriting = begin(graph, static, numbers)
    reads = Counter(value for node in graph.nodes for value in used(node)) + Counter(graph.outputs)
    convs = {node.outputs[0]: node for node in graph.nodes if node.op == "conv" and reads[node.outputs[0]] == 1}
    folded = {norm: conv for norm in graph.nodes if (conv := _conv_before(norm, convs, rewriting.known)) is not None}
    if not folded:
        return graph
    gone = set(folded.values())
    for node in graph.nodes:
        if node not in gone:
            rewriting.nodes.append(_joined(rewriting, folded[node], node) if node in folded else node)
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


def _conv_before(norm: Node, convs: dict[Value, Node], known: Collection[Value]) -> Node | None:
    """The convolution that a norm goes into, if there is one."""
    if norm.op != "batch_norm" or norm.inputs[0] is None:
        return None
    conv = convs.get(norm.inputs[0])
    if conv is None or conv.inputs[1] is None or len(known_shape(conv.inputs[1])) < 3:
        return None
    weights = [value for value in (*conv.inputs[1:], *norm.inputs[1:]) if value is not None]
    wide = isinstance(weights[0].type, TensorType) and weights[0].type.dtype in (f32, f64)
    return conv if wide and all(value in known for value in weights) else None


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
