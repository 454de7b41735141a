"""The builder: makes graphs op by op and works out what is known of every value on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from assay.errors import LimitExceeded
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, symbol
from assay.ir.dtypes import Array, DType
from assay.ir.facts import SMALL, Fact, is_symbolic, tracked
from assay.ir.graph import Graph, Node, Origin, Value, captured
from assay.ir.types import Shape, TensorType, Type, UnknownType
from assay.limits import DEFAULT, Limits
from assay.ops.conditions import fitting_attrs, noting
from assay.ops.core_ops import CoreOps
from assay.ops.inputs import OpInput
from assay.ops.registry import OPS, Effect, FactMissing, OpDef, as_results, carrier, complete_attrs, evaluate


class Builder(CoreOps):
    """Emits core ops into a graph under construction.

    `b.add(x, 1)` emits one op and returns its result; `b.emit("topk", x, …)` returns all results.
    Numbers, lists and arrays become constants of the dtype that the op's signature asks for. Integer
    results whose content is already known become constants, no node is made. With `decomposed`,
    composites are replaced by their parts on the spot, so that only milli-ops are emitted; with
    `accepts`, those composites are that it refuses. With `names`, a size of which nothing is known gets the next of
    them: what is made of it can then be told by it, and a run binds it when it knows the size. `numbers` are the ids of
    new values.
    """

    def __init__(
        self,
        *,
        decomposed: bool = False,
        accepts: Callable[[Node], bool] | None = None,
        limits: Limits = DEFAULT,
        names: Iterator[str] | None = None,
        numbers: Iterator[int] | None = None,
        parent: Builder | None = None,
    ) -> None:
        self.decomposed = decomposed
        self._names = names
        self._accepts = accepts
        self.limits = limits
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self._parent = parent
        self._facts: dict[Value, Fact] = parent._facts if parent else {}
        self._ids: Iterator[int] = parent._ids if parent else numbers or itertools.count()
        self._origin: Origin = parent._origin if parent else Origin("built")
        self._pooled: dict[Any, Value] = {}

    # --- making values

    def input(self, kind: Type, value: Array | None = None) -> Value:
        """A fresh graph input, perhaps with known content."""
        return self._new(Fact(kind, value))

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        """A constant; small ones that are equal are one value."""
        data = np.asarray(array, dtype=None if dtype is None else dtype.numpy)
        kind = TensorType(dtype or dtypes.of(data), data.shape)
        key = (kind, data.tobytes()) if data.size <= 16 and kind.dtype is not dtypes.string else None
        pooled = self._pooled_value(key)
        if pooled is not None:
            return pooled
        value = self._new(Fact(kind, data if data.size <= SMALL else None))
        self.constants[value] = data
        if key is not None:
            self._pooled[key] = value
        return value

    def vector(self, *parts: int | Value) -> Value:
        """A one-dimensional i64 tensor out of numbers and values of rank 0 or 1."""
        pieces = [self.constant([part], dtypes.i64) if isinstance(part, int) else self._flat(part) for part in parts]
        if not pieces:
            return self.constant(np.zeros(0, np.int64))
        return pieces[0] if len(pieces) == 1 else self.emit("concat", *pieces, axis=0)[0]

    def size(self, value: Value, axis: int) -> int | Value:
        """The size of one axis: a number if known, else a value of one element."""
        shape = self.shape(value)
        known = shape[axis] if shape is not None else UNKNOWN
        if isinstance(known, int):
            return known
        rank = self.rank(value)
        return self.emit("gather", self.emit("shape_of", value)[0], [axis % rank], axis=0)[0]

    # --- emitting ops

    def emit(
        self, op: str, *inputs: OpInput | None, regions: tuple[Graph, ...] = (), **attrs: Any
    ) -> tuple[Value, ...]:
        """Emit one op and return its results; TypeError or ValueError where the arguments do not fit."""
        definition = OPS[op]
        full = complete_attrs(definition, attrs)
        values = self._lift(definition, inputs)
        facts = [None if value is None else self._facts[value] for value in values]
        with noting() as conditions:
            types = definition.infer(facts, {**full, "regions": regions} if definition.regions else full)
        types = [self._with_names(kind) for kind in types]
        self._check_sizes(types)
        if self.decomposed and definition.parts is not None:
            return self._decompose(definition, values, full, types, bool(conditions))
        contents = _contents(definition, facts, full, types)
        if contents is not None and all(_is_foldable(fact) for fact in contents):
            return tuple(self.constant(fact.value, cast(TensorType, fact.type).dtype) for fact in contents)
        results = tuple(self._new(fact) for fact in contents or [Fact(kind) for kind in types])
        node = Node(op, values, results, self._origin, full, regions)
        if definition.parts is not None and self._accepts is not None and not self._accepts(node):
            return self._decompose(definition, values, full, types, bool(conditions))
        self.nodes.append(node)
        return results

    def fresh(self, kind: Type) -> Value:
        """A value that a node made by hand will define."""
        return self._new(Fact(self._with_names(kind)))

    def refined(self, values: Sequence[Value], stated: Sequence[Type], since: int) -> list[Value]:
        """The values with those dims that they lack and `stated` has; the nodes from number `since` on made them."""
        renamed = {
            value: self._new(replace(self._facts[value], type=kind))
            for value, other in zip(values, stated, strict=False)
            if (kind := _with_dims(value.type, other)) is not value.type
        }
        made = {value for node in self.nodes[since:] for value in node.outputs}
        inside = {value for node in self.nodes[since:] for region in node.regions for value in captured(region)}
        if not renamed or not made.issuperset(renamed) or inside.intersection(renamed):
            return list(values)
        for index, node in enumerate(self.nodes[since:], start=since):
            inputs = tuple(value if value is None else renamed.get(value, value) for value in node.inputs)
            outputs = tuple(renamed.get(value, value) for value in node.outputs)
            self.nodes[index] = replace(node, inputs=inputs, outputs=outputs)
        return [renamed.get(value, value) for value in values]

    @contextmanager
    def origin(self, origin: Origin) -> Generator[None]:
        """Nodes emitted inside come from `origin`."""
        before, self._origin = self._origin, origin
        try:
            yield
        finally:
            self._origin = before

    def child(self) -> Builder:
        """A builder for a region of a node of this graph."""
        return Builder(
            decomposed=self.decomposed, accepts=self._accepts, limits=self.limits, names=self._names, parent=self
        )

    @property
    def is_region(self) -> bool:
        """Whether it builds a region of a node."""
        return self._parent is not None

    def finish(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], **fields: Any) -> Graph:
        """The graph built so far. Constants among the outputs of a region are its own: they tell what it gives."""
        ends = tuple(map(self._owned, outputs))
        return Graph(name, tuple(inputs), ends, tuple(self.nodes), dict(self.constants), **fields)

    # --- asking what is known

    def fact(self, value: Value) -> Fact:
        """All that is known of `value`."""
        return self._facts[value]

    def dtype(self, value: Value) -> DType:
        """The dtype of a tensor; TypeError for anything else."""
        if isinstance(value.type, UnknownType):
            raise FactMissing("the type of an input")
        if not isinstance(value.type, TensorType):
            raise TypeError(f"expected a tensor, got {value.type}")
        return value.type.dtype

    def shape(self, value: Value) -> Shape:
        """The dims of a tensor, None if the rank is unknown."""
        return self._facts[value].shape

    def rank(self, value: Value) -> int:
        """The rank of a tensor; FactMissing if unknown."""
        shape = self.shape(value)
        if shape is None:
            raise FactMissing("the rank of an input")
        return len(shape)

    def dims(self, value: Value) -> tuple[Dim, ...]:
        """The dims of a tensor; FactMissing if the rank is unknown."""
        self.rank(value)
        return cast("tuple[Dim, ...]", self.shape(value))

    def static_shape(self, value: Value) -> tuple[int, ...]:
        """The dims of a tensor as numbers; FactMissing if one is not."""
        dims = self.dims(value)
        if any(isinstance(d, Expr) for d in dims):
            raise FactMissing("the exact shape of an input")
        return cast("tuple[int, ...]", dims)

    def array(self, value: Value, what: str) -> Array:
        """The content of `value`; FactMissing (for "the value of `what`") if unknown."""
        content = self._facts[value].concrete
        if content is None:
            content = self._constant_content(value)
        if content is None:
            raise FactMissing(f"the value of '{what}'")
        return content

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """The content of an integer tensor of rank 0 or 1."""
        return tuple(int(item) for item in self.array(value, what).reshape(-1))

    # --- inner workings

    def _new(self, fact: Fact) -> Value:
        value = Value(next(self._ids), fact.type)
        self._facts[value] = fact
        return value

    def _with_names(self, kind: Type) -> Type:
        """A type whose unknown sizes have names, if there are any."""
        names = self._names
        if names is None or not isinstance(kind, TensorType) or kind.shape is None or kind.is_sized:
            return kind
        return TensorType(kind.dtype, tuple(symbol(next(names)) if dim is UNKNOWN else dim for dim in kind.shape))

    def _pooled_value(self, key: Any) -> Value | None:
        scope: Builder | None = self
        while key is not None and scope is not None:
            if key in scope._pooled:
                return scope._pooled[key]
            scope = scope._parent
        return None

    def _owned(self, value: Value) -> Value:
        """The value, or if it is a constant of a graph around this one, an equal one of this graph."""
        content = None if value in self.constants else self._constant_content(value)
        if content is None:
            return value
        owned = self._new(self._facts[value])
        self.constants[owned] = content
        return owned

    def _constant_content(self, value: Value) -> Array | None:
        scope: Builder | None = self
        while scope is not None:
            if value in scope.constants:
                return scope.constants[value]
            scope = scope._parent
        return None

    def _flat(self, value: Value) -> Value:
        return self.emit("reshape", value, [-1])[0] if self.rank(value) == 0 else value

    def _lift(self, definition: OpDef, inputs: Sequence[OpInput | None]) -> tuple[Value | None, ...]:
        if all(value is None or isinstance(value, Value) for value in inputs):
            return cast("tuple[Value | None, ...]", tuple(inputs))
        bound: dict[str, DType] = {}
        for index, value in enumerate(inputs):
            param = definition.param(index)
            if isinstance(value, Value) and param is not None and isinstance(value.type, TensorType):
                bound.setdefault(param.dtype, value.type.dtype)
        return tuple(self._lift_one(definition, index, value, bound) for index, value in enumerate(inputs))

    def _lift_one(
        self, definition: OpDef, index: int, value: OpInput | None, bound: Mapping[str, DType]
    ) -> Value | None:
        if value is None or isinstance(value, Value):
            return value
        param = definition.param(index)
        if param is None:
            raise TypeError(f"{definition.name} takes {len(definition.params)} inputs")
        if param.dtype in bound:
            return self.constant(value, bound[param.dtype])
        named = None if param.dtype in definition.typevars else dtypes.by_name(param.dtype)
        return self.constant(value, named)

    def _decompose(
        self,
        definition: OpDef,
        values: tuple[Value | None, ...],
        attrs: dict[str, Any],
        types: Sequence[Type],
        conditional: bool,
    ) -> tuple[Value, ...]:
        """The parts of a composite. Where it is `conditional` whether sizes fit, a run sees to it: parts know less."""
        assert definition.parts is not None
        mark = len(self.nodes)
        try:
            given = self._fitting(definition, values, attrs) if conditional else values
            return as_results(definition.parts(self, *given, **attrs))
        except FactMissing as missing:
            del self.nodes[mark:]
            return self._defer(definition, values, attrs, types, str(missing))

    def _fitting(
        self, definition: OpDef, values: tuple[Value | None, ...], attrs: dict[str, Any]
    ) -> tuple[Value | None, ...]:
        """The inputs of a composite, the first after it was seen that they fit."""
        first, *others = (value for value in values if value is not None)
        checked = self._new(self._facts[first])
        about = fitting_attrs(definition.name, values, attrs)
        self.nodes.append(Node("fitting", (first, *others), (checked,), self._origin, about))
        place = values.index(first)
        return (*values[:place], checked, *values[place + 1 :])

    def _defer(
        self,
        definition: OpDef,
        values: tuple[Value | None, ...],
        attrs: dict[str, Any],
        types: Sequence[Type],
        reason: str,
    ) -> tuple[Value, ...]:
        """A composite whose decomposition must wait for facts, as a deferred node."""
        results = tuple(self.fresh(kind) for kind in types)
        inner = Node(definition.name, values, tuple(self.fresh(kind) for kind in types), self._origin, attrs)
        given = tuple(value for value in values if value is not None)
        region = Graph(definition.name, given, inner.outputs, (inner,), level="symbolic")
        self.defer(region, given, results, reason)
        return results

    def defer(self, region: Graph, inputs: tuple[Value, ...], results: tuple[Value, ...], reason: str) -> None:
        """Put in a node that lowers `region` when the program runs and all facts are known."""
        attrs = {"reason": reason, "decomposed": self.decomposed}
        self.nodes.append(Node("deferred", inputs, results, self._origin, attrs, (region,)))

    def _check_sizes(self, types: Sequence[Type]) -> None:
        for kind in types:
            if isinstance(kind, TensorType) and kind.shape is not None:
                check_size(kind.shape, kind.dtype, self.limits)


def _with_dims(kind: Type, stated: Type) -> Type:
    """`kind` with unknown dims taken from `stated`; `kind` itself if there is nothing to take."""
    if not isinstance(kind, TensorType) or not isinstance(stated, TensorType):
        return kind
    if kind.shape is None or stated.shape is None:
        return kind
    if len(kind.shape) != len(stated.shape) or not any(
        own is UNKNOWN and other is not UNKNOWN for own, other in zip(kind.shape, stated.shape, strict=True)
    ):
        return kind
    dims = (other if own is UNKNOWN else own for own, other in zip(kind.shape, stated.shape, strict=True))
    return TensorType(kind.dtype, tuple(dims))


def check_size(shape: Sequence[Dim], dtype: DType, limits: Limits) -> None:
    """LimitExceeded if a tensor would be larger, or of higher rank, than `limits` allow."""
    if len(shape) > limits.rank:
        raise LimitExceeded(f"a tensor of rank {len(shape)} exceeds the limit of {limits.rank}", hint="see Limits.rank")
    count = dtype.numpy.itemsize
    for dim in shape:
        if isinstance(dim, int):
            if dim < 0:
                raise ValueError(f"a tensor has the negative dim {dim}")
            count *= dim
    if count > limits.tensor_bytes and all(isinstance(dim, int) for dim in shape):
        raise LimitExceeded(
            f"a tensor of shape {list(shape)} and dtype {dtype} takes {count} bytes, "
            f"the limit is {limits.tensor_bytes}",
            hint="check the model's sizes, or raise Limits.tensor_bytes",
        )


def _is_foldable(fact: Fact) -> bool:
    kind = fact.type
    return (
        isinstance(kind, TensorType)
        and fact.concrete is not None
        and (kind.dtype.is_integer or kind.dtype is dtypes.boolean)
    )


def _contents(
    definition: OpDef, facts: Sequence[Fact | None], attrs: Mapping[str, Any], types: Sequence[Type]
) -> list[Fact] | None:
    """The facts of the results with their contents, None if nothing is known of those."""
    tensors = [kind for kind in types if isinstance(kind, TensorType)]
    if len(tensors) != len(types) or not all(map(_is_small, tensors)):
        return None
    if definition.regions or definition.effect is not Effect.PURE:
        return None
    if definition.content is not None:
        known = definition.content(*facts, **attrs)
        return None if known is None else [tracked(tensors[0], known)]
    given = [fact for fact in facts if fact is not None]
    if not any(fact.value is not None for fact in given):
        return None
    if all(fact.value is not None and not is_symbolic(fact) for fact in given):
        arrays = [None if fact is None else fact.value for fact in facts]
        with np.errstate(all="ignore"):
            results = evaluate(definition, arrays, attrs, [carrier(kind) for kind in types])
        return [Fact(TensorType(kind.dtype, r.shape), r) for kind, r in zip(tensors, results, strict=True)]
    return _symbolic_contents(definition, facts, attrs, tensors)


def _symbolic_contents(
    definition: OpDef, facts: Sequence[Fact | None], attrs: Mapping[str, Any], types: Sequence[TensorType]
) -> list[Fact] | None:
    if definition.symbolic is None or not all(_holds_dims(kind.dtype) for kind in types):
        return None
    arrays = [None if fact is None else _as_dims(fact) for fact in facts]
    if any(array is None and fact is not None for array, fact in zip(arrays, facts, strict=True)):
        return None
    outcome = definition.symbolic(*arrays, **attrs)
    if outcome is None:
        return None
    contents = [_in_range(result, kind.dtype) for result, kind in zip(as_results(outcome), types, strict=True)]
    if all(item is UNKNOWN for content in contents for item in content.reshape(-1)):
        return None
    return [tracked(kind, content) for kind, content in zip(types, contents, strict=True)]


def _as_dims(fact: Fact) -> Array | None:
    """The content as dims, unknown elements as UNKNOWN; None if the fact does not describe integers of known count."""
    kind = fact.type
    if not isinstance(kind, TensorType) or not _holds_dims(kind.dtype):
        return None
    if fact.value is not None:
        return fact.value.astype(object)
    if not _is_small(kind):
        return None
    return np.full(cast("tuple[int, ...]", kind.shape), UNKNOWN, dtype=object)


def _in_range(result: Any, dtype: DType) -> Array:
    """A result on dims as elements of `dtype`; what would wrap around becomes UNKNOWN."""
    lowest, highest = (0, 1) if dtype is dtypes.boolean else dtype.limits

    def element(dim: Any) -> Any:
        if isinstance(dim, Expr):
            return dim
        plain = bool(dim) if dtype is dtypes.boolean else dim
        return plain if lowest <= plain <= highest else UNKNOWN

    return np.asarray(np.frompyfunc(element, 1, 1)(result), dtype=object)


def _holds_dims(dtype: DType) -> bool:
    """True for the dtypes in which dims are computed with; in narrower and unsigned ones they would wrap around."""
    return dtype in (dtypes.i64, dtypes.i32, dtypes.boolean)


def _is_small(kind: TensorType) -> bool:
    if kind.shape is None:
        return False
    count = 1
    for dim in kind.shape:
        if not isinstance(dim, int):
            return False
        count *= dim
    return count <= SMALL
