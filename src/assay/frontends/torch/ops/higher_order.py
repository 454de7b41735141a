"""torch's higher-order ops: `cond`, `while_loop`, `map` and `scan` onto `branch` and `loop`, their bodies in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from assay.frontends.torch.registry import Builder, Call, Results, aten, leave_to_torch
from assay.ir import dtypes
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType, Type
from assay.ops.definitions.control import loop_body
from assay.ops.parts import scalar_size

_COUNTER, _FLAG = TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ())

leave_to_torch(
    "puts torch's generator back to where it stood",
    "aten.higher_order.run_and_save_rng_state",
    "aten.higher_order.run_with_rng_state",
)


def _region(n: Call, name: str, build: Callable[[Builder], Sequence[Value]]) -> Graph:
    """A region without inputs that gives what `build` makes; it reads values from around it."""
    with n.lowering.nested() as inner:
        return inner.finish(name, [], build(inner))


def _looped(n: Call, states: Sequence[Type], step: Callable[[Builder, Value, list[Value]], Sequence[Value]]) -> Graph:
    """The body of a loop: `step` takes the iteration and the carried values, and gives what the body gives."""

    def body(kinds: Sequence[Type]) -> Graph:
        with n.lowering.nested() as inner:
            counter, flag = inner.input(_COUNTER), inner.input(_FLAG)
            carried = [inner.input(kind) for kind in kinds]
            return inner.finish("body", [counter, flag, *carried], step(inner, counter, carried))

    return loop_body(body, states)


@aten("aten.higher_order.cond")
def cond(b: Builder, n: Call, predicate: Value | bool, true: Graph, false: Graph, operands: Sequence[Value]) -> Results:
    regions = [_region(n, body.name, lambda _, body=body: n.lowering.inline(body, operands)) for body in (true, false)]
    return b.emit("branch", predicate, regions=tuple(regions))


def _while(
    b: Builder, n: Call, test: Graph, body: Graph, carried: Sequence[Value], others: Sequence[Value], collects: bool
) -> Sequence[Value]:
    """The last carried values; where it `collects`, then those of every iteration."""

    def step(inner: Builder, counter: Value, states: list[Value]) -> list[Value]:
        made = n.lowering.inline(body, [*states, *others])
        return [*n.lowering.inline(test, [*made, *others]), *made, *(made if collects else ())]

    region = _looped(n, [value.type for value in carried], step)
    return b.emit("loop", None, n.lowering.inline(test, [*carried, *others])[0], *carried, regions=(region,))


@aten("aten.higher_order.while_loop")
def while_loop(
    b: Builder, n: Call, test: Graph, body: Graph, carried: Sequence[Value], others: Sequence[Value] = ()
) -> Results:
    return list(_while(b, n, test, body, carried, others, collects=False))


@aten("aten.higher_order.while_loop_stack_output")
def while_loop_stack_output(
    b: Builder, n: Call, test: Graph, body: Graph, carried: Sequence[Value], others: Sequence[Value] = ()
) -> Results:
    """The carried values of every iteration; the first ones where there is none."""

    def ran(inner: Builder) -> Sequence[Value]:
        return _while(inner, n, test, body, carried, others, collects=True)[len(carried) :]

    def stayed(inner: Builder) -> Sequence[Value]:
        return [inner.unsqueeze(value, axes=(0,)) for value in carried]

    goes = n.lowering.inline(test, [*carried, *others])[0]
    return list(b.emit("branch", goes, regions=(_region(n, "ran", ran), _region(n, "stayed", stayed))))


@aten("aten.higher_order.scan")
def scan(
    b: Builder, n: Call, body: Graph, first: Sequence[Value], rows: Sequence[Value], others: Sequence[Value] = ()
) -> Results:
    """Final states, then one result a row, along the first axis."""

    def step(inner: Builder, counter: Value, states: list[Value]) -> list[Value]:
        taken = [inner.gather(value, counter, axis=0) for value in rows]
        return [inner.constant(np.True_), *n.lowering.inline(body, [*states, *taken, *others])]

    region = _looped(n, [value.type for value in first], step)
    return list(b.emit("loop", scalar_size(b, rows[0], 0), None, *first, regions=(region,)))


@aten("aten.higher_order.map_impl")
def map_impl(b: Builder, n: Call, body: Graph, rows: Sequence[Value], others: Sequence[Value] = ()) -> Results:
    return scan(b, n, body, (), rows, others)


@aten("aten.higher_order.invoke_subgraph")
def invoke_subgraph(b: Builder, n: Call, body: Graph, name: str, *operands: Value) -> Results:
    return n.lowering.inline(body, operands)


@aten("aten.higher_order.wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(b: Builder, n: Call, enabled: bool, body: Graph, *operands: Value) -> Results:
    return n.lowering.inline(body, operands)
