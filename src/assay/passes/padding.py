"""Whether a graph may be given larger inputs: padded at the end of some axes, its results cropped.

That is exact if every value keeps this: the corner that its true sizes span holds what it holds without padding. What
lies outside of the corner is called filler. Inputs are padded with zeros; of some values it stays known what their
filler is, so that a mask makes mixing harmless. A size that is read as data (`shape_of`) is the padded one, so no
result may depend on it, other than by its shape.

| ops | padded axes |
|---|---|
| elementwise, cast, where, expand | carried along; integers are not divided by filler |
| transpose, unsqueeze, squeeze, trilu, iota, cum_sum and other running ops | carried along |
| reshape | carried along where they are the outermost of those that are split or joined |
| slice | carried along if it starts at a known place, counted from the front, and steps forward |
| concat | carried along; along its own axis only the last operand may be padded |
| split, flip, sort, topk, arg_max, arg_min, pad | carried along if they are others than its own |
| layer_norm, rms_norm, log_softmax | carried along if they are others than its own |
| reduce_*, softmax | the same; a sum over zeros is exact, and so are the largest and the softmax over −∞ |
| matmul | carried along; the axis that is summed over only if one operand has zeros there and the other no NaN or ∞ |
| gather | carried along those of the positions, if filler there is zero, and those of the data that are not its own |
| conv, pooling, instance_norm, group_norm | the batch alone; batch_norm: all but the channels |
| sdpa | batch, heads and queries; keys if `causal` or a mask of bools leaves filler out |
| all others, and nodes with bodies or effects | none |

Filler is taken for finite if the weights and data are and nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import numpy as np

from assay.ir.dims import Dim, eq, le, product, symbols
from assay.ir.dtypes import boolean
from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import TensorType
from assay.ops.registry import CORE, Effect, effect_of


class Filler(Enum):
    """What is known of the filler along an axis."""

    ZERO = "zero or false"
    LOWEST = "minus infinity"
    FINITE = "finite"
    ANY = "unknown"


Fillers = dict[int, Filler]
_FINITE = frozenset({Filler.ZERO, Filler.FINITE})


@dataclass
class _State:
    """What is known so far: which values hold sizes as data, which hold finite data, and the filler of each along its
    padded axes."""

    padded: Collection[str]
    constants: Mapping[Value, np.ndarray]
    sized: set[Value] = field(default_factory=set[Value])
    finite: set[Value] = field(default_factory=set[Value])
    fillers: dict[Value, Fillers] = field(default_factory=dict[Value, Fillers])

    def axes(self, value: Value | None) -> list[int]:
        """The padded axes of a value."""
        return [axis for axis, dim in enumerate(_shape(value)) if not symbols(dim).isdisjoint(self.padded)]

    def filler(self, value: Value | None, axis: int) -> Filler:
        """What lies outside of the corner along an axis; what is not padded there holds data throughout."""
        if value is None or axis not in self.axes(value):
            return self.data(value)
        return self.fillers.get(value, {}).get(axis, Filler.ANY)

    def data(self, value: Value | None) -> Filler:
        """What is known of the data of a value."""
        content = None if value is None else self.constants.get(value)
        if content is not None:
            numbers = content.dtype.kind in "biu" or (content.dtype.kind == "f" and bool(np.isfinite(content).all()))
            return Filler.FINITE if numbers else Filler.ANY
        return Filler.FINITE if value is None or value in self.finite else Filler.ANY

    def holds(self, value: Value | None, number: float) -> bool:
        """Whether a value is a constant that is this number throughout."""
        content = None if value is None else self.constants.get(value)
        return content is not None and content.dtype.kind in "biuf" and bool(np.all(content == number))


Rule = Callable[[Node, _State], str]
"""Why a node does not keep the corner of its results right; empty if it does. Notes the filler of these."""


def padding_refusal(graph: Graph, padded: Collection[str]) -> str:
    """Why the sizes of these names may not be padded in a core graph; empty if they may."""
    state = _State(padded, graph.constants, finite={*graph.inputs})
    for value in graph.inputs:
        state.fillers[value] = dict.fromkeys(state.axes(value), Filler.ZERO)
    for node in graph.nodes:
        reason = _refusal(node, state)
        if reason:
            return f"{node.op} ({node.origin}): {reason}"
    if not state.sized.isdisjoint(graph.outputs):
        return "a result depends on a size other than by its shape"
    return ""


def _refusal(node: Node, state: _State) -> str:
    values = [*used(node), *node.outputs]
    if not all(isinstance(v.type, TensorType) and v.type.is_sized for v in values):
        return "a size is known only when the program runs"
    read = [value for at, value in enumerate(node.inputs) if value is not None and at not in _SHAPES.get(node.op, ())]
    if node.op in _KEEPS_FINITE and all(state.data(value) is Filler.FINITE for value in read):
        state.finite.update(node.outputs)
    if not state.sized.isdisjoint(read) or (node.op == "shape_of" and state.axes(node.inputs[0])):
        state.sized.update(node.outputs)
        return ""
    if not any(state.axes(value) for value in values):
        return ""
    if node.regions or effect_of(node) is not Effect.PURE:
        return "it has bodies or effects"
    rule = _RULES.get(node.op)
    return "it is not known to keep padded axes apart" if rule is None else rule(node, state)


def _shape(value: Value | None) -> tuple[Dim, ...]:
    return (value.type.shape or ()) if value is not None and isinstance(value.type, TensorType) else ()


def _fill(state: _State, value: Value, along: Callable[[int], Filler]) -> None:
    state.fillers[value] = {axis: along(axis) for axis in state.axes(value)}


def _joined(fillers: Iterable[Filler]) -> Filler:
    """What is known of filler that may be any of these."""
    distinct = set(fillers)
    if len(distinct) == 1:
        return distinct.pop()
    return Filler.FINITE if distinct <= _FINITE else Filler.ANY


def _finite(fillers: Iterable[Filler]) -> Filler:
    return Filler.FINITE if _FINITE.issuperset(fillers) else Filler.ANY


# --- elementwise


def _unaligned(shapes: Iterable[Sequence[Dim]], wanted: Sequence[Dim]) -> str:
    """A reason to refuse operands of which only a run tells how they are broadcast, if they fit at all."""
    pairs = (pair for shape in shapes for pair in zip(reversed(shape), reversed(wanted), strict=False))
    return (
        "" if all(old == 1 or eq(old, new) for old, new in pairs) else "only a run tells whether an axis is broadcast"
    )


def _elementwise(node: Node, state: _State) -> str:
    result = node.outputs[0]
    rank = len(_shape(result))
    divisor = node.inputs[1] if node.op in _DIVISIONS else None
    if divisor is not None and state.axes(divisor) and not _dtype_is_float(divisor):
        return "integers are divided by filler"

    def along(axis: int) -> Filler:
        given = [state.filler(value, axis - rank + len(_shape(value))) for value in node.inputs if value is not None]
        return _ELEMENTWISE.get(node.op, _nothing_known)(node, state, given)

    for value in node.outputs:
        _fill(state, value, along)
    return _unaligned(map(_shape, node.inputs), _shape(result))


def _dtype_is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


Along = Callable[[Node, _State, Sequence[Filler]], Filler]


def _nothing_known(node: Node, state: _State, given: Sequence[Filler]) -> Filler:
    return Filler.ANY


def _stays_finite(node: Node, state: _State, given: Sequence[Filler]) -> Filler:
    return _finite(given)


def _keeps_zero(node: Node, state: _State, given: Sequence[Filler]) -> Filler:
    return Filler.ZERO if set(given) == {Filler.ZERO} else _finite(given)


def _product(node: Node, state: _State, given: Sequence[Filler]) -> Filler:
    return Filler.ZERO if Filler.ZERO in given and _FINITE.issuperset(given) else _finite(given)


def _both(node: Node, state: _State, given: Sequence[Filler]) -> Filler:
    return Filler.ZERO if Filler.ZERO in given else _finite(given)


def _differs(node: Node, state: _State, given: Sequence[Filler], zero: int | None) -> Filler:
    """A comparison with the operand `zero` (None: any); false where the other one is zero, too."""
    others = [(1, 0), (0, 1)] if zero is None else [(zero, 1 - zero)]
    hits = any(state.holds(node.inputs[at], 0) and given[other] is Filler.ZERO for at, other in others)
    return Filler.ZERO if hits else Filler.FINITE


def _chosen(node: Node, state: _State, given: Sequence[Filler]) -> Filler:
    """Filler of a `where`: that of the last operand, if the condition is known not to hold."""
    if given[0] is not Filler.ZERO:
        return _finite(given[1:])
    if state.holds(node.inputs[2], -np.inf):
        return Filler.LOWEST
    return Filler.ZERO if state.holds(node.inputs[2], 0) else given[2]


_DIVISIONS = frozenset({"div", "mod", "fmod"})
_ELEMENTWISE: Mapping[str, Along] = {
    **dict.fromkeys(("add", "sub", "min", "max", "sigmoid", "cos", "exp", "clip", "bit_not", "bit_or"), _stays_finite),
    **dict.fromkeys(("neg", "abs", "floor", "round", "sin", "tanh", "erf", "relu", "gelu", "gelu_tanh"), _keeps_zero),
    **dict.fromkeys(("silu", "square", "leaky_relu", "elu", "cast"), _keeps_zero),
    "mul": _product,
    "bit_and": _both,
    "where": _chosen,
    "ne": partial(_differs, zero=None),
    "gt": partial(_differs, zero=1),
    "lt": partial(_differs, zero=0),
}


# --- movement


def _moved(origin: Callable[[Node, int], int]) -> Rule:
    """The rule of ops that only move: `origin` is the axis of the first operand that an axis of a result was."""

    def rule(node: Node, state: _State) -> str:
        for value in node.outputs:
            _fill(state, value, lambda axis: state.filler(node.inputs[0], origin(node, axis)))
        return ""

    return rule


def _unsqueezed(node: Node, axis: int) -> int:
    new = {each % len(_shape(node.outputs[0])) for each in node.attrs["axes"]}
    return axis - sum(each < axis for each in new)


def _squeezed(node: Node, axis: int) -> int:
    shape, gone = _shape(node.inputs[0]), node.attrs["axes"]
    dropped = {at for at, dim in enumerate(shape) if dim == 1} if gone is None else {a % len(shape) for a in gone}
    return [at for at in range(len(shape)) if at not in dropped][axis]


def _expand(node: Node, state: _State) -> str:
    result, source = node.outputs[0], node.inputs[0]
    new = len(_shape(result)) - len(_shape(source))
    _fill(state, result, lambda axis: state.filler(source, axis - new) if axis >= new else state.data(source))
    return _unaligned([_shape(source)], _shape(result))


def _reshape(node: Node, state: _State) -> str:
    source, result = node.inputs[0], node.outputs[0]
    before, after = _shape(source), _shape(result)
    _fill(state, result, lambda axis: _joined(state.filler(source, at) for at in state.axes(source)))
    for left, right in _groups(before, after):
        if not {*left[1:]}.isdisjoint(state.axes(source)) or not {*right[1:]}.isdisjoint(state.axes(result)):
            return "padded axes are joined with others around them"
    return ""


def _groups(before: Sequence[Dim], after: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Axes of two shapes, those of size 1 left out, in the smallest runs that have as many elements in both. Those that
    cannot be matched are the last run, with no outermost axis."""
    left = [axis for axis, dim in enumerate(before) if dim != 1]
    right = [axis for axis, dim in enumerate(after) if dim != 1]
    groups: list[tuple[list[int], list[int]]] = []
    start = other = 0
    for end in range(1, len(left) + 1):
        wanted = product(before[axis] for axis in left[start:end])
        for stop in range(other + 1, len(right) + 1):
            if eq(wanted, product(after[axis] for axis in right[other:stop])):
                groups.append((left[start:end], right[other:stop]))
                start, other = end, stop
                break
    return [*groups, ([-1, *left[start:]], [-1, *right[other:]])]


