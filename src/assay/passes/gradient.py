"""Reverse-mode differentiation of core ops: a table of vector-Jacobian products, applied from the result backwards.

Each rule gives the part of one input in the gradient, from the gradient `g` of the op's (first) result; None in the
table means that the derivative is zero wherever it exists. A composite without a rule of its own is differentiated
through its parts. At a kink a rule gives a derivative of one side. Where nothing depends on a result (g is zero),
nothing comes through it, even if the derivative is not finite: a branch that `where` did not take leaves no NaN behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from assay.errors import LowerFailed
from assay.ir.dims import eq
from assay.ir.graph import Node, Value, used
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.ops.registry import OPS, FactMissing, as_results
from assay.ops.shapes import axes_of, axis_of


@dataclass(frozen=True)
class ForwardNode:
    """One node of the forward program: its inputs `x`, results `out` and attributes."""

    b: Builder
    x: tuple[Any, ...]
    out: tuple[Value, ...]
    attrs: Any


GradientRule: TypeAlias = Callable[[ForwardNode, Value], Value]


def gradients(b: Builder, nodes: Sequence[Node], y: Value, xs: Sequence[Value]) -> list[Value]:
    """The gradient of the sum of y in each of `xs`; `nodes` are those of `b` that make y out of them.

    LowerFailed names an op without a rule between the two, FactMissing what must be known first.
    """
    tape = _Tape(b, set(xs), {y: b.expand(b.constant(1, b.dtype(y)), b.shape_of(y))})
    tape.run(nodes)
    return [tape.found[x] if x in tape.found else zeros_like(b, x) for x in xs]


@dataclass
class _Tape:
    b: Builder
    reached: set[Value]  # what depends on the variables
    found: dict[Value, Value]  # gradients so far

    def run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if any(value in self.reached for value in used(node)):
                self.reached.update(node.outputs)
        for node in reversed(nodes):
            if any(value in self.found and value in self.reached for value in node.outputs):
                self.node(node)

    def node(self, node: Node) -> None:
        rules = self.rules(node)
        if rules is None:
            self.through_parts(node)
            return
        step = ForwardNode(self.b, node.inputs, node.outputs, node.attrs)
        for value, rule in zip(node.inputs, rules, strict=True):
            if rule is not None and value is not None and value in self.reached and _is_float(value):
                self.add(value, rule(step, self.found[node.outputs[0]]))

    def rules(self, node: Node) -> Sequence[GradientRule | None] | None:
        if node.op in _VARIADIC:
            return [_VARIADIC[node.op](i) for i in range(len(node.inputs))]
        return _RULES.get(node.op)

    def through_parts(self, node: Node) -> None:
        definition = OPS[node.op]
        if node.op == "deferred":
            raise FactMissing(node.attrs["reason"])
        if definition.parts is None:
            raise LowerFailed(
                f"the op {node.op} has no derivative here",
                where=str(node.origin),
                hint="keep it off the way from the variables to the result, or name its result among the inputs",
            )
        mark = len(self.b.nodes)
        results = as_results(definition.parts(self.b, *node.inputs, **node.attrs))
        parts = self.b.nodes[mark:]
        for value, result in zip(node.outputs, results, strict=False):
            if value in self.found:
                self.add(result, self.found[value])
        self.run(parts)

    def add(self, value: Value, part: Value) -> None:
        part = unbroadcast(self.b, part, value)
        self.found[value] = self.b.add(self.found[value], part) if value in self.found else part


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


# --- shapes


def zeros_like(b: Builder, x: Value) -> Value:
    """Zeros of the dtype and shape of x."""
    return b.expand(b.constant(0, b.dtype(x)), b.shape_of(x))


def unbroadcast(b: Builder, g: Value, x: Value) -> Value:
    """g summed over the axes that broadcasting added to the shape of x or stretched."""
    shape, target = b.dims(g), b.dims(x)
    extra = len(shape) - len(target)
    if extra:
        g = b.reduce_sum(g, axes=tuple(range(extra)))
    stretched: list[int] = []
    for axis, (size, own) in enumerate(zip(shape[extra:], target, strict=True)):
        if eq(size, own) is True:
            continue
        if own != 1:
            raise FactMissing("whether an axis is broadcast")
        stretched.append(axis)
    return b.reduce_sum(g, axes=tuple(stretched), keepdims=True) if stretched else g


def _kept(s: ForwardNode, value: Value) -> Value:
    """The result of a reduction, or its gradient, with the reduced axes back as axes of size one."""
    if s.attrs["keepdims"]:
        return value
    return s.b.unsqueeze(value, axes=axes_of(s.attrs["axes"], s.b.rank(s.x[0])))


def _spread(s: ForwardNode, value: Value) -> Value:
    """The same, stretched to the shape of the input."""
    return s.b.expand(_kept(s, value), s.b.shape_of(s.x[0]))


def _to_front(rank: int, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The permutation that brings an axis to the front, and the one that takes it back."""
    there = (axis, *(i for i in range(rank) if i != axis))
    return there, tuple(int(i) for i in np.argsort(there))


