"""Loops that count: how often a loop runs whose condition compares a counter with a number that stays the same.

    go: i < n    body: i' = i + 1, go' = i' < n, n' = n    →    n - i rounds

Exporters write loops over the steps of a sequence in this way, often with both sides cast to floats. When the number
of rounds is known before the loop begins, so are the sizes of what it collects, and targets can run all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from assay.frontends.onnx.ops.common import as_i64, scalar
from assay.frontends.onnx.registry import Builder
from assay.ir import dtypes
from assay.ir.dims import bounds
from assay.ir.dtypes import DType, boolean
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType

_EXACT = {dtypes.f64: 2**53, dtypes.f32: 2**24, dtypes.f16: 2**11, dtypes.bf16: 2**8}
"""The largest whole number up to which a float holds all."""

_COUNTERS = {dtypes.i32, dtypes.i64}
"""Integers that do not run out before a loop does (`Limits.loop_iterations`)."""

Makers = Mapping[Value, Node]


class _Less(NamedTuple):
    """That one number is less than another, and the float that both are compared as, if they are."""

    left: Value
    right: Value
    seen_as: DType | None


class CountedLoop(NamedTuple):
    """A loop's body that always goes on, and how often it runs."""

    rounds: Value
    body: Graph


def counted(b: Builder, go: Value | None, carried: Sequence[Value], body: Graph) -> CountedLoop | None:
    """A loop that ends by its count alone, if its condition is that of a counter; None for others."""
    test = _less(_makers(body.nodes), body.outputs[0])
    if test is None:
        return None
    first = _first_count(b, carried, body, test.left)
    most = _most(carried, body, test.right)
    if first is None or most is None or b.shape(most) not in ((), (1,)):
        return None
    if not {b.dtype(most), b.dtype(test.left)} <= _COUNTERS:
        return None
    least = _least_rounds(b, go, first, most, test.seen_as)
    if least is None:
        return None
    if test.seen_as is not None and not _surely_up_to(b.fact(most), _EXACT[test.seen_as]):
        if b.is_region:
            return None  # a check in a body would keep that from targets
        message = f"a loop counts in {test.seen_as}, which does not hold all numbers beyond {_EXACT[test.seen_as]}"
        b.emit("require", b.le(most, _EXACT[test.seen_as]), message=message)
    always = b.fresh(TensorType(boolean, ()))
    endless = replace(
        body,
        outputs=(always, *body.outputs[1:]),
        constants={**body.constants, always: np.asarray(np.True_)},
    )
    return CountedLoop(b.max(b.sub(scalar(b, as_i64(b, most)), first), least), endless)


def _first_count(b: Builder, carried: Sequence[Value], body: Graph, ahead: Value) -> int | None:
    """Where the counter begins of which `ahead` is the next one; None if that is no counter, or not known."""
    add = _makers(body.nodes).get(ahead)
    if add is None or add.op != "add":
        return None
    for state, step in (add.inputs, add.inputs[::-1]):
        if state is None or step is None or _number(b.fact(step)) != 1:
            continue
        if state is body.inputs[0]:
            return 0
        at = _place(body.inputs[2:], state)
        if at is not None and body.outputs[1 + at] is ahead:
            return _number(b.fact(carried[at]))
    return None


def _most(carried: Sequence[Value], body: Graph, limit: Value) -> Value | None:
    """What the counter is compared with, as a value outside of the body; None if it may change."""
    if limit in body.inputs:
        at = _place(body.inputs[2:], limit)
        return None if at is None or body.outputs[1 + at] is not limit else carried[at]
    made = {value for node in body.nodes for value in node.outputs}
    return None if limit in made or limit in body.constants else limit


def _least_rounds(b: Builder, go: Value | None, first: int, most: Value, seen_as: DType | None) -> int | None:
    """How often the loop runs at least: never if its first condition is that of the counter, once if there is none."""
    if go is None or (b.fact(go).concrete is not None and bool(np.all(b.fact(go).concrete))):
        return 1
    test = _less(_makers(b.nodes), go)
    if test is None or test.right is not most or test.seen_as not in (None, seen_as):
        return None
    return 0 if _number(b.fact(test.left)) == first else None


def _surely_up_to(fact: Fact, most: int) -> bool:
    """Whether a content of one number is no more than that."""
    greatest = None if fact.value is None else bounds(fact.value.reshape(-1)[0])[1]
    return greatest is not None and greatest <= most


def _less(makers: Makers, value: Value) -> _Less | None:
    """What a condition compares, seen through casts of whole numbers to floats."""
    node = makers.get(value)
    if node is None or node.op not in ("lt", "gt"):
        return None
    sides = [side for side in node.inputs if side is not None]
    left, right = sides if node.op == "lt" else sides[::-1]
    kind = left.type
    seen_as = kind.dtype if isinstance(kind, TensorType) and kind.dtype.is_float else None
    return (
        None
        if seen_as is not None and seen_as not in _EXACT
        else _Less(_whole(makers, left), _whole(makers, right), seen_as)
    )


def _whole(makers: Makers, value: Value) -> Value:
    """The whole number that a float was cast from, else the value itself."""
    node = makers.get(value)
    source = node.inputs[0] if node is not None and node.op == "cast" else None
    is_whole = source is not None and isinstance(source.type, TensorType) and source.type.dtype.is_integer
    return source if source is not None and is_whole else value


def _makers(nodes: Iterable[Node]) -> Makers:
    return {value: node for node in nodes for value in node.outputs}


def _place(values: Sequence[Value], wanted: Value) -> int | None:
    return next((at for at, value in enumerate(values) if value is wanted), None)


def _number(fact: Fact) -> int | None:
    """A content of one whole number; None if it is none, or not known."""
    found = fact.concrete
    if found is None or found.size != 1 or found.dtype.kind not in "iuf":
        return None
    number = found.reshape(-1)[0]
    return int(number) if number == np.floor(number) else None