def _slice(node: Node, state: _State) -> str:
    source, rank = node.inputs[0], len(_shape(node.inputs[0]))
    _fill(state, node.outputs[0], partial(state.filler, source))
    starts, steps = (state.constants.get(value) for value in (node.inputs[1], node.inputs[3]) if value is not None)
    padded = {*state.axes(source), *state.axes(node.outputs[0])}
    for at, axis in enumerate(node.attrs["axes"]):
        forward = starts is not None and steps is not None and starts[at] >= 0 and steps[at] > 0
        if axis % rank in padded and not forward:
            return "it counts from the end of a padded axis"
    return ""


def _concat(node: Node, state: _State) -> str:
    result = node.outputs[0]
    own = node.attrs["axis"] % len(_shape(result))
    if any(own in state.axes(value) for value in node.inputs[:-1]):
        return "something follows a padded axis"
    others = [[dim for axis, dim in enumerate(_shape(value)) if axis != own] for value in node.inputs]
    if not all(eq(a, b) for shape in others for a, b in zip(shape, others[0], strict=True)):
        return "its operands fit for some sizes alone"
    _fill(state, result, lambda axis: _joined(state.filler(v, axis) for v in node.inputs[-1 if axis == own else 0 :]))
    return ""


def _pad(node: Node, state: _State) -> str:
    amounts, rank = state.constants.get(node.inputs[1]) if node.inputs[1] else None, len(_shape(node.inputs[0]))
    for axis in state.axes(node.inputs[0]):
        if amounts is None or amounts[axis] or amounts[axis + rank]:
            return "something is put around a padded axis"
    value = state.data(node.inputs[2])
    _fill(state, node.outputs[0], lambda axis: _finite([state.filler(node.inputs[0], axis), value]))
    return ""


