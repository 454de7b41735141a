"""Random graphs that are valid by construction, and smaller ones cut out of them.

A graph grows out of the samples of op definitions: an op is drawn with one of its samples, and the sample's arguments
that are not fixed may be replaced by values that the graph has computed already, brought into the sample's shape and
range by core ops. Every value is computed on the way, so any part of a graph can stand alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, NUMERIC, Array, DType
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import OpDef, Sample
from assay.targets.reference.interpreter import node_function

Rng = np.random.Generator
Values = dict[Value, Any]

COMMON: tuple[DType, ...] = (dtypes.f32, dtypes.i64, dtypes.boolean, dtypes.i32)
"""What most graphs are made of; the others take all dtypes."""

LARGEST = 4096
"""Results of more elements are not used any further."""


class NotComputed(Exception):
    """An op failed on arguments that should be valid."""

    def __init__(self, op: str, error: Exception) -> None:
        self.op = op
        super().__init__(f"{op}: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class GraphCase:
    """A graph with the values of its inputs and, by the oracle, of all the rest."""

    graph: Graph
    values: Mapping[Value, Any]

    @property
    def inputs(self) -> list[Any]:
        """What to feed."""
        return [self.values[value] for value in self.graph.inputs]

    @property
    def outputs(self) -> list[Any]:
        """What should come out."""
        return [self.values[value] for value in self.graph.outputs]


def compute(nodes: Iterable[Node], values: Values) -> None:
    """Add the results of `nodes`, in `exact` mode, to `values`; NotComputed names the node that fails."""
    for node in nodes:
        arguments = [None if value is None else values[value] for value in node.inputs]
        try:
            with np.errstate(all="ignore"):
                results = node_function(CORE[node.op], node, "exact")(arguments)
        except Exception as error:
            raise NotComputed(node.op, error) from error
        values.update(zip(node.outputs, results, strict=True))


# --- growing


@cache
def usable_ops() -> tuple[str, ...]:
    """The ops that graphs are made of: those with samples whose arguments and results are tensors."""
    return tuple(definition.name for definition in CORE if not definition.regions and _tensor_samples(definition))


@cache
def _chances() -> Array:
    """How likely each of the usable ops is taken: work of the host, which few peers know, less often."""
    weights = np.array([0.2 if CORE[name].host else 1.0 for name in usable_ops()])
    return weights / weights.sum()


def _tensor_samples(definition: OpDef) -> bool:
    if definition.types is not None or any(param.dtype == "any" for param in definition.params):
        return False
    return any(True for _ in definition.samples(np.random.default_rng(0), definition.main_dtypes[0]))


def random_case(rng: Rng, ops: Sequence[str] | None = None, steps: int | None = None) -> GraphCase:
    """A graph of `steps` ops (by default 1 to 8), not counting those that adapt arguments."""
    grower = GraphGrower(rng)
    palette = COMMON if rng.random() < 0.6 else dtypes.ALL
    left = steps or int(rng.integers(1, 9))
    while left > 0 or not grower.builder.nodes:
        grower.step(str(rng.choice(ops or usable_ops(), p=None if ops else _chances())), palette)
        left -= 1
    return grower.case()


class GraphGrower:
    """A graph that grows op by op. `pool` holds what arguments may be taken from."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.builder = Builder()
        self.inputs: list[Value] = []
        self.values: Values = {}
        self.pool: list[Value] = []

    def step(self, name: str, palette: Sequence[DType]) -> None:
        """Add one op, for a dtype of `palette` if it takes one."""
        definition = CORE[name]
        kinds = [d for d in definition.main_dtypes if d in palette] or list(definition.main_dtypes)
        dtype = kinds[int(self.rng.integers(len(kinds)))]
        samples = list(definition.samples(self.rng, dtype))
        if not samples:
            return
        sample = samples[int(self.rng.integers(len(samples)))]
        arguments = [self._argument(definition, sample, index) for index in range(len(sample.inputs))]
        results = self.emit(name, *arguments, **sample.attrs)
        self.pool.extend(value for value in results if self.values[value].size <= LARGEST)

    def case(self) -> GraphCase:
        """What has grown; what no node uses is an output."""
        nodes = self.builder.nodes
        consumed = {value for node in nodes for value in node.inputs}
        outputs = [value for node in nodes for value in node.outputs if value not in consumed]
        used = [value for value in self.inputs if value in consumed]
        return pruned(GraphCase(self.builder.finish("fuzz", used, outputs), self.values))

    def emit(self, name: str, *arguments: Any, **attrs: Any) -> tuple[Value, ...]:
        """Add one op and compute it; NotComputed if that fails."""
        known = set(self.builder.constants)
        mark = len(self.builder.nodes)
        try:
            results = self.builder.emit(name, *arguments, **attrs)
        except Exception as error:
            raise NotComputed(name, error) from error
        self.values.update((v, array) for v, array in self.builder.constants.items() if v not in known)
        compute(self.builder.nodes[mark:], self.values)
        return results

    def _argument(self, definition: OpDef, sample: Sample, index: int) -> Value | None:
        given = sample.inputs[index]
        if given is None:
            return None
        dtype = dtypes.of(given)
        if index in sample.fixed:
            return self.constant(given) if self.rng.random() < 0.85 else self.input(given)
        alike = [value for value in self.pool if dtypes.of(self.values[value]) is dtype]
        if alike and self.rng.random() < 0.7:
            source = alike[int(self.rng.integers(len(alike)))]
            return self._adapted(source, given, careful=definition.family != "elementwise" or not dtype.is_float)
        if self.rng.random() < 0.1:
            return self.constant(given)
        return self.input(given)

    def input(self, array: Array) -> Value:
        """An input of the graph, for which this will be fed."""
        value = self.builder.input(TensorType(dtypes.of(array), array.shape))
        self.inputs.append(value)
        self.values[value] = array
        return value

    def constant(self, array: Array) -> Value:
        """A constant of the graph."""
        value = self.builder.constant(array)
        self.values[value] = array
        return value

    def _adapted(self, source: Value, like: Array, careful: bool) -> Value:
        """`source` in the shape of a sample's argument and, if `careful` or else mostly, within its range."""
        value = self._reshaped(source, like.shape)
        if careful or self.rng.random() < 0.8:
            value = self._in_range(value, like)
        return value

    def _reshaped(self, source: Value, shape: tuple[int, ...]) -> Value:
        array: Array = self.values[source]
        size = math.prod(shape)
        if array.shape == shape:
            return source
        if _expands(array.shape, shape) and self.rng.random() < 0.7:
            return self.emit("expand", source, self._numbers(shape))[0]
        flat = source if array.ndim == 1 else self.emit("reshape", source, self._numbers([array.size]))[0]
        if array.size > size and self.rng.random() < 0.5:
            start = int(self.rng.integers(array.size - size + 1))
            flat = self.emit("slice", flat, *map(self._numbers, ([start], [start + size], [1])), axes=(0,))[0]
        elif array.size < size and (array.size == 0 or self.rng.random() < 0.3):
            fill = self.constant(np.zeros((), array.dtype) if array.dtype != object else np.array("", object))
            flat = self.emit("pad", flat, self._numbers([0, size - array.size]), fill)[0]
        elif array.size != size:
            places = self.rng.integers(-array.size, array.size, size=shape)
            return self.emit("gather", flat, self.constant(places), axis=0)[0]
        return self.emit("reshape", flat, self._numbers(shape))[0]

    def _in_range(self, value: Value, like: Array) -> Value:
        dtype = dtypes.of(like)
        if dtype not in NUMERIC or not like.size:
            return value
        if dtype in FLOATS and np.isnan(self.values[value].astype(np.float64)).any():
            middle = self.constant(np.zeros((), like.dtype))
            value = self.emit("where", self.emit("is_nan", value)[0], middle, value)[0]
        wide = like.astype(np.float64) if dtype in FLOATS else like
        finite = wide[np.isfinite(wide)] if dtype in FLOATS else wide
        if not finite.size:
            return value
        low, high = finite.min().astype(like.dtype), finite.max().astype(like.dtype)
        array = self.values[value]
        if bool((array >= low).all()) and bool((array <= high).all()):
            return value
        return self.emit("clip", value, self.constant(np.asarray(low)), self.constant(np.asarray(high)))[0]

    def _numbers(self, numbers: Sequence[int]) -> Value:
        return self.constant(np.array(numbers, dtype=np.int64))


