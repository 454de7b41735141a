"""The oracle: runs a graph node by node through the NumPy references that define the ops.

`exact` rounds to the stated dtype at every op: each result is the real-number result of the op,
computed with f64 accumulation and rounded once. `precise` carries f16, bf16 and f32 in f64 throughout,
so that the distance between the two shows how much rounding alone can do. Tiny floats are storage
formats and stay as they are in both. `bf16` and `f16` are `exact` on a machine that has no wider floats:
each result, each input and each constant is rounded to that as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from assay.errors import AssayError, LimitExceeded, LowerFailed, OutOfMemory, RunFailed
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, evaluate
from assay.ir.dtypes import FLOATS, Array, DType, is_array, read_only
from assay.ir.facts import SMALL, Fact
from assay.ir.graph import Graph, Node, Value, captured, used
from assay.ir.types import (
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnknownType,
    size_in_bytes,
    symbol_axes,
)
from assay.limits import Limits
from assay.memory import LARGE, check_room
from assay.ops.builder import Builder, check_size
from assay.ops.lowering import Lowering, lower
from assay.ops.registry import OPS, Compute, OpDef, as_results, carrier, narrow, widen
from assay.targets.base import Bodies, Event, Executable, Finished, Observer, Run
from assay.targets.budget import Allowance
from assay.targets.reference.blas import single_threaded
from assay.targets.reference.watch import Env, Watch, span, values_for

Mode: TypeAlias = Literal["exact", "precise", "bf16", "f16"]
NodeFunction: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]


_OVER = Finished()


@dataclass(frozen=True, slots=True)
class ReadyNode:
    """One node made ready: what it reads and writes, what nobody reads after it."""

    node: Node
    definition: OpDef
    function: NodeFunction | None
    sized_at_run: bool
    large: int
    """Bytes that the node takes while it runs, if that is known and large; else 0."""
    dead: tuple[Value, ...]


class Interpreter:
    """A graph made ready to run. Immutable after construction, so that threads may share it."""

    addressed = frozenset[int]()

    def __init__(self, graph: Graph, mode: Mode, limits: Limits, bodies: Bodies) -> None:
        self.graph, self.limits, self._compiled = graph, limits, bodies
        self.mode: Mode = mode
        carry = widen if mode == "precise" else _rounding(mode)
        self._constants = {value: read_only(carry(array)) for value, array in graph.constants.items()}
        last_use = _last_uses(graph)
        self._steps = [self._prepare(node, last_use[index]) for index, node in enumerate(graph.nodes)]
        self._bodies = {
            region: Interpreter(region, mode, limits, bodies)
            for node in graph.nodes
            if node.op != "deferred"
            for region in node.regions
            if region not in bodies
        }
        self._captured = {region: captured(region) for region in bodies}
        self._late: dict[Any, Interpreter] = {}

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        """The outputs for these inputs. RunFailed names the node where it went wrong."""
        with np.errstate(all="ignore"), single_threaded():
            watch = None if observer is None and allowance is None else Watch(observer, allowance)
            outputs = self.run_in(values_for(watch), inputs, watch)
            return tuple(_restored(value, out.type) for value, out in zip(outputs, self.graph.outputs, strict=True))

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """A run that is over: every result had memory of its own, for as long as it was needed."""
        return self.run(inputs, observer, allowance), _OVER

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        """The program with these inputs as constants."""
        values = {self.graph.inputs[at]: array for at, array in statics.items()}
        inputs = tuple(value for value in self.graph.inputs if value not in values)
        graph = replace(self.graph, inputs=inputs, input_names=(), constants={**self.graph.constants, **values})
        return Interpreter(graph, self.mode, self.limits, self._compiled)

    def run_in(self, env: Env, inputs: Sequence[Any], watch: Watch | None) -> tuple[Any, ...]:
        """Run as a region: `env` holds what the enclosing graphs have computed."""
        carry = _widened if self.mode == "precise" else _rounding(self.mode)
        env.update(self._constants)
        env.update((value, carry(given)) for value, given in zip(self.graph.inputs, inputs, strict=True))
        symbols = _bindings(self.graph.inputs, env)
        for step in self._steps:
            self._run_step(step, env, symbols, watch)
        return tuple(env[value] for value in self.graph.outputs)

    def _run_step(self, step: ReadyNode, env: Env, symbols: Mapping[str, int], watch: Watch | None) -> None:
        node = step.node
        arguments = [None if value is None else env[value] for value in node.inputs]
        started = time.perf_counter() if watch else 0.0
        try:
            if watch is not None and watch.allowance is not None:
                watch.allowance.check(node)
            if step.sized_at_run or step.large:
                self._check_size(step, arguments, watch)
            if step.function is not None:
                results = step.function(arguments)
            else:
                regions = tuple(Body(self, node, region, env, symbols, watch) for region in node.regions)
                results = as_results(step.definition.reference(*arguments, **node.attrs, regions=regions))
        except AssayError as error:
            raise error.located(str(node.origin)) from error.__cause__
        except MemoryError as error:
            raise OutOfMemory(f"{node.op}: {error}", where=str(node.origin)) from error
        except Exception as error:
            raise RunFailed(f"{node.op}: {type(error).__name__}: {error}", where=str(node.origin)) from error
        for value, result in zip(node.outputs, results, strict=True):
            self._check_type(node, value.type, result, symbols)
            env[value] = result
        if watch is not None:
            self._notify(watch, node, results, time.perf_counter() - started, env)
        for value in step.dead:
            del env[value]
            if watch is not None:
                watch.drop(value)

    def _notify(self, watch: Watch, node: Node, results: Sequence[Any], seconds: float, env: Env) -> None:
        """Let the observer know of a node that has run, and count what it made."""
        if watch.observer is not None:
            watch.observer(Event(node, tuple(results), seconds, getattr(env, "bytes", 0)))
        if watch.allowance is not None and watch.counts:
            for value, result in zip(node.outputs, results, strict=True):
                watch.keep(value, span(result))
            watch.drop(node)
            watch.allowance.check_memory(0, str(node.origin))

    def _prepare(self, node: Node, dead: tuple[Value, ...]) -> ReadyNode:
        definition = OPS.get(node.op)
        if definition is None:
            raise RunFailed(f"the oracle has no op '{node.op}'", where=str(node.origin))
        values = [value for value in (*node.inputs, *node.outputs) if value is not None]
        sized_at_run = not definition.regions and not all(_is_static(value.type) for value in values)
        function = None if definition.regions else node_function(definition, node, self.mode)
        fixed = [value.type for value in node.outputs if not sized_at_run and not definition.regions]
        taken = sum(_bytes_taken(kind, definition) for kind in fixed)
        return ReadyNode(node, definition, function, sized_at_run, taken if taken >= LARGE else 0, dead)

    def _check_size(self, step: ReadyNode, arguments: Sequence[Any], watch: Watch | None) -> None:
        """See that there is memory for the results, before they are made; the shape rule tells of unknown sizes."""
        needed = step.large if not step.sized_at_run else self._check_shapes(step, arguments)
        check_room(needed, step.node.op)
        if watch is not None and watch.allowance is not None:
            watch.allowance.check_memory(needed, "")

    def _check_shapes(self, step: ReadyNode, arguments: Sequence[Any]) -> int:
        """The bytes that a node takes for these arguments; LimitExceeded if a result is larger than allowed."""
        facts = [
            None if value is None else _runtime_fact(value.type, argument)
            for value, argument in zip(step.node.inputs, arguments, strict=True)
        ]
        kinds = step.definition.infer(facts, step.node.attrs)
        for kind in kinds:
            if isinstance(kind, TensorType) and kind.shape is not None:
                check_size(kind.shape, kind.dtype, self.limits)
        return sum(_bytes_taken(kind, step.definition) for kind in kinds)

    def _check_type(self, node: Node, kind: Type, result: Any, symbols: Mapping[str, int]) -> None:
        if not isinstance(kind, TensorType):
            return
        carrier = _carrier(kind.dtype, self.mode)
        if not is_array(result) or result.dtype != carrier or not _fits(result.shape, kind.shape, symbols):
            got = f"{result.dtype}{list(result.shape)}" if is_array(result) else type(result).__name__
            raise RunFailed(
                f"{node.op} gave {got} where its rule says {kind}",
                where=str(node.origin),
                hint="the op's shape or dtype rule and its reference disagree: please report this",
            )

    def late(self, node: Node, inputs: Sequence[Any]) -> Interpreter:
        """The program of a deferred node for these very inputs, lowered now that all is known."""
        for telling in (_integers_tell, _everything_tells):
            facts = [
                _late_fact(value.type, given, telling)
                for value, given in zip(node.inputs, inputs, strict=True)
                if value is not None
            ]
            program = self._lowered_late(node, facts)
            if not _waits_still(program.graph):
                return program
        reason = node.attrs["reason"]
        raise LowerFailed(f"{node.regions[0].name} needs {reason}, which even a run does not tell")

    def _lowered_late(self, node: Node, facts: Sequence[Fact]) -> Interpreter:
        graph = node.regions[0]
        key = (graph, tuple(_key(fact) for fact in facts))
        found = self._late.get(key)
        if found is None:
            if len(self._late) >= _LATE_PROGRAMS:
                self._late.clear()
            lowered = lower(graph, facts, decomposed=node.attrs["decomposed"], limits=self.limits)
            found = self._late[key] = Interpreter(lowered, self.mode, self.limits, {})
        return found

    def result_types(self, graph: Graph, env: Env, inputs: Sequence[Any]) -> list[Type]:
        """The types of a region's results for these inputs, without running it; as stated where they cannot be had."""
        builder = Builder(limits=self.limits)
        outside = {value: builder.input(_runtime_fact(value.type, env[value]).type) for value in captured(graph)}
        given = [_runtime_fact(value.type, item) for value, item in zip(graph.inputs, inputs, strict=True)]
        try:
            found = Lowering(builder, outside).inline(graph, [builder.input(fact.type) for fact in given])
        except AssayError:  # it could not have run
            found = graph.outputs
        return [value.type for value in found]

    def run_body(self, graph: Graph, env: Env, inputs: Sequence[Any], watch: Watch | None) -> tuple[Any, ...]:
        """Run a region of one of this graph's nodes; `env` holds what it captures."""
        compiled = self._compiled.get(graph)
        if compiled is None:
            return self._bodies[graph].run_in(env, inputs, watch)
        given = [*inputs, *(env[value] for value in self._captured[graph])]
        return compiled(given, watch and watch.observer, watch and watch.allowance)


