"""`OpDef`: everything that Assay knows of one op, stated in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import Expr
from assay.ir.dtypes import Array, DType
from assay.ir.facts import Fact
from assay.ir.graph import Node
from assay.ir.types import Shape, TensorType, Type, UnknownType


class FactMissing(Exception):
    """A rewrite needs something that is not known yet; what uses it must wait until the program runs."""


class Tolerance(Enum):
    """How far a correct kernel may be from the reference, as (relative, absolute) in units of the
    output dtype's epsilon; for accumulations the relative part grows with the terms summed."""

    EXACT = (0.0, 0.0)
    ROUNDED = (1.0, 0.0)
    FUNCTION = (8.0, 2.0)
    ACCUMULATED = (32.0, 16.0)


class Compute(Enum):
    """How the reference runs on floats narrower than f64. Either way the result is the real-number
    result rounded once to the output dtype."""

    NATIVE = "in the dtype itself, which already rounds correctly (or moves data only)"
    WIDE = "widened to f64, rounded once at the end"
    STORED = "on the bits of the stated dtype, also where floats are otherwise carried in f64"


class Effect(StrEnum):
    """What running an op does besides giving results. Each kind is bound by more than the one before it."""

    PURE = "pure"
    """Nothing: the same inputs give the same results, whenever and however often it runs, or not at all."""
    ORDERED = "ordered"
    """It uses something outside the graph: it runs in its order, once for each time that its results are used."""
    OBSERVABLE = "observable"
    """It also runs where nobody uses its results: it checks something, or draws random numbers."""


class Sample(NamedTuple):
    """Arguments that an op accepts. `fixed` lists the inputs whose content must stay as it is."""

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = {}
    fixed: tuple[int, ...] = ()


class Decomposition(Protocol):
    """Builds the op out of simpler ones: `(builder, *values, **attrs) -> value(s)`."""

    def __call__(self, b: Any, /, *inputs: Any, **attrs: Any) -> Any: ...


Samples = Callable[["np.random.Generator", DType], Iterable[Sample]]
ShapeRule = Callable[..., "Sequence[Shape]"]
TypeRule = Callable[..., "Sequence[Type]"]


_RANKS = {0: "a scalar", 1: "a vector", 2: "a matrix"}


@dataclass(frozen=True, slots=True)
class Param:
    """One input: `dtype` is a type variable or a dtype name; `kind` is one, optional or variadic."""

    name: str
    dtype: str
    kind: str


