"""Matrix products and attention."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from assay.ir.graph import Node, Value
from assay.targets.base import limitation
from assay.targets.ttnn.formats import TILE as TILE_SIZE
from assay.targets.ttnn.plan import CallPlanner, Make, Named, Ref, kind_of, on_card, sizes
from assay.targets.ttnn.products_config import ACCURATE
from assay.targets.ttnn.rows.movement import repeated
from assay.targets.ttnn.rows.reductions import coarser
from assay.targets.ttnn.table import FLOAT, HELD, lowers


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


@limitation("the library's attention has four axes")
def _other_rank(node: Node) -> bool:
    return len(sizes(node.inputs[0])) != 4


@limitation("the library's attention does not cap scores")
def _capped(node: Node) -> bool:
    return bool(node.attrs["softcap"])


@limitation("the library's causal attention has no mask, and as many keys as queries")
def _partly_causal(node: Node) -> bool:
    q, k, _, mask = (*node.inputs, None)[:4]
    return node.attrs["causal"] and (mask is not None or sizes(q)[2] != sizes(k)[2])


@lowers(
    "sdpa",
    calls=("pad", "repeat", "where", "transformer.scaled_dot_product_attention", "slice"),
    kinds=(FLOAT, FLOAT, FLOAT, HELD),
    unless=(_other_rank, _capped, _partly_causal, coarser),
)
def _sdpa(p: CallPlanner, node: Node) -> None:
    """Heads are filled up to whole tiles with zeros, which change no score; the mask is repeated for all queries."""
    q, k, v, mask = (*node.inputs, None)[:4]
    queries, keys, result = sizes(q), sizes(k), node.outputs[0]
    width = max(queries[3], sizes(v)[3])
    width += -width % TILE_SIZE
    scale = node.attrs["scale"]
    found = p.call(
        "transformer.scaled_dot_product_attention",
        *(_widened(p, p.take(each), width - sizes(each)[3]) for each in (q, k, v)),
        attn_mask=None if mask is None else _whole_mask(p, mask, queries[2], keys[2]),
        is_causal=bool(node.attrs["causal"]),
        scale=float(scale) if scale is not None else queries[3] ** -0.5,
        compute_kernel_config=ACCURATE,
    )
    shape = sizes(result)
    p.give(result, found if shape[3] == width else p.call("slice", found, [0, 0, 0, 0], list(shape)))


def _widened(p: CallPlanner, x: Ref, more: int) -> Ref:
    return p.call("pad", x, [(0, 0), (0, 0), (0, 0), (0, more)], value=0.0) if more else x


def _whole_mask(p: CallPlanner, mask: Value, queries: int, keys: int) -> Ref:
    """A mask as numbers to be added to the scores."""
    shape = sizes(mask)
    outer = (1, 1, *shape)[-4:-2] if len(shape) > 1 else (1, 1)
    added = p.take(mask) if kind_of(mask) == "float" else p.call("where", p.take(mask), 0.0, -inf)
    return repeated(p, added, on_card(mask), (*outer, queries, keys))
