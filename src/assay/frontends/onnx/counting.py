"""How many nodes a model has once its functions are expanded, found without expanding them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import onnx

from assay.errors import LimitExceeded
from assay.limits import Limits

Name: TypeAlias = tuple[str, str, str]


def check_expanded_size(model: onnx.ModelProto, limits: Limits) -> None:
    """LimitExceeded if the main graph would have too many nodes: twelve functions that each call the next one ten
    times make a million million."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    count = _nodes(model.graph.node, functions, {}, 0, limits)
    if count > limits.nodes:
        raise LimitExceeded(
            f"the model has more than {limits.nodes} nodes: {count} with its functions expanded",
            where=f"graph '{model.graph.name}'",
            hint="raise Limits.nodes",
        )


def _nodes(
    protos: Iterable[onnx.NodeProto],
    functions: Mapping[Name, onnx.FunctionProto],
    known: dict[Name, int],
    depth: int,
    limits: Limits,
) -> int:
    """The nodes that a list becomes; `known` holds those of the functions that were counted."""
    if depth > limits.nesting:
        message = f"calls and bodies nest deeper than {limits.nesting}"
        raise LimitExceeded(message, where="the model's functions", hint="a function may not call itself")
    total = 0
    for proto in protos:
        total += 1
        name = (proto.domain, proto.op_type, proto.overload)
        if name in functions:
            if name not in known:
                known[name] = _nodes(functions[name].node, functions, known, depth + 1, limits)
            total += known[name]
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                total += _nodes(attribute.g.node, functions, known, depth + 1, limits)
    return total