# --- what works along axes of its own


def _own_axes(node: Node, name: str) -> list[int]:
    """The axes that an op works along: those that the attribute names, all if it names none."""
    rank, named = len(_shape(node.inputs[0])), node.attrs[name]
    if named is None:
        return list(range(rank))
    return [axis % rank for axis in ([named] if isinstance(named, int) else named)]


def _others(name: str) -> Rule:
    """The rule of ops that work along axes of their own."""

    def rule(node: Node, state: _State) -> str:
        own = _own_axes(node, name)
        return "it mixes a padded axis" if {*own} & {*state.axes(node.inputs[0])} else ""

    return rule


def _reduction(node: Node, state: _State, harmless: Filler | None) -> str:
    """Over filler of the kind `harmless`, the result is what it is without."""
    source, own = node.inputs[0], _own_axes(node, "axes")
    for axis in own:
        if axis in state.axes(source) and (harmless is None or state.filler(source, axis) is not harmless):
            return "it mixes a padded axis"
    left = [axis for axis in range(len(_shape(source))) if node.attrs["keepdims"] or axis not in own]
    _fill(state, node.outputs[0], lambda axis: _finite([state.filler(source, left[axis])]))
    return ""


def _softmax(node: Node, state: _State) -> str:
    source, (own,) = node.inputs[0], _own_axes(node, "axis")
    padded = own in state.axes(source)
    if padded and (node.op != "softmax" or state.filler(source, own) is not Filler.LOWEST):
        return "it mixes a padded axis"
    _fill(state, node.outputs[0], lambda a: Filler.ZERO if a == own else _finite([state.filler(source, a)]))
    return ""