def _scattered(b: Builder, like: Value, axis: int, positions: Value, g: Value) -> Value:
    """What reads of `like` at positions along an axis leave in its gradient: g added up where it was read."""
    there, back = _to_front(b.rank(like), axis)
    count = b.rank(positions)
    of_g = (*range(axis, axis + count), *(i for i in range(b.rank(g)) if not axis <= i < axis + count))
    blank = b.transpose(zeros_like(b, like), perm=there)
    spots = b.unsqueeze(positions, axes=(count,))
    return b.transpose(b.scatter_nd(blank, spots, b.transpose(g, perm=of_g), reduction="add"), perm=back)


# --- elementwise


def _mask(s: ForwardNode, condition: Value, g: Value) -> Value:
    return s.b.where(condition, g, zeros_like(s.b, g))


def _through(s: ForwardNode, g: Value, part: Value) -> Value:
    """`part`, but zero where g is."""
    return s.b.where(s.b.eq(g, 0.0), zeros_like(s.b, g), part)


def _guarded(rule: GradientRule) -> GradientRule:
    return lambda s, g: _through(s, g, rule(s, g))


def _abs(s: ForwardNode, g: Value) -> Value:
    return s.b.where(s.b.lt(s.x[0], 0.0), s.b.neg(g), g)


def _erf(s: ForwardNode, g: Value) -> Value:
    return s.b.mul(g, s.b.mul(2 / math.sqrt(math.pi), s.b.exp(s.b.neg(s.b.square(s.x[0])))))


def _pow_base(s: ForwardNode, g: Value) -> Value:
    x, y = s.x
    slope = s.b.mul(y, s.b.pow(x, s.b.sub(y, 1.0)))
    return s.b.mul(g, s.b.where(s.b.eq(y, 0.0), s.b.mul(y, 0.0), slope))


def _pow_exponent(s: ForwardNode, g: Value) -> Value:
    safe = s.b.where(s.b.eq(s.x[0], 0.0), 1.0, s.x[0])
    return s.b.mul(g, s.b.mul(s.out[0], s.b.log(safe)))


def _first_wins(other: Callable[[ForwardNode], Value]) -> tuple[GradientRule, GradientRule]:
    """The rules of min and max; `other` says where the second operand is the result."""
    return (
        lambda s, g: s.b.where(other(s), zeros_like(s.b, g), g),
        lambda s, g: _mask(s, other(s), g),
    )


# --- movement


def _slice(s: ForwardNode, g: Value) -> Value:
    """Along one axis after the other, the gradient put back to where the slice was taken."""
    b, (x, *bounds) = s.b, s.x
    axes = axes_of(s.attrs["axes"], b.rank(x))
    for place, axis in enumerate(axes):
        taken = [b.slice(bound, [place], [place + 1], [1], axes=(0,)) for bound in bounds]
        size = b.size(x, axis)
        line = b.iota(size if isinstance(size, int) else b.reshape(size, []))
        sizes = [b.size(g if i != axis else x, i) for i in range(b.rank(x))]
        blank = b.expand(b.constant(0, b.dtype(x)), b.vector(*sizes))
        g = _scattered(b, blank, axis, b.slice(line, *taken, axes=(0,)), g)
    return g


def _pad_value(s: ForwardNode, g: Value) -> Value:
    inside = s.b.pad(g, s.b.neg(s.x[1]), 0.0)
    return s.b.sub(s.b.reduce_sum(g), s.b.reduce_sum(inside))


def _concat(index: int) -> GradientRule:
    def rule(s: ForwardNode, g: Value) -> Value:
        b = s.b
        axis = axis_of(s.attrs["axis"], b.rank(g))
        sizes = [b.size(x, axis) for x in s.x[: index + 1]]
        start, end = (_total(b, part) for part in (sizes[:-1], sizes))
        return b.slice(g, start, end, [1], axes=(axis,))

    return rule


def _total(b: Builder, sizes: Sequence[int | Value]) -> Value:
    known = sum(size for size in sizes if isinstance(size, int))
    total = b.vector(known)
    for size in sizes:
        total = total if isinstance(size, int) else b.add(total, size)
    return total


