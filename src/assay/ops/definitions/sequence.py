"""Sequences and optionals: values of the host. At run time a sequence is a list, an empty optional is None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.errors import LimitExceeded
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, eq
from assay.ir.dtypes import TENSORS, Array, DType
from assay.ir.facts import Fact
from assay.ir.graph import Graph
from assay.ir.parser import parse_type
from assay.ir.types import OptionalType, SequenceType, TensorType, Type, UnknownType
from assay.limits import DEFAULT
from assay.ops.definitions.control import join_types
from assay.ops.registry import op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import axis_of, with_dim


def element_type(sequence: Fact | Type) -> Type:
    """The type of a sequence's elements; TypeError for what is surely no sequence."""
    kind = sequence.type if isinstance(sequence, Fact) else sequence
    if isinstance(kind, SequenceType):
        return kind.elem
    if isinstance(kind, UnknownType):
        return kind
    raise TypeError(f"expected a sequence, got {kind}")


def _place(position: Array | None, default: int, low: int, high: int) -> int:
    """A position counted from the front; ValueError outside of low … high."""
    if position is None:
        return default
    index = int(position.reshape(-1)[0])
    if not low <= index <= high:
        raise ValueError(f"position {index} is out of range for a sequence of {-low} elements")
    return index - low if index < 0 else index


def _sequence(rng: Rng, dtype: DType = dtypes.f32) -> list[Array]:
    return [draw(rng, dtype, (2, size)) for size in (3, 1, 2)]


def _positions(*positions: int | None) -> list[Array | None]:
    return [None if position is None else np.asarray(position, np.int64) for position in positions]


# --- sequences


def _empty_types(*, dtype: DType) -> list[Type]:
    return [SequenceType(TensorType(dtype))]


@op(
    "-> any",
    types=_empty_types,
    host=True,
    samples=listed(lambda rng, dtype: [({"dtype": dtypes.f32},), ({"dtype": dtypes.string},)]),
)
def sequence_empty(*, dtype: DType) -> list[Array]:
    """A sequence of no tensors of `dtype`."""
    return []


def _construct_types(*xs: Fact) -> list[Type]:
    if not xs:
        return [SequenceType(UnknownType())]
    joined = xs[0].type
    for x in xs[1:]:
        joined = join_types(joined, x.type)
    return [SequenceType(joined)]


@op("any* -> any", types=_construct_types, host=True, samples=listed(lambda rng, dtype: [(*_sequence(rng), {}), ({},)]))
def sequence_construct(*xs: Any) -> list[Any]:
    """The sequence of the inputs."""
    return list(xs)


def _length_types(sequence: Fact) -> list[Type]:
    element_type(sequence)
    return [TensorType(dtypes.i64, ())]


@op("any -> i64", types=_length_types, host=True, samples=listed(lambda rng, dtype: [(_sequence(rng), {}), ([], {})]))
def sequence_length(sequence: Sequence[Any]) -> Array:
    """The number of elements."""
    return np.asarray(len(sequence), np.int64)


def _element_types(sequence: Fact, position: Fact) -> list[Type]:
    return [element_type(sequence)]


@op(
    "any, i64 -> any",
    types=_element_types,
    host=True,
    samples=listed(lambda rng, dtype: [(_sequence(rng), place, {}) for place in _positions(0, 2, -3)], 1),
)
def sequence_at(sequence: Sequence[Any], position: Array) -> Any:
    """The element at a position, counted from the end if negative."""
    return sequence[_place(position, 0, -len(sequence), len(sequence) - 1)]


def _inserted_types(sequence: Fact, x: Fact, position: Fact | None = None) -> list[Type]:
    return [SequenceType(join_types(element_type(sequence), x.type))]


@op(
    "any, any, i64? -> any",
    types=_inserted_types,
    host=True,
    samples=listed(
        lambda rng, dtype: [(_sequence(rng), draw(rng, dtypes.f32, (4,)), p, {}) for p in _positions(None, 3, -3)], 2
    ),
)
def sequence_insert(sequence: Sequence[Any], x: Any, position: Array | None = None) -> list[Any]:
    """The sequence with x put in before a position, at the end if there is none."""
    place = _place(position, len(sequence), -len(sequence), len(sequence))
    _check_length(len(sequence) + 1)
    return [*sequence[:place], x, *sequence[place:]]


def _erased_types(sequence: Fact, position: Fact | None = None) -> list[Type]:
    return [SequenceType(element_type(sequence))]


@op(
    "any, i64? -> any",
    types=_erased_types,
    host=True,
    samples=listed(lambda rng, dtype: [(_sequence(rng), place, {}) for place in _positions(None, 2, -3)], 1),
)
def sequence_erase(sequence: Sequence[Any], position: Array | None = None) -> list[Any]:
    """The sequence without the element at a position, without the last one if there is none."""
    if not sequence:
        raise ValueError("nothing can be erased from an empty sequence")
    place = _place(position, len(sequence) - 1, -len(sequence), len(sequence) - 1)
    return [*sequence[:place], *sequence[place + 1 :]]


def _check_length(length: int) -> None:
    if length > DEFAULT.sequence_length:
        raise LimitExceeded(f"a sequence of {length} elements exceeds the limit of {DEFAULT.sequence_length}")


# --- between tensors and sequences


def _pieces(x: Fact, split: Fact | None = None, *, axis: int, keepdims: bool) -> list[Type]:
    assert isinstance(x.type, TensorType)
    if x.shape is None:
        return [SequenceType(x.type)]
    axis = axis_of(axis, len(x.shape))
    if split is None and not keepdims:
        return [SequenceType(TensorType(x.type.dtype, (*x.shape[:axis], *x.shape[axis + 1 :])))]
    return [SequenceType(TensorType(x.type.dtype, with_dim(x.shape, axis, _piece_size(x.shape[axis], split))))]