def _trailing_norm(node: Node, state: _State) -> str:
    source = node.inputs[0]
    first = node.attrs["axis"] % len(_shape(source))
    if any(axis >= first for axis in state.axes(source)) or any(map(state.axes, node.inputs[1:])):
        return "it mixes a padded axis"
    affine = [state.data(value) for value in node.inputs[1:]]
    _fill(state, node.outputs[0], lambda axis: _finite([state.filler(source, axis), *affine]))
    return ""


def _only(*allowed: int) -> Rule:
    """The rule of ops of which these axes of the first operand are independent."""

    def rule(node: Node, state: _State) -> str:
        first, *others = node.inputs
        apart = {*state.axes(first)} <= {*allowed} and not any(map(state.axes, others))
        return "" if apart else "it mixes a padded axis"

    return rule


def _not_channels(node: Node, state: _State) -> str:
    first, *others = node.inputs
    _fill(state, node.outputs[0], lambda axis: _finite([state.filler(first, axis)]))
    return "it mixes a padded axis" if 1 in state.axes(first) or any(map(state.axes, others)) else ""


def _matmul(node: Node, state: _State) -> str:
    a, b = node.inputs
    rows, columns = len(_shape(a)) - 1, max(len(_shape(b)) - 2, 0)
    if len(_shape(a)) < 2 or len(_shape(b)) < 2:
        return "" if not state.axes(a) and not state.axes(b) else "vectors are not looked at"
    if rows in state.axes(a) or columns in state.axes(b):
        summed = {state.filler(a, rows), state.filler(b, columns)}
        fits = eq(_shape(a)[rows], _shape(b)[columns])
        if not fits or Filler.ZERO not in summed or not summed <= _FINITE:
            return "it sums over a padded axis"
    rank = len(_shape(node.outputs[0]))

    def along(axis: int) -> Filler:
        mine = state.filler(a, axis - rank + rows + 1) if axis != rank - 1 else state.data(a)
        theirs = state.filler(b, axis - rank + columns + 2) if axis != rank - 2 else state.data(b)
        return _product(node, state, [mine, theirs])

    _fill(state, node.outputs[0], along)
    return _unaligned([_shape(a)[:-2], _shape(b)[:-2]], _shape(node.outputs[0])[:-2])


def _gather(node: Node, state: _State) -> str:
    source, positions = node.inputs
    rank, count = len(_shape(source)), len(_shape(positions))
    own = node.attrs["axis"] % rank
    if own in state.axes(source):
        return "positions may count from the end of a padded axis"
    if any(state.filler(positions, axis) is not Filler.ZERO for axis in state.axes(positions)):
        return "filler may be no position"

    def along(axis: int) -> Filler:
        if own <= axis < own + count:
            return state.data(source)
        return state.filler(source, axis if axis < own else axis - count + 1)

    _fill(state, node.outputs[0], along)
    return ""