def _gather(s: ForwardNode, g: Value) -> Value:
    x, positions = s.x
    return _scattered(s.b, x, axis_of(s.attrs["axis"], s.b.rank(x)), positions, g)


def _gather_nd(s: ForwardNode, g: Value) -> Value:
    b, (x, positions) = s.b, s.x
    rank = b.rank(positions)
    lead = b.vector(*(b.size(positions, i) for i in range(rank - 1)), 1)
    grids: list[Value] = []
    for axis in range(s.attrs["batch_dims"]):
        size = b.size(positions, axis)
        line = b.iota(size if isinstance(size, int) else b.reshape(size, []))
        grids.append(b.expand(b.reshape(line, [-1 if i == axis else 1 for i in range(rank)]), lead))
    full = b.concat(*grids, positions, axis=rank - 1) if grids else positions
    return b.scatter_nd(zeros_like(b, x), full, g, reduction="add")


def _scatter_target(s: ForwardNode, g: Value) -> Value:
    _, positions, updates = s.x
    if s.attrs["reduction"] == "add":
        return g
    return s.b.scatter_nd(g, positions, zeros_like(s.b, updates), reduction=_plain(s))


def _scatter_updates(s: ForwardNode, g: Value) -> Value:
    if s.attrs["reduction"] != "add":
        _plain(s)
    return s.b.gather_nd(g, s.x[1])


def _plain(s: ForwardNode) -> str:
    if s.attrs["reduction"] != "none":
        raise LowerFailed(f"the op scatter_nd has no derivative with the reduction '{s.attrs['reduction']}'")
    return "none"


# --- reductions and products


def _product(s: ForwardNode, g: Value) -> Value:
    """g times the product of the other elements, which with one zero among them only the zero itself sees."""
    b, x = s.b, s.x[0]
    how = {"axes": s.attrs["axes"], "keepdims": s.attrs["keepdims"]}
    is_zero = b.eq(x, 0.0)
    zeros = _spread(s, b.reduce_sum(b.cast(is_zero, dtype=b.dtype(x)), **how))
    filled = b.where(is_zero, 1.0, x)
    rest = _spread(s, b.reduce_prod(filled, **how))
    others = b.where(b.eq(zeros, 0.0), b.div(rest, filled), _mask(s, b.bit_and(is_zero, b.eq(zeros, 1.0)), rest))
    return b.mul(_spread(s, g), others)


def _extreme(s: ForwardNode, g: Value) -> Value:
    """g shared by all elements that are equal to the result."""
    b, x = s.b, s.x[0]
    hits = b.cast(b.eq(x, _spread(s, s.out[0])), dtype=b.dtype(x))
    count = b.reduce_sum(hits, axes=s.attrs["axes"], keepdims=s.attrs["keepdims"])
    return b.mul(hits, b.div(_spread(s, g), _spread(s, count)))


def _cum_sum(s: ForwardNode, g: Value) -> Value:
    axis = (s.attrs["axis"],)
    return s.b.flip(s.b.cum_sum(s.b.flip(g, axes=axis), axis=s.attrs["axis"]), axes=axis)


def _sort(s: ForwardNode, g: Value) -> Value:
    return s.b.scatter_elements(zeros_like(s.b, g), s.out[1], g, axis=s.attrs["axis"])


def _softmax(s: ForwardNode, g: Value) -> Value:
    b, out = s.b, s.out[0]
    weighted = _through(s, g, b.mul(g, out))
    mean = b.expand(b.reduce_sum(weighted, axes=(s.attrs["axis"],), keepdims=True), b.shape_of(g))
    return b.sub(weighted, _through(s, mean, b.mul(out, mean)))


def _matrices(s: ForwardNode, g: Value) -> tuple[Value, Value, Value]:
    """Both factors and the gradient as (stacks of) matrices."""
    b, (x, y) = s.b, s.x
    if b.rank(y) == 1:
        y, g = b.unsqueeze(y, axes=(1,)), b.unsqueeze(g, axes=(-1,))
    if b.rank(x) == 1:
        x, g = b.unsqueeze(x, axes=(0,)), b.unsqueeze(g, axes=(-2,))
    return x, y, g


def _turned(b: Builder, x: Value) -> Value:
    rank = b.rank(x)
    return b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _left_factor(s: ForwardNode, g: Value) -> Value:
    x, y, wide = _matrices(s, g)
    return s.b.reshape(unbroadcast(s.b, s.b.matmul(wide, _turned(s.b, y)), x), s.b.shape_of(s.x[0]))


def _right_factor(s: ForwardNode, g: Value) -> Value:
    x, y, wide = _matrices(s, g)
    return s.b.reshape(unbroadcast(s.b, s.b.matmul(_turned(s.b, x), wide), y), s.b.shape_of(s.x[1]))