@dataclass(frozen=True, eq=False)
class OpDef:
    """The definition of one op. `parts` is its decomposition; None makes it a milli-op.

    One for the `host` runs there, by its reference: no target is expected to have it.
    """

    name: str
    doc: str
    family: str
    params: tuple[Param, ...]
    results: tuple[str, ...]
    typevars: Mapping[str, tuple[DType, ...]]
    attrs: Mapping[str, Any]
    reference: Callable[..., Any]
    shape: ShapeRule | None
    types: TypeRule | None
    parts: Decomposition | None
    ranks: Mapping[str, int]
    symbolic: Callable[..., Any] | None
    content: Callable[..., Any] | None
    tolerance: Tolerance
    compute: Compute
    samples: Samples
    host: bool
    regions: int
    effect: Effect

    @property
    def is_milli(self) -> bool:
        """True for primitives, False for composites."""
        return self.parts is None

    @property
    def main_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the first type variable: what tests sweep over."""
        return next(iter(self.typevars.values()), (dtypes.i64,))

    def infer(self, facts: Sequence[Fact | None], attrs: Mapping[str, Any]) -> list[Type]:
        """The types of the results; TypeError or ValueError where the arguments do not fit."""
        bound = self._bind(facts)
        self._check_ranks(facts)
        if self.types is not None:
            return list(self.types(*facts, **attrs))
        assert self.shape is not None
        shapes = self.shape(*facts, **attrs)
        tokens = self.results if len(self.results) == len(shapes) else self.results[:1] * len(shapes)
        return [
            TensorType(self._result_dtype(token, bound, attrs), shape)
            for token, shape in zip(tokens, shapes, strict=True)
        ]

    def check_sizes(self, facts: Sequence[Fact | None], attrs: Mapping[str, Any]) -> None:
        """ValueError where shapes do not fit, whatever the dtypes."""
        self._check_ranks(facts)
        rule = self.types or self.shape
        assert rule is not None
        rule(*facts, **attrs)

    def param(self, index: int) -> Param | None:
        """The parameter that takes input number `index`."""
        if index < len(self.params):
            return self.params[index]
        last = self.params[-1] if self.params else None
        return last if last is not None and last.kind == "variadic" else None

    def _bind(self, facts: Sequence[Fact | None]) -> dict[str, DType]:
        bound: dict[str, DType] = {}
        for index, fact in enumerate(facts):
            param = self.param(index)
            if param is None:
                raise TypeError(f"{self.name} takes {len(self.params)} inputs, got {len(facts)}")
            if fact is None:
                if param.kind == "one":
                    raise TypeError(f"{self.name} needs its input '{param.name}'")
                continue
            if param.dtype == "any":
                continue
            if isinstance(fact.type, UnknownType):
                raise FactMissing(f"the type of '{param.name}'")
            if not isinstance(fact.type, TensorType):
                raise TypeError(f"{self.name} takes a tensor as '{param.name}', got {fact.type}")
            self._bind_one(param, fact.type.dtype, bound)
        missing = [p.name for p in self.params[len(facts) :] if p.kind == "one"]
        if missing:
            raise TypeError(f"{self.name} needs its input '{missing[0]}'")
        return bound

    def _bind_one(self, param: Param, dtype: DType, bound: dict[str, DType]) -> None:
        allowed = self.typevars.get(param.dtype)
        if allowed is None:
            if dtype.name != param.dtype:
                raise TypeError(f"{self.name} takes {param.dtype} as '{param.name}', got {dtype}")
            return
        if bound.setdefault(param.dtype, dtype) is not dtype:
            raise TypeError(f"{self.name}: '{param.name}' is {dtype} where {bound[param.dtype]} was expected")
        if dtype not in allowed:
            raise TypeError(f"{self.name} is not defined for {dtype}")

    def _check_ranks(self, facts: Sequence[Fact | None]) -> None:
        """ValueError for an input that surely has another rank than it must have."""
        for name, rank in self.ranks.items():
            given = [fact for p, fact in zip(self.params, facts, strict=False) if p.name == name]
            shape = given[0].shape if given and given[0] is not None else None
            if shape is not None and len(shape) != rank:
                wanted = _RANKS.get(rank, f"a tensor of rank {rank}")
                raise ValueError(f"{self.name} takes {wanted} as '{name}', got the shape {list(shape)}")

    def _result_dtype(self, token: str, bound: Mapping[str, DType], attrs: Mapping[str, Any]) -> DType:
        if token.startswith("@"):
            return attrs[token[1:]]
        return bound[token] if token in bound else dtypes.by_name(token)


@dataclass(frozen=True)
class Registry:
    """A table of ops in order of definition: the closed set of core ops, or those that `owner` owns."""

    owner: str = ""
    table: dict[str, OpDef] = field(default_factory=dict[str, OpDef])

    def __getitem__(self, name: str) -> OpDef:
        return self.table[name]

    def get(self, name: str) -> OpDef | None:
        """The definition of `name`, None if it is not here."""
        return self.table.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self.table

    def __iter__(self) -> Any:
        return iter(self.table.values())

    def full_name(self, name: str) -> str:
        """What an op of this table is called everywhere; a target's own bear its name in front: `cpu.pack_panels`."""
        return f"{self.owner}.{name}" if self.owner else name

    def add(self, definition: OpDef) -> None:
        """Enter a definition; a name is defined once."""
        if definition.name in self.table:
            raise ValueError(f"the op {definition.name} is defined twice")
        self.table[definition.name] = definition