def _sdpa(node: Node, state: _State) -> str:
    q, k, v, mask = (*node.inputs, None)[:4]
    rank = len(_shape(q))
    lengths, sizes = rank - 2, rank - 1
    if any(sizes in state.axes(value) for value in (q, k)) or rank - 3 in state.axes(k):
        return "it mixes a padded axis"
    batches = [_shape(value)[:lengths] for value in (q, k, v)]
    if any(
        not eq(a, b) and (at in state.axes(q) or at in state.axes(value))
        for shape, value in zip(batches[1:], (k, v), strict=True)
        for at, (a, b) in enumerate(zip(batches[0], shape, strict=True))
    ):
        return "its operands fit for some sizes alone"
    unaligned = _unaligned([_shape(mask)], (*batches[0], _shape(q)[lengths], _shape(k)[lengths]))
    if unaligned or not eq(_shape(k)[lengths], _shape(v)[lengths]):
        return unaligned or "its operands fit for some sizes alone"
    if lengths in state.axes(k):
        causal = node.attrs["causal"] and le(_shape(q)[lengths], _shape(k)[lengths])
        if not (causal or _leaves_out(mask, state)):
            return "it mixes a padded axis: no mask leaves filler out"
        if state.filler(k, lengths) not in _FINITE or state.filler(v, lengths) not in _FINITE:
            return "what a mask leaves out may be infinite or no number"
    given = [value for value in (q, k, v) if value is not None]
    _fill(state, node.outputs[0], lambda axis: _finite(state.filler(x, axis) for x in given))
    return ""


def _leaves_out(mask: Value | None, state: _State) -> bool:
    """Whether a mask of bools is false for all filler along the keys."""
    last = len(_shape(mask)) - 1
    bools = mask is not None and isinstance(mask.type, TensorType) and mask.type.dtype is boolean
    return bools and last in state.axes(mask) and state.filler(mask, last) is Filler.ZERO


def _carried(node: Node, state: _State) -> str:
    """Results whose places depend on no later ones; their filler is unknown."""
    return ""


_SHAPES: Mapping[str, tuple[int, ...]] = {"reshape": (1,), "expand": (1,), "iota": (0,), "slice": (2,)}
"""The operands that say how large results are."""

_KEEPS_FINITE = frozenset(
    {
        *_ELEMENTWISE,
        *(
            "eq",
            "ge",
            "le",
            "transpose",
            "unsqueeze",
            "squeeze",
            "expand",
            "reshape",
            "slice",
            "concat",
            "split",
            "pad",
        ),
        *("reduce_sum", "reduce_max", "reduce_mean", "softmax", "layer_norm", "rms_norm", "batch_norm", "matmul"),
        *("gather", "sdpa", "iota", "shape_of", "conv"),
    }
)
"""Ops that give finite numbers for such, unless they overflow."""

_RULES: Mapping[str, Rule] = {
    **{each.name: _elementwise for each in CORE if each.family in ("elementwise", "functions")},
    "cast": _elementwise,
    "expand": _expand,
    "transpose": _moved(lambda node, axis: node.attrs["perm"][axis]),
    "unsqueeze": _moved(_unsqueezed),
    "squeeze": _moved(_squeezed),
    "reshape": _reshape,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    **dict.fromkeys(("trilu", "iota", "cum_sum", "cum_prod", "cum_max", "cum_min", "cum_log_sum_exp"), _carried),
    **dict.fromkeys(("split", "sort", "topk", "arg_max", "arg_min"), _others("axis")),
    "flip": _others("axes"),
    "reduce_sum": partial(_reduction, harmless=Filler.ZERO),
    "reduce_max": partial(_reduction, harmless=Filler.LOWEST),
    **dict.fromkeys(("reduce_mean", "reduce_prod", "reduce_min", "log_sum_exp"), partial(_reduction, harmless=None)),
    **dict.fromkeys(("softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("layer_norm", "rms_norm"), _trailing_norm),
    **dict.fromkeys(("group_norm", "instance_norm", "conv", "conv_transpose"), _only(0)),
    **dict.fromkeys(("max_pool", "average_pool", "lp_pool"), _only(0)),
    "batch_norm": _not_channels,
    "matmul": _matmul,
    "gather": _gather,
    "sdpa": _sdpa,
}
