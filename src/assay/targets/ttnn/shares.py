"""Which axis of each value may be shared out among chips: along it, no element depends on another.

A graph is looked at with some inputs shared out along their first axis. Each chip has an equal run of neighbours along
the axis of a value, its *share*; values without such an axis are whole on every chip.

| ops | the axis |
|---|---|
| elementwise, cast, rotary, concat | that of all operands; whole ones must have size 1 along it, or be spread |
| transpose, unsqueeze, squeeze, expand | moves along |
| trilu, resize, pad, tile, slice, split, flip | all that the op leaves as they are |
| reshape | stays the outermost of those that are split or joined |
| softmax, sort, topk, arg_max, cum_*, reduce_*, layer_norm, rms_norm | others than the op's own |
| conv, pools, group_norm, instance_norm, heads | the first; batch_norm: all but the channels |
| matmul, linear | batch or rows of the first operand, columns of the second |
| gather | those of positions, or those of the data that are not its own |
| gather_elements, scatter_elements | others than the op's own, in all operands |
| sdpa | the first, in all operands |
| all others | none |

A whole operand that an `expand` or a constant repeats along the axis is spread: each chip makes its own share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Value
from assay.ops.registry import CORE
from assay.targets.ttnn.plan import sizes


class NotShared(Exception):
    """Why a graph cannot be shared out in this way."""


class _Again(Exception):
    """Something that was taken for whole has to be shared out: look at the graph once more."""


@dataclass
class Shares:
    """What is known so far: the axis of each value that is shared out among `chips`, of those that are not whole."""

    graph: Graph
    chips: int
    axes: dict[Value, int] = field(default_factory=dict[Value, int])
    spread: dict[Value, int] = field(default_factory=dict[Value, int])
    """Values that must be shared out although nothing that they are made of is."""

    def __post_init__(self) -> None:
        self.makers: Mapping[Value, Node] = {value: node for node in self.graph.nodes for value in node.outputs}

    def of(self, value: Value | None) -> int | None:
        """The axis of a value."""
        return None if value is None else self.axes.get(value)

    def content(self, value: Value | None) -> Array:
        """A constant that an op cannot do without."""
        found = None if value is None else self.graph.constants.get(value)
        if found is None:
            raise NotShared("it is told what to do by a run")
        return found

    def demand(self, value: Value | None, axis: int) -> None:
        """See that an operand that is not of size 1 along this axis is shared out along it."""
        if value is None or axis < 0 or sizes(value)[axis] == 1:
            if self.of(value) is not None:
                raise NotShared("operands are shared out along different axes")
            return
        if self.of(value) == axis:
            return
        if self.of(value) is not None or not self._can_spread(value, axis):
            raise NotShared("an operand is whole on every chip")
        self.spread[value] = axis
        raise _Again

    def _can_spread(self, value: Value, axis: int) -> bool:
        """Whether a whole value can be shared out after all: it repeats along the axis, or is made of such."""
        constant = self.graph.constants.get(value)
        if constant is not None:
            return bool(np.all(constant == constant.take([0], axis)))
        maker = self.makers.get(value)
        return maker is not None and (maker.op == "expand" or maker.op in ELEMENTWISE)

    def whole(self, *values: Value | None) -> None:
        """See that operands are whole on every chip."""
        if any(self.of(value) is not None for value in values):
            raise NotShared("it mixes what is shared out")


Rule = Callable[[Node, Shares], "Sequence[int | None]"]
"""The axes of the results of a node, some of whose operands are shared out. Raises NotShared."""


def shared_out(graph: Graph, given: Mapping[Value, int], chips: int) -> dict[Value, int]:
    """The axis of each value that is shared out among chips, if these inputs are. NotShared with a reason if that
    cannot be done, or if a result would be whole on every chip."""
    spread: dict[Value, int] = {}
    while True:
        shares = Shares(graph, chips, dict(given), spread)
        try:
            _look(shares)
        except _Again:
            continue
        if any(value not in shares.axes for value in graph.outputs):
            raise NotShared("a result does not depend on the batch alone")
        return shares.axes


def _look(shares: Shares) -> None:
    """Find the axes of all values, node by node."""
    shares.axes.update({value: axis for value, axis in shares.spread.items() if value in shares.graph.constants})
    for node in shares.graph.nodes:
        try:
            found = _axes(node, shares)
        except NotShared as reason:
            raise NotShared(f"{node.op} ({node.origin.name or node.origin.op}): {reason}") from None
        for value, axis in zip(node.outputs, found, strict=False):
            if axis is not None:
                if sizes(value)[axis] % shares.chips:
                    raise NotShared(f"{node.op}: {shares.chips} chips cannot share {sizes(value)[axis]} alike")
                shares.axes[value] = axis


def _axes(node: Node, shares: Shares) -> Sequence[int | None]:
    rule = RULES.get(node.op)
    if any(value in shares.spread for value in node.outputs):
        return _spread(node, shares)
    if not any(shares.of(value) is not None for value in node.inputs):
        return ()
    if rule is None or node.regions:
        raise NotShared("it is not known to keep elements apart")
    return rule(node, shares)


def _spread(node: Node, shares: Shares) -> Sequence[int | None]:
    """The axis of a result that must be shared out: each chip repeats or computes its own share."""
    axis = shares.spread[node.outputs[0]]
    rank = len(sizes(node.outputs[0]))
    for value in node.inputs[:1] if node.op == "expand" else node.inputs:
        shares.demand(value, axis - rank + (0 if value is None else len(sizes(value))))
    return (axis,)


# --- rules


def _aligned(node: Node, shares: Shares) -> Sequence[int | None]:
    """Operands that are broadcast to the result: all are shared out along the same axis of it."""
    rank = len(sizes(node.outputs[0]))
    places = {rank - len(sizes(v)) + axis for v in node.inputs if v is not None and (axis := shares.of(v)) is not None}
    if len(places) > 1:
        raise NotShared("operands are shared out along different axes")
    (place,) = places
    for value in node.inputs:
        if value is not None:
            shares.demand(value, place - rank + len(sizes(value)))
    return [place] * len(node.outputs)


def _rotary(node: Node, shares: Shares) -> Sequence[int | None]:
    """Halves of the last axis turn together."""
    (place,) = _aligned(node, shares)
    if place == len(sizes(node.outputs[0])) - 1:
        raise NotShared("it mixes what is shared out")
    return (place,)


def _concat(node: Node, shares: Shares) -> Sequence[int | None]:
    if shares.of(node.inputs[0]) == node.attrs["axis"] % len(sizes(node.outputs[0])):
        raise NotShared("it mixes what is shared out")
    return _aligned(node, shares)


def _moved(origin: Callable[[Node, Shares, int], int | None]) -> Rule:
    """The rule of ops of one operand: where in the result an axis of it is; None where the op changes it."""

    def rule(node: Node, shares: Shares) -> Sequence[int | None]:
        first, *others = node.inputs
        shares.whole(*others)
        axis = shares.of(first)
        assert axis is not None
        found = origin(node, shares, axis)
        if found is None:
            raise NotShared("it mixes what is shared out")
        return [found] * len(node.outputs)

    return rule


def _unsqueezed(node: Node, shares: Shares, axis: int) -> int:
    rank = len(sizes(node.outputs[0]))
    new = {each % rank for each in node.attrs["axes"]}
    return [at for at in range(rank) if at not in new][axis]


def _squeezed(node: Node, shares: Shares, axis: int) -> int | None:
    """Where no axes are named, a share of size 1 would go, too."""
    shape, gone = sizes(node.inputs[0]), node.attrs["axes"]
    dropped = {at for at, size in enumerate(shape) if size == 1} if gone is None else {a % len(shape) for a in gone}
    kept = gone is not None or shape[axis] > shares.chips
    return axis - sum(each < axis for each in dropped) if kept else None


def _reshaped(node: Node, shares: Shares, axis: int) -> int | None:
    """The axis must be the outermost of the smallest run of axes that has as many elements in both shapes."""
    before, after = sizes(node.inputs[0]), sizes(node.outputs[0])
    outer = prod(before[:axis])
    at = next((at for at, size in enumerate(after) if prod(after[:at]) == outer and size > 1), None)
    return at if at is not None and after[at] % shares.chips == 0 else None


def _unchanged_by(operand: int, nothing: int) -> Callable[[Node, Shares, int], int | None]:
    """Of ops that are told what to do along each axis: those axes along which that is `nothing`."""

    def origin(node: Node, shares: Shares, axis: int) -> int | None:
        amounts = shares.content(node.inputs[operand]).reshape(-1)
        rank = len(sizes(node.inputs[0]))
        return axis if all(each == nothing for each in amounts[axis::rank].tolist()) else None

    return origin


def _not_among(name: str) -> Callable[[Node, Shares, int], int | None]:
    """Of ops that work along axes of their own and keep them: all others."""
    return lambda node, shares, axis: None if axis in _own(node, name) else axis


def _own(node: Node, name: str) -> list[int]:
    rank, named = len(sizes(node.inputs[0])), node.attrs[name]
    if named is None:
        return list(range(rank))
    return [each % rank for each in ([named] if isinstance(named, int) else named)]


def _dropping(name: str) -> Callable[[Node, Shares, int], int | None]:
    """Of ops that work along axes of their own and may drop them: all others."""

    def origin(node: Node, shares: Shares, axis: int) -> int | None:
        own = _own(node, name)
        if axis in own:
            return None
        return axis if node.attrs["keepdims"] else axis - sum(each < axis for each in own)

    return origin


def _before(node: Node, shares: Shares, axis: int) -> int | None:
    """Of norms over the last axes: those before."""
    return axis if axis < node.attrs["axis"] % len(sizes(node.inputs[0])) else None


def _only(*axes: int) -> Callable[[Node, Shares, int], int | None]:
    return lambda node, shares, axis: axis if axis in axes else None


def _not_last(count: int) -> Callable[[Node, Shares, int], int | None]:
    return lambda node, shares, axis: axis if axis < len(sizes(node.inputs[0])) - count else None


def _expanded(node: Node, shares: Shares, axis: int) -> int:
    return axis + len(sizes(node.outputs[0])) - len(sizes(node.inputs[0]))


def _matmul(node: Node, shares: Shares) -> Sequence[int | None]:
    x, y = node.inputs
    left, right, rank = len(sizes(x)), len(sizes(y)), len(sizes(node.outputs[0]))
    rows, columns = shares.of(x), shares.of(y)
    if left < 2 or right < 2:
        raise NotShared("vectors are not looked at")
    if columns == right - 1 and rows is None:
        return (rank - 1,)
    if rows == left - 2 and columns is None:
        return (rank - 2,)
    places = {rank - count + at for at, count in ((rows, left), (columns, right)) if at is not None}
    if len(places) > 1 or max(places) >= rank - 2:
        raise NotShared("it mixes what is shared out")
    (place,) = places
    shares.demand(x, place - rank + left)
    shares.demand(y, place - rank + right)
    return (place,)


def _gather(node: Node, shares: Shares) -> Sequence[int | None]:
    data, positions = node.inputs
    own = node.attrs["axis"] % len(sizes(data))
    axis, place = shares.of(data), shares.of(positions)
    if axis is None and place is not None:
        return (own + place,)
    if axis is None or axis == own or place is not None:
        raise NotShared("it mixes what is shared out")
    return (axis if axis < own else axis - 1 + len(sizes(positions)),)


def _elements(node: Node, shares: Shares) -> Sequence[int | None]:
    """Of ops that read or write single elements along an axis of their own: others, in all operands."""
    places = {axis for value in node.inputs if (axis := shares.of(value)) is not None}
    if len(places) > 1 or places & {*_own(node, "axis")}:
        raise NotShared("it mixes what is shared out")
    (place,) = places
    if any(sizes(value)[place] != sizes(node.inputs[0])[place] for value in node.inputs):
        raise NotShared("positions are fewer than what is shared out")
    for value in node.inputs:
        shares.demand(value, place)
    return (place,)


def _sdpa(node: Node, shares: Shares) -> Sequence[int | None]:
    q, k, v, mask = (*node.inputs, None)[:4]
    if {shares.of(value) for value in (q, k, v)} != {0}:
        raise NotShared("it mixes what is shared out")
    if mask is not None:
        shares.demand(mask, len(sizes(mask)) - len(sizes(q)))
    return (0,)


def _cache(node: Node, shares: Shares) -> Sequence[int | None]:
    cache, rows, place = node.inputs
    shares.whole(place)
    shares.demand(cache, 0)
    shares.demand(rows, 1)
    return (0,)


ELEMENTWISE = frozenset(
    {"cast", *(each.name for each in CORE if each.family in ("elementwise", "functions", "special"))}
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _aligned),
    "ttnn.rotary": _rotary,
    "concat": _concat,
    "transpose": _moved(lambda node, shares, axis: list(node.attrs["perm"]).index(axis)),
    "unsqueeze": _moved(_unsqueezed),
    "squeeze": _moved(_squeezed),
    "reshape": _moved(_reshaped),
    "expand": _moved(_expanded),
    "trilu": _moved(_not_last(2)),
    "ttnn.rotations": _moved(_not_last(1)),
    "ttnn.linear": _moved(_not_last(1)),
    "ttnn.resident": _moved(_not_last(0)),
    "pad": _moved(_unchanged_by(1, 0)),
    "tile": _moved(_unchanged_by(1, 1)),
    **dict.fromkeys(("slice", "flip", "resize"), _moved(_not_among("axes"))),
    **dict.fromkeys(("split", "softmax", "sort", "topk", "cum_sum", "cum_prod"), _moved(_not_among("axis"))),
    "arg_max": _moved(_dropping("axis")),
    **dict.fromkeys(
        ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), _moved(_dropping("axes"))
    ),
    **dict.fromkeys(("layer_norm", "rms_norm"), _moved(_before)),
    **dict.fromkeys(("conv", "conv_transpose", "max_pool", "average_pool", "group_norm"), _moved(_only(0))),
    **dict.fromkeys(("instance_norm", "ttnn.split_heads", "ttnn.concat_heads"), _moved(_only(0))),
    "batch_norm": _moved(lambda node, shares, axis: None if axis == 1 else axis),
    "matmul": _matmul,
    "gather": _gather,
    **dict.fromkeys(("gather_elements", "scatter_elements"), _elements),
    "sdpa": _sdpa,
    "ttnn.update_cache": _cache,
}