@dataclass(frozen=True)
class Ops:
    """Every op there is, by name: the core ops, and those of targets and jobs, which enter them when imported."""

    core: Registry
    owned: dict[str, Registry] = field(default_factory=dict[str, Registry])

    def __getitem__(self, name: str) -> OpDef:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str) -> OpDef | None:
        """The definition of `name`, None if there is no such op."""
        owner, dot, _ = name.partition(".")
        table = self.owned.get(owner) if dot else self.core
        return None if table is None else table.get(name)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def owned_by(self, owner: str) -> Registry:
        """The table of the ops that `owner` owns: a target, or the jobs."""
        return self.owned.setdefault(owner, Registry(owner))


CORE = Registry()
OPS = Ops(CORE)


def no_samples(rng: np.random.Generator, dtype: DType) -> Iterable[Sample]:
    """For ops that are tested by hand-written cases only (control flow)."""
    return ()


def op(
    signature: str,
    *,
    name: str = "",
    into: Registry = CORE,
    shape: ShapeRule | None = None,
    types: TypeRule | None = None,
    ranks: Mapping[str, int] | None = None,
    parts: Decomposition | None = None,
    symbolic: Callable[..., Any] | tuple[int, ...] | bool = False,
    content: Callable[..., Any] | None = None,
    tolerance: Tolerance = Tolerance.EXACT,
    compute: Compute = Compute.NATIVE,
    samples: Samples = no_samples,
    host: bool = False,
    regions: int = 0,
    effect: Effect = Effect.PURE,
    **typevars: tuple[DType, ...],
) -> Callable[[Callable[..., Any]], OpDef]:
    """Define an op from its reference function: a core op, or one of a target (`into` its table).

    `signature` gives dtypes only, `"T, T, i64? -> T, bool"`: a type variable (its dtypes follow as a
    keyword), a dtype name, `any` for what is no tensor, or `@attr` in a result for the dtype in that
    attribute; `?` marks an optional input, `*` a variadic one. Input names come from the reference's
    positional parameters, attributes and their defaults from its keyword-only ones, the documentation
    from its docstring. `shape` maps the inputs' facts to the results' shapes; `types` replaces it for
    ops on sequences and the like. `ranks` says which inputs must be scalars (0), vectors (1) and so on;
    other sizes that the reference cannot compute with, the rule refuses: targets rely on both.
    `symbolic=True` says that the reference also works on object arrays of dims, `symbolic=(1,)` that it
    does where input 1 is known in full; a function does that job where the reference itself cannot (it
    returns None where nothing is known). `content` gives the result's content where the inputs' types
    alone determine it.
    """
    left, _, right = signature.partition("->")
    tokens = [token.strip() for token in left.split(",") if token.strip()]

    def define(reference: Callable[..., Any]) -> OpDef:
        positional, keywords = _parameters(reference)
        params = tuple(_param(each, token) for each, token in zip(positional, tokens, strict=True))
        definition = OpDef(
            name=into.full_name(name or reference.__name__.rstrip("_")),
            doc=inspect.getdoc(reference) or "",
            family=into.owner or reference.__module__.rpartition(".")[2],
            params=params,
            results=tuple(token.strip() for token in right.split(",")),
            typevars=typevars,
            attrs=keywords,
            reference=reference,
            shape=shape,
            types=types,
            ranks=ranks or {},
            parts=parts,
            symbolic=_on_dims(reference, symbolic),
            content=content,
            tolerance=tolerance,
            compute=compute,
            samples=samples,
            host=host,
            regions=regions,
            effect=effect,
        )
        into.add(definition)
        return definition

    return define


