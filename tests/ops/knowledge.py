"""What may be known of an op's arguments before it runs: the levels at which shape rules and builders are tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, Expr, evaluate, symbol
from assay.ir.facts import Fact, tracked
from assay.ir.types import OptionalType, SequenceType, TensorType, Type, UnknownType
from assay.ops.registry import OpDef, Sample
from assay.targets.reference.interpreter import type_of_value

Rng = np.random.Generator
Shaper = Callable[[str, tuple[int, ...]], "tuple[Dim, ...] | None"]


@dataclass(frozen=True)
class View:
    """The facts of all arguments at one level, and what the symbols in them stand for."""

    level: str
    facts: list[Fact | None]
    symbols: Mapping[str, int]


def views(rng: Rng, definition: OpDef, sample: Sample) -> Iterator[View]:
    """The arguments of `sample` at every level of knowledge, most known first."""
    everything = range(len(sample.inputs))
    yield _view("all values", definition, sample, _numbers, everything)
    yield _view("fixed values", definition, sample, _numbers, sample.fixed)
    yield _view("shapes", definition, sample, _numbers)
    yield from symbolic_views(rng, definition, sample)
    yield _view("ranks and fixed values", definition, sample, _ranks, sample.fixed)
    yield _view("ranks", definition, sample, _ranks)
    yield _view("dtypes and fixed values", definition, sample, _nothing, sample.fixed)
    yield _view("dtypes", definition, sample, _nothing)


def symbolic_views(rng: Rng, definition: OpDef, sample: Sample) -> Iterator[View]:
    """The levels at which dims, and then contents, are symbols."""
    symbols: dict[str, int] = {}

    def own(name: str, shape: tuple[int, ...]) -> tuple[Dim, ...]:
        return tuple(_bound(symbols, f"{name}{i}", d) for i, d in enumerate(shape))

    def shared(name: str, shape: tuple[int, ...]) -> tuple[Dim, ...]:
        return tuple(_bound(symbols, f"s{d}", d) for d in shape)

    def some(name: str, shape: tuple[int, ...]) -> tuple[Dim, ...]:
        chosen = rng.random(len(shape)) < 0.5
        return tuple(s if c else d for s, d, c in zip(own(name, shape), shape, chosen, strict=True))

    yield _view("symbols and fixed values", definition, sample, own, sample.fixed, symbols)
    yield _view("symbols", definition, sample, own, (), symbols)
    yield _view("one symbol a size", definition, sample, shared, (), symbols)
    yield _view("some symbols", definition, sample, some, sample.fixed, symbols)
    for share in (1.0, 0.5):
        facts = [symbolic_content(rng, f"v{i}_", value, share, symbols) for i, value in enumerate(sample.inputs)]
        yield View("symbols as content", facts, symbols)


def symbolic_content(rng: Rng, name: str, value: Any, share: float, symbols: dict[str, int]) -> Fact | None:
    """The fact of an argument of which a share of the elements, if they are integers, are symbols."""
    fact = _fact(name, value, _numbers, known=True)
    if fact is None or fact.value is None or not isinstance(fact.type, TensorType) or not fact.type.dtype.is_integer:
        return fact
    content = np.empty(fact.value.shape, dtype=object)
    for position in np.ndindex(*content.shape):
        number = int(fact.value[position])
        key = name + "_".join(map(str, position))
        content[position] = _bound(symbols, key, number) if rng.random() < share else number
    return tracked(fact.type, content)


def _bound(symbols: dict[str, int], name: str, number: int) -> Expr:
    """A symbol for a number, with a range that says little of it."""
    symbols[name] = number
    return symbol(name) if number >= 0 else symbol(name, -(2**40))


def _view(
    level: str,
    definition: OpDef,
    sample: Sample,
    shaper: Shaper,
    known: Sequence[int] = (),
    symbols: Mapping[str, int] | None = None,
) -> View:
    names = [param.name if (param := definition.param(i)) else "" for i in range(len(sample.inputs))]
    facts = [
        _fact(f"{name}{i}_", value, shaper, known=i in known)
        for i, (name, value) in enumerate(zip(names, sample.inputs, strict=True))
    ]
    return View(level, facts, symbols or {})


def _fact(name: str, value: Any, shaper: Shaper, *, known: bool) -> Fact | None:
    if value is None:
        return None
    kind = _shaped(name, type_of_value(value), shaper)
    return Fact(kind, value if known and isinstance(value, np.ndarray) else None)


def _shaped(name: str, kind: Type, shaper: Shaper) -> Type:
    if isinstance(kind, TensorType):
        assert kind.shape is not None
        return TensorType(kind.dtype, shaper(name, tuple(d for d in kind.shape if isinstance(d, int))))
    if isinstance(kind, SequenceType):
        return SequenceType(_shaped(name, kind.elem, _nothing))
    return kind


def _numbers(name: str, shape: tuple[int, ...]) -> tuple[Dim, ...]:
    return shape


def _ranks(name: str, shape: tuple[int, ...]) -> tuple[Dim, ...]:
    return (UNKNOWN,) * len(shape)


def _nothing(name: str, shape: tuple[int, ...]) -> None:
    return None


def admits(kind: Type, value: Any, symbols: Mapping[str, int]) -> bool:
    """Whether a value may have this type; `symbols` says what the symbols in it stand for."""
    if isinstance(kind, TensorType):
        return isinstance(value, np.ndarray) and kind.dtype is dtypes.of(value) and fits(value.shape, kind, symbols)
    if isinstance(kind, SequenceType):
        return isinstance(value, list) and all(admits(kind.elem, item, symbols) for item in value)
    if isinstance(kind, OptionalType):
        return value is None or admits(kind.elem, value, symbols)
    return isinstance(kind, UnknownType) or not isinstance(value, np.ndarray | list)


def fits(shape: tuple[int, ...], kind: TensorType, symbols: Mapping[str, int]) -> bool:
    """Whether a real shape is what a type claims."""
    if kind.shape is None:
        return True
    return len(kind.shape) == len(shape) and all(holds(d, n, symbols) for d, n in zip(kind.shape, shape, strict=True))


def holds(dim: Dim, number: int, symbols: Mapping[str, int]) -> bool:
    """Whether a dim stands for this number, or for nothing that is known."""
    return dim == number if isinstance(dim, int) else evaluate(dim, symbols) in (None, number)