def _determinant(s: ForwardNode, g: Value) -> Value:
    scale = s.b.unsqueeze(s.b.mul(g, s.out[0]), axes=(-2, -1))
    return s.b.mul(scale, _turned(s.b, s.b.inverse(s.x[0])))


def _inverse(s: ForwardNode, g: Value) -> Value:
    turned = _turned(s.b, s.out[0])
    return s.b.neg(s.b.matmul(turned, s.b.matmul(g, turned)))


_SCALED: dict[str, tuple[GradientRule, ...]] = {
    "sqrt": (lambda s, g: s.b.div(g, s.b.mul(s.out[0], 2.0)),),
    "exp": (lambda s, g: s.b.mul(g, s.out[0]),),
    "expm1": (lambda s, g: s.b.mul(g, s.b.add(s.out[0], 1.0)),),
    "log": (lambda s, g: s.b.div(g, s.x[0]),),
    "log1p": (lambda s, g: s.b.div(g, s.b.add(s.x[0], 1.0)),),
    "sin": (lambda s, g: s.b.mul(g, s.b.cos(s.x[0])),),
    "cos": (lambda s, g: s.b.neg(s.b.mul(g, s.b.sin(s.x[0]))),),
    "atan": (lambda s, g: s.b.div(g, s.b.add(s.b.square(s.x[0]), 1.0)),),
    "tanh": (lambda s, g: s.b.mul(g, s.b.sub(1.0, s.b.square(s.out[0]))),),
    "erf": (_erf,),
    "mul": (lambda s, g: s.b.mul(g, s.x[1]), lambda s, g: s.b.mul(g, s.x[0])),
    "div": (
        lambda s, g: s.b.div(g, s.x[1]),
        lambda s, g: s.b.neg(s.b.div(s.b.mul(g, s.out[0]), s.x[1])),
    ),
    "mod": (
        lambda s, g: g,
        lambda s, g: s.b.neg(s.b.mul(g, s.b.floor(s.b.div(s.x[0], s.x[1])))),
    ),
    "pow": (_pow_base, _pow_exponent),
    "sigmoid": (lambda s, g: s.b.mul(g, s.b.mul(s.out[0], s.b.sub(1.0, s.out[0]))),),
}
"""By elementwise op, one rule an input: g times the derivative."""

_RULES: dict[str, tuple[GradientRule | None, ...]] = {
    **{name: tuple(map(_guarded, rules)) for name, rules in _SCALED.items()},
    "neg": (lambda s, g: s.b.neg(g),),
    "abs": (_abs,),
    "floor": (None,),
    "round": (None,),
    "add": (lambda s, g: g, lambda s, g: g),
    "sub": (lambda s, g: g, lambda s, g: s.b.neg(g)),
    "min": _first_wins(lambda s: s.b.lt(s.x[1], s.x[0])),
    "max": _first_wins(lambda s: s.b.lt(s.x[0], s.x[1])),
    "where": (
        None,
        lambda s, g: _mask(s, s.x[0], g),
        lambda s, g: s.b.where(s.x[0], zeros_like(s.b, g), g),
    ),
    "cast": (lambda s, g: s.b.cast(g, dtype=s.b.dtype(s.x[0])),),
    "relu": (lambda s, g: _mask(s, s.b.lt(0.0, s.x[0]), g),),
    "softmax": (_softmax,),
    "reshape": (lambda s, g: s.b.reshape(g, s.b.shape_of(s.x[0])), None),
    "transpose": (lambda s, g: s.b.transpose(g, perm=tuple(np.argsort(s.attrs["perm"]).tolist())),),
    "expand": (lambda s, g: g, None),
    "slice": (_slice, None, None, None),
    "pad": (lambda s, g: s.b.pad(g, s.b.neg(s.x[1]), 0.0), None, _pad_value),
    "gather": (_gather, None),
    "gather_nd": (_gather_nd, None),
    "scatter_nd": (_scatter_target, None, _scatter_updates),
    "reduce_sum": (_spread,),
    "reduce_prod": (_product,),
    "reduce_max": (_extreme,),
    "reduce_min": (_extreme,),
    "cum_sum": (_cum_sum,),
    "sort": (_sort,),
    "matmul": (_left_factor, _right_factor),
    "det": (_determinant,),
    "inverse": (_inverse,),
}
"""By op, one rule an input."""

_VARIADIC: dict[str, Callable[[int], GradientRule | None]] = {
    "concat": _concat,
    "fitting": lambda i: (lambda s, g: g) if i == 0 else None,
}
"""By op, the rule of input number i."""