def _on_dims(reference: Callable[..., Any], symbolic: Any) -> Callable[..., Any] | None:
    """What `op` was told of an op on dims, as a function."""
    if not isinstance(symbolic, tuple):
        return reference if symbolic is True else symbolic or None

    def steered(*arrays: Array, **attrs: Any) -> Any:
        given = list(arrays)
        for index in cast("tuple[int, ...]", symbolic):
            if any(isinstance(item, Expr) for item in given[index].reshape(-1).tolist()):
                return None
            given[index] = given[index].astype(np.int64)
        return reference(*given, **attrs)

    return steered


def _parameters(reference: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """The names of a reference's positional parameters, and its attributes with their defaults.

    `inspect.signature` would tell the same, and take a thirtieth of the time of a start for it.
    """
    code = reference.__code__
    count, end = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    variadic = code.co_varnames[end : end + 1] if code.co_flags & inspect.CO_VARARGS else ()
    defaults = reference.__kwdefaults__ or {}
    attrs = {name: defaults.get(name, inspect.Parameter.empty) for name in code.co_varnames[count:end]}
    return [*code.co_varnames[:count], *variadic], {name: attrs[name] for name in attrs if name != "regions"}


def _param(name: str, token: str) -> Param:
    kinds = {"?": "optional", "*": "variadic"}
    return Param(name, token.rstrip("?*"), kinds.get(token[-1], "one"))


def complete_attrs(definition: OpDef, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the defaults filled in; TypeError names an attribute that is unknown or missing."""
    unknown = given.keys() - definition.attrs.keys()
    if unknown:
        raise TypeError(f"{definition.name} has no attribute '{min(unknown)}'")
    merged = {**definition.attrs, **given}
    missing = [key for key, value in merged.items() if value is inspect.Parameter.empty]
    if missing:
        raise TypeError(f"{definition.name} needs its attribute '{missing[0]}'")
    return merged


def as_results(outcome: Any) -> tuple[Any, ...]:
    """What a reference returned, as a tuple of results."""
    return outcome if isinstance(outcome, tuple) else (outcome,)  # pyright: ignore[reportUnknownVariableType]


def evaluate(definition: OpDef, inputs: Sequence[Any], attrs: Mapping[str, Any], dtypes_out: Sequence[Any]) -> Any:
    """Run the reference in `exact` mode: results in `dtypes_out` (NumPy dtypes; None leaves a result alone)."""
    if definition.compute is Compute.WIDE:
        inputs = [widen(value) for value in inputs]
    outcome = as_results(definition.reference(*inputs, **attrs))
    return tuple(narrow(value, dtype) for value, dtype in zip(outcome, dtypes_out, strict=True))


_WIDER: dict[Any, Any] = {
    **{d.numpy: np.dtype(np.float64) for d in dtypes.ALL if d.is_float and d.bits < 64},
    dtypes.c64.numpy: dtypes.c128.numpy,
}


def widen(value: Any) -> Any:
    """A float array as f64, a complex one as c128; anything else as it is."""
    wider = _WIDER.get(value.dtype) if dtypes.is_array(value) else None
    return value if wider is None else value.astype(wider)


def narrow(value: Any, dtype: Any) -> Any:
    """`value` as an array of `dtype`; as it is where `dtype` is None (no tensor)."""
    return value if dtype is None else np.asarray(value).astype(dtype, copy=False)


def carrier(kind: Type) -> Any:
    """The NumPy dtype that carries a tensor type; None for what is no tensor."""
    return kind.dtype.numpy if isinstance(kind, TensorType) else None


__all__ = ["CORE", "OPS", "Array", "Compute", "OpDef", "Ops", "Param", "Registry", "Sample", "Tolerance", "op"]


def effect_of(node: Node) -> Effect:
    """What running a node does, its bodies included. An op that is not known yet may use anything.

    One definition may have nodes of several kinds; then the attribute `effect` says which.
    """
    definition = OPS.get(node.op)
    own = Effect.ORDERED if definition is None else Effect(node.attrs.get("effect", definition.effect))
    if not node.regions:
        return own
    inner = (effect_of(each) for region in node.regions for each in region.nodes)
    return max((own, *inner), key=list(Effect).index)
