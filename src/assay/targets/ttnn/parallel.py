"""Programs for several chips: each computes its share of a batch, with all weights.

What a segment computes for a whole batch becomes a smaller graph, the same on every chip. The library shares the inputs
out and joins the results. How chips share linear layers is said elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from assay.errors import NotFound, hint_for
from assay.ir.dtypes import Array, i64
from assay.ir.graph import Graph, Node, Value, fresh_ids
from assay.ir.types import TensorType
from assay.targets.base import Event, Observer
from assay.targets.ttnn.plan import sizes
from assay.targets.ttnn.shares import NotShared, shared_out

ENVIRONMENT = "ASSAY_TTNN_PARALLEL"
"""The variable that says what the chips of a card do together."""
WAYS: Mapping[str, str] = {
    "none": "every chip computes everything",
    "data": "every chip computes its share of the batch",
    "tensor": "every chip has its part of the weights of linear layers",
}


def chosen_way(environment: Mapping[str, str] = os.environ) -> str:
    """What the chips of a card do together: `$ASSAY_TTNN_PARALLEL`. NotFound if there is no such."""
    name = environment.get(ENVIRONMENT, "") or "none"
    if name not in WAYS:
        raise NotFound(f"chips cannot work in the way '{name}' ({ENVIRONMENT})", hint=hint_for(name, WAYS))
    return name


@dataclass(frozen=True)
class Sharing:
    """A segment as chips compute it: `graph` is what one chip computes, `axes` are those along which values of the
    segment are shared out, others being whole on every chip. `reason` says why chips cannot share it, if they were to.
    """

    segment: Graph
    graph: Graph
    chips: int = 1
    axes: Mapping[Value, int] = field(default_factory=dict[Value, int])
    reason: str = ""

    @property
    def modelled(self) -> Graph:
        """What the device model computes: the graph of one chip, for each of them."""
        return self.graph

    @property
    def given(self) -> Mapping[Value, int | None]:
        """The axis of each input of the graph that a chip computes."""
        return dict(zip(self.graph.inputs, map(self.axes.get, self.segment.inputs), strict=True))

    @cached_property
    def local(self) -> Mapping[Value, Value]:
        """What the inputs of the segment are in the graph that a chip computes."""
        return dict(zip(self.segment.inputs, self.graph.inputs, strict=True))

    def told(self, names: Mapping[Value, str]) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """What chips share, in words, and a table of it with its titles; `names` are those of the graph's values."""
        given = [(names[value], str(axis)) for value, axis in self.given.items() if axis is not None]
        return "the batch; each is given a part of:", ("input", ">axis"), given

    @property
    def ends(self) -> list[int | None]:
        """The axis of each output."""
        return [self.axes.get(value) for value in self.segment.outputs]

    def shares(self, value: Value, content: Array) -> list[Array]:
        """What each chip is given of a value."""
        axis = self.axes.get(value)
        return [content] * self.chips if axis is None else np.split(content, self.chips, axis)

    def places(self, value: Value) -> tuple[Value, ...]:
        """The values of the modelled graph that a value that is given to the segment is."""
        return (self.local.get(value, value),)

    def rounds(self, values: Sequence[Value], contents: Sequence[Array]) -> list[list[Array]]:
        """What the modelled graph is given, run by run: one for each chip."""
        shares = [self.shares(value, content) for value, content in zip(values, contents, strict=True)]
        return [[each[chip] for each in shares] for chip in range(self.chips)]

    def watched(self) -> Watcher | None:
        """What collects events of the modelled graph; None if they are those of the segment."""
        return None if self.chips == 1 else JoinedEvents(self)

    def joined(self, values: Sequence[Value], results: Sequence[Sequence[Array]]) -> tuple[Array, ...]:
        """Values of the segment, of what each chip made of them."""
        if self.chips == 1:
            return tuple(results[0])
        return tuple(
            each[0] if (axis := self.axes.get(value)) is None else np.concatenate(each, axis)
            for value, each in zip(values, zip(*results, strict=True), strict=True)
        )


class Watcher(Protocol):
    """An observer of the modelled graph, which then tells another one of the nodes of the segment."""

    def __call__(self, event: Event) -> None: ...

    def tell(self, observer: Observer) -> None: ...