def _piece_size(total: Dim, split: Fact | None) -> Dim:
    if split is None:
        return 1
    sizes: list[int] = [] if split.concrete is None else np.unique(split.concrete).tolist()
    if len(sizes) != 1:
        return UNKNOWN
    size = sizes[0]
    one_by_one = split.shape == () and size > 0
    return size if not one_by_one or eq(total % size, 0) is True else UNKNOWN


def _sizes(total: int, split: Array | None) -> list[int]:
    if split is not None and split.ndim > 0:
        return [int(size) for size in split.reshape(-1)]
    size = 1 if split is None else int(split)
    if size <= 0:
        raise ValueError(f"a tensor is split into pieces of size {size}")
    return [min(size, total - start) for start in range(0, total, size)]


def _split_samples(rng: Rng, dtype: DType) -> Any:
    for sizes in (None, np.asarray(2), np.asarray(3), np.array([2, 0, 4]), np.array([3, 3])):
        for axis, keepdims in ((0, True), (-2, False)):
            yield draw(rng, dtype, (6, 2)), sizes, {"axis": axis, "keepdims": keepdims}


@op("T, i64? -> any", T=TENSORS, types=_pieces, host=True, samples=listed(_split_samples, 1))
def sequence_split(x: Array, split: Array | None = None, *, axis: int, keepdims: bool = True) -> list[Array]:
    """The pieces of x along `axis`: of the sizes in `split`, of one size if it is a scalar (the last may be smaller),
    of size one without it; these then lose the axis unless `keepdims`."""
    axis = axis_of(axis, x.ndim)
    _check_length(x.shape[axis] if split is None else 0)
    sizes = _sizes(x.shape[axis], split)
    if sum(sizes) != x.shape[axis] or any(size < 0 for size in sizes):
        raise ValueError(f"an axis of size {x.shape[axis]} is split into {sizes}")
    pieces = np.split(x, np.cumsum(sizes)[:-1], axis=axis) if sizes else []
    return pieces if keepdims or split is not None else [piece.squeeze(axis) for piece in pieces]


def _joined(sequence: Fact, *, axis: int, new_axis: bool) -> list[Type]:
    kind = element_type(sequence)
    if not isinstance(kind, TensorType):
        return [UnknownType()]
    if kind.shape is None:
        return [kind]
    rank = len(kind.shape) + new_axis
    axis = axis_of(axis, rank)
    if new_axis:
        return [TensorType(kind.dtype, (*kind.shape[:axis], UNKNOWN, *kind.shape[axis:]))]
    return [TensorType(kind.dtype, with_dim(kind.shape, axis, UNKNOWN))]


@op(
    "any -> any",
    types=_joined,
    host=True,
    samples=listed(
        lambda rng, dtype: [
            (_sequence(rng), {"axis": -1, "new_axis": False}),
            ([draw(rng, dtypes.i64, (2, 3)) for _ in range(2)], {"axis": -2, "new_axis": True}),
        ]
    ),
)
def sequence_concat(sequence: Sequence[Array], *, axis: int, new_axis: bool = False) -> Array:
    """The tensors of a sequence one after the other along `axis`, or stacked along a new one."""
    if not sequence:
        raise ValueError("an empty sequence cannot be joined")
    return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)


def _mapped_types(sequence: Fact, *others: Fact, regions: tuple[Graph]) -> list[Type]:
    return [SequenceType(out.type) for out in regions[0].outputs]


@op("any, any* -> any", types=_mapped_types, regions=1, host=True)
def sequence_map(sequence: Sequence[Any], *others: Any, regions: Sequence[Any]) -> tuple[list[Any], ...]:
    """The region's results for each element, one sequence a result. Of the other inputs, sequences (of equal length)
    give an element to each call, tensors are the same in all."""
    count = len(sequence)
    columns: list[list[Any]] = [item if isinstance(item, list) else [item] * count for item in (sequence, *others)]
    if any(len(column) != count for column in columns):
        raise ValueError(f"sequences of {[len(column) for column in columns]} elements are mapped together")
    rows = [regions[0].run(*row) for row in zip(*columns, strict=True)]
    return tuple([row[i] for row in rows] for i in range(len(regions[0].graph.outputs)))


# --- optionals


def _optional_types(x: Fact | None = None, *, kind: str) -> list[Type]:
    elem = parse_type(kind) if x is None else x.type
    return [elem if isinstance(elem, OptionalType) else OptionalType(elem)]


def _optional_samples(rng: Rng, dtype: DType) -> Any:
    yield None, {"kind": "seq<f32[2, 3]>"}
    yield _sequence(rng), {}
    yield draw(rng, dtypes.i64, (2, 3)), {}


@op("any? -> any", types=_optional_types, host=True, samples=listed(_optional_samples))
def optional(x: Any = None, *, kind: str = "") -> Any:
    """x as an optional; without x an empty one, for a value of the type that `kind` describes."""
    return x


def _has_types(x: Fact) -> list[Type]:
    return [TensorType(dtypes.boolean, ())]


@op("any -> bool", types=_has_types, host=True, samples=listed(lambda rng, dtype: [(_sequence(rng), {})]))
def optional_has(x: Any) -> Array:
    """Whether an optional holds a value."""
    return np.asarray(x is not None)


def _held(x: Fact) -> list[Type]:
    return [x.type.elem if isinstance(x.type, OptionalType) else x.type]


@op("any -> any", types=_held, host=True, samples=listed(lambda rng, dtype: [(_sequence(rng), {})]))
def optional_get(x: Any) -> Any:
    """The value that an optional holds; an error if it is empty."""
    if x is None:
        raise ValueError("the optional is empty")
    return x
