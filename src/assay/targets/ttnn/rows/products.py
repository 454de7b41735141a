"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping

from assay.ir.graph import Node
from assay.targets.ttnn.plan import CallPlanner, Make, Named, Ref, on_card
from assay.targets.ttnn.products_config import ACCURATE
from assay.targets.ttnn.rows.movement import repeated
from assay.targets.ttnn.table import lowers


@lowers("matmul", calls=("repeat", "matmul"))
def _matmul(p: CallPlanner, node: Node) -> None:
    """The library broadcasts batches only where the second operand has none."""
    x, y = node.inputs
    left, right = on_card(x), on_card(y)
    a, b = p.take(x), p.take(y, p.matrix_form(y))
    if len(right) > 2 and left[:-2] != right[:-2]:
        batch = on_card(node.outputs[0])[: max(len(left), len(right)) - 2]
        a = _batched(p, a, left, batch)
        b = _batched(p, b, right, batch)
    found = p.call("matmul", a, b, compute_kernel_config=ACCURATE)
    made = _result_shape(left, right, on_card(node.outputs[0]))
    wanted = on_card(node.outputs[0])
    p.give(node.outputs[0], found if made == wanted else p.call("reshape", found, list(wanted)))


def _batched(p: CallPlanner, x: Ref, shape: tuple[int, ...], batch: tuple[int, ...]) -> Ref:
    return repeated(p, x, shape, (*batch, *shape[-2:])) if len(shape) > 1 else x


def _result_shape(left: tuple[int, ...], right: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """What the library makes of these shapes: for two vectors a tensor without axes."""
    return () if len(left) == len(right) == 1 else wanted


_FUNCTIONS: Mapping[str, Make] = {
    "relu": Make("UnaryWithParam", {}, (Named("UnaryOpType.RELU"),)),
    "gelu": Make("UnaryWithParam", {}, (Named("UnaryOpType.GELU"), 0.0)),
    "silu": Make("UnaryWithParam", {}, (Named("UnaryOpType.SILU"),)),
}
"""The functions that follow a layer; a 0 asks gelu to be accurate."""


@lowers("ttnn.linear", calls=("linear",))
def _linear(p: CallPlanner, node: Node) -> None:
    x, weights, bias = (*node.inputs, None)[:3]
    found = p.call(
        "linear",
        p.take(x),
        p.take(weights, p.matrix_form(weights)),
        transpose_b=bool(node.attrs["transposed"]),
        bias=None if bias is None else p.take(bias),
        activation=_FUNCTIONS.get(node.attrs["activation"]),
        compute_kernel_config=ACCURATE,
    )
    p.give(node.outputs[0], found)