class JoinedEvents:
    """An observer of what each chip computes, which then tells another one of the nodes of the segment."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._seen: dict[Node, list[Event]] = {}

    def __call__(self, event: Event) -> None:
        """A chip has computed a node of its graph."""
        self._seen.setdefault(event.node, []).append(event)

    def tell(self, observer: Observer) -> None:
        """What all chips have computed, node by node."""
        for node, local in zip(self._sharing.segment.nodes, self._sharing.graph.nodes, strict=True):
            events = self._seen[local]
            results = self._sharing.joined(node.outputs, [each.results for each in events])
            seconds, held = (sum(each) for each in zip(*((e.seconds, e.live_bytes) for e in events), strict=True))
            observer(Event(node, results, seconds, int(held)))


def sharing(segment: Graph, resident: Collection[Value], chips: int, way: str) -> Sharing:
    """How chips share a segment, some of whose inputs are `resident`. The batch is the first axis of some inputs, tried
    in order; if none can be shared out, every chip computes everything."""
    if way == "none" or chips == 1:
        return Sharing(segment, segment)
    open_inputs = [value for value in segment.inputs if value not in resident and sizes(value)]
    reasons: list[str] = []
    for size in dict.fromkeys(sizes(value)[0] for value in open_inputs):
        if size % chips:
            reasons.append(f"{chips} chips cannot share {size} alike")
            continue
        given = {value: 0 for value in open_inputs if sizes(value)[0] == size}
        try:
            return shared(segment, shared_out(segment, given, chips), chips)
        except NotShared as reason:
            reasons.append(str(reason))
    return Sharing(segment, segment, reason=reasons[0] if reasons else "no input has a batch")


def shared(segment: Graph, axes: Mapping[Value, int], chips: int) -> Sharing:
    """The segment as one chip computes it."""
    made = Local(segment, axes, chips, fresh_ids(segment))
    nodes = tuple(made.node(node) for node in segment.nodes)
    constants = {made.of(value): made.content(value, array) for value, array in segment.constants.items()}
    graph = replace(
        segment,
        inputs=tuple(map(made.of, segment.inputs)),
        outputs=tuple(map(made.of, segment.outputs)),
        nodes=nodes,
        constants={**constants, **made.constants},
        names={name: made.of(value) for name, value in segment.names.items()},
    )
    return Sharing(segment, graph, chips, axes)


class Local:
    """Values and nodes of a segment as they are on one chip, with new `ids` for values of which it has a part."""

    def __init__(self, segment: Graph, axes: Mapping[Value, int], chips: int, ids: Iterator[int]) -> None:
        self._segment, self._axes, self._chips, self._ids = segment, axes, chips, ids
        self.values = {value: Value(next(self._ids), self._type(value)) for value in axes}
        self.constants: dict[Value, Array] = {}

    def of(self, value: Value) -> Value:
        """What a value is on a chip."""
        return self.values.get(value, value)

    def content(self, value: Value, array: Array) -> Array:
        """A constant on a chip: it repeats along the axis that is shared out."""
        axis = self._axes.get(value)
        return array if axis is None else array.take(range(array.shape[axis] // self._chips), axis)

    def node(self, node: Node) -> Node:
        """A node on a chip; of those that are told a shape, that of the share."""
        inputs = tuple(None if value is None else self.of(value) for value in node.inputs)
        if node.op in _TOLD_SHAPES and node.outputs[0] in self._axes:
            shape = np.array(sizes(self.of(node.outputs[0])), np.int64)
            told = Value(next(self._ids), TensorType(i64, shape.shape))
            self.constants[told] = shape
            inputs = (inputs[0], told)
        return replace(node, inputs=inputs, outputs=tuple(map(self.of, node.outputs)))

    def _type(self, value: Value) -> TensorType:
        assert isinstance(value.type, TensorType)
        shape = list(sizes(value))
        shape[self._axes[value]] //= self._chips
        return TensorType(value.type.dtype, tuple(shape))


_TOLD_SHAPES = frozenset({"reshape", "expand"})