class Body:
    """A region as control-flow references see it: a function, with what they need to know of its graph."""

    def __init__(
        self, owner: Interpreter, node: Node, graph: Graph, env: Env, symbols: Mapping[str, int], watch: Watch | None
    ) -> None:
        self.graph = graph
        self._owner, self._node, self._env, self._symbols, self._watch = owner, node, env, symbols, watch
        self._collected = self._looked_at = 0

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        """The region's outputs."""
        return self._owner.run_body(self.graph, self._env, inputs, self._watch)

    def lower_and_run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Lower a region of source ops for these inputs, then run it."""
        program = self._owner.late(self._node, inputs)
        return program.run_in(values_for(self._watch), inputs, self._watch)

    def check_iterations(self, iteration: int, collected: Sequence[Any]) -> None:
        """LimitExceeded when a loop has run too often, or has collected too much with what came last."""
        if iteration >= self._owner.limits.loop_iterations:
            raise LimitExceeded(f"a loop ran {iteration} times", hint="raise Limits.loop_iterations if it should")
        self._collected += sum(map(span, collected))
        if self._collected > self._owner.limits.tensor_bytes:
            message = f"a loop collected {self._collected} bytes in {iteration} iterations"
            raise LimitExceeded(message, hint="raise Limits.tensor_bytes if it should")
        if self._collected - self._looked_at >= LARGE:  # as much again is needed to put it together
            check_room(self._collected, "what a loop collects")
            self._looked_at = self._collected
        if self._watch is not None and self._watch.allowance is not None:
            self._watch.allowance.check(self._node)
            self._watch.keep(self._node, self._collected)
            self._watch.allowance.check_memory(0, "")

    def stack(self, index: int, rows: Sequence[Array], state: Sequence[Any]) -> Array:
        """What a loop collected in its output number `index` (of the collected ones), stacked; `state` is what it
        carries, which tells what it would have collected if it never ran."""
        collected = len(self.graph.outputs) - len(self.graph.inputs) + 1
        kind = cast(TensorType, self.graph.outputs[len(self.graph.outputs) - collected + index].type)
        if rows:
            check_size((len(rows), *rows[0].shape), kind.dtype, self._owner.limits)
            check_room(sum(row.nbytes for row in rows), "what a loop collects")
            return np.stack(rows)
        if not _is_static(kind):
            inputs = (np.zeros((), np.int64), np.zeros((), np.bool_), *state)
            kinds = self._owner.result_types(self.graph, self._env, inputs)
            kind = cast(TensorType, kinds[len(kinds) - collected + index])
        shape = tuple(d if isinstance(d, int) else evaluate(d, self._symbols) or 0 for d in kind.shape or ())
        return np.zeros((0, *shape), _carrier(kind.dtype, self._owner.mode))


def _bytes_taken(kind: Type, definition: OpDef) -> int:
    """What a result takes while it is made: its bytes, and if it is computed in f64 those of that; 0 if unknown."""
    if definition.name in _VIEWS:
        return 0
    size = size_in_bytes(kind) or 0
    wide = definition.compute is Compute.WIDE and isinstance(kind, TensorType) and kind.dtype not in _WIDE_ALREADY
    return size + (size // max(kind.dtype.numpy.itemsize, 1) * 8 if wide and isinstance(kind, TensorType) else 0)


_VIEWS = frozenset({"expand"})
"""Ops whose result may be much larger than what it lies in."""


def node_function(definition: OpDef, node: Node, mode: Mode) -> NodeFunction:
    """The reference of `definition` with attributes bound and results rounded as `mode` says."""
    if mode in _COARSE:
        exact, coarse = node_function(definition, node, "exact"), _rounding(mode)
        return lambda xs: tuple(map(coarse, exact(xs)))
    reference, attrs = definition.reference, node.attrs
    carriers = _carriers(tuple(carrier(value.type) for value in node.outputs), mode)
    if mode == "exact":
        if definition.compute is Compute.WIDE and _touches_narrow_floats(node):
            return lambda xs: _rounded(reference(*_all_wide(xs), **attrs), carriers)
        return lambda xs: _rounded(reference(*xs, **attrs), carriers)
    if definition.compute is Compute.STORED:
        given = [_carrier(cast(TensorType, v.type).dtype, "exact") for v in node.inputs if v is not None]
        return lambda xs: tuple(map(_widened, as_results(reference(*map(narrow, xs, given), **attrs))))
    wide = {key: _WIDEST.get(value, value) if isinstance(value, DType) else value for key, value in attrs.items()}
    return lambda xs: _rounded(reference(*xs, **wide), carriers)


def _all_wide(xs: Sequence[Any]) -> Iterator[Any]:
    """The arguments in f64; OutOfMemory if there is no room for them."""
    check_room(sum(x.size for x in xs if is_array(x)) * dtypes.f64.numpy.itemsize, "computing in f64")
    return map(widen, xs)


_WIDEST = {**dict.fromkeys(FLOATS, dtypes.f64), dtypes.c64: dtypes.c128}
"""What `precise` mode computes in where an attribute names a dtype."""


@cache
def _carriers(stated: tuple[Any, ...], mode: Mode) -> tuple[Any, ...]:
    """The NumPy dtypes that results come in, for those that carry their stated dtypes; None is no tensor."""
    return tuple(None if kind is None else _carrier(dtypes.of(np.empty(0, kind)), mode) for kind in stated)


def _rounded(outcome: Any, carriers: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(narrow(value, dtype) for value, dtype in zip(as_results(outcome), carriers, strict=True))


def _touches_narrow_floats(node: Node) -> bool:
    kinds = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    return any(isinstance(k, TensorType) and k.dtype not in _WIDE_ALREADY for k in kinds)


_WIDE_ALREADY = frozenset(d for d in dtypes.ALL if d.kind not in ("float", "complex") or d in (dtypes.f64, dtypes.c128))


def _carrier(dtype: DType, mode: Mode) -> np.dtype[Any]:
    if mode == "precise" and dtype in FLOATS:
        return dtypes.f64.numpy
    if mode == "precise" and dtype is dtypes.c64:
        return dtypes.c128.numpy
    return dtype.numpy


def _as_is(value: Any) -> Any:
    return value


_COARSE: Mapping[str, DType] = {"bf16": dtypes.bf16, "f16": dtypes.f16}
"""The modes of machines with no wider floats than these."""


@cache
def _rounding(mode: Mode) -> Callable[[Any], Any]:
    """What a mode does to every value: wide floats keep their dtype and lose the digits that the mode does not have."""
    narrow_dtype = _COARSE.get(mode)
    if narrow_dtype is None:
        return _as_is

    def coarse(value: Any) -> Any:
        wide = is_array(value) and value.dtype in (dtypes.f32.numpy, dtypes.f64.numpy)
        return narrow(value, narrow_dtype.numpy).astype(value.dtype) if wide else value

    return coarse


def _widened(value: Any) -> Any:
    if isinstance(value, list):
        return [_widened(item) for item in cast("list[Any]", value)]
    tiny = is_array(value) and value.dtype in _STORAGE
    return value if tiny else widen(value)


_STORAGE = frozenset(d.numpy for d in dtypes.TINY_FLOATS)


def _restored(value: Any, kind: Type) -> Any:
    """An output as its declared dtype again (in `precise` mode: rounded once, at the very end)."""
    if isinstance(kind, TensorType):
        return narrow(value, kind.dtype.numpy)
    if isinstance(kind, SequenceType):
        return [_restored(item, kind.elem) for item in value]
    if isinstance(kind, OptionalType):
        return None if value is None else _restored(value, kind.elem)
    if isinstance(kind, MapType):
        return {key: _restored(item, kind.value).item() for key, item in value.items()}
    return value


def _is_static(kind: Type) -> bool:
    return isinstance(kind, TensorType) and kind.shape is not None and not any(isinstance(d, Expr) for d in kind.shape)


def _fits(shape: tuple[int, ...], rule: tuple[Dim, ...] | None, symbols: Mapping[str, int]) -> bool:
    if rule is None or rule == shape:
        return True
    if len(rule) != len(shape):
        return False
    return all(
        size == dim if isinstance(dim, int) else dim is UNKNOWN or evaluate(dim, symbols) in (None, size)
        for size, dim in zip(shape, rule, strict=True)
    )


def _bindings(inputs: Sequence[Value], env: Env) -> dict[str, int]:
    """What the symbols among the inputs' dims stand for in this run."""
    bound: dict[str, int] = {}
    for value in inputs:
        array = env[value]
        for name, axis in symbol_axes(value.type) if is_array(array) else ():
            bound.setdefault(name, array.shape[axis])
    return bound