def _expands(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


# --- cutting


def pruned(case: GraphCase) -> GraphCase:
    """The case without what no output needs."""
    needed = set(case.graph.outputs)
    kept: list[Node] = []
    for node in reversed(case.graph.nodes):
        if needed.intersection(node.outputs):
            kept.insert(0, node)
            needed.update(value for value in node.inputs if value is not None)
    return _case(case, kept, [value for value in case.graph.inputs if value in needed], case.graph.outputs)


def without(case: GraphCase, dropped: Iterable[Node]) -> GraphCase:
    """The case with the results of some nodes as inputs instead. All that no node uses any more are outputs."""
    gone = set(dropped)
    kept = [node for node in case.graph.nodes if node not in gone]
    consumed = {value for node in kept for value in node.inputs if value is not None}
    outputs = [v for node in kept for v in node.outputs if v not in consumed or v in case.graph.outputs]
    given = [v for v in case.graph.inputs if v in consumed]
    given += [v for node in case.graph.nodes if node in gone for v in node.outputs if v in consumed]
    return _case(case, kept, given, outputs)


def alone(case: GraphCase, node: Node) -> GraphCase:
    """Just one node, fed with what it gets in the case."""
    return without(case, [other for other in case.graph.nodes if other is not node])


def with_inputs(case: GraphCase, replaced: Mapping[Value, Any]) -> GraphCase:
    """The case with other values for some inputs; NotComputed where that does not do."""
    values = {**{v: case.values[v] for v in (*case.graph.inputs, *case.graph.constants)}, **replaced}
    compute(case.graph.nodes, values)
    return GraphCase(case.graph, values)


def with_constants(case: GraphCase, fixed: Sequence[Value]) -> GraphCase:
    """The case with some of its inputs as constants."""
    graph = case.graph
    constants = {**{value: case.values[value] for value in fixed}, **graph.constants}
    inputs = tuple(value for value in graph.inputs if value not in fixed)
    return GraphCase(Graph(graph.name, inputs, graph.outputs, graph.nodes, constants), case.values)


def _case(case: GraphCase, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]) -> GraphCase:
    used = {value for node in nodes for value in node.inputs if value is not None}
    constants = {value: array for value, array in case.graph.constants.items() if value in used or value in outputs}
    return GraphCase(Graph(case.graph.name, tuple(inputs), tuple(outputs), tuple(nodes), constants), case.values)
