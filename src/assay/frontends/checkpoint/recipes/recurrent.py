"""What recurrent models share: states of fixed size, the token before each, and runs over positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.frontends.checkpoint.recipes.attention import BATCH, STEP
from assay.frontends.checkpoint.recipes.network import Network
from assay.ir import dtypes
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType, Type
from assay.ops.builder import Builder
from assay.ops.definitions.control import loop_body
from assay.ops.parts import scalar_size


@dataclass(frozen=True)
class Recurrence:
    """The tokens of a call, and states that it takes and leaves. Before the first token all states are zeros."""

    network: Network
    tokens: Value
    states: Mapping[str, Value]
    renewed: dict[str, Value] = field(default_factory=dict[str, Value])

    def finish(self, logits: Value) -> Graph:
        """The graph: logits, then the states in the order in which they came."""
        renewed = {name: self.renewed[name] for name in self.states}
        return self.network.finish("decoder", {"logits": logits, **renewed})

    def before(self, m: Network, name: str, x: Value) -> Value:
        """For each position of x (batch, step, width) what came before it; the state is the last of an earlier call."""
        with m.op("shift") as b:
            step = scalar_size(b, x, 1)
            earlier = b.unsqueeze(self.states[name], axes=(1,))
            self.renewed[name] = b.gather(x, b.sub(step, 1), axis=1)
            but_last = b.slice(x, [0], b.vector(b.sub(step, 1)), [1], axes=(1,))
            return b.concat(earlier, but_last, axis=1)


def start_recurrence(network: Network, shapes: Mapping[str, Sequence[int]]) -> Recurrence:
    """The inputs of a recurrent model: tokens, then states of these shapes for each row."""
    tokens = network.input("tokens", dtypes.i64, BATCH, STEP)
    states = {name: network.input(name, network.options.dtype, BATCH, *shape) for name, shape in shapes.items()}
    return Recurrence(network, tokens, states)


Step = Callable[[Builder, Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Value]]
"""From states and what stands at a position to new states and a result."""


def over_positions(m: Network, states: Sequence[Value], rows: Sequence[Value], step: Step) -> tuple[list[Value], Value]:
    """The last states, and the results (batch, step, …) of a step for each position of `rows` (batch, step, …)."""
    counter_kind, flag_kind = TensorType(dtypes.i64, ()), TensorType(dtypes.boolean, ())
    with m.op("recurrence") as b:

        def body(kinds: Sequence[Type]) -> Graph:
            inner = b.child()
            counter, flag = inner.input(counter_kind), inner.input(flag_kind)
            carried = [inner.input(kind) for kind in kinds]
            renewed, result = step(inner, carried, [inner.gather(row, counter, axis=1) for row in rows])
            outputs = [inner.constant(np.True_), *renewed, result]
            return inner.finish("position", [counter, flag, *carried], outputs)

        graph = loop_body(body, [state.type for state in states])
        *last, stacked = b.emit("loop", scalar_size(b, rows[0], 1), None, *states, regions=(graph,))
        rank = b.rank(stacked)
        return last, b.transpose(stacked, perm=(1, 0, *range(2, rank)))
