"""Nodes with bodies: If, Loop and Scan, whose bodies are drawn from a few small ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.onnx_grow import Drawn, Growth, NodeMaker, drawn

_FLOAT, _INT, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _info(name: str, kind: int = _FLOAT, dims: Sequence[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def _number(name: str, value: Any, kind: int = _FLOAT) -> Any:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, kind, [], [value]))


def _body(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], name: str = "body") -> GraphProto:
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs))


def _branch(g: Growth, x: str, label: str) -> GraphProto:
    """A branch that reads a value from around it."""
    label = f"{label}{len(g.nodes)}"
    out = f"{x}_{label}_out"
    rows = (
        [helper.make_node("Relu", [x], [out])],
        [helper.make_node("Neg", [x], [out])],
        [_number(f"{x}_{label}_k", 2.0), helper.make_node("Mul", [x, f"{x}_{label}_k"], [out])],
        [helper.make_node("Identity", [x], [out])],
        [helper.make_node("Concat", [x, x], [out], axis=0)] if g.rank(x) else [helper.make_node("Abs", [x], [out])],
        [helper.make_node("Shape", [x], [f"{out}_s"]), helper.make_node("ConstantOfShape", [f"{out}_s"], [out])],
    )
    return _body(g.pick(rows), [], [_info(out)], label)


def if_(g: Growth) -> Drawn:
    """A condition that is fed, fixed or computed; branches of one shape or of two."""
    x = g.tensor(0, 3)
    condition = g.given(g.pick((True, False, [True])), "bool", fed=0.7)
    return drawn("If", [condition], then_branch=_branch(g, x, "then"), else_branch=_branch(g, x, "else"))


def loop(g: Growth) -> Drawn:
    """Counted, conditional, both or neither; no iteration at all; what is carried keeps its shape or grows."""
    x = g.tensor(0, 2)
    number = len(g.nodes)
    i, go, a, out, scan = (f"{name}{number}" for name in ("i", "go", "a", "b", "s"))
    grows = g.chance(0.25) and g.rank(x) == 1
    step = (
        [helper.make_node("Concat", [a, a], [out], axis=0)]
        if grows
        else [_number(f"k{number}", 0.5), helper.make_node("Mul", [a, f"k{number}"], [out])]
    )
    going = g.pick((0, 1))
    end = (
        [helper.make_node("Identity", [go], [f"{go}_out"])]
        if going
        else [_number(f"n{number}", 2, _INT), helper.make_node("Less", [i, f"n{number}"], [f"{go}_out"])]
    )
    collected = [] if grows else [helper.make_node("Abs", [out], [scan])]
    body = _body(
        [*step, *end, *collected],
        [_info(i, _INT, []), _info(go, _BOOL, []), _info(a)],
        [_info(f"{go}_out", _BOOL), _info(out), *([] if grows else [_info(scan)])],
    )
    count = g.given(g.pick((0, 1, 3)), "int64", fed=0.6) if going or g.chance(0.7) else None
    start = g.maybe(g.given(g.pick((True, True, False)), "bool", fed=0.5), 0.7)
    return drawn("Loop", [count, start, x], 1 if grows else 2, body=body)


def scan(g: Growth) -> Drawn:
    """States and rows, along any axis, forwards or backwards."""
    x = g.tensor(1, 3)
    axis = g.rng.randint(0, g.rank(x) - 1)
    rest = [size for at, size in enumerate(g.shape(x)) if at != axis]
    if 0 in g.shape(x):
        raise NotPossible("nothing to scan")
    number = len(g.nodes)
    state, row, after, result = (f"{name}{number}" for name in ("st", "row", "af", "re"))
    body = _body(
        [helper.make_node("Add", [state, row], [after]), helper.make_node("Mul", [state, row], [result])],
        [_info(state), _info(row)],
        [_info(after), _info(result)],
    )
    first = g.data(np.zeros(rest, np.float32))
    return drawn(
        "Scan",
        [first, x],
        2,
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis] if axis or g.chance(0.3) else None,
        scan_input_directions=g.maybe([1], 0.4),
        scan_output_directions=g.maybe([1], 0.3),
        scan_output_axes=g.maybe([g.rng.randint(0, len(rest))], 0.3),
    )


FLOWS: dict[NodeMaker, float] = {if_: 1.0, loop: 1.5, scan: 1.0}
"""How often each is drawn."""