def _last_uses(graph: Graph) -> list[tuple[Value, ...]]:
    """For each node, the values made in this graph that nothing reads after it."""
    kept = set(graph.outputs)
    last: dict[Value, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.outputs, *used(node)):
            last[value] = index
    own = {*graph.inputs, *graph.constants, *(value for node in graph.nodes for value in node.outputs)}
    dead: list[list[Value]] = [[] for _ in graph.nodes]
    for value, index in last.items():
        if value in own and value not in kept:
            dead[index].append(value)
    return [tuple(values) for values in dead]


def _runtime_fact(kind: Type, argument: Any) -> Fact:
    if isinstance(kind, UnknownType):
        kind = type_of_value(argument)
    if isinstance(kind, TensorType) and is_array(argument):
        return Fact(TensorType(kind.dtype, argument.shape), argument)
    return Fact(kind)


_LATE_PROGRAMS = 256
"""How many programs of deferred nodes are kept; beyond, all are dropped."""


def _integers_tell(kind: TensorType, array: Array) -> bool:
    """Small contents that are not floats: what shapes, axes and the like are made of."""
    return array.size <= SMALL and not kind.dtype.is_float


def _everything_tells(kind: TensorType, array: Array) -> bool:
    return True


def _waits_still(graph: Graph) -> bool:
    """True if a region was lowered to nothing but a node that waits for the same inputs."""
    return any(node.op == "deferred" and node.inputs == graph.inputs for node in graph.nodes)


def _late_fact(kind: Type, argument: Any, telling: Callable[[TensorType, Array], bool]) -> Fact:
    if isinstance(kind, UnknownType):
        kind = type_of_value(argument)
    if isinstance(kind, TensorType) and is_array(argument):
        content = narrow(argument, kind.dtype.numpy) if telling(kind, argument) else None
        return Fact(TensorType(kind.dtype, argument.shape), content)
    if isinstance(kind, OptionalType) and argument is not None:
        return _late_fact(kind.elem, argument, telling)
    return Fact(kind)


def type_of_value(value: Any) -> Type:
    """The type of a value at run time."""
    if is_array(value):
        return TensorType(dtypes.of(value), value.shape)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return SequenceType(type_of_value(items[0])) if items else SequenceType(UnknownType())
    return UnknownType()


def _key(fact: Fact) -> Any:
    content = fact.value
    if content is None:
        return fact.type
    return fact.type, tuple(content.reshape(-1).tolist()) if content.dtype == object else content.tobytes()
