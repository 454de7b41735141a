"""Control flow and work that waits for facts. Regions run as functions that the target supplies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.ir.dims import UNKNOWN, Dim, dim_max, join
from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.graph import Graph
from assay.ir.types import OptionalType, SequenceType, Shape, TensorType, Type, UnknownType
from assay.ops.registry import op


def join_types(a: Type, b: Type) -> Type:
    """The type that covers both; TypeError where they are of different kinds or dtypes."""
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype is b.dtype:
        return TensorType(a.dtype, join_shapes(a.shape, b.shape))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(join_types(a.elem, b.elem))
    if isinstance(a, UnknownType) or isinstance(b, UnknownType):
        return UnknownType()
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        return OptionalType(join_types(_present(a), _present(b)))
    if a == b:
        return a
    raise TypeError(f"{a} and {b} meet at one value")


def _present(kind: Type) -> Type:
    """The type of an optional's content, or the type itself."""
    return kind.elem if isinstance(kind, OptionalType) else kind


def join_shapes(a: Shape, b: Shape) -> Shape:
    """The shape that covers both."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(join(x, y) for x, y in zip(a, b, strict=True))


def loop_body(body: Callable[[Sequence[Type]], Graph], states: Sequence[Type]) -> Graph:
    """A loop's body built for carried types that hold in every iteration, however often they had to be widened."""
    kinds = list(states)
    while True:
        graph = body(kinds)
        wider = [join_types(a, out.type) for a, out in zip(kinds, graph.outputs[1:], strict=False)]
        if wider == kinds:
            return graph
        kinds = wider


def _branch_types(condition: Fact, *, regions: tuple[Graph, Graph]) -> list[Type]:
    first, second = regions
    return [join_types(a.type, b.type) for a, b in zip(first.outputs, second.outputs, strict=True)]


@op("bool -> any", types=_branch_types, regions=2)
def branch(condition: Array, *, regions: Sequence[Any]) -> tuple[Any, ...]:
    """The results of the first region if the condition holds, else those of the second."""
    return regions[0 if bool(condition.reshape(-1)[0]) else 1].run()


def _loop_types(trip: Fact | None, go: Fact | None, *carried: Fact, regions: tuple[Graph]) -> list[Type]:
    body = regions[0]
    count = _iterations(trip, go, body)
    states = [join_types(a.type, b.type) for a, b in zip(carried, body.outputs[1:], strict=False)]
    collected = [value.type for value in body.outputs[1 + len(carried) :]]
    return states + [_stacked(kind, count) for kind in collected]


def _iterations(trip: Fact | None, go: Fact | None, body: Graph) -> Dim:
    """How often a loop runs, if nothing but its count can end it."""
    flags = [body.constants.get(body.outputs[0]), np.True_ if go is None else go.concrete]
    endless = all(flag is not None and flag.all() for flag in flags)
    if not endless or trip is None or trip.value is None or trip.value.size != 1:
        return UNKNOWN
    return dim_max(trip.value.reshape(-1)[0], 0)


def _stacked(kind: Type, count: Dim) -> Type:
    if isinstance(kind, UnknownType):
        return kind
    if not isinstance(kind, TensorType):
        raise TypeError(f"a loop cannot collect values of type {kind}")
    return TensorType(kind.dtype, None if kind.shape is None else (count, *kind.shape))


@op("i64?, bool?, any* -> any", types=_loop_types, regions=1)
def loop(trip: Array | None, go: Array | None, *carried: Any, regions: Sequence[Any]) -> tuple[Any, ...]:
    """Runs its region at most `trip` times, while `go` holds. The region takes (iteration, go, carried…) and
    gives (go, carried…, collected…); the loop gives the last carried values and the collected ones stacked."""
    body = regions[0]
    state: tuple[Any, ...] = carried
    collected: list[tuple[Any, ...]] = []
    iteration = 0
    running = go is None or bool(go.reshape(-1)[0])
    while running and (trip is None or iteration < int(trip.reshape(-1)[0])):
        body.check_iterations(iteration, collected[-1] if collected else ())
        goes_on, *results = body.run(np.asarray(iteration, np.int64), np.asarray(running), *state)
        state = tuple(results[: len(carried)])
        collected.append(tuple(results[len(carried) :]))
        running = bool(np.asarray(goes_on).reshape(-1)[0])
        iteration += 1
    count = len(body.graph.outputs) - 1 - len(carried)
    return (*state, *(body.stack(i, [row[i] for row in collected], state) for i in range(count)))


@op("any* -> any", types=lambda *inputs, **attrs: [], regions=1)
def deferred(*inputs: Any, reason: str, decomposed: bool = False, regions: Sequence[Any]) -> tuple[Any, ...]:
    """Source ops whose lowering needs facts that only a run supplies; the target lowers and runs the region then."""
    return regions[0].lower_and_run(inputs)
