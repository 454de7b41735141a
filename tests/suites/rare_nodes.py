"""Nodes that are legal and that no sample has: types that only models state, ranks that are of little use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from assay.ir import dtypes
from assay.ir.dims import Dim, floordiv, symbol
from assay.ir.dtypes import DType, c64, f32, i64, u8
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType
from assay.ops.registry import OPS, complete_attrs

N, M = symbol("n"), symbol("m")
FIVE: Mapping[str, Any] = {"kernel": (1,) * 5, "strides": (1,) * 5, "pads": (0,) * 10, "dilations": (1,) * 5}
"""A window over five axes."""


class Rare(NamedTuple):
    """One node: an op, the types of what it reads and makes, attributes."""

    op: str
    inputs: tuple[TensorType, ...]
    output: TensorType
    attrs: Mapping[str, Any] = {}


def tensor(*shape: Dim, dtype: DType = f32) -> TensorType:
    return TensorType(dtype, shape)


def whole(*shape: Dim) -> TensorType:
    return TensorType(i64, shape)


def involved() -> Dim:
    """A size so long that no condition on it can be written down."""
    size: Dim = N
    for _ in range(6):
        size = floordiv(size * size + 1, 3)
    return size


LONG = tensor(1 << 20)
LARGE = tensor(1, 1, *[2] * 5)
WITHOUT_KERNEL = {name: each for name, each in FIVE.items() if name != "kernel"}
RARE = (
    Rare("add", (tensor(involved()), tensor(2)), tensor(2)),
    Rare("neg", (tensor(*[involved()] * 3),), tensor(*[involved()] * 3)),
    Rare("group_norm", (tensor(4),), tensor(4), {"groups": 1}),
    Rare("instance_norm", (tensor(4),), tensor(4)),
    Rare("conv", (LARGE, tensor(*[1] * 7)), LARGE, WITHOUT_KERNEL),
    Rare("max_pool", (LARGE,), LARGE, FIVE),
    Rare("max_pool_positions", (LARGE,), TensorType(i64, LARGE.shape), FIVE),
    Rare("average_pool", (LARGE,), LARGE, FIVE),
    Rare("lp_pool", (LARGE,), LARGE, FIVE),
    Rare("gather_elements", (tensor(), whole()), tensor(), {"axis": 0}),
    Rare("scatter_elements", (tensor(), whole(), tensor()), tensor(), {"axis": 0}),
    Rare("scatter_elements", (tensor(3, 4), whole(2, 4), tensor(N, 4)), tensor(3, 4), {"axis": 0}),
    Rare(
        "scatter_elements",
        (tensor(3, dtype=c64), whole(2), tensor(2, dtype=c64)),
        tensor(3, dtype=c64),
        {"axis": 0, "reduction": "add"},
    ),
    Rare("gather_nd", (tensor(3, 4), whole(2, N)), tensor(2, M)),
    Rare("gather_nd", (tensor(3, 4), whole(2, 0)), tensor(2, 3, 4)),
    Rare("scatter_nd", (tensor(3, 4), whole(2, N), tensor(2, M)), tensor(3, 4)),
    Rare("scatter_nd", (tensor(3, 4), whole(2, 0), tensor(2, 3, 4)), tensor(3, 4)),
    Rare("cum_sum", (LONG,), LONG, {"axis": 0}),
    Rare("sort", (LONG,), LONG, {"axis": 0}),
    Rare("topk", (LONG, whole()), tensor(4), {"axis": 0}),
    Rare("dequantize_linear", (tensor(2, 3, dtype=u8), tensor(1), tensor(N, dtype=u8)), tensor(2, 3), {"dtype": f32}),
)


def rare_nodes() -> Iterator[Node]:
    """All of them."""
    yield from map(_node, RARE)
    yield _loop(carried=(3,), given=(N,), row=(4,), stack=(5, 4))
    yield _loop(carried=(3,), given=(3,), row=(N,), stack=(5, 4))
    yield Node("nobody.defines", (), (), Origin("rare"))


def _node(rare: Rare) -> Node:
    values = tuple(Value(index, kind) for index, kind in enumerate(rare.inputs))
    attrs = complete_attrs(OPS[rare.op], rare.attrs)
    return Node(rare.op, values, (Value(len(values), rare.output),), Origin("rare"), attrs)


def _loop(*, carried: tuple[Dim, ...], given: tuple[Dim, ...], row: tuple[Dim, ...], stack: tuple[Dim, ...]) -> Node:
    """A loop that carries one tensor, which its body takes to be of the shape `given`, and collects rows."""
    ids = count()

    def value(*shape: Dim, dtype: DType = f32) -> Value:
        return Value(next(ids), TensorType(dtype, shape))

    go, inner = value(dtype=dtypes.boolean), value(*given)
    body = Graph("body", (value(dtype=i64), go, inner), (go, inner, value(*row)), ())
    inputs = (value(dtype=i64), value(dtype=dtypes.boolean), value(*carried))
    return Node("loop", inputs, (value(*carried), value(*stack)), Origin("rare"), {}, (body,))
